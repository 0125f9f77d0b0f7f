//! Horizontal bars, so that their names can be read.

use super::{
    figure,
    picture::{LINE, MARGIN, Picture, WIDTH, width},
    scale::Scale,
};

const BAR: f64 = 12.0;
const GAP: f64 = 8.0;

/// Values side by side: a group for each thing that was measured, with a bar for each series.
pub(crate) struct Bars {
    title: String,
    axis: String,
    series: Vec<String>,
    groups: Vec<(String, Vec<f64>)>,
    marks: Vec<(f64, String)>,
}

impl Bars {
    /// A chart without bars. The axis names the unit, or what a value is a multiple of.
    pub(crate) fn new(title: impl Into<String>, axis: impl Into<String>) -> Self {
        Self { title: title.into(), axis: axis.into(), series: Vec::new(), groups: Vec::new(), marks: Vec::new() }
    }

    /// Sets the names of the bars in each group, if there are several.
    pub(crate) fn series<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.series = names.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a group, with a value for each series. A value that is not finite was not measured.
    pub(crate) fn group(mut self, name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        self.groups.push((name.into(), values.into_iter().collect()));
        self
    }

    /// Adds a line across all bars, such as the reference or the goal.
    pub(crate) fn mark(mut self, at: f64, name: impl Into<String>) -> Self {
        self.marks.push((at, name.into()));
        self
    }

    pub(super) fn draw(&self, picture: &mut Picture) {
        picture.heading(&self.title, &self.series);
        let names = self.groups.iter().map(|(name, _)| width(name)).fold(0.0, f64::max);
        let left = MARGIN + names.min(WIDTH / 2.0) + 8.0;
        // The figure at the end of the longest bar needs space as well.
        let right = WIDTH - MARGIN - 48.0;
        let values = self.groups.iter().flat_map(|(_, values)| values).copied();
        let scale = Scale::from_zero(values.chain(self.marks.iter().map(|(at, _)| *at)), left, right);

        let rows: usize = self.groups.iter().map(|(_, values)| values.len()).sum();
        picture.top += LINE * if self.marks.is_empty() { 0.5 } else { 1.5 };
        let top = picture.top;
        let bottom = top + rows as f64 * BAR + self.groups.len() as f64 * GAP + GAP;
        for tick in scale.ticks() {
            let x = scale.place(tick);
            picture.line("grid", (x, top), (x, bottom));
            picture.words(x, bottom + LINE * 0.8, "quiet", "middle", &figure(tick));
        }
        picture.words((left + right) / 2.0, bottom + LINE * 1.8, "quiet", "middle", &self.axis);

        let mut y = top + GAP;
        for (name, values) in &self.groups {
            let middle = y + values.len() as f64 * BAR / 2.0;
            picture.words(left - 8.0, middle + 4.0, "", "end", name);
            for (series, value) in values.iter().enumerate() {
                let end = if value.is_finite() { scale.place(*value) } else { left };
                picture.rect(series, left, y, end - left, BAR - 1.0);
                picture.words(end + 5.0, y + BAR - 2.0, "", "start", &figure(*value));
                y += BAR;
            }
            y += GAP;
        }
        for (at, name) in &self.marks {
            let x = scale.place(*at);
            picture.line("mark", (x, top - 4.0), (x, bottom));
            picture.words(x, top - 8.0, "quiet", "middle", name);
        }
        picture.top = bottom + LINE * 2.0;
    }
}
