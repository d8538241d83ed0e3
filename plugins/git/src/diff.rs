//! `diff`.

use toolbay_sdk::prelude::*;

use crate::run::{git, paths as check_paths, revision};

/// Show what changed in a Git repository, as a patch.
///
/// Without `from`, the files against the index; with `staged`, the index against the last commit; with `from`, the files
/// against that revision; with `from` and `to`, one revision against the other.
#[tool(
    title = "Git diff", toolset = "git", tags = ["git"], read_only, idempotent, closed_world, untrusted_output,
    process = "git --no-pager --no-optional-locks -c core.fsmonitor=false diff --no-color --no-ext-diff --no-textconv *",
    reason = "asks git for the differences",
    fs_read = "**", reason = "git reads the repository",
)]
pub fn diff(
    /// The folder of the repository, or one in it. Without it, the workspace.
    repository: Option<String>,
    /// Compare the index instead of the files.
    #[arg(default = false)]
    staged: bool,
    /// The revision to compare with.
    from: Option<String>,
    /// The revision that is compared with it.
    to: Option<String>,
    /// Only what is at or below these paths.
    #[arg(default = Vec::new())]
    paths: Vec<String>,
    /// Names and numbers of lines instead of the patch.
    #[arg(default = false)]
    stat: bool,
) -> Result<String> {
    check_paths(&paths)?;
    if to.is_some() && from.is_none() {
        return Err(Error::input("`to` needs `from`").at("/to"));
    }
    if to.is_some() && staged {
        return Err(Error::input("between two revisions nothing is staged").at("/staged"));
    }
    let mut args = vec!["diff", "--no-color", "--no-ext-diff", "--no-textconv"];
    args.extend(staged.then_some("--cached"));
    args.extend(stat.then_some("--stat"));
    for (name, named) in [("from", &from), ("to", &to)] {
        if let Some(named) = named {
            args.push(revision(name, named)?);
        }
    }
    let said = git(repository, &args, &paths)?;
    Ok(match (said.text.is_empty(), said.truncated) {
        (true, _) => "No differences.".to_owned(),
        (false, false) => said.text,
        (false, true) => said.text + "\n[cut off: name paths, or ask with `stat`]\n",
    })
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::process::Completed;
    use toolbay_sdk::testing::{FakeHost, call};

    use super::*;

    #[test]
    fn each_comparison_has_its_arguments() {
        let fake = FakeHost::new().program("git", |_| Completed::of(0, "+line\n", ""));
        for (args, end) in [
            (json!({}), "--no-textconv --"),
            (json!({"staged": true, "paths": ["a", "b c"]}), "--no-textconv --cached -- a b c"),
            (json!({"from": "HEAD~1"}), "--no-textconv HEAD~1 --"),
            (json!({"from": "a", "to": "b", "stat": true}), "--no-textconv --stat a b --"),
        ] {
            assert_eq!(fake.run(|| call::<diff>(args.clone())).unwrap().value, "+line\n");
            let line = fake.commands().pop().unwrap().args.join(" ");
            assert!(line.ends_with(end), "{args}: {line}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let fake = FakeHost::new().program("git", |_| Completed::of(0, "", ""));
        for (args, subject) in [
            (json!({"to": "a"}), "/to"),
            (json!({"from": "a", "to": "b", "staged": true}), "/staged"),
            (json!({"from": "-a"}), "/from"),
            (json!({"from": "a", "to": "--no-index"}), "/to"),
            (json!({"paths": ["-a"]}), "/paths/0"),
        ] {
            assert_eq!(fake.run(|| call::<diff>(args)).unwrap_err().subject(), Some(subject));
        }
        assert_eq!(fake.run(|| call::<diff>(json!({}))).unwrap().value, "No differences.");
    }
}
