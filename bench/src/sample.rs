//! Times, measured in turns.

use std::time::{Duration, Instant};

/// The times of one thing.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    times: Vec<Duration>,
}

impl Sample {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, times: Vec::new() }
    }

    /// Measures the time of a future.
    pub(crate) async fn time<T>(&mut self, run: impl Future<Output = T>) -> T {
        let start = Instant::now();
        let output = run.await;
        self.times.push(start.elapsed());
        output
    }

    /// Measures one call by repeating it, because the clock is too coarse for a microsecond.
    pub(crate) fn time_each(&mut self, times: u32, mut run: impl FnMut()) {
        let start = Instant::now();
        for _ in 0..times {
            run();
        }
        self.times.push(start.elapsed() / times);
    }

    /// The median, which a single slow moment of a busy machine does not move.
    pub(crate) fn median(&self) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }

    /// The median in microseconds.
    pub(crate) fn micros(&self) -> f64 {
        self.median().as_secs_f64() * 1e6
    }

    /// The time as a multiple of the reference: the median over the turns, each of which has both. A slowdown of the
    /// machine that lasts longer than a turn affects both.
    pub(crate) fn ratio_to(&self, reference: &Self) -> f64 {
        let turns = self.times.iter().zip(&reference.times);
        let mut ratios: Vec<f64> = turns.map(|(time, unit)| time.as_secs_f64() / unit.as_secs_f64()).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(times: &[u64]) -> Sample {
        Sample { name: "", times: times.iter().copied().map(Duration::from_micros).collect() }
    }

    #[test]
    fn the_median_is_not_moved_by_one_slow_moment() {
        assert_eq!(sample(&[3, 1, 2, 900, 2]).median(), Duration::from_micros(2));
        assert_eq!(Sample::new("").median(), Duration::ZERO);
    }

    #[test]
    fn a_ratio_is_not_moved_by_a_machine_that_becomes_slower() {
        let (reference, twice) = (sample(&[10, 10, 40, 40, 40]), sample(&[20, 20, 80, 80, 900]));
        assert_eq!(twice.ratio_to(&reference), 2.0);
        assert!(Sample::new("").ratio_to(&reference).is_nan());
    }
}
