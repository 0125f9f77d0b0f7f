//! Durations as the user types them (`90s`, `10m`, `1h`, `250ms`), and as they are shown.

use std::time::Duration;

/// Parses a whole number and its unit.
pub(crate) fn parse(text: &str) -> Result<Duration, Unreadable> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(Unreadable::NoNumber);
    }
    let number: u64 = number.parse().map_err(|_| Unreadable::TooLong)?;
    let seconds = match unit {
        "ms" => return Ok(Duration::from_millis(number)),
        "s" => Some(number),
        "m" => number.checked_mul(60),
        "h" => number.checked_mul(60 * 60),
        "" => return Err(Unreadable::NoUnit { number }),
        _ => return Err(Unreadable::UnknownUnit { unit: unit.to_owned() }),
    };
    seconds.map(Duration::from_secs).ok_or(Unreadable::TooLong)
}

/// A duration for display: whole seconds, in its two largest units.
pub(crate) fn rough(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let first = units.iter().position(|(count, _)| *count > 0).unwrap_or(units.len() - 1);
    let told = units.iter().skip(first).take(2).enumerate().filter(|(at, (count, _))| *at == 0 || *count > 0);
    told.map(|(_, (count, unit))| format!("{count}{unit}")).collect::<Vec<_>>().join(" ")
}

/// Reason why a text is not a duration.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("a duration is a whole number and a unit, such as 250ms, 90s, 10m or 1h")]
    NoNumber,
    #[error("it has no unit: write {number}s for seconds, or use ms, m or h")]
    NoUnit { number: u64 },
    #[error("`{unit}` is not a unit: use ms, s, m or h")]
    UnknownUnit { unit: String },
    #[error("it is too large")]
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_with_a_unit_is_a_duration() {
        for (text, millis) in [("250ms", 250), ("90s", 90_000), ("10m", 600_000), ("1h", 3_600_000), ("0s", 0)] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn people_are_told_the_two_largest_units() {
        for (seconds, told) in [(0, "0s"), (59, "59s"), (600, "10m"), (605, "10m 5s"), (7_201, "2h"), (90_000, "1d 1h")]
        {
            assert_eq!(rough(Duration::from_secs(seconds)), told);
        }
    }

    #[test]
    fn anything_else_is_told_what_is_wrong_with_it() {
        for text in ["", "m", "-1s", "ten minutes", " 1s", "٣s"] {
            assert_eq!(parse(text), Err(Unreadable::NoNumber), "{text}");
        }
        assert_eq!(parse("90"), Err(Unreadable::NoUnit { number: 90 }));
        for (text, unit) in [("1d", "d"), ("1.5h", ".5h"), ("1h30m", "h30m"), ("1 s", " s"), ("1S", "S")] {
            assert_eq!(parse(text), Err(Unreadable::UnknownUnit { unit: unit.to_owned() }), "{text}");
        }
        for text in ["99999999999999999999s", "18446744073709551615h"] {
            assert_eq!(parse(text), Err(Unreadable::TooLong), "{text}");
        }
    }
}
