//! Log lines that a client can cause: limited in number and length.

use std::{
    fmt::{self, Debug, Write},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Lets one line per second pass, and counts the others.
pub(crate) struct Rare(Mutex<Option<(Instant, u64)>>);

impl Rare {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Whether a line may be written now: if so, returns how many were suppressed since the last one.
    pub(crate) fn passes(&self) -> Option<u64> {
        self.passes_at(Instant::now())
    }

    fn passes_at(&self, now: Instant) -> Option<u64> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *last {
            Some((at, left_out)) if now.saturating_duration_since(*at) < Duration::from_secs(1) => {
                *left_out += 1;
                None
            }
            last => Some(last.replace((now, 0)).map_or(0, |(_, left_out)| left_out)),
        }
    }
}

/// A value for the log: at most 256 characters of its `Debug` output.
pub(crate) struct Cut<'a, T>(pub(crate) &'a T);

impl<T: Debug> Debug for Cut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Short<'a, 'b> {
            to: &'a mut fmt::Formatter<'b>,
            left: usize,
        }

        impl Write for Short<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                let end = text.char_indices().nth(self.left).map_or(text.len(), |(end, _)| end);
                self.left -= text[..end].chars().count();
                self.to.write_str(&text[..end])?;
                // The rest is not formatted at all.
                if end < text.len() { Err(fmt::Error) } else { Ok(()) }
            }
        }

        let mut short = Short { to: f, left: 256 };
        match write!(short, "{:?}", self.0) {
            Ok(()) => Ok(()),
            Err(_) => f.write_str("…"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_passes_with_the_number_of_the_others() {
        let (rare, start) = (Rare::new(), Instant::now());
        let at = |millis| rare.passes_at(start + Duration::from_millis(millis));
        assert_eq!(at(0), Some(0));
        assert_eq!((at(1), at(999)), (None, None));
        assert_eq!(at(1000), Some(2));
        assert_eq!(at(5000), Some(0));
    }

    #[test]
    fn a_long_value_is_cut() {
        assert_eq!(format!("{:?}", Cut(&"short\n")), r#""short\n""#);
        let long = format!("{:?}", Cut(&"ö".repeat(4 << 20)));
        assert_eq!(long, format!("\"{}…", "ö".repeat(255)));
        assert_eq!(format!("{:?}", Cut(&vec![7; 1 << 20])).chars().count(), 257);
    }
}
