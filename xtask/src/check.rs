//! `check`: formats, lints and tests what changed since a commit. The loop while you edit; `test` is the full run.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::foreign::shell;
use crate::test::native_cargo;
use crate::tidy;

/// Formats, lints and tests what changed since `revision`.
pub(crate) fn run(workspace: &Path, revision: &str) -> Result<()> {
    let changed = changed(workspace, revision)?;
    if changed.is_empty() {
        println!("nothing changed since {revision}");
        return Ok(());
    }
    shell(Command::new(env!("CARGO")).args(["fmt", "--all"]).current_dir(workspace))?;
    tidy::run(workspace)?;
    let packages = packages(workspace, &changed)?;
    if packages.is_empty() {
        println!("no native package changed");
        return Ok(());
    }
    let names: Vec<&str> = packages.iter().flat_map(|package| ["--package", package.name.as_str()]).collect();
    let lints = ["--all-targets", "--quiet", "--", "-D", "warnings"];
    shell(native_cargo(workspace).arg("clippy").args(&names).args(lints))?;
    for package in &packages {
        for tests in package.tests() {
            shell(native_cargo(workspace).args(["test", "--quiet", "--package", &package.name]).args(tests))?;
        }
    }
    Ok(())
}

/// A package with changed files.
struct Package {
    name: String,
    /// The changed files, relative to the package.
    files: Vec<String>,
    has_library: bool,
}

impl Package {
    /// The arguments of `cargo test` for each group of tests that the changed files belong to.
    fn tests(&self) -> Vec<Vec<String>> {
        let mut runs = Vec::new();
        if self.files.iter().any(|file| file.starts_with("src/")) {
            runs.push(vec![if self.has_library { "--lib" } else { "--bins" }.to_owned()]);
        }
        let names: BTreeSet<(&str, Option<String>)> =
            self.files.iter().filter_map(|file| test_of(&self.name, file)).collect();
        for (binary, filter) in names {
            let mut run = vec!["--test".to_owned(), binary.to_owned()];
            run.extend(filter.map(|filter| format!("{filter}::")));
            runs.push(run);
        }
        runs
    }
}

/// The test binary of a file, and the module in it.
fn test_of<'a>(package: &str, file: &'a str) -> Option<(&'a str, Option<String>)> {
    let path = file.strip_suffix(".rs")?;
    if package == "integration-tests" {
        let whole = path == "main";
        return (!path.starts_with("src/")).then(|| ("all", (!whole).then(|| path.replace('/', "::"))));
    }
    let path = path.strip_prefix("tests/")?;
    match path.split_once('/') {
        None => Some((path, None)),
        Some((binary, "main")) => Some((binary, None)),
        Some((binary, module)) => Some((binary, module.split('/').next().map(ToOwned::to_owned))),
    }
}

fn git(workspace: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).current_dir(workspace).output().context("`git`")?;
    if !output.status.success() {
        bail!("`git {}`: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn changed(workspace: &Path, revision: &str) -> Result<BTreeSet<String>> {
    let tracked = git(workspace, &["diff", "--name-only", "--diff-filter=d", revision])?;
    let new = git(workspace, &["ls-files", "--others", "--exclude-standard"])?;
    Ok(tracked.lines().chain(new.lines()).map(ToOwned::to_owned).collect())
}

/// The packages of the changed files, without those that are built for the sandbox.
fn packages(workspace: &Path, changed: &BTreeSet<String>) -> Result<Vec<Package>> {
    let mut packages: Vec<(String, Package)> = Vec::new();
    for file in changed.iter().filter(|file| file.ends_with(".rs") || file.ends_with("Cargo.toml")) {
        let folders = Path::new(file).ancestors().skip(1);
        let mut with_manifest = folders.filter(|folder| workspace.join(folder).join("Cargo.toml").is_file());
        let Some(folder) = with_manifest.next() else { continue };
        let manifest = std::fs::read_to_string(workspace.join(folder).join("Cargo.toml"))?;
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        let folder = folder.to_string_lossy().into_owned();
        let Some(name) = name.filter(|_| !folder.starts_with("tests/guests")) else { continue };
        let inside = file.strip_prefix(&folder).unwrap_or(file).trim_start_matches('/').to_owned();
        match packages.iter_mut().find(|(known, _)| *known == folder) {
            Some((_, package)) => package.files.push(inside),
            None => {
                let has_library = workspace.join(&folder).join("src/lib.rs").is_file();
                packages.push((folder, Package { name: name.to_owned(), files: vec![inside], has_library }));
            }
        }
    }
    Ok(packages.into_iter().map(|(_, package)| package).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(name: &str, files: &[&str]) -> Vec<String> {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        let package = Package { name: name.to_owned(), files, has_library: name != "toolbay-cli" };
        package.tests().iter().map(|run| run.join(" ")).collect()
    }

    #[test]
    fn a_changed_file_leads_to_its_tests() {
        assert_eq!(runs("toolbay-core", &["src/pipeline/admit.rs", "src/call.rs"]), ["--lib"]);
        assert_eq!(runs("toolbay-cli", &["src/main.rs", "tests/signals.rs"]), ["--bins", "--test signals"]);
        assert_eq!(
            runs("toolbay-mcp", &["tests/mcp/calls.rs", "tests/mcp/main.rs"]),
            ["--test mcp", "--test mcp calls::"]
        );
        assert_eq!(
            runs("integration-tests", &["calls/audit.rs", "Cargo.toml"]),
            ["--test all calls::audit::"]
        );
    }
}
