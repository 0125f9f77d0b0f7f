//! Moments as text: ISO 8601, in UTC, with milliseconds.

use std::fmt;

use super::clock::Timestamp;

/// Writes the moment in ISO 8601, such as `2027-01-15T08:00:00.000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (millis, seconds) = (self.as_millis() % 1000, self.as_millis() / 1000);
        let (second, minute, hour) = (seconds % 60, seconds / 60 % 60, seconds / 3600 % 24);
        let (year, month, day) = date(seconds / 86_400);
        if year > 9999 {
            write!(f, "{}", year / 10_000)?;
        }
        // Each poll of a task writes two of these: the formatter would take ten times as long.
        let mut text = *b"0000-00-00T00:00:00.000Z";
        write_number(&mut text[0..4], year);
        write_number(&mut text[5..7], month);
        write_number(&mut text[8..10], day);
        write_number(&mut text[11..13], hour);
        write_number(&mut text[14..16], minute);
        write_number(&mut text[17..19], second);
        write_number(&mut text[20..23], millis);
        f.write_str(str::from_utf8(&text).expect("all of it is ASCII"))
    }
}

/// Writes the last digits of a number, as many as there is room for.
fn write_number(to: &mut [u8], mut number: u64) {
    for digit in to.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The date of a day, counted from 1970. Years begin in March here, so that a leap day is the last of its year.
fn date(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468; // from March of the year 0
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_iso_8601() {
        let written = |seconds: u64| Timestamp::from_millis(seconds * 1000 + 7).to_string();
        assert_eq!(written(0), "1970-01-01T00:00:00.007Z");
        assert_eq!(written(951_782_399), "2000-02-28T23:59:59.007Z");
        assert_eq!(written(951_782_400), "2000-02-29T00:00:00.007Z");
        assert_eq!(written(951_868_800), "2000-03-01T00:00:00.007Z");
        assert_eq!(written(1_800_000_000), "2027-01-15T08:00:00.007Z");
        assert_eq!(written(4_107_542_399), "2100-02-28T23:59:59.007Z");
        assert_eq!(written(4_107_542_400), "2100-03-01T00:00:00.007Z");
        assert_eq!(written(253_402_300_799), "9999-12-31T23:59:59.007Z");
        assert_eq!(written(253_402_300_800), "10000-01-01T00:00:00.007Z");
    }
}
