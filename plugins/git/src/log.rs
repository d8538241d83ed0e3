//! `log`.

use toolbay_sdk::prelude::*;

use crate::run::{git, paths as check_paths, revision as check};

/// The separators of fields and of commits: characters that no message contains.
const FIELD: char = '\u{1f}';
const FORMAT: &str = "--format=%H%x1f%an%x1f%aI%x1f%s%x1f%b";

/// A list of commits.
#[data]
#[derive(Debug, PartialEq)]
pub struct History {
    /// The commits, newest first.
    pub commits: Vec<Commit>,
    /// Whether the last commit was cut off.
    pub truncated: bool,
}

/// One commit.
#[data]
#[derive(Debug, PartialEq)]
pub struct Commit {
    /// The full hash.
    pub hash: String,
    /// The author.
    pub author: String,
    /// The author date, ISO 8601.
    pub date: String,
    /// The first line of the message.
    pub subject: String,
    /// The rest of the message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub body: String,
}

/// List the commits of a Git repository, the newest first.
#[tool(
    title = "Git log", toolset = "git", tags = ["git"], read_only, idempotent, closed_world, untrusted_output,
    process = "git --no-pager --no-optional-locks -c core.fsmonitor=false log -z --no-color --no-show-signature --format=%H%x1f%an%x1f%aI%x1f%s%x1f%b -n <arg> <arg> -- *",
    reason = "asks git for the commits",
    fs_read = "**", reason = "git reads the repository",
)]
pub fn log(
    /// The folder of the repository, or one in it. Without it, the workspace.
    repository: Option<String>,
    /// A revision or a range, as `main` or `v1.0..HEAD`.
    #[arg(default = "HEAD")]
    revision: String,
    /// Only commits that change something at or below these paths.
    #[arg(default = Vec::new())]
    paths: Vec<String>,
    /// Show at most this many.
    #[arg(default = 10, range(min = 1, max = 500))]
    max_commits: u32,
) -> Result<Rendered<History>> {
    check_paths(&paths)?;
    let (count, revision) = (max_commits.to_string(), check("revision", &revision)?);
    let args = ["log", "-z", "--no-color", "--no-show-signature", FORMAT, "-n", &count, revision];
    let said = git(repository, &args, &paths)?;
    let commits = said.text.split('\0').filter_map(parse).collect();
    let history = History { commits, truncated: said.truncated };
    Ok(Rendered { text: show(&history), data: history })
}

fn parse(record: &str) -> Option<Commit> {
    let mut fields = record.splitn(5, FIELD).map(str::to_owned);
    Some(Commit {
        hash: fields.next()?,
        author: fields.next()?,
        date: fields.next()?,
        subject: fields.next()?,
        body: fields.next().unwrap_or_default().trim().to_owned(),
    })
}

fn show(history: &History) -> String {
    if history.commits.is_empty() {
        return "No commits.".to_owned();
    }
    let mut text = String::new();
    for commit in &history.commits {
        let hash: String = commit.hash.chars().take(12).collect();
        text.push_str(&format!("{hash} {} {}\n    {}\n", commit.date, commit.author, commit.subject));
        for line in commit.body.lines() {
            text.push_str(&format!("    {line}\n"));
        }
    }
    if history.truncated {
        text.push_str("[cut off: ask for fewer]\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::process::Completed;
    use toolbay_sdk::testing::{FakeHost, call};

    use super::*;

    #[test]
    fn commits_are_read() {
        let said = "0123456789abcdef\u{1f}Ann\u{1f}2026-01-02T03:04:05+00:00\u{1f}Fix it\u{1f}Because.\n\0\
                    fedcba\u{1f}Bob\u{1f}2026-01-01T00:00:00+00:00\u{1f}Begin\u{1f}\0";
        let fake = FakeHost::new().program("git", move |_| Completed::of(0, said, ""));
        let output =
            fake.run(|| call::<log>(json!({"revision": "main", "max_commits": 2, "paths": ["a"]}))).unwrap();
        assert_eq!(
            output.value,
            "0123456789ab 2026-01-02T03:04:05+00:00 Ann\n    Fix it\n    Because.\nfedcba 2026-01-01T00:00:00+00:00 Bob\n    Begin\n"
        );
        let args = fake.commands().pop().unwrap().args;
        assert!(args.join(" ").ends_with("-n 2 main -- a"), "{args:?}");
    }

    #[test]
    fn a_revision_is_no_option() {
        let error = FakeHost::new().run(|| call::<log>(json!({"revision": "--output=x"}))).unwrap_err();
        assert_eq!(error.subject(), Some("/revision"));
    }
}
