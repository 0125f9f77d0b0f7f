//! Moments as text: ISO 8601, in UTC, with milliseconds.

use std::fmt;

use super::clock::Timestamp;

/// Writes the moment in ISO 8601, such as `2027-01-15T08:00:00.000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (millis, seconds) = (self.as_millis() % 1000, self.as_millis() / 1000);
        let (second, minute, hour) = (seconds % 60, seconds / 60 % 60, seconds / 3600 % 24);
        let (year, month, day) = date(seconds / 86_400);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
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
    }
}
