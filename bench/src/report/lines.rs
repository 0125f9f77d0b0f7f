//! Curves over a linear or logarithmic axis.

use super::{
    figure,
    picture::{LINE, MARGIN, Picture, WIDTH},
    scale::Scale,
};

const HEIGHT: f64 = 220.0;

/// Values as functions of another quantity.
pub(crate) struct Lines {
    title: String,
    x_axis: String,
    y_axis: String,
    log: bool,
    series: Vec<String>,
    curves: Vec<Vec<(f64, f64)>>,
    marks: Vec<(f64, String)>,
}

impl Lines {
    /// A chart without curves, with a linear axis.
    pub(crate) fn new(title: impl Into<String>, x_axis: impl Into<String>, y_axis: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            x_axis: x_axis.into(),
            y_axis: y_axis.into(),
            log: false,
            series: Vec::new(),
            curves: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// Makes the horizontal axis logarithmic. Its values are above zero.
    pub(crate) fn log(mut self) -> Self {
        self.log = true;
        self
    }

    /// Adds a curve.
    pub(crate) fn curve(mut self, name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.series.push(name.into());
        self.curves.push(points.into_iter().collect());
        self
    }

    /// Adds a horizontal line, such as the reference or the goal.
    pub(crate) fn mark(mut self, at: f64, name: impl Into<String>) -> Self {
        self.marks.push((at, name.into()));
        self
    }

    pub(super) fn draw(&self, picture: &mut Picture) {
        picture.heading(&self.title, &self.series);
        let points = || self.curves.iter().flatten().copied();
        let (left, right) = (MARGIN + 62.0, WIDTH - MARGIN - 24.0);
        picture.top += LINE * 1.7;
        let (top, bottom) = (picture.top, picture.top + HEIGHT);
        let values = points().map(|(_, y)| y).chain(self.marks.iter().map(|(at, _)| *at));
        let vertical = Scale::from_zero(values, bottom, top);
        let across: Vec<f64> = points().map(|(x, _)| x).collect();
        let horizontal = match self.log {
            true => Scale::log(across.iter().copied(), left, right),
            false => Scale::from_zero(across.iter().copied(), left, right),
        };

        picture.words(MARGIN, top - 14.0, "quiet", "start", &self.y_axis);
        for tick in vertical.ticks() {
            let y = vertical.place(tick);
            picture.line("grid", (left, y), (right, y));
            picture.words(left - 8.0, y + 4.0, "quiet", "end", &figure(tick));
        }
        // On a logarithmic axis, the measured values are the ticks.
        let mut named = if self.log { across } else { horizontal.ticks() };
        named.sort_by(f64::total_cmp);
        named.dedup();
        for tick in named {
            let x = horizontal.place(tick);
            picture.line("grid", (x, bottom), (x, bottom + 4.0));
            picture.words(x, bottom + LINE, "quiet", "middle", &plain(tick));
        }
        picture.words((left + right) / 2.0, bottom + LINE * 2.0, "quiet", "middle", &self.x_axis);

        for (at, name) in &self.marks {
            let y = vertical.place(*at);
            picture.line("mark", (left, y), (right, y));
            picture.words(right, y - 5.0, "quiet", "end", name);
        }
        for (series, curve) in self.curves.iter().enumerate() {
            let places: Vec<_> = curve.iter().map(|(x, y)| (horizontal.place(*x), vertical.place(*y))).collect();
            picture.curve(series, &places);
        }
        picture.top = bottom + LINE * 2.0;
    }
}

/// Formats a whole number without a decimal point.
fn plain(value: f64) -> String {
    if value.fract() == 0.0 { super::whole(value) } else { figure(value) }
}
