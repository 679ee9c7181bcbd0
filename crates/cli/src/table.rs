//! A table of text: columns as wide as needed, the first aligned left, numbers right.
use crate::output::escaped;
use std::borrow::Cow;
use std::fmt;

/// Rows of cells; the first is the header.
pub struct Table(Vec<Vec<String>>);

impl Table {
    /// A table without rows.
    pub fn new(header: &[&str]) -> Table {
        Table(vec![header.iter().map(|h| h.to_string()).collect()])
    }

    /// Adds a row; missing cells are empty. What a terminal obeys is escaped, newlines too.
    pub fn row(&mut self, cells: Vec<String>) {
        let one_line = |cell: String| match escaped(&cell) {
            Cow::Borrowed(_) => cell,
            Cow::Owned(escaped) => escaped,
        };
        self.0.push(cells.into_iter().map(one_line).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = &self.0;
        let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
        let width = |column| cells(column).map(|c| c.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
        // A column with any word in it reads better from the left.
        let left = |column: usize| {
            let is_word = |cell: &String| cell.starts_with(|c: char| c == '/' || c.is_alphabetic());
            column == 0 || cells(column).skip(1).any(is_word)
        };
        for row in rows {
            let mut line = String::new();
            for (column, width) in widths.iter().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                let pad = " ".repeat(width - cell.chars().count());
                let (before, after) = if left(column) {
                    ("", pad.as_str())
                } else {
                    (pad.as_str(), "")
                };
                line.push_str(&format!("{before}{cell}{after}  "));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["what", "rate", "where"]);
        table.row(vec!["write".into(), "9 MiB/s".into(), "/mnt".into()]);
        table.row(vec!["r".into(), "10 MiB/s".into()]);
        assert_eq!(
            table.to_string(),
            "what       rate  where\nwrite   9 MiB/s  /mnt\nr      10 MiB/s\n"
        );
    }
}
