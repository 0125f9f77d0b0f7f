//! Times, taken in turns.

use std::time::{Duration, Instant};

/// Times of one thing.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    times: Vec<Duration>,
}

impl Sample {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, times: Vec::new() }
    }

    /// Takes the time of this.
    pub(crate) async fn time<T>(&mut self, run: impl Future<Output = T>) -> T {
        let start = Instant::now();
        let output = run.await;
        self.times.push(start.elapsed());
        output
    }

    /// The median, which one slow moment of a busy machine does not move.
    pub(crate) fn median(&self) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_not_moved_by_one_slow_moment() {
        let times = [3, 1, 2, 900, 2].map(Duration::from_micros).to_vec();
        assert_eq!(Sample { name: "", times }.median(), Duration::from_micros(2));
        assert_eq!(Sample::new("").median(), Duration::ZERO);
    }
}
