//! Patches of one file: their lines, how they are written, and how they are applied.

mod apply;
mod parse;

pub(crate) use apply::{HunkPlace, apply};
pub(crate) use parse::parse;

/// A part of a patch: lines to find, and the lines that take their place.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Hunk<'p> {
    /// The first line, from 1, at which the patch expects the hunk.
    line: Option<usize>,
    lines: Vec<HunkLine<'p>>,
    /// What the patch says about a line break at the end of the file.
    end: FileEnd,
}

/// A line of a hunk, without its line break.
#[derive(Debug, Clone, Copy, PartialEq)]
enum HunkLine<'p> {
    Keep(&'p str),
    Remove(&'p str),
    Add(&'p str),
}

/// The notes `\ No newline at end of file` of a hunk.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct FileEnd {
    old_without_newline: bool,
    new_without_newline: bool,
}

impl<'p> Hunk<'p> {
    /// The lines that must be in the file.
    fn old_lines(&self) -> impl Iterator<Item = &'p str> {
        self.lines.iter().filter_map(|line| match line {
            HunkLine::Keep(text) | HunkLine::Remove(text) => Some(*text),
            HunkLine::Add(_) => None,
        })
    }

    fn old_count(&self) -> usize {
        self.old_lines().count()
    }

    fn new_count(&self) -> usize {
        self.lines.iter().filter(|line| !matches!(line, HunkLine::Remove(_))).count()
    }

    fn added(&self) -> usize {
        self.lines.iter().filter(|line| matches!(line, HunkLine::Add(_))).count()
    }

    fn removed(&self) -> usize {
        self.lines.iter().filter(|line| matches!(line, HunkLine::Remove(_))).count()
    }
}
