//! A table of text: aligned columns on a terminal, tab-separated lines in a pipe.
//!
//! | | terminal | pipe |
//! |---|---|---|
//! | header | first line | none |
//! | columns | aligned, two spaces apart | one tab apart |
//! | width | cut with `…`, first the last column, then the widest | whole |
//! | colour | yes | none |
//!
//! A cell is one line: line breaks and tabs become spaces, and what a terminal would obey is escaped.

use std::io::{BufWriter, Write};

use anstyle::Style;
use toolbay_policy::text::escape_hidden;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::output::{self, HEADING};

/// Spaces between two columns.
const GAP: usize = 2;
/// Least width that a cut column keeps.
const MIN_COLUMN: usize = 8;

/// One cell.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A cell in a style.
    pub(crate) fn styled(style: Style, text: impl AsRef<str>) -> Self {
        Self { text: one_line(text.as_ref()), style }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(Style::new(), text)
    }
}

/// Rows of cells below a header.
#[derive(Debug)]
pub(crate) struct TextTable {
    header: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    indent: usize,
    /// Columns whose cells are aligned to the right.
    right: Vec<usize>,
    min_widths: Vec<usize>,
    /// The first cell of each row in a pipe, where a command prints several tables.
    tag: Option<&'static str>,
}

impl TextTable {
    /// An empty table. Without a header, a terminal shows rows only.
    pub(crate) fn new<const N: usize>(header: [&'static str; N]) -> Self {
        Self {
            header: header.to_vec(),
            rows: Vec::new(),
            indent: 0,
            right: Vec::new(),
            min_widths: Vec::new(),
            tag: None,
        }
    }

    /// The same table, indented by this number of spaces on a terminal.
    pub(crate) fn with_indent(mut self, indent: usize) -> Self {
        self.indent = indent;
        self
    }

    /// The same table, whose rows begin with a word in a pipe: it tells the tables of one command apart.
    pub(crate) fn with_tag(mut self, tag: &'static str) -> Self {
        self.tag = Some(tag);
        self
    }

    /// The same table with these columns aligned to the right.
    pub(crate) fn with_numbers_in(mut self, columns: &[usize]) -> Self {
        self.right = columns.to_vec();
        self
    }

    /// The same table with columns of at least these widths: rows that are printed later line up with those above.
    pub(crate) fn with_min_widths(mut self, widths: &[usize]) -> Self {
        self.min_widths = widths.to_vec();
        self
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: impl IntoIterator<Item = Cell>) {
        self.rows.push(row.into_iter().collect());
    }

    /// Whether the table has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Prints the table on stdout, if it has rows, with an empty line before it on a terminal.
    pub(crate) fn print_section(&self) -> std::io::Result<()> {
        if !self.is_empty() && output::stdout_is_terminal() {
            writeln!(output::stdout())?;
        }
        self.print()
    }

    /// Prints the table on stdout, if it has rows.
    pub(crate) fn print(&self) -> std::io::Result<()> {
        // Whole pages at a time: a table may have thousands of lines.
        let mut out = BufWriter::new(output::stdout());
        out.write_all(self.render(output::stdout_width()).as_bytes())?;
        out.flush()
    }

    /// The table for a terminal of a width; `None`: for a pipe.
    pub(crate) fn render(&self, width: Option<usize>) -> String {
        let mut text = String::new();
        if self.rows.is_empty() {
            return text;
        }
        let Some(width) = width else {
            for row in &self.rows {
                let cells: Vec<&str> =
                    self.tag.into_iter().chain(row.iter().map(|cell| cell.text.as_str())).collect();
                text.push_str(&cells.join("\t"));
                text.push('\n');
            }
            return text;
        };
        let widths = self.widths(width);
        if self.header.iter().any(|title| !title.is_empty()) {
            let titles: Vec<Cell> = self.header.iter().map(|title| Cell::styled(HEADING, title)).collect();
            self.push_line(&mut text, &titles, &widths);
        }
        for row in &self.rows {
            self.push_line(&mut text, row, &widths);
        }
        text
    }

    fn push_line(&self, text: &mut String, row: &[Cell], widths: &[usize]) {
        let last = row.iter().rposition(|cell| !cell.text.is_empty());
        let mut line = " ".repeat(self.indent);
        for (column, (cell, width)) in
            row.iter().zip(widths).enumerate().take(last.map_or(0, |last| last + 1))
        {
            let shown = cut(&cell.text, *width);
            let padding = " ".repeat(width.saturating_sub(shown.width()));
            let style = cell.style;
            if self.right.contains(&column) {
                line.push_str(&padding);
            }
            line.push_str(&format!("{style}{shown}{style:#}"));
            if Some(column) != last {
                if !self.right.contains(&column) {
                    line.push_str(&padding);
                }
                line.push_str(&" ".repeat(GAP));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }

    /// The widths of the columns so that a line fits.
    fn widths(&self, width: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = self.header.iter().map(|title| title.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.width());
            }
        }
        for (width, min) in widths.iter_mut().zip(&self.min_widths) {
            *width = (*width).max(*min);
        }
        let room = width.saturating_sub(self.indent + GAP * widths.len().saturating_sub(1));
        let over = |widths: &[usize]| widths.iter().sum::<usize>().saturating_sub(room);
        if let Some(last) = widths.len().checked_sub(1) {
            let excess = over(&widths);
            let least = self.header.get(last).map_or(0, |title| title.width()).max(MIN_COLUMN);
            if let Some(width) = widths.get_mut(last) {
                *width = (*width).min((*width).saturating_sub(excess).max(least));
            }
        }
        while over(&widths) > 0 {
            let Some(widest) =
                widths.iter_mut().max_by_key(|width| **width).filter(|width| **width > MIN_COLUMN)
            else {
                break;
            };
            *widest -= 1;
        }
        widths
    }
}

/// Truncates a text to this number of columns.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        shown.push(c);
    }
    shown.truncate(shown.trim_end().len());
    shown.push('…');
    shown
}

fn one_line(text: &str) -> String {
    let text = escape_hidden(text);
    if text.contains(['\n', '\r', '\t']) { text.replace(['\n', '\r', '\t'], " ") } else { text.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TextTable {
        let mut table = TextTable::new(["TOOL", "TOOK", "DESCRIPTION"]).with_numbers_in(&[1]);
        table.push(["a__b".into(), "7 ms".into(), "Counts words, lines and characters".into()]);
        table.push(["a__long_name".into(), "12 ms".into(), "".into()]);
        table.push(["größe".into(), "".into(), "two\nlines\u{1b}[2J".into()]);
        table
    }

    #[test]
    fn a_pipe_gets_whole_cells_between_tabs() {
        let text = table().render(None);
        assert_eq!(
            text,
            "a__b\t7 ms\tCounts words, lines and characters\na__long_name\t12 ms\t\ngröße\t\ttwo lines\\u{1b}[2J\n"
        );
    }

    #[test]
    fn a_terminal_gets_aligned_columns_that_fit() {
        for (width, expected) in [
            (
                80,
                "TOOL           TOOK  DESCRIPTION\na__b           7 ms  Counts words, lines and characters\n\
                 a__long_name  12 ms\ngröße                two lines\\u{1b}[2J\n",
            ),
            (
                40,
                "TOOL           TOOK  DESCRIPTION\na__b           7 ms  Counts words, line…\n\
                 a__long_name  12 ms\ngröße                two lines\\u{1b}[2J\n",
            ),
        ] {
            let text = anstream::adapter::strip_str(&table().render(Some(width))).to_string();
            assert_eq!(text, expected, "{width}");
        }
        for width in [26, 30, 34] {
            let text = anstream::adapter::strip_str(&table().render(Some(width))).to_string();
            assert!(text.contains('…') && text.lines().all(|line| line.width() <= width), "{width}: {text}");
        }
    }

    #[test]
    fn a_wide_character_takes_two_columns() {
        assert_eq!(cut("漢字漢字", 5), "漢字…");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(TextTable::new(["A"]).render(Some(10)), "");
    }
}
