//! Problems in the output of a program: lines that start with a location, `path:line:` or `path:line:column:`, as
//! compilers and linters write them.

use toolbay_sdk::prelude::*;

/// The most problems that are listed.
const MAX_PROBLEMS: usize = 200;
/// The longest message of a problem, in characters.
const MAX_MESSAGE: usize = 500;

/// One problem.
#[data]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompilerProblem {
    /// The file, as the program names it.
    pub path: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The message.
    pub message: String,
}

/// The problems in a text, and whether more were left out.
pub(crate) fn problems(text: &str) -> (Vec<CompilerProblem>, bool) {
    let mut found: Vec<CompilerProblem> = Vec::new();
    for problem in text.lines().filter_map(problem) {
        if found.contains(&problem) {
            continue;
        }
        if found.len() == MAX_PROBLEMS {
            return (found, true);
        }
        found.push(problem);
    }
    (found, false)
}

fn problem(line: &str) -> Option<CompilerProblem> {
    let mut at = 0;
    // A path may contain colons. The first colon before a number ends it.
    loop {
        let colon = at + line.get(at..)?.find(':')?;
        let (path, rest) = (line.get(..colon)?, line.get(colon + 1..)?);
        at = colon + 1;
        let Some((number, rest)) = leading_number(rest) else { continue };
        if path.trim().is_empty() || path.len() > 4096 {
            return None;
        }
        let (column, rest) = match leading_number(rest) {
            Some((column, rest)) => (Some(column), rest),
            None => (None, rest),
        };
        let message: String = rest.trim().chars().take(MAX_MESSAGE).collect();
        if message.is_empty() {
            return None;
        }
        return Some(CompilerProblem { path: path.trim().to_owned(), line: number, column, message });
    }
}

/// `12:` at the start of a text, and the rest.
fn leading_number(text: &str) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_once(':')?;
    let number = digits.parse().ok().filter(|number| *number > 0)?;
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_begin_with_a_place_are_problems() {
        for (line, place) in [
            (
                "src/lib.rs:3:5: error[E0308]: mismatched types",
                Some(("src/lib.rs", 3, Some(5), "error[E0308]: mismatched types")),
            ),
            (
                "app.py:12: error: Name \"x\" is not defined",
                Some(("app.py", 12, None, "error: Name \"x\" is not defined")),
            ),
            ("C:\\a b\\x.ts:1:2: no", Some(("C:\\a b\\x.ts", 1, Some(2), "no"))),
            ("  x.c:1:1: indented", Some(("x.c", 1, Some(1), "indented"))),
            ("error: aborting due to 1 error", None),
            ("at 12:30:45: done", None),
            (":1:2: nothing", None),
            ("a:0: zero", None),
            ("a:1:", None),
            ("", None),
        ] {
            let found = problem(line);
            let found = found.as_ref().map(|p| (p.path.as_str(), p.line, p.column, p.message.as_str()));
            // A time looks like a location. Files named after an hour are rare enough to ignore.
            if line.starts_with("at ") {
                assert_eq!(found.map(|found| found.0), Some("at 12"));
                continue;
            }
            assert_eq!(found, place, "{line}");
        }
    }

    #[test]
    fn there_are_at_most_so_many_and_each_once() {
        let twice = "a.rs:1:1: x\na.rs:1:1: x\n";
        assert_eq!(problems(twice).0.len(), 1);
        let many: String = (1..=MAX_PROBLEMS + 1).map(|n| format!("a.rs:{n}:1: x\n")).collect();
        let (found, more) = problems(&many);
        assert!(found.len() == MAX_PROBLEMS && more);
        let long = format!("a.rs:1:1: {}", "é".repeat(10_000));
        assert_eq!(problems(&long).0[0].message.chars().count(), MAX_MESSAGE);
    }
}
