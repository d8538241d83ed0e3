//! `grep`.

use toolbay_sdk::prelude::*;

use crate::pattern;

/// The result of `grep`.
#[data]
#[derive(Debug, PartialEq)]
pub struct Matches {
    /// The matching lines, in order.
    pub matches: Vec<Match>,
    /// The number of matching lines, shown or not.
    pub total: usize,
}

/// A matching line.
#[data]
#[derive(Debug, PartialEq)]
pub struct Match {
    /// Its number, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
}

/// Find the lines of a text that match a regular expression.
///
/// Matching lines come as `12:text`, lines of context as `11-text`, with `--` between groups that do not touch.
#[tool(toolset = "text", tags = ["search", "regex"], read_only, idempotent, closed_world)]
pub fn grep(
    /// The text to search.
    text: String,
    /// Regular expression in the syntax of Rust's `regex` crate: no look-around, no back-references.
    #[arg(length(min = 1, max = 4096))]
    pattern: String,
    /// Do not distinguish upper and lower case.
    #[arg(default = false)]
    ignore_case: bool,
    /// Lines of context before and after each match.
    #[arg(default = 0, range(min = 0, max = 20))]
    context: usize,
    /// Show at most this many matching lines.
    #[arg(default = 100, range(min = 1, max = 10_000))]
    max_matches: usize,
) -> Result<Rendered<Matches>> {
    let regex = pattern::compile(&pattern, ignore_case)?;
    let lines: Vec<&str> = text.lines().collect();
    let matching: Vec<usize> =
        lines.iter().enumerate().filter(|(_, line)| regex.is_match(line)).map(|(index, _)| index).collect();
    let total = matching.len();
    let shown: Vec<usize> = matching.into_iter().take(max_matches).collect();

    let mut rendered = render(&lines, &shown, context);
    if total == 0 {
        rendered.push_str("No line matches.\n");
    } else if total > shown.len() {
        rendered.push_str(&format!(
            "[{} of {total} matching lines shown; narrow the pattern or raise max_matches]\n",
            shown.len()
        ));
    }
    let line =
        |index: &usize| lines.get(*index).map(|text| Match { line: index + 1, text: (*text).to_owned() });
    let matches = shown.iter().filter_map(line).collect();
    Ok(Rendered { text: rendered, data: Matches { matches, total } })
}

/// Writes the matching lines with their context, each line once.
fn render(lines: &[&str], matching: &[usize], context: usize) -> String {
    let mut text = String::new();
    // The line after the last written one.
    let mut next = 0;
    for (position, &index) in matching.iter().enumerate() {
        let start = index.saturating_sub(context).max(next);
        let following = matching.get(position + 1).copied().unwrap_or(usize::MAX);
        let end = (index + context + 1).min(lines.len()).min(following);
        if context > 0 && next > 0 && start > next {
            text.push_str("--\n");
        }
        for (number, line) in lines.iter().enumerate().take(end).skip(start) {
            let mark = if number == index { ':' } else { '-' };
            text.push_str(&format!("{}{mark}{line}\n", number + 1));
        }
        next = end;
    }
    text
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::types::ErrorCode;

    use super::*;

    const TEXT: &str = "one\ntwo\nthree\nfour\nfive\nsix\nTwo\n";

    #[track_caller]
    fn check(pattern: &str, ignore_case: bool, context: usize, max_matches: usize, expected: &str) {
        let found = grep(TEXT.to_owned(), pattern.to_owned(), ignore_case, context, max_matches).unwrap();
        assert_eq!(found.text, expected);
    }

    #[test]
    fn lines_come_with_numbers_and_context() {
        check("^two", false, 0, 9, "2:two\n");
        check("^two", true, 0, 9, "2:two\n7:Two\n");
        check("^two", true, 1, 9, "1-one\n2:two\n3-three\n--\n6-six\n7:Two\n");
        check("o", false, 1, 9, "1:one\n2:two\n3-three\n4:four\n5-five\n6-six\n7:Two\n");
        check("one|three", false, 1, 9, "1:one\n2-two\n3:three\n4-four\n");
        check("^four", false, 1, 9, "3-three\n4:four\n5-five\n");
        check("seven", false, 3, 9, "No line matches.\n");
    }

    #[test]
    fn what_is_left_out_is_said_and_counted() {
        check(
            "o",
            false,
            0,
            2,
            "1:one\n2:two\n[2 of 4 matching lines shown; narrow the pattern or raise max_matches]\n",
        );
        let found = grep(TEXT.to_owned(), "o".to_owned(), false, 0, 1).unwrap();
        assert_eq!(found.data.total, 4);
        assert_eq!(found.data.matches, [Match { line: 1, text: "one".to_owned() }]);
    }

    #[test]
    fn a_bad_or_huge_pattern_points_at_the_argument() {
        for pattern in ["(", r"\w{1000}{1000}"] {
            let error = grep(TEXT.to_owned(), pattern.to_owned(), false, 0, 1).unwrap_err();
            assert_eq!(
                (error.code(), error.subject()),
                (ErrorCode::InputInvalid, Some("/pattern")),
                "{error:?}"
            );
        }
    }
}
