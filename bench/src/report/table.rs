//! Tables in Markdown.

use std::fmt;

/// A table. Its first column has the names of its rows.
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<C: Into<String>>(head: impl IntoIterator<Item = C>) -> Self {
        Self { head: head.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row, with as many cells as the header has.
    pub(crate) fn push<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let row: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(row.len(), self.head.len(), "a row has a cell for every column: {row:?}");
        self.rows.push(row);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| {} |", self.head.join(" | "))?;
        writeln!(f, "|---|{}", "--:|".repeat(self.head.len().saturating_sub(1)))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "| {} |", row.join(" | ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_left_and_figures_right() {
        let mut table = Table::new(["payload", "seal", "open"]);
        table.push(["64 B", "1.20", "1.10"]);
        assert_eq!(table.to_string(), "| payload | seal | open |\n|---|--:|--:|\n| 64 B | 1.20 | 1.10 |\n");
    }
}
