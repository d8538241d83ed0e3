//! `mcp-server-git`, started as a module of Python in its sandbox: it reads its repository, and writes and commits there if
//! the policy says so.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::json;

use super::ClientEnvironments;
use crate::programs::printed;
use crate::{cargo, folder};

/// Commits a file to a repository, through the bridged server.
pub(super) fn run(workspace: &Path, clients: &ClientEnvironments) -> Result<()> {
    let home = clients.target.join("clients-git");
    folder::emptied(&home)?;
    let repository = home.join("repository");
    let git = |args: &[&str]| printed(Command::new("git").arg("-C").arg(&repository).args(args));
    fs::create_dir_all(&repository)?;
    git(&["init", "--quiet"])?;
    git(&["config", "user.name", "Toolbay"])?;
    git(&["config", "user.email", "toolbay@example.com"])?;
    fs::write(repository.join("note.txt"), "a\n")?;
    let policy = home.join("toolbay.toml");
    let toolbay = |args: &[&str]| {
        let mut command = Command::new(cargo::host(workspace));
        command.args(args).current_dir(&home).env("TOOLBAY_CONFIG", &policy);
        printed(command.env("TOOLBAY_STATE", home.join("state")))
    };
    fs::write(&policy, "version = 1\n")?;
    // Granted are the folder, the modes of its objects, and the files of a Python that is not the system's.
    let prefixes = "import sys; print(sys.prefix, sys.base_prefix, sep='\\n')";
    let prefixes = printed(Command::new(&clients.git).args(["-c", prefixes]))?;
    let (python, place) = (clients.git.display().to_string(), repository.display().to_string());
    let reads = prefixes.lines().chain([place.as_str()]).flat_map(|path| ["--fs-read", path]);
    let command = [python.as_str(), "-m", "mcp_server_git", "--repository", &place];
    let grants: Vec<&str> = ["--fs-write", &place, "--chmod"].into_iter().chain(reads).collect();
    toolbay(&[&["mcp", "add", "git"][..], &grants, &["--"], &command].concat())?;
    let args = json!({"repo_path": place, "files": ["note.txt"]}).to_string();
    println!("{}", toolbay(&["call", "mcp__git__git_add", &args])?);
    let staged = git(&["diff", "--cached", "--name-only"])?;
    ensure!(staged == "note.txt\n", "`mcp-server-git` staged `{staged}`");
    let args = json!({"repo_path": place, "message": "Add a note"}).to_string();
    println!("{}", toolbay(&["call", "mcp__git__git_commit", &args])?);
    let log = git(&["log", "--format=%s"])?;
    ensure!(log == "Add a note\n", "`mcp-server-git` committed `{log}`");
    Ok(())
}
