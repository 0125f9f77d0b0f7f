//! The picture of a section: SVG written by hand, because it has only bars, lines and text. It is readable on light and
//! dark pages, and embeds no font.

use std::fmt::Write as _;

use super::Plot;

pub(super) const WIDTH: f64 = 760.0;
/// Margin on the left and on the right.
pub(super) const MARGIN: f64 = 16.0;
/// Distance between two lines of text.
pub(super) const LINE: f64 = 18.0;
/// Number of colours: more series could not be told apart.
pub(super) const COLOURS: usize = 6;

const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.title { font-size: 14px; font-weight: 600; }
.quiet { fill: #59636e; }
.page { fill: #ffffff; }
.grid { stroke: #d1d9e0; stroke-width: 1; }
.mark { stroke: #1f2328; stroke-width: 1.5; stroke-dasharray: 5 3; }
.curve { fill: none; stroke-width: 2; }
.f0 { fill: #0969da; } .f1 { fill: #bc4c00; } .f2 { fill: #1a7f37; } .f3 { fill: #8250df; } .f4 { fill: #9a6700; } .f5 { fill: #bf3989; }
.s0 { stroke: #0969da; } .s1 { stroke: #bc4c00; } .s2 { stroke: #1a7f37; } .s3 { stroke: #8250df; } .s4 { stroke: #9a6700; } .s5 { stroke: #bf3989; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.quiet { fill: #9198a1; }
.page { fill: #0d1117; }
.grid { stroke: #3d444d; }
.mark { stroke: #f0f6fc; }
.f0 { fill: #4493f8; } .f1 { fill: #f0883e; } .f2 { fill: #3fb950; } .f3 { fill: #ab7df8; } .f4 { fill: #d29922; } .f5 { fill: #db61a2; }
.s0 { stroke: #4493f8; } .s1 { stroke: #f0883e; } .s2 { stroke: #3fb950; } .s3 { stroke: #ab7df8; } .s4 { stroke: #d29922; } .s5 { stroke: #db61a2; }
}";

/// All plots of a section, one below the other.
pub(super) fn draw(title: &str, plots: &[Plot]) -> String {
    let mut picture = Picture::default();
    for plot in plots {
        match plot {
            Plot::Bars(bars) => bars.draw(&mut picture),
            Plot::Lines(lines) => lines.draw(&mut picture),
        }
    }
    let height = picture.top + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">\n<title>{}</title>\n<style>\n{STYLE}\n</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n{}</svg>\n",
        escaped(title),
        picture.drawn
    )
}

/// The drawing so far. The next plot begins at `top`.
#[derive(Default)]
pub(super) struct Picture {
    pub(super) top: f64,
    drawn: String,
}

impl Picture {
    /// The title of a plot and, if there are several series, the legend of their colours.
    pub(super) fn heading(&mut self, title: &str, series: &[String]) {
        self.top += MARGIN + LINE;
        self.words(MARGIN, self.top, "title", "start", title);
        self.top += LINE * 0.5;
        if series.len() < 2 {
            return;
        }
        self.top += LINE;
        let mut left = MARGIN;
        for (place, name) in series.iter().enumerate() {
            self.rect(place, left, self.top - 10.0, 10.0, 10.0);
            self.words(left + 15.0, self.top, "", "start", name);
            left += 35.0 + width(name);
        }
        self.top += LINE * 0.5;
    }

    pub(super) fn words(&mut self, x: f64, y: f64, class: &str, anchor: &str, words: &str) {
        let words = escaped(words);
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{words}</text>"
        ));
    }

    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.put(format_args!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"));
    }

    pub(super) fn rect(&mut self, series: usize, x: f64, y: f64, width: f64, height: f64) {
        let colour = series % COLOURS;
        self.put(format_args!(
            "<rect class=\"f{colour}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             rx=\"1.5\"/>"
        ));
    }

    /// A curve through these points, each with a dot.
    pub(super) fn curve(&mut self, series: usize, places: &[(f64, f64)]) {
        let colour = series % COLOURS;
        let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.put(format_args!("<polyline class=\"curve s{colour}\" points=\"{}\"/>", points.join(" ")));
        for (x, y) in places {
            self.put(format_args!("<circle class=\"f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"));
        }
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.drawn, "{element}");
    }
}

/// Approximate width of a text, because no font can be measured.
pub(super) fn width(words: &str) -> f64 {
    words.chars().count() as f64 * 6.6
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{super::Bars, *};

    #[test]
    fn words_are_never_markup_and_the_picture_is_as_high_as_its_plots() {
        let one = draw("a < b & c", &[Bars::new("<b>", "x").group("R&D", [1.0]).into()]);
        assert!(
            one.contains("<title>a &lt; b &amp; c</title>") && one.contains("&lt;b&gt;") && one.contains("R&amp;D")
        );
        let both = draw("", &[Bars::new("", "").group("a", [1.0]).into(), Bars::new("", "").group("a", [1.0]).into()]);
        let height = |picture: &str| -> f64 {
            let (_, rest) = picture.split_once("height=\"").unwrap();
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        assert!(height(&both) > 1.5 * height(&one));
    }
}
