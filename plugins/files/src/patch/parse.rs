//! Reads the two notations of a patch.
//!
//! | text | means |
//! |---|---|
//! | `@@ -12,3 +12,4 @@` | a hunk of a unified diff: at line 12, 3 old lines and 4 new ones |
//! | `@@` or `@@ fn main @@` | a hunk without a place; it ends before the next `@@` |
//! | ` x`, `-x`, `+x` | the line `x` stays, is removed, is added |
//! | an empty line | an empty line that stays |
//! | `\ No newline at end of file` | the file ends with the line above, without a line break |
//! | `<<<<<<< SEARCH` … `=======` … `>>>>>>> REPLACE` | a block: the lines in the first half become those in the second |
//!
//! Lines before the first hunk are headers. A hunk whose length differs from its header is refused, because it may
//! have been cut off, and so is a second file.

use super::{Hunk, HunkLine};

const SEARCH: &str = "<<<<<<< SEARCH";
const DIVIDER: &str = "=======";
const REPLACE: &str = ">>>>>>> REPLACE";

/// Parses a patch.
///
/// # Errors
/// Says which hunk is wrong and what to write.
pub(crate) fn parse(patch: &str) -> Result<Vec<Hunk<'_>>, String> {
    let first = patch.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let hunks = if first.trim_end() == SEARCH { parse_blocks(patch)? } else { parse_diff(patch)? };
    if hunks.is_empty() {
        return Err(format!(
            "the patch has no hunks: write a unified diff with `@@ -1,3 +1,4 @@`, or blocks that begin with `{SEARCH}`"
        ));
    }
    Ok(hunks)
}

fn parse_blocks(patch: &str) -> Result<Vec<Hunk<'_>>, String> {
    let mut hunks = Vec::new();
    let mut lines = patch.lines();
    while let Some(line) = lines.next() {
        if line.trim().is_empty() {
            continue;
        }
        let number = hunks.len() + 1;
        if line.trim_end() != SEARCH {
            return Err(format!("`{SEARCH}` must begin block {number}, with nothing before it"));
        }
        let mut old = Vec::new();
        let mut new = None;
        loop {
            let line = lines.next().ok_or(format!("block {number} ends without `{REPLACE}`"))?;
            match (line.trim_end(), &mut new) {
                (DIVIDER, None) => new = Some(Vec::new()),
                (DIVIDER, Some(_)) | (SEARCH, _) | (REPLACE, None) => {
                    return Err(format!(
                        "block {number} needs one line each of `{SEARCH}`, `{DIVIDER}` and `{REPLACE}`; if the text \
                         has such lines, write a unified diff"
                    ));
                }
                (REPLACE, Some(_)) => break,
                (_, None) => old.push(line),
                (_, Some(new)) => new.push(line),
            }
        }
        hunks.push(block(&old, &new.unwrap_or_default()));
    }
    Ok(hunks)
}

/// Lines that both halves begin or end with stay, so that they keep their line breaks.
fn block<'p>(old: &[&'p str], new: &[&'p str]) -> Hunk<'p> {
    let before = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let shorter = old.len().min(new.len()) - before;
    let both = old.iter().rev().zip(new.iter().rev());
    let after = both.take(shorter).take_while(|(old, new)| old == new).count();
    let middle =
        |half: &[&'p str]| half.iter().copied().take(half.len() - after).skip(before).collect::<Vec<_>>();
    let lines = (old.iter().take(before).map(|line| HunkLine::Keep(line)))
        .chain(middle(old).into_iter().map(HunkLine::Remove))
        .chain(middle(new).into_iter().map(HunkLine::Add))
        .chain(old.iter().skip(old.len() - after).map(|line| HunkLine::Keep(line)));
    Hunk { lines: lines.collect(), ..Hunk::default() }
}

/// The `-12,3 +12,4` of a hunk.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Announced {
    line: usize,
    old: usize,
    new: usize,
}

fn parse_diff(patch: &str) -> Result<Vec<Hunk<'_>>, String> {
    let mut hunks: Vec<(Hunk<'_>, Option<Announced>)> = Vec::new();
    for line in patch.lines() {
        let number = hunks.len();
        if let Some(header) = line.strip_prefix("@@") {
            if let Some((hunk, announced)) = hunks.last() {
                check_length(number, hunk, *announced)?;
            }
            let announced = parse_header(header).map_err(|()| {
                format!("the header of hunk {} is not like `@@ -1,3 +1,4 @@`, nor `@@` alone", number + 1)
            })?;
            hunks.push((Hunk { line: announced.map(|it| it.line), ..Hunk::default() }, announced));
        } else if let Some((hunk, announced)) = hunks.last_mut() {
            let complete =
                announced.is_some_and(|it| (hunk.old_count(), hunk.new_count()) == (it.old, it.new));
            push_line(hunk, line, complete).map_err(|why| format!("hunk {number} {why}"))?;
        } else if line == "+++ /dev/null" || line == "--- /dev/null" {
            return Err("the patch creates or removes a file; it can only change one".to_owned());
        }
    }
    if let Some((hunk, announced)) = hunks.last() {
        check_length(hunks.len(), hunk, *announced)?;
    }
    Ok(hunks.into_iter().map(|(hunk, _)| hunk).collect())
}

fn push_line<'p>(hunk: &mut Hunk<'p>, line: &'p str, complete: bool) -> Result<(), String> {
    if line.starts_with('\\') {
        match hunk.lines.last() {
            Some(HunkLine::Keep(_)) => {
                hunk.end.old_without_newline = true;
                hunk.end.new_without_newline = true;
            }
            Some(HunkLine::Remove(_)) => hunk.end.old_without_newline = true,
            Some(HunkLine::Add(_)) => hunk.end.new_without_newline = true,
            None => return Err("begins with a note on the end of the file".to_owned()),
        }
        return Ok(());
    }
    if complete {
        return match line {
            "" => Ok(()),
            _ if line.starts_with("--- ") || line.starts_with("diff ") => {
                Err("is followed by another file: patch one file in each call".to_owned())
            }
            _ => {
                Err("has more lines than its header announces: count them again, or write `@@` alone"
                    .to_owned())
            }
        };
    }
    let mut rest = line.chars();
    hunk.lines.push(match rest.next() {
        None => HunkLine::Keep(""),
        Some(' ') => HunkLine::Keep(rest.as_str()),
        Some('-') => HunkLine::Remove(rest.as_str()),
        Some('+') => HunkLine::Add(rest.as_str()),
        Some(_) => {
            let at = hunk.lines.len() + 1;
            return Err(format!("has a line {at} that begins with none of ` `, `-` and `+`"));
        }
    });
    Ok(())
}

fn check_length(number: usize, hunk: &Hunk<'_>, announced: Option<Announced>) -> Result<(), String> {
    let (old, new) = (hunk.old_count(), hunk.new_count());
    match announced {
        Some(it) if (it.old, it.new) != (old, new) => Err(format!(
            "hunk {number} announces {} old and {} new lines and has {old} and {new}: count them again, or write `@@` \
             alone",
            it.old, it.new
        )),
        _ => Ok(()),
    }
}

/// Parses what follows the first `@@` of a header. `None`: no place.
fn parse_header(text: &str) -> Result<Option<Announced>, ()> {
    let Some(rest) = text.trim_start().strip_prefix('-') else {
        // Anything else is a title, as after the second `@@`.
        return Ok(None);
    };
    let (ranges, _) = rest.split_once("@@").ok_or(())?;
    let (old, new) = ranges.trim().split_once(" +").ok_or(())?;
    let ((line, old), (_, new)) = (parse_range(old)?, parse_range(new)?);
    Ok(Some(Announced { line, old, new }))
}

fn parse_range(text: &str) -> Result<(usize, usize), ()> {
    let (start, count) = text.split_once(',').unwrap_or((text, "1"));
    Ok((start.parse().map_err(|_| ())?, count.parse().map_err(|_| ())?))
}

#[cfg(test)]
mod tests {
    use super::HunkLine::{Add, Keep, Remove};
    use super::*;

    #[test]
    fn a_diff_is_read_by_the_numbers_of_its_headers() {
        let patch = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -3,2 +3,2 @@ fn main()\n keep\n--- old\n+++ new\n\n\
                     @@ -9 +9,2 @@\n-a\n\\ No newline at end of file\n+b\n+c\n";
        let hunks = parse(patch).unwrap();
        let [first, second] = hunks.as_slice() else { panic!("{hunks:?}") };
        assert_eq!((first.line, second.line), (Some(3), Some(9)));
        assert_eq!(first.lines, [Keep("keep"), Remove("-- old"), Add("++ new")]);
        assert_eq!(second.lines, [Remove("a"), Add("b"), Add("c")]);
        assert!(second.end.old_without_newline && !second.end.new_without_newline);
    }

    #[test]
    fn a_header_needs_no_numbers() {
        let hunks = parse("@@\n a\n\n+b\n@@ fn main() @@\n-c\r\n").unwrap();
        assert_eq!(hunks[0].lines, [Keep("a"), Keep(""), Add("b")]);
        assert_eq!((hunks[1].line, hunks[1].lines.as_slice()), (None, [Remove("c")].as_slice()));
    }

    #[test]
    fn a_block_keeps_what_both_halves_begin_and_end_with() {
        let patch = "<<<<<<< SEARCH\na\nb\nb\n=======\na\nx\nb\n>>>>>>> REPLACE\n\n\
                     <<<<<<< SEARCH\nc\n=======\n>>>>>>> REPLACE\n";
        let hunks = parse(patch).unwrap();
        assert_eq!(hunks[0].lines, [Keep("a"), Remove("b"), Add("x"), Keep("b")]);
        assert_eq!(hunks[1].lines, [Remove("c")]);
        let grown = block(&["a", "a"], &["a", "a", "a"]);
        assert_eq!(grown.lines, [Keep("a"), Keep("a"), Add("a")]);
    }

    #[test]
    fn broken_patches_are_refused_with_the_hunk() {
        for (patch, expected) in [
            ("", "no hunks"),
            ("just text", "no hunks"),
            ("@@ -1,2 +1,2 @@\n-a\n+b\n", "hunk 1 announces 2 old and 2 new lines and has 1 and 1"),
            ("@@ -1 +1 @@\n-a\n+b\n+c\n", "hunk 1 has more lines"),
            ("@@ -1,9 +1,9 @@\n-a\n@@ -20 +20 @@\n-b\n+c\n", "hunk 1 announces 9"),
            ("@@ -1 +1 @@\n-a\n+b\n--- a/y\n+++ b/y\n", "another file"),
            ("@@ -x +1 @@\n-a\n", "header of hunk 1"),
            ("@@ -1 +1\n-a\n+b\n", "header of hunk 1"),
            ("@@ -1 +1 @@\n-a\n*b\n", "a line 2 that begins with none"),
            ("@@\n\\ No newline\n", "begins with a note"),
            ("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n", "creates or removes"),
            ("<<<<<<< SEARCH\na\n", "block 1 ends without"),
            ("<<<<<<< SEARCH\na\n>>>>>>> REPLACE\n", "block 1 needs one line each"),
            ("<<<<<<< SEARCH\na\n=======\nb\n=======\nc\n>>>>>>> REPLACE\n", "block 1 needs one line each"),
            ("<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\nx\n", "must begin block 2"),
        ] {
            let error = parse(patch).unwrap_err();
            assert!(error.contains(expected), "{patch:?}: {error}");
        }
    }
}
