//! `tidy`: project rules that neither the compiler nor Clippy checks. Each guards something that a user would notice.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Checks the whole project.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let errors = machine_paths(workspace)?;
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    println!("tidy: paths");
    Ok(())
}

/// The lines that name the checkout or the user's home, which other machines do not have.
fn machine_paths(workspace: &Path) -> Result<Vec<String>> {
    let home = std::env::var("HOME").ok().filter(|home| home.len() > 1).map(|home| format!("{home}/"));
    let paths = home.into_iter().chain([workspace.display().to_string()]);
    let mut errors = Vec::new();
    for path in paths {
        let mut git = Command::new("git");
        // What is or may be committed.
        git.args(["grep", "--untracked", "--line-number", "-I", "--fixed-strings", "-e", &path]);
        let output = git.current_dir(workspace).output().context("cannot run `git`")?;
        // It ends with 1 if it finds nothing.
        let ran = matches!(output.status.code(), Some(0 | 1));
        ensure!(ran, "`git grep`: {}", String::from_utf8_lossy(&output.stderr));
        let found = String::from_utf8(output.stdout)?;
        errors.extend(found.lines().map(|line| format!("a path of this machine: {line}")));
    }
    Ok(errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_this_machine_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let git = Command::new("git").arg("init").current_dir(&folder).output().unwrap();
        assert!(git.status.success(), "{git:?}");
        assert_eq!(machine_paths(folder.path()).unwrap(), [] as [&str; 0]);
        std::fs::write(folder.path().join("a.md"), format!("see\n{}/b\n", folder.path().display())).unwrap();
        let errors = machine_paths(folder.path()).unwrap();
        assert!(errors.len() == 1 && errors.concat().contains("a.md:2:"), "{errors:?}");
    }
}
