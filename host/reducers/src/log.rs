//! `log`: folds repeated lines, and keeps errors and warnings.
//!
//! ```text
//! 10:00:01 INFO poll took 3 ms          10:00:01 INFO poll took 3 ms (×40, numbers differ)
//! 10:00:02 INFO poll took 4 ms          10:00:41 ERROR lost connection 7
//! … (38 more)                       ->  10:00:42 ERROR lost connection 8
//! 10:00:41 ERROR lost connection 7      retrying (×3)
//! 10:00:42 ERROR lost connection 8
//! retrying
//! retrying
//! retrying
//! ```
//!
//! Lines are alike if they differ only in numbers and hexadecimal ids. Errors and warnings are alike only if they differ
//! only in time, because a number in them may matter. If the result is still too long, it keeps errors, warnings and
//! both ends.

use crate::cut::{chars, count, ends};
use crate::shape::plain;
use crate::{ReducerInput, law};

/// Longer logs lose lines that are neither errors nor warnings; about two thousand tokens.
const MOST_CHARS: usize = 8192;

/// How many lines at each end of a long log are kept.
const ENDS: usize = 10;

/// The shortest hexadecimal id. A shorter one could be a word.
const ID_DIGITS: usize = 6;

/// The levels whose lines are kept.
const LEVELS: [&str; 10] =
    ["ERROR", "WARN", "WARNING", "FATAL", "CRITICAL", "PANIC", "SEVERE", "EMERG", "ALERT", "ERR"];

/// Folds repeated lines, and keeps errors and warnings.
#[must_use]
pub fn log(text: &str, ctx: &ReducerInput<'_>) -> Option<String> {
    law::apply(text, ctx, |text, ctx| shorten(text, ctx.budget_chars))
}

fn shorten(text: &str, budget: usize) -> Option<String> {
    let text = plain(text);
    let runs = fold(&text);
    let lines: Vec<(String, bool)> = runs.iter().map(LineRun::show).collect();
    let most = MOST_CHARS.min(budget);
    let all = join(&lines);
    if chars(&all) <= most {
        return Some(all);
    }
    let kept = without_the_middle(&lines);
    Some(ends(&kept, most).unwrap_or(kept))
}

/// Consecutive lines that are alike.
#[derive(Debug)]
struct LineRun<'a> {
    first: &'a str,
    number: usize,
    /// Whether all lines are identical.
    same: bool,
    telling: bool,
}

impl LineRun<'_> {
    /// The line that stands for the run, and whether it is an error or a warning.
    fn show(&self) -> (String, bool) {
        let text = match (self.number, self.same) {
            (1, _) => self.first.to_owned(),
            (number, true) => format!("{} (×{number})", self.first),
            (number, false) => format!("{} (×{number}, numbers differ)", self.first),
        };
        (text, self.telling)
    }
}

fn fold(text: &str) -> Vec<LineRun<'_>> {
    let mut runs: Vec<LineRun<'_>> = Vec::new();
    let (mut form, mut last_form) = (String::new(), String::new());
    for line in text.lines() {
        let telling = is_telling(line);
        form.clear();
        normalize(line, telling, &mut form);
        match runs.last_mut() {
            Some(run) if form == last_form && !line.trim().is_empty() => {
                run.same &= run.first == line;
                run.number += 1;
            }
            _ => runs.push(LineRun { first: line, number: 1, same: true, telling }),
        }
        std::mem::swap(&mut form, &mut last_form);
    }
    runs
}

/// Returns whether one of the first words of a line is a level of an error or a warning. Levels stand at the front.
fn is_telling(line: &str) -> bool {
    line.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()))
        .take(6)
        .any(|word| LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level)))
}

/// Replaces each number and id by `#`; in an error or a warning, only those of its time.
fn normalize(line: &str, telling: bool, form: &mut String) {
    let (front, rest) =
        if telling { line.split_at_checked(time_end(line)).unwrap_or((line, "")) } else { (line, "") };
    let mut left = front;
    while let Some(c) = left.chars().next() {
        if let Some(after) = behind_uuid(left) {
            form.push('#');
            left = after;
            continue;
        }
        let word_end = left.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(left.len());
        let Some((word, after)) = left.split_at_checked(word_end).filter(|(word, _)| !word.is_empty()) else {
            form.push(c);
            left = left.get(c.len_utf8()..).unwrap_or_default();
            continue;
        };
        let has_digit = word.bytes().any(|b| b.is_ascii_digit());
        let is_id = word.len() >= ID_DIGITS && word.bytes().all(|b| b.is_ascii_hexdigit());
        match word.strip_prefix("0x") {
            Some(hex) if !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit()) => form.push('#'),
            _ if has_digit && is_id => form.push('#'),
            _ if has_digit => push_without_digits(word, form),
            _ => form.push_str(word),
        }
        left = after;
    }
    form.push_str(rest);
}

/// The text after a UUID (RFC 9562, section 4) at the front.
fn behind_uuid(text: &str) -> Option<&str> {
    let (uuid, after) = text.split_at_checked(36)?;
    let groups = uuid.split('-').map(|group| (group.len(), group.bytes().all(|b| b.is_ascii_hexdigit())));
    let is_uuid = groups.eq([(8, true), (4, true), (4, true), (4, true), (12, true)]);
    (is_uuid && !after.starts_with(|c: char| c.is_ascii_alphanumeric())).then_some(after)
}

/// `12ms` and `3ms` are alike, `v1` and `w1` are not.
fn push_without_digits(word: &str, form: &mut String) {
    let mut in_number = false;
    for c in word.chars() {
        if !c.is_ascii_digit() {
            form.push(c);
        } else if !in_number {
            form.push('#');
        }
        in_number = c.is_ascii_digit();
    }
}

/// The end of the time at the front of a line: digits and the characters between them.
fn time_end(line: &str) -> usize {
    let end = line.find(|c: char| !(c.is_ascii_digit() || "-:.,/TZ+[] ".contains(c))).unwrap_or(line.len());
    let time = line.get(..end).unwrap_or_default();
    // A number alone is not a time: `404 ERROR`.
    if time.contains([':', '-', '/']) { end } else { 0 }
}

fn join(lines: &[(String, bool)]) -> String {
    lines.iter().fold(String::new(), |mut all, (line, _)| {
        all.push_str(line);
        all.push('\n');
        all
    })
}

/// Keeps errors, warnings and both ends, and counts the missing lines of each gap.
fn without_the_middle(lines: &[(String, bool)]) -> String {
    let (mut text, mut skipped) = (String::new(), 0);
    let flush = |text: &mut String, skipped: &mut usize| {
        if *skipped > 0 {
            text.push_str(&format!("[… {} left out …]\n", count(*skipped, "line")));
        }
        *skipped = 0;
    };
    for (index, (line, telling)) in lines.iter().enumerate() {
        if *telling || index < ENDS || index + ENDS >= lines.len() {
            flush(&mut text, &mut skipped);
            text.push_str(line);
            text.push('\n');
        } else {
            skipped += 1;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTX: ReducerInput<'_> = ReducerInput { args: "{}", turn: 0, budget_chars: 80_000 };

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(log(text, &CTX).as_deref(), Some(expected), "{text}");
    }

    #[test]
    fn repeated_lines_are_folded() {
        check("start\nretrying\nretrying\nretrying\nend\n", "start\nretrying (×3)\nend\n");
        check(
            "10:00:01 poll took 3 ms\n10:00:02 poll took 14 ms\n10:00:03 poll took 5 ms\nend\n",
            "10:00:01 poll took 3 ms (×3, numbers differ)\nend\n",
        );
        check(
            "id 7f3a9c21 done in 0x1F\nid deadbee0 done in 0x2\nid 00000001 done in 0xa\n",
            "id 7f3a9c21 done in 0x1F (×3, numbers differ)\n",
        );
        check(
            "GET 550e8400-e29b-41d4-a716-446655440000\nGET 6fa459ea-ee8a-3ca4-894e-db77e160355e\n",
            "GET 550e8400-e29b-41d4-a716-446655440000 (×2, numbers differ)\n",
        );
    }

    #[test]
    fn lines_that_differ_in_words_are_not() {
        for text in [
            "a\nb\nc\n",
            "facade\ndecade\n",
            "user ann logged in\nuser bob logged in\n",
            "v1\nw1\n",
            "\n\n\n",
            "a\n\n\nb\n",
        ] {
            assert_eq!(log(text, &CTX), None, "{text:?}");
        }
    }

    #[test]
    fn numbers_in_errors_matter_and_their_time_does_not() {
        let text = "10:00:01 ERROR user 17 failed\n10:00:02 ERROR user 18 failed\n";
        assert_eq!(log(text, &CTX), None);
        check(
            "2026-01-01T10:00:01Z WARN disk is full\n2026-01-01T10:00:02Z WARN disk is full\n2026-01-01T10:00:03Z WARN disk is full\n",
            "2026-01-01T10:00:01Z WARN disk is full (×3, numbers differ)\n",
        );
        assert_eq!(log("[error] code 1\n[error] code 2\n", &CTX), None);
    }

    #[test]
    fn a_long_log_keeps_errors_and_both_ends() {
        let words = ["alpha", "beta", "gamma", "delta"];
        let mut text: String =
            (0..2000).map(|n| format!("INFO {} {} is done\n", words[n % 4], "x".repeat(n % 7))).collect();
        text.insert_str(text.len() / 2 / 20 * 20, "\nWARN half\nlevel=error msg=\"why\"\n");
        let reduced = log(&text, &CTX).unwrap();
        assert!(chars(&reduced) < 1500, "{reduced}");
        for kept in
            ["INFO alpha", "\nWARN half\n", "level=error msg=\"why\"\n", " lines left out …]\n", "is done\n"]
        {
            assert!(reduced.contains(kept), "{kept}: {reduced}");
        }
        assert!(reduced.ends_with("is done\n"));
    }
}
