//! Applies hunks to a text: all or none, and never near their place.
//!
//! The hunks apply if each stands at the line that the patch names. Otherwise each must match exactly one place in the
//! file: after a shift of lines, the named place of a repeated passage may be another one that looks the same. Lines
//! are compared without their line breaks, which kept lines keep and added lines take from the file.

use super::{Hunk, HunkLine};

/// The most places that the error for an ambiguous hunk names.
const SHOWN_PLACES: usize = 10;

/// The result of a patch.
#[derive(Debug, PartialEq)]
pub(crate) struct PatchedText {
    pub(crate) text: String,
    /// The place of each hunk, in the order of the patch.
    pub(crate) places: Vec<HunkPlace>,
    pub(crate) added: usize,
    pub(crate) removed: usize,
}

/// The place of an applied hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HunkPlace {
    /// Its first line in the new text, from 1.
    pub(crate) line: usize,
    /// How far below the named line it applied; negative: above. `None` if the patch names no line.
    pub(crate) offset: Option<i64>,
}

/// Applies hunks to a text.
///
/// # Errors
/// Says which hunk does not apply, and why. The text is then unchanged.
pub(crate) fn apply(text: &str, hunks: &[Hunk<'_>]) -> Result<PatchedText, String> {
    let file = FileLines::new(text);
    let starts = file.place_all(hunks)?;
    let mut order: Vec<(usize, usize, &Hunk<'_>)> =
        starts.iter().zip(hunks).enumerate().map(|(n, (start, hunk))| (*start, n, hunk)).collect();
    order.sort_by_key(|(start, n, _)| (*start, *n));
    let pairs = order.iter().zip(order.iter().skip(1));
    for ((start, n, hunk), (next, m, _)) in pairs {
        if start + hunk.old_count() > *next {
            return Err(format!("hunks {} and {} overlap at line {}: join them", n + 1, m + 1, next + 1));
        }
    }

    let mut writer = TextWriter { newline: file.newline, lines: Vec::new() };
    let mut places = vec![HunkPlace { line: 0, offset: None }; hunks.len()];
    let mut unread = file.lines.iter();
    let mut read = 0;
    let mut end = None;
    for (start, n, hunk) in order {
        writer.lines.extend(unread.by_ref().take(start - read).map(|line| split_newline(line)));
        if let Some(place) = places.get_mut(n) {
            let offset = hunk.line.map(|line| signed(start + 1) - signed(line.max(1)));
            *place = HunkPlace { line: writer.lines.len() + 1, offset };
        }
        for line in &hunk.lines {
            match line {
                HunkLine::Keep(_) => writer.lines.extend(unread.next().map(|line| split_newline(line))),
                HunkLine::Remove(_) => {
                    unread.next();
                }
                HunkLine::Add(text) => writer.lines.push((text, file.newline)),
            }
        }
        read = start + hunk.old_count();
        if hunk.end.old_without_newline || hunk.end.new_without_newline {
            end = Some(!hunk.end.new_without_newline);
        }
    }
    writer.lines.extend(unread.map(|line| split_newline(line)));
    Ok(PatchedText {
        text: writer.finish(end.unwrap_or(file.ends_with_newline)),
        places,
        added: hunks.iter().map(Hunk::added).sum(),
        removed: hunks.iter().map(Hunk::removed).sum(),
    })
}

/// The lines of a file, with their line breaks.
struct FileLines<'t> {
    lines: Vec<&'t str>,
    /// The line break of added lines: that of the first line.
    newline: &'static str,
    ends_with_newline: bool,
}

impl<'t> FileLines<'t> {
    fn new(text: &'t str) -> Self {
        let lines: Vec<_> = text.split_inclusive('\n').collect();
        let crlf = lines.first().is_some_and(|line| line.ends_with("\r\n"));
        Self {
            lines,
            newline: if crlf { "\r\n" } else { "\n" },
            ends_with_newline: text.is_empty() || text.ends_with('\n'),
        }
    }

    /// The first line of each hunk, from 0.
    fn place_all(&self, hunks: &[Hunk<'_>]) -> Result<Vec<usize>, String> {
        for (n, hunk) in hunks.iter().enumerate() {
            if hunk.old_count() == 0 && !self.lines.is_empty() {
                return Err(format!(
                    "hunk {} has only added lines, so its place cannot be checked: add the lines around it",
                    n + 1
                ));
            }
        }
        let named = hunks.iter().map(|hunk| {
            // An empty file has no line 1: its hunk begins at 0.
            let start = hunk.line.map(|line| line.saturating_sub(1))?;
            self.matches(start, hunk).then_some(start)
        });
        if let Some(starts) = named.collect() {
            return Ok(starts);
        }
        hunks.iter().enumerate().map(|(n, hunk)| self.only_place(n + 1, hunk)).collect()
    }

    fn only_place(&self, number: usize, hunk: &Hunk<'_>) -> Result<usize, String> {
        let mut places = (0..=self.lines.len()).filter(|start| self.matches(*start, hunk));
        let Some(first) = places.next() else { return Err(self.mismatch(number, hunk)) };
        let Some(second) = places.next() else { return Ok(first) };
        let mut shown: Vec<_> = [first, second].map(|start| (start + 1).to_string()).into();
        shown.extend(places.by_ref().take(SHOWN_PLACES - 2).map(|start| (start + 1).to_string()));
        let more = if places.next().is_some() { " and more" } else { "" };
        Err(format!(
            "hunk {number} is ambiguous: it matches at the lines {}{more}; add lines around it until it matches once",
            shown.join(", ")
        ))
    }

    /// Whether a hunk stands at a line, from 0.
    fn matches(&self, start: usize, hunk: &Hunk<'_>) -> bool {
        let end = start + hunk.old_count();
        let ends = |without_newline: bool| !without_newline || end == self.lines.len();
        end <= self.lines.len()
            && ends(hunk.end.old_without_newline)
            && ends(hunk.end.new_without_newline)
            && !(hunk.end.old_without_newline && self.ends_with_newline)
            && self.common_lines(start, hunk) == hunk.old_count()
    }

    /// How many lines of a hunk, from its first one on, stand at a line.
    fn common_lines(&self, start: usize, hunk: &Hunk<'_>) -> usize {
        let file = self.lines.iter().skip(start).map(|line| split_newline(line).0);
        file.zip(hunk.old_lines()).take_while(|(file, old)| file == old).count()
    }

    /// Describes where a hunk matches best, without text of the file.
    fn mismatch(&self, number: usize, hunk: &Hunk<'_>) -> String {
        // Of equally good places, the first one.
        let best = (0..self.lines.len()).map(|start| (self.common_lines(start, hunk), start));
        let (common, start) =
            best.max_by_key(|(common, start)| (*common, usize::MAX - start)).unwrap_or_default();
        let advice = "read the file again and write its lines as they are";
        let count = hunk.old_count();
        if common == 0 {
            return format!("hunk {number} does not match: its first line is nowhere in the file; {advice}");
        }
        if common == count {
            return format!(
                "hunk {number} does not match: its note on the end of the file is wrong; {advice}"
            );
        }
        let at = start + common;
        let file = self.lines.get(at).map(|line| split_newline(line).0);
        let Some(file) = file else {
            return format!(
                "hunk {number} does not match: the file ends after its first {common} of {count} lines, which match \
                 at line {}; {advice}",
                start + 1
            );
        };
        let spaces = match hunk.old_lines().nth(common) {
            Some(old) if old.split_whitespace().eq(file.split_whitespace()) => " in white space only",
            _ => "",
        };
        format!(
            "hunk {number} does not match: its first {common} of {count} lines match at line {}, and line {} \
             differs{spaces}; {advice}",
            start + 1,
            at + 1
        )
    }
}

/// A line number. No text has more lines than an `i64` counts.
fn signed(line: usize) -> i64 {
    i64::try_from(line).unwrap_or(i64::MAX)
}

/// Splits a line into its text and its line break.
fn split_newline(line: &str) -> (&str, &str) {
    let text = line.strip_suffix('\n').map_or(line, |text| text.strip_suffix('\r').unwrap_or(text));
    (text, line.get(text.len()..).unwrap_or_default())
}

/// The lines of the new text.
struct TextWriter<'t> {
    newline: &'static str,
    lines: Vec<(&'t str, &'t str)>,
}

impl TextWriter<'_> {
    /// Joins the lines. A former last line without a line break gets one if lines follow.
    fn finish(self, ends_with_newline: bool) -> String {
        let mut text = String::new();
        let count = self.lines.len();
        for (n, (line, newline)) in self.lines.into_iter().enumerate() {
            text.push_str(line);
            if n + 1 < count || ends_with_newline {
                text.push_str(if newline.is_empty() { self.newline } else { newline });
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn patched(text: &str, patch: &str) -> Result<PatchedText, String> {
        apply(text, &parse(patch).unwrap())
    }

    #[track_caller]
    fn check(text: &str, patch: &str, expected: &str) {
        assert_eq!(patched(text, patch).unwrap().text, expected);
    }

    #[track_caller]
    fn refused(text: &str, patch: &str, expected: &str) {
        let error = patched(text, patch).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    const REPEATED: &str = "start\nx\ny\nend\nstart\nx\ny\nend\n";

    #[test]
    fn hunks_apply_at_their_lines() {
        let patch = "@@ -1,2 +1,3 @@\n a\n+A\n b\n@@ -4,2 +5 @@\n d\n-e\n";
        let done = patched("a\nb\nc\nd\ne\n", patch).unwrap();
        assert_eq!(done.text, "a\nA\nb\nc\nd\n");
        let place = |line| HunkPlace { line, offset: Some(0) };
        assert_eq!((done.places, done.added, done.removed), (vec![place(1), place(5)], 1, 1));
    }

    #[test]
    fn the_named_line_decides_between_equal_passages() {
        check(REPEATED, "@@ -6,2 +6,2 @@\n x\n-y\n+Y\n", "start\nx\ny\nend\nstart\nx\nY\nend\n");
        check(REPEATED, "@@ -2,2 +2,2 @@\n x\n-y\n+Y\n", "start\nx\nY\nend\nstart\nx\ny\nend\n");
    }

    #[test]
    fn a_moved_hunk_applies_where_it_matches_once() {
        let done = patched("0\n0\na\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+B\n").unwrap();
        assert_eq!((done.text.as_str(), done.places[0].offset), ("0\n0\na\nB\n", Some(2)));
        let done = patched("a\nb\n", "@@ -9,2 +9,2 @@\n a\n-b\n+B\n").unwrap();
        assert_eq!(done.places[0].offset, Some(-8));
    }

    #[test]
    fn an_ambiguous_hunk_is_refused_with_its_places() {
        for patch in [
            "@@ -3,2 +3,2 @@\n x\n-y\n+Y\n",
            "@@\n x\n-y\n+Y\n",
            "<<<<<<< SEARCH\nx\ny\n=======\nY\n>>>>>>> REPLACE",
        ] {
            refused(REPEATED, patch, "hunk 1 is ambiguous: it matches at the lines 2, 6;");
        }
        refused(&"x\n".repeat(30), "@@\n-x\n", "the lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and more;");
    }

    #[test]
    fn a_named_line_is_not_trusted_after_a_shift() {
        // Line 6 has the passage that the patch means, or another one: hunk 1 is not at its line.
        let shifted = format!("head\n1\n2\n3\n{REPEATED}");
        let patch = "@@ -5 +5 @@\n-head\n+HEAD\n@@ -6,2 +6,2 @@\n x\n-y\n+Y\n";
        refused(&shifted, patch, "hunk 2 is ambiguous: it matches at the lines 6, 10;");
    }

    #[test]
    fn of_several_hunks_all_apply_or_none() {
        refused("a\nb\n", "@@ -1 +1 @@\n-a\n+A\n@@ -2 +2 @@\n-x\n+X\n", "hunk 2 does not match");
        refused("a\nb\nc\n", "@@\n a\n-b\n@@\n b\n-c\n", "hunks 1 and 2 overlap at line 2");
        let both = "<<<<<<< SEARCH\nc\n=======\nC\n>>>>>>> REPLACE\n<<<<<<< SEARCH\na\n=======\nA\n>>>>>>> REPLACE\n";
        let done = patched("a\nb\nc\n", both).unwrap();
        assert_eq!((done.text.as_str(), done.places[0].line, done.places[1].line), ("A\nb\nC\n", 3, 1));
    }

    #[test]
    fn a_mismatch_says_how_far_the_hunk_matches() {
        refused("a\nb\n", "@@\n-x\n", "its first line is nowhere in the file");
        refused(
            "a\n  b\n",
            "@@\n a\n-b\n",
            "1 of 2 lines match at line 1, and line 2 differs in white space only;",
        );
        refused("a\nc\n", "@@\n a\n-b\n", "and line 2 differs;");
        refused("a\n", "@@\n a\n-b\n", "the file ends after its first 1 of 2 lines");
    }

    #[test]
    fn an_addition_needs_lines_around_it() {
        refused("a\n", "@@ -1,0 +2 @@\n+b\n", "only added lines");
        refused("a\n", "<<<<<<< SEARCH\n=======\nb\n>>>>>>> REPLACE", "only added lines");
        check("", "@@ -0,0 +1 @@\n+b\n", "b\n");
        check("", "<<<<<<< SEARCH\n=======\nb\n>>>>>>> REPLACE", "b\n");
    }

    #[test]
    fn line_breaks_stay_as_they_are() {
        check("a\r\nb\r\n", "@@\n a\n-b\n+B\n+C\n", "a\r\nB\r\nC\r\n");
        check("a\nb\r\nc\n", "@@ -1,3 +1,3 @@\n a\n b\n-c\n+C\n", "a\nb\r\nC\n");
        check("a\nb", "@@\n a\n-b\n+B\n", "a\nB");
        check("a\nb", "@@\n a\n b\n+c\n", "a\nb\nc");
        check("a\n", "@@\n-a\n", "");
    }

    #[test]
    fn the_note_on_the_end_of_the_file_is_obeyed() {
        const NOTE: &str = "\\ No newline at end of file\n";
        check("a\nb", &format!("@@ -2 +2 @@\n-b\n{NOTE}+b\n"), "a\nb\n");
        check("a\nb\n", &format!("@@ -2 +2 @@\n-b\n+b\n{NOTE}"), "a\nb");
        check("a\nb", &format!("@@ -1,2 +1,2 @@\n-a\n+A\n b\n{NOTE}"), "A\nb");
        refused(
            "a\nb\n",
            &format!("@@ -2 +2 @@\n-b\n{NOTE}+c\n"),
            "its note on the end of the file is wrong",
        );
        refused(
            "a\nb\n",
            &format!("@@ -1 +1 @@\n-a\n+c\n{NOTE}"),
            "its note on the end of the file is wrong",
        );
    }
}
