//! Moments and durations in words.

use std::time::Duration;

use maud::{Markup, html};
use rounds::time::Timestamp;

/// How long ago a moment was, with the moment itself for machines and as a tooltip.
pub(crate) fn ago(now: Timestamp, then: Timestamp) -> Markup {
    let words = match now.since(then) {
        passed if passed < Duration::from_secs(1) => "just now".to_owned(),
        passed => format!("{} ago", length(passed)),
    };
    html! { time datetime=(then) title=(then) { (words) } }
}

/// How long it is until a moment.
pub(crate) fn left(now: Timestamp, until: Timestamp) -> Markup {
    let words = match until.since(now) {
        Duration::ZERO => "none".to_owned(),
        left => length(left),
    };
    html! { time datetime=(until) title=(until) { (words) } }
}

/// The time of day of a moment, in UTC.
pub(crate) fn clock(moment: Timestamp) -> Markup {
    let text = moment.to_string();
    // Of `2027-01-15T08:00:00.000Z`, without the date and the zone.
    let time = text.get(11..23).unwrap_or_default();
    html! { time datetime=(text) title=(text) { (time) } }
}

/// A duration in its largest unit, rounded down.
pub(crate) fn length(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_in_their_largest_unit() {
        for (seconds, words) in [(1, "1 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (172_800, "2 days")] {
            assert_eq!(length(Duration::from_secs(seconds)), words);
        }
        assert_eq!(length(Duration::from_millis(7)), "7 ms");
    }

    #[test]
    fn a_time_that_is_over_is_none_and_one_that_comes_is_just_now() {
        let at = Timestamp::from_millis;
        assert!(left(at(2000), at(1000)).into_string().contains(">none<"));
        assert!(ago(at(1000), at(2000)).into_string().contains(">just now<"), "clocks differ");
        assert!(clock(at(1_800_000_000_007)).into_string().contains(">08:00:00.007<"));
    }
}
