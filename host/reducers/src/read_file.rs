//! `read_file`: the first lines of a long file that was requested as a whole.
//!
//! ```text
//! 400 lines  ->  File is 400 lines. Showing lines 1-200. Call read_file with start_line/end_line for more.
//!                … lines 1 to 200
//! ```
//!
//! A request for certain lines is never shortened.

use serde_json::{Map, Value};

use crate::cut::chars;
use crate::{ReducerInput, law};

/// Roughly what a model reads at once. A file of exactly this length is unchanged.
const KEPT_LINES: usize = 200;

/// Arguments that request a part of a file, in the spellings of common tools, in lower case, without `_` and `-`.
const RANGE_ARGUMENTS: &[&str] = &[
    "beginline",
    "endline",
    "endlineno",
    "endoffset",
    "end",
    "firstline",
    "from",
    "fromline",
    "head",
    "lastline",
    "length",
    "limit",
    "linecount",
    "lineend",
    "lineoffset",
    "linerange",
    "lines",
    "linestart",
    "maxlines",
    "numlines",
    "offset",
    "page",
    "range",
    "ranges",
    "skip",
    "start",
    "startline",
    "startlineno",
    "startoffset",
    "tail",
    "toline",
    "viewrange",
];

/// Pairs of arguments for a range of lines. The first pair is that of the plugin `files`.
const SPELLINGS: [[&str; 2]; 6] = [
    ["start_line", "end_line"],
    ["startLine", "endLine"],
    ["lineStart", "lineEnd"],
    ["line_start", "line_end"],
    ["offset", "limit"],
    ["start", "end"],
];

/// Keeps the first 200 lines of a long file, and names the arguments for the rest.
#[must_use]
pub fn read_file(text: &str, ctx: &ReducerInput<'_>) -> Option<String> {
    // Unreadable arguments might request lines, so they count as if they did.
    let Ok(Value::Object(args)) = serde_json::from_str(ctx.args) else { return None };
    if asks_for_lines(&args) {
        return None;
    }
    let spelling = spelling(&args);
    law::apply(text, ctx, |text, ctx| shorten(text, spelling, ctx.budget_chars))
}

fn asks_for_lines(args: &Map<String, Value>) -> bool {
    args.iter().any(|(name, value)| {
        let plain: String =
            name.chars().filter(|c| !matches!(c, '_' | '-')).map(|c| c.to_ascii_lowercase()).collect();
        !value.is_null() && RANGE_ARGUMENTS.contains(&plain.as_str())
    })
}

/// The tool's arguments for lines: those that the call set to `null`, or those of the plugin `files`.
fn spelling(args: &Map<String, Value>) -> [&'static str; 2] {
    let [files, ..] = SPELLINGS;
    SPELLINGS.into_iter().find(|names| names.iter().any(|name| args.contains_key(*name))).unwrap_or(files)
}

fn shorten(text: &str, spelling: [&str; 2], budget: usize) -> Option<String> {
    // A line break at the end does not begin another line.
    let lines = text.lines().count();
    if is_shortened(text, lines) || (lines <= KEPT_LINES && (text.len() <= budget || chars(text) <= budget)) {
        return None;
    }
    let mut room = budget.checked_sub(chars(&header(lines, KEPT_LINES, spelling)) + 1)?;
    let (mut kept_bytes, mut kept_lines) = (0, 0);
    for line in text.split_inclusive('\n').take(KEPT_LINES) {
        let Some(left) = room.checked_sub(chars(line)) else { break };
        (room, kept_bytes, kept_lines) = (left, kept_bytes + line.len(), kept_lines + 1);
    }
    if kept_lines == 0 {
        return None;
    }
    let kept = text.get(..kept_bytes)?;
    Some(format!("{}\n{}", header(lines, kept_lines, spelling), kept.strip_suffix('\n').unwrap_or(kept)))
}

fn header(lines: usize, kept: usize, [start, end]: [&str; 2]) -> String {
    format!("File is {lines} lines. Showing lines 1-{kept}. Call read_file with {start}/{end} for more.")
}

/// Returns whether a text is a result of [`shorten`]: its exact header, and as many lines as it says. A pointer to
/// saved output may follow.
fn is_shortened(text: &str, lines: usize) -> bool {
    let read = || {
        let (first, _) = text.split_once('\n')?;
        let (claimed, rest) = first.strip_prefix("File is ")?.split_once(" lines. Showing lines 1-")?;
        let (kept, _) = rest.split_once('.')?;
        let (claimed, kept): (usize, usize) = (claimed.parse().ok()?, kept.parse().ok()?);
        let same = SPELLINGS.iter().any(|spelling| header(claimed, kept, *spelling) == first);
        Some(same && claimed > kept && kept <= KEPT_LINES && (kept + 1..=kept + 2).contains(&lines))
    };
    read().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(lines: usize) -> String {
        (1..=lines).map(|line| format!("this is line {line}\n")).collect()
    }

    fn reduce(text: &str, args: &str) -> Option<String> {
        read_file(text, &ReducerInput { args, turn: 1, budget_chars: 20_000 })
    }

    #[test]
    fn a_long_file_is_cut_and_says_so() {
        let reduced = reduce(&file(400), r#"{"path": "a"}"#).unwrap();
        let lines: Vec<_> = reduced.lines().collect();
        assert_eq!(lines.len(), 201);
        assert_eq!(
            lines[0],
            "File is 400 lines. Showing lines 1-200. Call read_file with start_line/end_line for more."
        );
        assert_eq!((lines[1], lines[200]), ("this is line 1", "this is line 200"));
    }

    #[test]
    fn a_line_break_at_the_end_is_not_a_line() {
        assert_eq!(reduce(&file(199), "{}"), None);
        assert_eq!(reduce(&file(200), "{}"), None);
        assert_eq!(reduce(file(200).trim_end(), "{}"), None);
        assert!(reduce(&file(210), "{}").unwrap().starts_with("File is 210 lines."));
        assert!(reduce(&file(210).replace('\n', "\r\n"), "{}").unwrap().starts_with("File is 210 lines."));
    }

    #[test]
    fn lines_that_were_asked_for_are_left_alone() {
        for name in [
            "start_line",
            "end_line",
            "startLine",
            "endLine",
            "lineStart",
            "lineEnd",
            "line_start",
            "line_end",
            "offset",
            "limit",
            "start",
            "end",
            "view_range",
            "lines",
            "head",
            "tail",
            "max_lines",
            "from",
            "to_line",
            "range",
        ] {
            assert_eq!(reduce(&file(300), &format!(r#"{{"{name}": 1}}"#)), None, "{name}");
            assert!(reduce(&file(300), &format!(r#"{{"{name}": null}}"#)).is_some(), "{name}");
        }
        assert_eq!(reduce(&file(400), r#"{"start_line": 1, "end_line": 300}"#), None);
        assert_eq!(reduce(&file(300), r#"{"view_range": [1, 250]}"#), None);
        assert!(reduce(&file(300), r#"{"path": "start", "encoding": "utf-8"}"#).is_some());
        for args in ["", "not JSON", "[]", "null"] {
            assert_eq!(reduce(&file(300), args), None, "{args}");
        }
    }

    #[test]
    fn the_hint_names_the_arguments_the_tool_has() {
        for (args, hint) in [
            ("{}", "start_line/end_line"),
            (r#"{"lineStart": null}"#, "lineStart/lineEnd"),
            (r#"{"offset": null, "limit": null}"#, "offset/limit"),
        ] {
            assert!(
                reduce(&file(400), args).unwrap().contains(&format!("Call read_file with {hint} for more.")),
                "{args}"
            );
        }
    }

    #[test]
    fn a_smaller_budget_takes_fewer_lines_and_says_how_many() {
        let text = file(150);
        let ctx = ReducerInput { args: "{}", turn: 1, budget_chars: 1000 };
        let reduced = read_file(&text, &ctx).unwrap();
        let kept = reduced.lines().count() - 1;
        assert!(chars(&reduced) <= 1000 && kept > 40, "{reduced}");
        assert!(reduced.starts_with(&format!("File is 150 lines. Showing lines 1-{kept}. ")), "{reduced}");
        assert_eq!(read_file(&"x".repeat(5000), &ctx), None, "one line: the host cuts it");
    }

    #[test]
    fn reducing_twice_is_reducing_once() {
        let once = reduce(&file(400), "{}").unwrap();
        assert_eq!(reduce(&once, "{}"), None);
        // A file with a similar first line is a file.
        let other = format!("File is 400 lines. Showing lines 1-200.\n{}", file(300));
        assert!(reduce(&other, "{}").unwrap().starts_with("File is 301 lines."));
        let longer = format!("{}\n{}", header(400, 200, SPELLINGS[0]), file(300));
        assert!(reduce(&longer, "{}").unwrap().starts_with("File is 301 lines."));
    }
}
