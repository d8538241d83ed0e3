//! `lint`.

use toolbay_sdk::prelude::*;

use crate::check::{self, CheckReport};
use crate::setup;

/// Run the project's linter and list what it finds. That there are problems is a result, not a failure.
#[tool(
    toolset = "code", tags = ["process"], closed_world, untrusted_output,
    process = "*", reason = "runs the linter that the operator chose",
    optional(fs_read = "**", reason = "the linter reads the code"),
    optional(fs_write = "**", reason = "linters keep caches"),
)]
pub fn lint(
    /// Files or folders, if not everything.
    #[arg(default = Vec::new())]
    paths: Vec<String>,
    /// Which linter, if there are several: the operator's name for it.
    of: Option<String>,
    /// End it after this many milliseconds.
    #[arg(range(min = 1))]
    timeout_ms: Option<u32>,
) -> Result<Rendered<CheckReport>> {
    setup::check("paths", &paths)?;
    check::check(setup::command("lint", of.as_deref(), &[("paths", &paths)])?, timeout_ms)
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::process::Completed;
    use toolbay_sdk::serde_json::{Value, from_str};
    use toolbay_sdk::testing::{FakeHost, call};
    use toolbay_sdk::types::ErrorCode;

    use super::*;

    #[test]
    fn problems_are_listed_and_are_no_failure() {
        let fake = FakeHost::new()
            .config("lint", json!(["ruff", "check", "{paths}"]))
            .program("ruff", |_| Completed::of(1, "a.py:3:1: F401 unused\nFound 1 error.\n", "a warning"));
        let output = fake.run(|| call::<lint>(json!({"paths": ["src"]}))).unwrap();
        assert_eq!(
            output.value,
            "Not clean: 1 problems with a place.\na.py:3:1: F401 unused\nFound 1 error.\na warning\n[exit code 1]"
        );
        let data: Value = from_str(&output.structured.unwrap()).unwrap();
        let problem = json!({"path": "a.py", "line": 3, "column": 1, "message": "F401 unused"});
        let expected = json!({"clean": false, "exit_code": 1, "problems": [problem], "truncated": false});
        assert_eq!(data, expected);
        assert_eq!(fake.commands()[0].args, ["check", "src"]);
    }

    #[test]
    fn a_clean_project_is_said_to_be() {
        let fake =
            FakeHost::new().config("lint", json!(["ruff"])).program("ruff", |_| Completed::of(0, "", ""));
        assert_eq!(fake.run(|| call::<lint>(json!({}))).unwrap().value, "Clean.\n[exit code 0]");
    }

    #[test]
    fn long_output_keeps_its_end() {
        let fake = FakeHost::new()
            .budget_chars(1000)
            .config("lint", json!(["x"]))
            .program("x", |_| Completed::of(1, format!("{}\nthe end", "é".repeat(5000)), ""));
        let value = fake.run(|| call::<lint>(json!({}))).unwrap().value;
        assert!(value.ends_with("the end\n[exit code 1]") && value.chars().count() <= 1000, "{value}");
        assert!(value.contains("characters left out]"), "{value}");
    }

    #[test]
    fn what_can_not_run_is_an_error() {
        let fake = FakeHost::new().config("lint", json!(["absent"]));
        let error = fake.run(|| call::<lint>(json!({}))).unwrap_err();
        assert_eq!(error.code(), ErrorCode::NotAvailable);
        let error =
            FakeHost::new().config("lint", json!(["x"])).run(|| call::<lint>(json!({"paths": ["--fix"]})));
        assert_eq!(error.unwrap_err().subject(), Some("/paths/0"));
        let error = FakeHost::new().run(|| call::<lint>(json!({}))).unwrap_err();
        assert_eq!((error.code(), error.subject()), (ErrorCode::NotAvailable, Some("config")));
    }
}
