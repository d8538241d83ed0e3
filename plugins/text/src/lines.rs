//! `slice_lines`.

use toolbay_sdk::prelude::*;

/// Take some lines out of a text, by number.
#[tool(toolset = "text", tags = ["lines"], read_only, idempotent, closed_world)]
pub fn slice_lines(
    /// The text.
    text: String,
    /// The first line to take, from 1; a negative number counts from the end, -1 is the last line.
    #[arg(default = 1)]
    start: i64,
    /// The last line to take, counted likewise.
    #[arg(default = -1)]
    end: i64,
) -> Result<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let start = position(start, lines.len(), "/start")?;
    let end = position(end, lines.len(), "/end")?;
    Ok(lines.into_iter().take(end).skip(start.saturating_sub(1)).collect())
}

/// Returns a line number counted from 1. Lines before the first have number 0.
fn position(number: i64, lines: usize, argument: &str) -> Result<usize> {
    let magnitude = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
    match number {
        0 => Err(Error::input("lines are counted from 1, or from -1 backwards").at(argument)),
        1.. => Ok(magnitude),
        _ => Ok((lines + 1).saturating_sub(magnitude)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(start: i64, end: i64, expected: &str) {
        assert_eq!(slice_lines("a\nb\nc\n".to_owned(), start, end).unwrap(), expected);
    }

    #[test]
    fn lines_are_counted_from_both_ends() {
        check(1, -1, "a\nb\nc\n");
        check(2, 2, "b\n");
        check(-2, -1, "b\nc\n");
        check(-9, 1, "a\n");
        check(3, 9, "c\n");
        check(3, 2, "");
        check(4, 9, "");
        check(1, -9, "");
        check(i64::MIN, i64::MAX, "a\nb\nc\n");
    }

    #[test]
    fn there_is_no_line_zero() {
        let error = slice_lines("a".to_owned(), 1, 0).unwrap_err();
        assert_eq!(error.subject(), Some("/end"));
    }
}
