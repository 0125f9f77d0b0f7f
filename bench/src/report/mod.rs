//! The results of a run: Markdown on the screen, and with `--write` the tables and plots of the guide `performance`.

mod bars;
mod lines;
mod picture;
mod scale;
mod table;

use std::{
    error::Error,
    fmt, fs,
    path::{Path, PathBuf},
};

pub(crate) use self::{bars::Bars, lines::Lines, table::Table};

/// The results of one section.
pub(crate) struct Section {
    /// The name on the command line, and of its marker and its picture.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What was compared, and how often it was measured. Markdown.
    pub(crate) text: String,
    pub(crate) table: Table,
    /// Drawn one below the other, in one picture.
    pub(crate) plots: Vec<Plot>,
}

/// A chart.
pub(crate) enum Plot {
    Bars(Bars),
    Lines(Lines),
}

impl From<Bars> for Plot {
    fn from(bars: Bars) -> Self {
        Self::Bars(bars)
    }
}

impl From<Lines> for Plot {
    fn from(lines: Lines) -> Self {
        Self::Lines(lines)
    }
}

impl Section {
    /// Replaces the text of this section in the guide `performance`, and its picture.
    pub(crate) fn write(&self) -> Result<(), Box<dyn Error>> {
        let page = root().join("crates/rounds/src/guide/performance.md");
        let text = fs::read_to_string(&page).map_err(|error| format!("cannot read {}: {error}", page.display()))?;
        let mut found = self.found();
        if !self.plots.is_empty() {
            let pictures = root().join("docs/performance");
            fs::create_dir_all(&pictures)?;
            let picture = pictures.join(format!("{}.svg", self.name));
            fs::write(&picture, picture::draw(self.title, &self.plots))
                .map_err(|error| format!("cannot write {}: {error}", picture.display()))?;
            found += &format!("\n![{}](../../../../docs/performance/{}.svg)\n", self.title, self.name);
        }
        fs::write(&page, replace(&text, self.name, &found)?)?;
        Ok(())
    }

    fn found(&self) -> String {
        format!("{}\n\n{}", self.text.trim(), self.table)
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "## {}\n\n{}", self.title, self.found())
    }
}

/// A figure with three significant digits.
pub(crate) fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => whole(value),
    }
}

/// A whole number, with commas between thousands.
pub(crate) fn whole(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::from(if value < 0.0 { "-" } else { "" });
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The page with new content between the two markers of this name, which stay.
fn replace(page: &str, name: &str, content: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- bench:{name} -->\n"), format!("<!-- /bench:{name} -->\n"));
    let missing = || {
        format!(
            "guide/performance.md has no place for `{name}`: give it the lines `{}` and `{}`",
            begin.trim(),
            end.trim()
        )
    };
    let (before, rest) = page.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}\n{}\n\n{end}{after}", content.trim()))
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Performance\n\n<!-- bench:seal -->\nold\n<!-- /bench:seal -->\n\n\
                        <!-- bench:fleet -->\n<!-- /bench:fleet -->\nThe end.\n";

    #[test]
    fn only_what_stands_between_the_markers_is_replaced_and_it_can_be_replaced_again() {
        let once = replace(PAGE, "seal", "new").unwrap();
        assert_eq!(once, PAGE.replace("old\n", "\nnew\n\n"));
        assert_eq!(replace(&once, "seal", "new").unwrap(), once);
        let both = replace(&once, "fleet", "fast").unwrap();
        assert!(both.contains("\nnew\n") && both.contains("\nfast\n") && both.ends_with("The end.\n"), "{both}");
    }

    #[test]
    fn a_page_without_the_markers_says_which_are_missing() {
        let missing = replace(PAGE, "client", "new").unwrap_err();
        assert!(missing.contains("`<!-- bench:client -->` and `<!-- /bench:client -->`"), "{missing}");
        let unfinished = PAGE.replace("<!-- /bench:fleet -->\n", "");
        assert!(replace(&unfinished, "fleet", "new").is_err());
    }

    #[test]
    fn a_figure_has_three_digits_that_count() {
        assert_eq!(figure(0.0), "0");
        let shown = [0.5, 1.049, 12.34, 123.4, 1234.0, 1_234_567.0, f64::NAN].map(figure);
        assert_eq!(shown, ["0.50", "1.05", "12.3", "123", "1,234", "1,234,567", "–"]);
    }
}
