//! `tidy`: project rules that neither the compiler nor Clippy checks. Each guards something that a user would notice.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The contract, and its copies in the SDKs: a published package must be self-contained.
const CONTRACT: &str = "wit";
const COPIES: [&str; 4] = ["sdk/rust/wit", "sdk/js/wit", "sdk/python/toolbay/wit", "sdk/c/wit"];

/// Checks the whole project.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let mut errors = differing_copies(workspace)?;
    errors.extend(machine_paths(workspace)?);
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    println!("tidy: copies of the contract, paths");
    Ok(())
}

/// The copies of the contract that differ from it.
fn differing_copies(workspace: &Path) -> Result<Vec<String>> {
    let contract = files(&workspace.join(CONTRACT))?;
    let mut errors = Vec::new();
    for copy in COPIES {
        if files(&workspace.join(copy))? != contract {
            errors.push(format!("`{copy}` differs from `{CONTRACT}`: copy its files, do not edit the copy"));
        }
    }
    Ok(errors)
}

/// The files of a folder, without those of its folders: the contract has released versions there.
fn files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.insert(entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?);
        }
    }
    Ok(files)
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
    use tempfile::TempDir;

    use super::*;

    /// A new repository with these files. The contract and its copies have the same file.
    fn repository(more: &[(&str, &str)]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let git = Command::new("git").arg("init").current_dir(&folder).output().unwrap();
        assert!(git.status.success(), "{git:?}");
        let contract = COPIES.into_iter().chain([CONTRACT]).map(|folder| (format!("{folder}/a.wit"), "a"));
        let more = more.iter().map(|(path, text)| ((*path).to_owned(), *text));
        for (path, text) in contract.chain(more) {
            let file = folder.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        folder
    }

    #[test]
    fn a_copy_of_the_contract_that_differs_is_found() {
        let errors = |more| differing_copies(repository(more).path()).unwrap().len();
        assert_eq!(errors(&[("wit/released/0.1.0/a.wit", "b")]), 0);
        assert_eq!(errors(&[("sdk/c/wit/a.wit", "b"), ("sdk/js/wit/b.wit", "b")]), 2);
    }

    #[test]
    fn a_path_of_this_machine_is_found() {
        let folder = repository(&[]);
        assert_eq!(machine_paths(folder.path()).unwrap(), [] as [&str; 0]);
        fs::write(folder.path().join("a.md"), format!("see\n{}/b\n", folder.path().display())).unwrap();
        let errors = machine_paths(folder.path()).unwrap();
        assert!(errors.len() == 1 && errors.concat().contains("a.md:2:"), "{errors:?}");
    }
}
