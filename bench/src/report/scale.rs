//! Axes: the place of a value, and the values of the ticks.

/// Maps values to places on the picture, between `from` and `to`.
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    log: bool,
}

impl Scale {
    /// From zero to a round number that is not below any of these.
    pub(super) fn from_zero(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Self {
        let largest = values.into_iter().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let step = step(largest);
        let high = if largest > 0.0 { (largest / step).ceil() * step } else { 1.0 };
        Self { low: 0.0, high, from, to, log: false }
    }

    /// A logarithmic axis from the least of these to the largest. They are above zero.
    pub(super) fn log(values: impl IntoIterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let low = values.clone().into_iter().fold(f64::INFINITY, f64::min);
        let high = values.into_iter().fold(0.0, f64::max);
        Self { low, high, from, to, log: true }
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        let (value, low, high) = match self.log {
            true => (value.ln(), self.low.ln(), self.high.ln()),
            false => (value, self.low, self.high),
        };
        // A single value is in the middle of the axis.
        let share = if high > low { (value - low) / (high - low) } else { 0.5 };
        self.from + share * (self.to - self.from)
    }

    /// Round values from the low end to the high end.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let step = step(self.high);
        let mut ticks = Vec::new();
        let mut count = 0.0;
        while count * step <= self.high + step / 1e3 {
            ticks.push(count * step);
            count += 1.0;
        }
        ticks
    }
}

/// 1, 2 or 5 times a power of ten, so that four to ten of them make up the largest value.
fn step(largest: f64) -> f64 {
    if largest <= 0.0 {
        return 0.25;
    }
    let power = 10f64.powf((largest / 4.0).log10().floor());
    let times = [5.0, 2.0].into_iter().find(|times| largest / (power * times) >= 4.0);
    power * times.unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_begins_at_zero_and_ends_at_a_round_number_above_everything() {
        let scale = Scale::from_zero([0.3, 1.7, f64::NAN], 100.0, 300.0);
        assert_eq!(scale.place(0.0), 100.0);
        assert!(scale.place(1.7) <= 300.0 && scale.place(1.7) > 250.0, "{}", scale.place(1.7));
        assert_eq!(scale.place(scale.high), 300.0);
        let ticks: Vec<String> = scale.ticks().iter().map(|tick| format!("{tick:.1}")).collect();
        assert_eq!(ticks, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0", "1.2", "1.4", "1.6", "1.8"]);
    }

    #[test]
    fn there_are_four_to_ten_steps_on_any_axis() {
        for largest in [0.001, 0.9, 1.0, 1.05, 3.0, 4.0, 7.5, 10.0, 99.0, 12_345.0, 8e9] {
            let steps = Scale::from_zero([largest], 0.0, 1.0).ticks().len() - 1;
            assert!((4..=11).contains(&steps), "{largest} has {steps}");
        }
        assert!(!Scale::from_zero([], 0.0, 1.0).ticks().is_empty());
    }

    #[test]
    fn on_a_logarithmic_axis_each_multiple_is_as_far_as_any_other() {
        let scale = Scale::log([1_000.0, 10_000.0, 100_000.0], 0.0, 100.0);
        assert_eq!([1_000.0, 10_000.0, 100_000.0].map(|value| scale.place(value).round()), [0.0, 50.0, 100.0]);
        assert_eq!(Scale::log([7.0], 0.0, 100.0).place(7.0), 50.0, "a single value is in the middle");
    }

    #[test]
    fn an_axis_may_go_upwards() {
        let scale = Scale::from_zero([4.0], 200.0, 20.0);
        assert_eq!((scale.place(0.0), scale.place(4.0)), (200.0, 20.0));
    }
}
