//! Drops lines that report success, and keeps all others.
//!
//! An unknown line is kept: a reducer that keeps only known lines loses the one new message. The last lines are always
//! kept, because truncated output ends there.

use crate::cut::{chars, clip, count, ends};

/// What test runners drop.
pub(super) const PASSING_TESTS: &str = "passing tests and progress";

/// How many of the last non-blank lines are never dropped.
const LAST: usize = 3;

/// A shorter block is useless, so only its first line is kept.
const LEAST_BLOCK_CHARS: usize = 160;

/// The action for a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineAction {
    /// Keep the line.
    Keep,
    /// Keep the line, which starts the report of a failure.
    Begin,
    /// Drop the line.
    Drop,
    /// Replace the line.
    Replace(String),
}

/// Lines with their actions.
#[derive(Debug)]
pub(super) struct ClassifiedLines<'a> {
    lines: Vec<(&'a str, LineAction)>,
}

impl<'a> ClassifiedLines<'a> {
    /// Classifies each line.
    pub(super) fn new(text: &'a str, mut action: impl FnMut(&'a str) -> LineAction) -> Self {
        Self::of(text.lines().map(|line| (line, action(line))).collect())
    }

    pub(super) fn of(mut lines: Vec<(&'a str, LineAction)>) -> Self {
        for (_, action) in lines.iter_mut().rev().filter(|(line, _)| !line.trim().is_empty()).take(LAST) {
            if *action == LineAction::Drop {
                *action = LineAction::Keep;
            }
        }
        Self { lines }
    }

    /// The remaining lines, with a first line that counts the dropped ones, in at most `most` characters. If
    /// they do not fit, each block keeps its start and its end.
    pub(super) fn show(&self, what: &str, most: usize) -> String {
        let dropped = self
            .lines
            .iter()
            .filter(|(line, action)| *action == LineAction::Drop && !line.trim().is_empty())
            .count();
        let mut head = String::new();
        if dropped > 0 {
            head = format!("[{} left out: {what}]\n", count(dropped, "line"));
        }
        let blocks = self.blocks();
        let all: String = head.clone() + &blocks.concat();
        if all.len() <= most || chars(&all) <= most {
            return all;
        }
        let squeezed = head + &squeeze(&blocks, most);
        ends(&squeezed, most).unwrap_or(squeezed)
    }

    /// The kept lines in blocks that begin at failures. One blank line stands for several.
    fn blocks(&self) -> Vec<String> {
        let mut blocks = vec![String::new()];
        let mut blank = true;
        for (line, action) in &self.lines {
            let line = match action {
                LineAction::Drop => continue,
                LineAction::Replace(line) => line,
                LineAction::Keep | LineAction::Begin => *line,
            };
            if *action == LineAction::Begin {
                blocks.push(String::new());
            }
            if let Some(block) = blocks.last_mut().filter(|_| !(blank && line.trim().is_empty())) {
                block.push_str(line);
                block.push('\n');
            }
            blank = line.trim().is_empty();
        }
        if let Some(last) = blocks.last_mut() {
            last.truncate(last.trim_end_matches('\n').len() + 1);
        }
        blocks
    }
}

/// Gives each block the same room, and distributes what short blocks leave. The last block includes the summary.
fn squeeze(blocks: &[String], most: usize) -> String {
    let sizes: Vec<usize> = blocks.iter().map(|block| chars(block)).collect();
    let mut sorted = sizes.clone();
    sorted.sort_unstable();
    let mut left = most;
    let mut share = most;
    for (place, size) in sorted.iter().enumerate() {
        share = left / (sorted.len() - place).max(1);
        if *size > share {
            break;
        }
        left -= size;
    }
    let mut text = String::new();
    for (block, size) in blocks.iter().zip(sizes) {
        if size <= share {
            text.push_str(block);
        } else if share >= LEAST_BLOCK_CHARS {
            text.push_str(&ends(block, share).unwrap_or_default());
        } else {
            text.push_str(&clip(block.lines().next().unwrap_or_default(), share.saturating_sub(1).max(20)));
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(line: &str) -> LineAction {
        match line.chars().next() {
            Some('-') => LineAction::Drop,
            Some('!') => LineAction::Begin,
            _ => LineAction::Keep,
        }
    }

    #[test]
    fn known_noise_goes_and_everything_else_stays() {
        let text = "-\n-a\nunknown\n\n\n-b\n\n! failed\nwhy\n1\n2\n3\n";
        assert_eq!(
            ClassifiedLines::new(text, action).show("passes", 1000),
            "[3 lines left out: passes]\nunknown\n\n! failed\nwhy\n1\n2\n3\n"
        );
    }

    #[test]
    fn the_last_lines_stay_whatever_they_are() {
        assert_eq!(
            ClassifiedLines::new("-1\n-2\n\n-3\n-4\n\n", action).show("x", 1000),
            "[1 line left out: x]\n-2\n\n-3\n-4\n"
        );
    }

    #[test]
    fn every_failure_keeps_its_beginning_and_its_end() {
        let block = |n: usize, lines: usize| {
            let body: String = (0..lines).map(|line| format!("{n} line {line}\n")).collect();
            format!("! failure {n}\n{body}")
        };
        let text = format!("{}{}{}summary\n", block(1, 400), block(2, 3), block(3, 400));
        let shown = ClassifiedLines::new(&text, action).show("x", 2000);
        for kept in ["! failure 1\n", "1 line 399\n", &block(2, 3), "! failure 3\n", "3 line 399\nsummary\n"]
        {
            assert!(shown.contains(kept), "{kept} is not in\n{shown}");
        }
        assert!(chars(&shown) <= 2000);
        let many: String = (0..100).map(|n| block(n, 50)).collect();
        let shown = ClassifiedLines::new(&many, action).show("x", 4000);
        assert!((0..100).all(|n| shown.contains(&format!("! failure {n}\n"))), "{shown}");
    }
}
