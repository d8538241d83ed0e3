//! `status`.

use toolbay_sdk::prelude::*;

use crate::run::{git, paths as check_paths};

/// The difference from the last commit.
#[data]
#[derive(Debug, Default, PartialEq)]
pub struct GitStatus {
    /// The branch; absent for a detached HEAD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The upstream branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Commits that the upstream lacks.
    pub ahead: u64,
    /// Commits that only the upstream has.
    pub behind: u64,
    /// The changed files.
    pub files: Vec<ChangedFile>,
    /// Whether files were left out.
    pub truncated: bool,
}

/// A changed file.
#[data]
#[derive(Debug, PartialEq)]
pub struct ChangedFile {
    /// The path from the root of the repository.
    pub path: String,
    /// The path before a rename or copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// How the index differs from the last commit: `modified`, `added`, `deleted`, `renamed`, `copied`, `type-changed`,
    /// `conflict`, or absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staged: Option<String>,
    /// How the file differs from the index: one of the same words, or `untracked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unstaged: Option<String>,
}

/// Show which files of a Git repository differ from its last commit, and how its branch stands.
#[tool(
    title = "Git status", toolset = "git", tags = ["git"], read_only, idempotent, closed_world, untrusted_output,
    process = "git --no-pager --no-optional-locks -c core.fsmonitor=false status --porcelain=v2 --branch -z -- *",
    reason = "asks git for the status",
    fs_read = "**", reason = "git reads the repository",
)]
pub fn status(
    /// The folder of the repository, or one in it. Without it, the workspace.
    repository: Option<String>,
    /// Only what is at or below these paths.
    #[arg(default = Vec::new())]
    paths: Vec<String>,
) -> Result<Rendered<GitStatus>> {
    check_paths(&paths)?;
    let said = git(repository, &["status", "--porcelain=v2", "--branch", "-z"], &paths)?;
    let mut status = parse(&said.text);
    status.truncated = said.truncated;
    Ok(Rendered { text: show(&status), data: status })
}

/// Parses `--porcelain=v2 -z` (git-status(1), "Porcelain Format Version 2").
fn parse(text: &str) -> GitStatus {
    let mut status = GitStatus::default();
    let mut records = text.split('\0');
    while let Some(record) = records.next() {
        let (kind, rest) = record.split_once(' ').unwrap_or((record, ""));
        match kind {
            "#" => header(rest, &mut status),
            // XY and six more fields come before the path.
            "1" => status.files.extend(changed(rest, 7, None)),
            "2" => {
                let from = records.next().map(str::to_owned);
                status.files.extend(changed(rest, 8, from));
            }
            "u" => status.files.extend(changed(rest, 9, None).map(|file| ChangedFile {
                staged: Some("conflict".to_owned()),
                unstaged: Some("conflict".to_owned()),
                ..file
            })),
            "?" => status.files.push(ChangedFile {
                path: rest.to_owned(),
                from: None,
                staged: None,
                unstaged: Some("untracked".to_owned()),
            }),
            _ => {}
        }
    }
    status
}

fn header(text: &str, status: &mut GitStatus) {
    match text.split_once(' ') {
        Some(("branch.head", "(detached)")) => {}
        Some(("branch.head", name)) => status.branch = Some(name.to_owned()),
        Some(("branch.upstream", name)) => status.upstream = Some(name.to_owned()),
        Some(("branch.ab", counts)) => {
            let (ahead, behind) = counts.split_once(' ').unwrap_or((counts, ""));
            status.ahead = ahead.trim_start_matches('+').parse().unwrap_or(0);
            status.behind = behind.trim_start_matches('-').parse().unwrap_or(0);
        }
        _ => {}
    }
}

fn changed(text: &str, fields_before: usize, from: Option<String>) -> Option<ChangedFile> {
    let path = text.splitn(fields_before + 1, ' ').nth(fields_before)?;
    let mut states = text.chars();
    let (staged, unstaged) = (states.next().and_then(word), states.next().and_then(word));
    Some(ChangedFile { path: path.to_owned(), from, staged, unstaged })
}

fn word(state: char) -> Option<String> {
    let word = match state {
        'M' => "modified",
        'A' => "added",
        'D' => "deleted",
        'R' => "renamed",
        'C' => "copied",
        'T' => "type-changed",
        'U' => "conflict",
        _ => return None,
    };
    Some(word.to_owned())
}

fn show(status: &GitStatus) -> String {
    let branch = status.branch.as_deref().unwrap_or("no branch");
    let mut text = match &status.upstream {
        Some(upstream) => {
            format!("On {branch}, {} ahead of and {} behind {upstream}.\n", status.ahead, status.behind)
        }
        None => format!("On {branch}.\n"),
    };
    if status.files.is_empty() {
        text.push_str("Nothing differs from the last commit.");
    }
    for file in &status.files {
        let staged = file.staged.as_ref().map(|state| format!("{state} in the index"));
        let states: Vec<String> = staged.into_iter().chain(file.unstaged.clone()).collect();
        let from = file.from.as_ref().map_or_else(String::new, |from| format!(" (was {from:?})"));
        text.push_str(&format!("{}: {}{from}\n", file.path, states.join(", ")));
    }
    if status.truncated {
        text.push_str("[there are more]\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::process::Completed;
    use toolbay_sdk::testing::{FakeHost, call};
    use toolbay_sdk::types::ErrorCode;

    use super::*;

    const SAID: &str = "# branch.oid 1\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +2 -3\0\
        1 .M N... 100644 100644 100644 a a src/a b.rs\0\
        1 AM N... 000000 100644 100644 a a new\0\
        2 R. N... 100644 100644 100644 a a R100 to name\0from name\0\
        u UU N... 1 2 3 4 a b c both\0? un tracked\0! ignored\0";

    #[test]
    fn the_records_are_read() {
        let fake = FakeHost::new().program("git", |_| Completed::of(0, SAID, ""));
        let output = fake.run(|| call::<status>(json!({"repository": "sub", "paths": ["src"]}))).unwrap();
        let expected = "On main, 2 ahead of and 3 behind origin/main.\nsrc/a b.rs: modified\n\
            new: added in the index, modified\nto name: renamed in the index (was \"from name\")\n\
            both: conflict in the index, conflict\nun tracked: untracked\n";
        assert_eq!(output.value, expected);
        let command = fake.commands().pop().unwrap();
        assert_eq!(command.cwd.as_deref(), Some("sub"));
        assert_eq!(
            command.args.join(" "),
            "--no-pager --no-optional-locks -c core.fsmonitor=false status --porcelain=v2 --branch -z -- src"
        );
        let clean = FakeHost::new().program("git", |_| Completed::of(0, "# branch.head (detached)\0", ""));
        let output = clean.run(|| call::<status>(json!({}))).unwrap();
        assert_eq!(output.value, "On no branch.\nNothing differs from the last commit.");
    }

    #[test]
    fn a_failure_and_a_refusal_say_why() {
        let fake =
            FakeHost::new().program("git", |_| Completed::of(128, "", "fatal: not a git repository\n"));
        let error = fake.run(|| call::<status>(json!({}))).unwrap_err();
        assert_eq!(error.message(), "git ended with exit code 128: fatal: not a git repository");
        let error = fake.run(|| call::<status>(json!({"paths": ["--x"]}))).unwrap_err();
        assert_eq!((error.code(), error.subject()), (ErrorCode::InputInvalid, Some("/paths/0")));
        let error = FakeHost::new().run(|| call::<status>(json!({}))).unwrap_err();
        assert_eq!(error.code(), ErrorCode::NotAvailable);
    }
}
