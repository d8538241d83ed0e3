//! `diff`.
//!
//! This file uses one algorithm of `similar` and prints the hunks itself: the crate's text interface includes
//! all algorithms for several integer types, which would double the size of the component.

use std::convert::Infallible;

use similar::algorithms::{Capture, Compact, Replace, myers};
use similar::{ChangeTag, DiffOp, group_diff_ops};
use toolbay_sdk::prelude::*;

/// The number of differing lines.
#[data]
#[derive(Debug, Default, PartialEq)]
pub struct TextDiff {
    /// Lines only in the second text.
    pub added: usize,
    /// Lines only in the first text.
    pub removed: usize,
}

/// Compare two texts line by line and return a unified diff.
#[tool(toolset = "text", tags = ["compare"], read_only, idempotent, closed_world)]
pub fn diff(
    /// The first text.
    before: String,
    /// The second text.
    after: String,
    /// Lines of context around each change.
    #[arg(default = 3, range(min = 0, max = 100))]
    context: usize,
    /// What to call the first text in the header.
    #[arg(default = "before")]
    before_name: String,
    /// What to call the second text in the header.
    #[arg(default = "after")]
    after_name: String,
) -> Rendered<TextDiff> {
    let before: Vec<&str> = before.split_inclusive('\n').collect();
    let after: Vec<&str> = after.split_inclusive('\n').collect();
    let mut data = TextDiff::default();
    let mut text = String::new();
    for hunk in group_diff_ops(compare(&before, &after), context) {
        if text.is_empty() {
            text = format!("--- {before_name}\n+++ {after_name}\n");
        }
        text.push_str(&hunk_header(&hunk));
        for change in hunk.iter().flat_map(|op| op.iter_changes(before.as_slice(), after.as_slice())) {
            let mark = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Insert => '+',
                ChangeTag::Delete => '-',
            };
            data.added += usize::from(mark == '+');
            data.removed += usize::from(mark == '-');
            push_line(&mut text, mark, change.value());
        }
    }
    if text.is_empty() {
        text = "The texts are the same.".to_owned();
    }
    Rendered { text, data }
}

fn compare(before: &[&str], after: &[&str]) -> Vec<DiffOp> {
    let mut hook = Compact::new(Replace::new(Capture::new()), before, after);
    let done: Result<(), Infallible> = myers::diff(&mut hook, before, 0..before.len(), after, 0..after.len());
    match done {
        Ok(()) => hook.into_inner().into_inner().into_ops(),
    }
}

/// Returns the `@@ -1,3 +1,4 @@` of a hunk.
fn hunk_header(hunk: &[DiffOp]) -> String {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { return String::new() };
    let range = |start: usize, end: usize| match end - start {
        // By convention an empty range names the line before it, and a length of one is omitted.
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        length => format!("{},{length}", start + 1),
    };
    let before = range(first.old_range().start, last.old_range().end);
    let after = range(first.new_range().start, last.new_range().end);
    format!("@@ -{before} +{after} @@\n")
}

fn push_line(text: &mut String, mark: char, line: &str) {
    text.push(mark);
    text.push_str(line);
    if !line.ends_with('\n') {
        text.push_str("\n\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::testing::call;

    use super::*;

    #[track_caller]
    fn check(before: &str, after: &str, context: usize, expected: &str) {
        let output = call::<diff>(json!({"before": before, "after": after, "context": context})).unwrap();
        assert_eq!(output.value, expected);
    }

    #[test]
    fn hunks_are_unified() {
        check("a\nb\nc\n", "a\nB\nc\n", 1, "--- before\n+++ after\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
        check("a\nb\n", "b\n", 0, "--- before\n+++ after\n@@ -1 +0,0 @@\n-a\n");
        check("", "a\n", 3, "--- before\n+++ after\n@@ -0,0 +1 @@\n+a\n");
        let far = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let changed = "x\n2\n3\n4\n5\n6\n7\n8\ny\n";
        let expected = "--- before\n+++ after\n@@ -1,2 +1,2 @@\n-1\n+x\n 2\n@@ -8,2 +8,2 @@\n 8\n-9\n+y\n";
        check(far, changed, 1, expected);
    }

    #[test]
    fn a_missing_line_break_at_the_end_is_a_difference() {
        let expected = "--- before\n+++ after\n@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n";
        check("a\n", "a", 3, expected);
    }

    #[test]
    fn equal_texts_are_said_to_be_equal() {
        check("a", "a", 3, "The texts are the same.");
        check("", "", 3, "The texts are the same.");
    }

    #[test]
    fn changes_are_counted() {
        let output =
            call::<diff>(json!({"before": "a\nb\n", "after": "a\nc\nd\n", "before_name": "x"})).unwrap();
        assert_eq!(output.structured.as_deref(), Some(r#"{"added":2,"removed":1}"#));
        assert!(output.value.starts_with("--- x\n+++ after\n"));
    }
}
