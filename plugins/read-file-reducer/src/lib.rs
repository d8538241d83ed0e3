//! Shortens what `read_file` gives: of a long file that was asked for as a whole, the first lines and a note.
//!
//! Whoever names lines gets them, however many; errors, and everything beside the text, pass as they are. The result is
//! never longer than what came in, and reducing it again changes nothing.

use toolbay_sdk::prelude::*;
use toolbay_sdk::serde_json::Value;

/// As many lines as a model reads at once without losing the thread; exactly that many are left alone.
const KEPT_LINES: usize = 200;

/// The arguments that ask for certain lines.
const RANGE_ARGUMENTS: [&str; 2] = ["start_line", "end_line"];

/// Keeps the first 200 lines of a long file, and says how to get the others.
#[reducer("read_file")]
pub fn head(input: &ToolResult, ctx: &ReduceContext) -> Option<ToolResult> {
    let output = input.as_ref().ok()?;
    if asks_for_lines(ctx) {
        return None;
    }
    let value = shorten(&output.value)?;
    Some(Ok(Output {
        value,
        structured: output.structured.clone(),
        content: output.content.clone(),
        cost_usd: output.cost_usd,
        meta: output.meta.clone(),
    }))
}

/// Tells whether the call named lines. Arguments that can not be read might have, so they count as such.
fn asks_for_lines(ctx: &ReduceContext) -> bool {
    let Ok(Value::Object(args)) = toolbay_sdk::serde_json::from_str(&ctx.args) else { return true };
    RANGE_ARGUMENTS.iter().any(|name| args.get(*name).is_some_and(|value| !value.is_null()))
}

/// Returns a shorter text, or nothing if the text is short enough or would not become shorter.
fn shorten(text: &str) -> Option<String> {
    // A line break at the end does not begin another line.
    let lines = text.lines().count();
    if lines <= KEPT_LINES || is_shortened(text, lines) {
        return None;
    }
    let kept_bytes: usize = text.split_inclusive('\n').take(KEPT_LINES).map(str::len).sum();
    let (kept, _dropped) = text.split_at_checked(kept_bytes)?;
    let shortened = format!("{}\n{}", header(lines), kept.strip_suffix('\n').unwrap_or(kept));
    // Characters too: dropping long characters for short ones would save bytes only.
    let shorter = shortened.len() <= text.len() && shortened.chars().count() <= text.chars().count();
    shorter.then_some(shortened)
}

fn header(lines: usize) -> String {
    format!(
        "File is {lines} lines. Showing lines 1-{KEPT_LINES}. Call read_file with start_line/end_line for more."
    )
}

/// Tells whether a text is what [`shorten`] makes: its header, to the letter, and as many lines as it says.
fn is_shortened(text: &str, lines: usize) -> bool {
    let Some((first, _)) = text.split_once('\n') else { return false };
    let claimed =
        first.strip_prefix("File is ").and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok());
    lines == KEPT_LINES + 1 && claimed.is_some_and(|claimed| claimed > KEPT_LINES && header(claimed) == first)
}

plugin! { reducers: [head] }

#[cfg(test)]
mod tests {
    use toolbay_sdk::types::{BlockBody, ErrorCode, ToolError};

    use super::*;

    fn context(args: &str) -> ReduceContext {
        ReduceContext {
            tool_name: "read_file".to_owned(),
            args: args.to_owned(),
            turn_count: 1,
            budget_chars: 20_000,
        }
    }

    fn file(lines: usize) -> String {
        (1..=lines).map(|line| format!("this is line {line}\n")).collect()
    }

    fn reduce(text: &str, args: &str) -> Option<String> {
        head(&Ok(Output::new(text)), &context(args)).map(|result| result.unwrap().value)
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
        assert_eq!(reduce(&file(200), "{}"), None);
        assert_eq!(reduce(file(200).trim_end(), "{}"), None);
        assert!(reduce(&file(210), "{}").unwrap().starts_with("File is 210 lines."));
    }

    #[test]
    fn lines_that_were_asked_for_are_left_alone() {
        for args in [r#"{"start_line": 1}"#, r#"{"end_line": 300}"#, r#"{"start_line": 1, "end_line": 300}"#]
        {
            assert_eq!(reduce(&file(300), args), None, "{args}");
        }
        assert!(reduce(&file(300), r#"{"start_line": null, "end_line": null}"#).is_some());
        assert!(reduce(&file(300), r#"{"lineStart": 1}"#).is_some(), "not an argument of ours");
        assert_eq!(reduce(&file(300), "not JSON"), None);
    }

    #[test]
    fn reducing_twice_is_reducing_once() {
        let once = reduce(&file(400), "{}").unwrap();
        assert_eq!(reduce(&once, "{}"), None);
        // A file that only begins like it is a file.
        let other = format!("File is 400 lines. Showing lines 1-200.\n{}", file(300));
        assert!(reduce(&other, "{}").unwrap().starts_with("File is 301 lines."));
        let longer = format!("{}\n{}", header(400), file(300));
        assert!(reduce(&longer, "{}").unwrap().starts_with("File is 301 lines."));
    }

    #[test]
    fn the_result_is_never_longer() {
        assert_eq!(reduce(&"\n".repeat(201), "{}"), None);
        assert_eq!(reduce(&format!("{}{}", "a\n".repeat(200), "é".repeat(50)), "{}"), None);
        for lines in 195..260 {
            for line in ["", "x", "é", "a line of some length"] {
                let text = format!("{line}\n").repeat(lines);
                if let Some(reduced) = reduce(&text, "{}") {
                    assert!(reduced.chars().count() <= text.chars().count() && reduced.len() <= text.len());
                    assert_eq!(reduce(&reduced, "{}"), None);
                }
            }
        }
    }

    #[test]
    fn an_error_passes_as_it_is() {
        let code = ErrorCode::ExecutionFailed;
        let error = ToolError { code, message: file(400), subject: None, cost_usd: None };
        assert_eq!(head(&Err(error), &context("{}")), None);
    }

    #[test]
    fn everything_beside_the_text_is_kept() {
        let output = Output {
            structured: Some("{\"lines\":400}".to_owned()),
            meta: Some("{}".to_owned()),
            ..Output::new(file(400))
        };
        let output = output.block(BlockBody::Text("more".to_owned())).cost_usd(0.5);
        let reduced = head(&Ok(output.clone()), &context("{}")).unwrap().unwrap();
        assert_ne!(reduced.value, output.value);
        assert_eq!(reduced, Output { value: reduced.value.clone(), ..output });
    }
}
