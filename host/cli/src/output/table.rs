//! A table of text: aligned columns on a terminal, tab-separated lines in a pipe.
//!
//! | | terminal | pipe |
//! |---|---|---|
//! | header | first line | none |
//! | columns | aligned, two spaces apart | one tab apart |
//! | width | wrapped, first the last column, then the widest; a description is cut with `…` | whole |
//! | colour | yes | none |
//!
//! A cell is one line: line breaks and tabs become spaces, and what a terminal would obey is escaped.

use std::io::{BufWriter, Write};

use anstyle::Style;
use toolbay_policy::hidden_chars::escape_hidden;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::output::{self, DIM, FAILURE, HEADING, SUCCESS};

/// Spaces between two columns.
const GAP: usize = 2;
/// Spaces before the rows below a heading.
const INDENT: usize = 2;
/// Least width that a narrowed column keeps.
const MIN_COLUMN: usize = 8;
/// Least width of a narrowed last column that is wrapped: it mostly has sentences.
const MIN_WRAPPED: usize = 24;
/// The column whose cells are cut. Another command shows a description whole; a reason or a name stands nowhere else.
const DESCRIPTION: &str = "DESCRIPTION";

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

    /// The lines that are granted.
    pub(crate) fn granted(lines: &[String]) -> Self {
        match lines {
            [] => Self::styled(FAILURE, "nothing"),
            lines => Self::styled(SUCCESS, lines.join(", ")),
        }
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

    /// A table below a heading, one of several: its rows begin with `tag` in a pipe.
    pub(crate) fn section<const N: usize>(tag: &'static str, header: [&'static str; N]) -> Self {
        Self::new(header).indented().with_tag(tag)
    }

    /// Keys with their values, below a heading.
    pub(crate) fn facts() -> Self {
        Self::new(["", ""]).indented()
    }

    /// The same table, indented on a terminal.
    pub(crate) fn indented(mut self) -> Self {
        self.indent = INDENT;
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

    /// Adds a key with its value.
    pub(crate) fn push_fact(&mut self, key: &str, value: impl Into<Cell>) {
        self.push([Cell::styled(DIM, key), value.into()]);
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

    /// Adds a row: as many lines as its cell with the most.
    fn push_line(&self, text: &mut String, row: &[Cell], widths: &[usize]) {
        let lines: Vec<Vec<String>> = (row.iter().zip(widths).enumerate())
            .map(|(column, (cell, width))| match self.is_cut(column) {
                true => vec![cut(&cell.text, *width)],
                false => wrap(&cell.text, *width),
            })
            .collect();
        let height = lines.iter().map(Vec::len).max().unwrap_or_default();
        for number in 0..height {
            let mut line = " ".repeat(self.indent);
            for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
                let shown = lines.get(column).and_then(|lines| lines.get(number)).map_or("", String::as_str);
                let padding = " ".repeat(width.saturating_sub(shown.width()));
                let (before, after) = if self.right.contains(&column) {
                    (padding.as_str(), "")
                } else {
                    ("", padding.as_str())
                };
                let style = cell.style;
                let gap = if column == 0 { 0 } else { GAP };
                line.push_str(&" ".repeat(gap));
                line.push_str(before);
                if !shown.is_empty() {
                    line.push_str(&format!("{style}{shown}{style:#}"));
                }
                line.push_str(after);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }

    /// Whether the cells of a column are cut.
    fn is_cut(&self, column: usize) -> bool {
        self.header.get(column).is_some_and(|title| *title == DESCRIPTION)
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
            let own = if self.is_cut(last) { MIN_COLUMN } else { MIN_WRAPPED };
            let least = self.header.get(last).map_or(0, |title| title.width()).max(own);
            if let Some(width) = widths.get_mut(last) {
                *width = (*width).min((*width).saturating_sub(excess).max(least));
            }
        }
        // Words are broken only if a line does not fit otherwise.
        for least in [self.longest_words(), vec![MIN_COLUMN; widths.len()]] {
            while over(&widths) > 0 {
                let wide = widths.iter_mut().zip(&least).filter(|(width, least)| **width > **least);
                let Some((widest, _)) = wide.max_by_key(|(width, _)| **width) else { break };
                *widest -= 1;
            }
        }
        widths
    }

    /// The width of the longest word of each column, at least [`MIN_COLUMN`].
    fn longest_words(&self) -> Vec<usize> {
        let mut longest = vec![MIN_COLUMN; self.header.len()];
        for row in &self.rows {
            for (column, (longest, cell)) in longest.iter_mut().zip(row).enumerate() {
                let words = cell.text.split(' ').map(UnicodeWidthStr::width);
                let width = if self.is_cut(column) { None } else { words.max() };
                *longest = (*longest).max(width.unwrap_or(0));
            }
        }
        longest
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

/// Breaks a text into lines of at most this width: at spaces, and inside of a word that is longer than a line.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let is_first = lines.last().is_none_or(String::is_empty);
        let used = lines.last().map_or(0, |line| line.width() + usize::from(!is_first));
        if !is_first && used + word.width() > width {
            lines.push(String::new());
        } else if !is_first && let Some(line) = lines.last_mut() {
            line.push(' ');
        }
        for c in word.chars() {
            let room = lines.last().map_or(0, |line| width.saturating_sub(line.width()));
            if c.width().unwrap_or(0) > room {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                line.push(c);
            }
        }
    }
    lines
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
    fn a_reason_is_wrapped_and_never_cut() {
        let reason = "needs fs_read of `$workspace`, which no line of the policy grants to the plugin";
        let mut table = TextTable::new(["PLUGIN", "TOOL", "STATUS"]);
        table.push(["files".into(), "files__read_file".into(), reason.into()]);
        for width in [40, 60, 80] {
            let text = anstream::adapter::strip_str(&table.render(Some(width))).to_string();
            let words: Vec<&str> = text.split_whitespace().collect();
            assert!(reason.split(' ').all(|word| words.contains(&word)), "{width}: {text}");
            assert!(text.lines().all(|line| line.width() <= width), "{width}: {text}");
        }
    }

    #[test]
    fn a_name_is_broken_only_if_nothing_else_fits() {
        let mut table = TextTable::new(["TOOL", "ARGUMENTS", "STATUS"]);
        table.push([
            "files__search_files".into(),
            "[path] [pattern] [content]".into(),
            "ready to be called by anybody".into(),
        ]);
        for (width, is_whole) in [(60, true), (30, false)] {
            let text = anstream::adapter::strip_str(&table.render(Some(width))).to_string();
            assert_eq!(text.contains("files__search_files"), is_whole, "{width}: {text}");
            assert!(text.lines().all(|line| line.width() <= width), "{width}: {text}");
        }
    }

    #[test]
    fn a_text_is_wrapped_at_spaces_and_a_long_word_inside() {
        for (text, width, lines) in [
            ("", 10, vec![""]),
            ("one two three", 7, vec!["one two", "three"]),
            ("immeasurable x", 5, vec!["immea", "surab", "le x"]),
            ("a  b", 9, vec!["a  b"]),
            ("漢字漢", 4, vec!["漢字", "漢"]),
        ] {
            assert_eq!(wrap(text, width), lines, "{text}");
        }
    }

    #[test]
    fn a_wide_character_takes_two_columns() {
        assert_eq!(cut("漢字漢字", 5), "漢字…");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(TextTable::new(["A"]).render(Some(10)), "");
    }
}
