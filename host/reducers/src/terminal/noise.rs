//! Drops the lines of an output that say that all is well, and keeps all others.
//!
//! A line that nobody knows is kept: a reducer that keeps what it knows loses the one message it never saw. The last
//! lines are kept whatever they are, because an output that was cut off ends there.

use crate::cut::{chars, clip, count, ends};

/// So many of the last lines that are not blank are never dropped.
const LAST: usize = 3;

/// Below that a block says nothing, and only its first line is kept.
const LEAST_BLOCK_CHARS: usize = 160;

/// What becomes of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// Kept.
    Keep,
    /// Kept, and the first of the lines that say why something failed.
    Begin,
    /// Left out.
    Drop,
    /// Another line in its place.
    Replace(String),
}

/// Lines with what becomes of them.
#[derive(Debug)]
pub(super) struct Sorted<'a> {
    lines: Vec<(&'a str, Fate)>,
}

impl<'a> Sorted<'a> {
    /// Asks for each line what becomes of it.
    pub(super) fn new(text: &'a str, mut fate: impl FnMut(&'a str) -> Fate) -> Self {
        Self::of(text.lines().map(|line| (line, fate(line))).collect())
    }

    pub(super) fn of(mut lines: Vec<(&'a str, Fate)>) -> Self {
        for (_, fate) in lines.iter_mut().rev().filter(|(line, _)| !line.trim().is_empty()).take(LAST) {
            if *fate == Fate::Drop {
                *fate = Fate::Keep;
            }
        }
        Self { lines }
    }

    /// The lines that are left, with a first line that says how many are not, in at most `most` characters: where that is
    /// not enough, each block keeps its beginning and its end.
    pub(super) fn show(&self, what: &str, most: usize) -> String {
        let dropped =
            self.lines.iter().filter(|(line, fate)| *fate == Fate::Drop && !line.trim().is_empty()).count();
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

    /// What is kept, in pieces that begin where a failure begins. One blank line stands for several.
    fn blocks(&self) -> Vec<String> {
        let mut blocks = vec![String::new()];
        let mut blank = true;
        for (line, fate) in &self.lines {
            let line = match fate {
                Fate::Drop => continue,
                Fate::Replace(line) => line,
                Fate::Keep | Fate::Begin => *line,
            };
            if *fate == Fate::Begin {
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

/// Gives each block the same room; what short ones leave is for the others. The last one holds the summary too.
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

    fn fate(line: &str) -> Fate {
        match line.chars().next() {
            Some('-') => Fate::Drop,
            Some('!') => Fate::Begin,
            _ => Fate::Keep,
        }
    }

    #[test]
    fn known_noise_goes_and_everything_else_stays() {
        let text = "-\n-a\nunknown\n\n\n-b\n\n! failed\nwhy\n1\n2\n3\n";
        assert_eq!(
            Sorted::new(text, fate).show("passes", 1000),
            "[3 lines left out: passes]\nunknown\n\n! failed\nwhy\n1\n2\n3\n"
        );
    }

    #[test]
    fn the_last_lines_stay_whatever_they_are() {
        assert_eq!(
            Sorted::new("-1\n-2\n\n-3\n-4\n\n", fate).show("x", 1000),
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
        let shown = Sorted::new(&text, fate).show("x", 2000);
        for kept in ["! failure 1\n", "1 line 399\n", &block(2, 3), "! failure 3\n", "3 line 399\nsummary\n"]
        {
            assert!(shown.contains(kept), "{kept} is not in\n{shown}");
        }
        assert!(chars(&shown) <= 2000);
        let many: String = (0..100).map(|n| block(n, 50)).collect();
        let shown = Sorted::new(&many, fate).show("x", 4000);
        assert!((0..100).all(|n| shown.contains(&format!("! failure {n}\n"))), "{shown}");
    }
}
