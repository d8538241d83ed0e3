//! One run of Git.

use toolbay_sdk::process::Command;
use toolbay_sdk::{Error, Result};

/// The options before each subcommand. With `--no-optional-locks`, a read does not write the index.
const ALWAYS: [&str; 4] = ["--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false"];

/// Runs a subcommand in `repository` and returns its output.
pub(crate) fn git(repository: Option<String>, args: &[&str], paths: &[String]) -> Result<GitOutput> {
    let mut command = Command::new("git").args(ALWAYS).args(args.iter().copied()).arg("--");
    command = command.args(paths.iter().map(String::as_str));
    command.cwd = repository;
    let done = command.run()?;
    if done.success() || done.truncated && done.exit_code.is_none() {
        return Ok(GitOutput { text: done.stdout_text(), truncated: done.truncated });
    }
    let said = done.stderr_text();
    let said = said.trim();
    let how = match done.exit_code {
        Some(code) => format!("exit code {code}"),
        None => "a signal".to_owned(),
    };
    Err(Error::failed(format!("git ended with {how}: {said}")).at("git"))
}

/// The output of a run.
#[derive(Debug)]
pub(crate) struct GitOutput {
    pub(crate) text: String,
    /// Whether the host truncated the output.
    pub(crate) truncated: bool,
}

/// Checks a revision from a model: it must not be an option or several words.
pub(crate) fn revision<'a>(argument: &str, name: &'a str) -> Result<&'a str> {
    let problem = if name.is_empty() {
        "is empty"
    } else if name.starts_with('-') {
        "begins with `-`, as an option does"
    } else if name.chars().any(|c| c.is_control() || c == ' ') {
        "has a space or a control character"
    } else {
        return Ok(name);
    };
    Err(Error::input(format!("the revision {problem}")).at(format!("/{argument}")))
}

/// Checks paths from a model. They stand after `--`. A path that begins with `-` is most likely a mistake.
pub(crate) fn paths(paths: &[String]) -> Result<()> {
    match paths.iter().position(|path| path.is_empty() || path.starts_with('-') || path.contains('\0')) {
        None => Ok(()),
        Some(at) => {
            let problem = "the path is empty or begins with `-`: write `./` before it if that is its name";
            Err(Error::input(problem).at(format!("/paths/{at}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_revision_or_path_becomes_an_option() {
        for name in ["", "-", "--output=x", "-p", "a b", "a\nb", "a\0"] {
            assert_eq!(revision("from", name).unwrap_err().subject(), Some("/from"), "{name:?}");
        }
        for name in ["HEAD", "main..dev", "v1.0^{commit}", "HEAD~3", ":/fix", "@{u}"] {
            assert_eq!(revision("from", name).unwrap(), name);
        }
        for list in [vec![""], vec!["a", "--x"], vec!["-"], vec!["a\0"]] {
            let list: Vec<String> = list.into_iter().map(str::to_owned).collect();
            assert!(paths(&list).unwrap_err().subject().unwrap().starts_with("/paths/"), "{list:?}");
        }
        assert!(paths(&["./-x".to_owned(), "a b".to_owned()]).is_ok());
    }
}
