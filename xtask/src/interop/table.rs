//! The table of pairings, and the document that contains it.

use std::{fs, path::PathBuf};

use super::WRITE;

/// One pairing: a program of another project, and the result of running it with one of ours.
pub(super) struct Row {
    pub(super) peer: &'static str,
    pub(super) version: String,
    pub(super) era: &'static str,
    pub(super) transport: &'static str,
    pub(super) exercised: String,
    pub(super) result: String,
}

/// The rows as Markdown.
pub(super) fn of(rows: &[Row]) -> String {
    let mut table = "| peer | version | era | transport | exercised | result |\n|---|---|---|---|---|---|\n".to_owned();
    for Row { peer, version, era, transport, exercised, result } in rows {
        let cells = [peer, version.as_str(), era, transport, exercised.as_str(), result.as_str()];
        table.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    table
}

/// The document with the table, between two marker lines.
pub(super) struct Document(pub(super) PathBuf);

const BEGIN: &str = "<!-- The table is written by `cargo xtask interop --write`. -->\n";
const END: &str = "<!-- Here it ends. -->\n";

impl Document {
    /// Fails if the recorded table is not this one.
    pub(super) fn compare(&self, table: &str) -> Result<(), String> {
        let text = self.read()?;
        let written = parts(&text)?.1;
        if written == table {
            return Ok(());
        }
        let mut problem = "the table in guide/interop.md differs:\n".to_owned();
        for (sign, lines, others) in [("-", written, table), ("+", table, written)] {
            for line in lines.lines().filter(|line| !others.lines().any(|other| other == *line)) {
                problem.push_str(&format!("{sign} {line}\n"));
            }
        }
        Err(format!("{problem}If the new table is right, record it:\n  cargo {WRITE}"))
    }

    /// Records the table.
    pub(super) fn write(&self, table: &str) -> Result<(), String> {
        let text = self.read()?;
        let (before, _, after) = parts(&text)?;
        fs::write(&self.0, [before, table, after].concat())
            .map_err(|error| format!("cannot write guide/interop.md: {error}"))
    }

    fn read(&self) -> Result<String, String> {
        fs::read_to_string(&self.0).map_err(|error| format!("cannot read guide/interop.md: {error}"))
    }
}

/// The text before the table, the table, and the text after it.
fn parts(text: &str) -> Result<(&str, &str, &str), String> {
    let begin = text.find(BEGIN).map(|at| at + BEGIN.len());
    let end = text.find(END);
    match (begin, end) {
        (Some(begin), Some(end)) if begin <= end => Ok((&text[..begin], &text[begin..end], &text[end..])),
        _ => Err("guide/interop.md has no marker lines for the table".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(result: &str) -> String {
        of(&[Row {
            peer: "a client",
            version: "1.2".to_owned(),
            era: "2026-07-28",
            transport: "HTTP",
            exercised: "all".to_owned(),
            result: result.to_owned(),
        }])
    }

    #[test]
    fn a_stale_table_is_told_how_to_write_it_and_then_fits() {
        let document = Document(std::env::temp_dir().join(format!("xtask-table-{}.md", std::process::id())));
        fs::write(&document.0, format!("Before.\n{BEGIN}{}{END}After.\n", table("fail"))).unwrap();
        let stale = document.compare(&table("pass")).unwrap_err();
        let differ = "\n- | a client | 1.2 | 2026-07-28 | HTTP | all | fail |\n+ | a client | 1.2 | 2026-07-28 | HTTP | all | pass |\n";
        assert!(stale.contains(differ), "{stale}");
        assert!(stale.ends_with("cargo xtask interop --write"), "{stale}");
        document.write(&table("pass")).unwrap();
        document.compare(&table("pass")).unwrap();
        let text = document.read().unwrap();
        assert!(text.starts_with("Before.\n") && text.ends_with("After.\n"), "{text}");
        fs::remove_file(document.0).unwrap();
    }

    #[test]
    fn a_row_is_a_line_of_six_cells() {
        let table = table("pass");
        assert_eq!(table.lines().last(), Some("| a client | 1.2 | 2026-07-28 | HTTP | all | pass |"));
    }
}
