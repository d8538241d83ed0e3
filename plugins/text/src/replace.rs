//! `replace`.

use regex::NoExpand;
use toolbay_sdk::prelude::*;

use crate::pattern;

/// The result of `replace`.
#[data]
#[derive(Debug)]
pub struct ReplaceReport {
    /// The changed text.
    pub text: String,
    /// The number of replacements.
    pub replaced: usize,
}

/// Replace what matches a pattern in a text, and return the changed text.
///
/// In the replacement of a regular expression, `$1` or `${name}` stand for a group and `$$` for a dollar sign.
#[tool(toolset = "text", tags = ["edit", "regex"], read_only, idempotent, closed_world)]
pub fn replace(
    /// The text.
    text: String,
    /// What to look for.
    #[arg(length(min = 1, max = 4096))]
    pattern: String,
    /// What to put in its place.
    replacement: String,
    /// Take pattern and replacement literally, not as a regular expression.
    #[arg(default = true)]
    literal: bool,
    /// Do not distinguish upper and lower case.
    #[arg(default = false)]
    ignore_case: bool,
    /// Replace at most this many places, from the start; 0 is all.
    #[arg(default = 0)]
    max_replacements: usize,
) -> Result<Rendered<ReplaceReport>> {
    let source = if literal { regex::escape(&pattern) } else { pattern };
    let regex = pattern::compile(&source, ignore_case)?;
    let places = if max_replacements == 0 { usize::MAX } else { max_replacements };
    let replaced = regex.find_iter(&text).take(places).count();
    let changed = if literal {
        regex.replacen(&text, max_replacements, NoExpand(&replacement))
    } else {
        regex.replacen(&text, max_replacements, replacement.as_str())
    };
    let text = changed.into_owned();
    Ok(Rendered { text: text.clone(), data: ReplaceReport { text, replaced } })
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::serde_json;
    use toolbay_sdk::testing::call;

    use super::*;

    #[track_caller]
    fn check(args: serde_json::Value, expected: &str, replaced: usize) {
        let output = call::<replace>(args).unwrap();
        assert_eq!(output.value, expected);
        assert!(output.structured.unwrap().ends_with(&format!("\"replaced\":{replaced}}}")));
    }

    #[test]
    fn literal_unless_asked() {
        check(json!({"text": "a.b.c", "pattern": ".", "replacement": "$1"}), "a$1b$1c", 2);
        check(
            json!({"text": "a.b.c", "pattern": ".", "replacement": "-", "max_replacements": 1}),
            "a-b.c",
            1,
        );
        check(json!({"text": "Aa", "pattern": "a", "replacement": "b", "ignore_case": true}), "bb", 2);
        check(json!({"text": "x", "pattern": "y", "replacement": ""}), "x", 0);
    }

    #[test]
    fn groups_in_regular_expressions() {
        let args = json!({"text": "k=v", "pattern": r"(\w)=(\w)", "replacement": "$2=$1", "literal": false});
        check(args, "v=k", 1);
    }
}
