//! `typecheck`.

use toolbay_sdk::prelude::*;

use crate::check::{self, CheckReport};
use crate::setup;

/// Check the types of the project, or compile it without running it, and list what is wrong. That something is wrong is a
/// result, not a failure.
#[tool(
    toolset = "code", tags = ["process"], closed_world, untrusted_output,
    process = "*", reason = "runs the checker that the operator chose",
    optional(fs_read = "**", reason = "the checker reads the code"),
    optional(fs_write = "**", reason = "checkers keep caches"),
)]
pub fn typecheck(
    /// Files or folders, if not everything.
    #[arg(default = Vec::new())]
    paths: Vec<String>,
    /// Which checker, if there are several: the operator's name for it.
    of: Option<String>,
    /// End it after this many milliseconds.
    #[arg(range(min = 1))]
    timeout_ms: Option<u32>,
) -> Result<Rendered<CheckReport>> {
    setup::check("paths", &paths)?;
    check::check(setup::command("typecheck", of.as_deref(), &[("paths", &paths)])?, timeout_ms)
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::process::Completed;
    use toolbay_sdk::testing::{FakeHost, call};

    use super::*;

    #[test]
    fn the_checker_that_is_named_runs() {
        let fake = FakeHost::new()
            .config("typecheck", json!({"rust": ["cargo", "check"], "py": ["mypy", "{paths}"]}))
            .program("cargo", |_| Completed::of(101, "", "src/lib.rs:1:1: error: no\n"))
            .program("mypy", |_| Completed::of(0, "Success\n", ""));
        let rust = fake.run(|| call::<typecheck>(json!({"of": "rust"}))).unwrap();
        assert!(rust.value.starts_with("Not clean: 1 problems"), "{}", rust.value);
        let py = fake.run(|| call::<typecheck>(json!({"of": "py", "paths": ["a.py"]}))).unwrap();
        assert_eq!(py.value, "Clean.\nSuccess\n[exit code 0]");
        assert_eq!(fake.run(|| call::<typecheck>(json!({}))).unwrap_err().subject(), Some("/of"));
    }
}
