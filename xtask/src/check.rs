//! `check`: formats, lints and tests what changed since a commit. The loop while you edit; `test` is the full run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use serde::Deserialize;

use crate::cargo::{cargo, linted, metadata};
use crate::foreign::shell;
use crate::programs::printed;
use crate::{tidy, tools};

#[derive(Debug, Deserialize)]
struct Workspace {
    packages: Vec<Package>,
    workspace_default_members: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
}

/// What the changed files ask for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Selection {
    /// Packages whose unit tests run, with those of all that depend on them.
    packages: BTreeSet<String>,
    /// Modules of integration tests: package, binary and module, without one for the root.
    modules: BTreeSet<(String, String, Option<String>)>,
}

/// Formats, lints and tests what changed since `revision`.
pub(crate) fn run(root: &Path, revision: &str) -> Result<()> {
    let changed = changed(root, revision)?;
    if changed.is_empty() {
        println!("nothing changed since {revision}");
        return Ok(());
    }
    shell(cargo(root).args(["fmt", "--all"]))?;
    tidy::run(root)?;
    if changed.iter().any(|file| file.ends_with(".md")) {
        tools::links(root)?;
    }
    let mut workspace: Workspace = serde_json::from_slice(&metadata(root, &["--no-deps"])?)?;
    let Workspace { packages, workspace_default_members: members } = &mut workspace;
    packages.retain(|package| members.contains(&package.id));
    let files: Vec<PathBuf> = changed.iter().map(|file| root.join(file)).collect();
    let selection = select(packages, &files);
    let Some(filter) = selection.filter() else {
        println!("no tested package changed");
        return Ok(());
    };
    let mut nextest = linted(root)?;
    nextest.env("PATH", tools::path(root)?);
    // All packages, though few are tested: with a selection, dependencies would be built with other features.
    nextest.args(["nextest", "run", "--profile", "check", "--lib", "--bins", "--no-tests", "pass"]);
    // The filter of the profile is for users of what changed: `default()` in the filter below.
    nextest.arg("--ignore-default-filter");
    for (_, binary, _) in &selection.modules {
        nextest.args(["--test", binary]);
    }
    shell(nextest.args(["--cargo-quiet", "--filterset", &filter]))?;
    print_rest(packages, &selection);
    Ok(())
}

/// Says what `check` leaves to `test`.
fn print_rest(packages: &[Package], selection: &Selection) {
    let users = with_users(packages, &selection.packages);
    let has_tests = |package: &&Package| package.targets.iter().any(|target| target.is("test"));
    let rest = packages.iter().filter(has_tests).filter(|package| users.contains(&package.name));
    let rest: Vec<_> = rest.map(|package| package.name.as_str()).collect();
    println!("tested: {}", users.iter().map(String::as_str).collect::<Vec<_>>().join(", "));
    if !rest.is_empty() {
        println!("not run: integration tests of {}", rest.join(", "));
    }
    println!(
        "not run: unit tests of unchanged packages that compute for seconds (`.config/nextest.toml`), examples, benchmarks, documentation, guests, and the other steps of `cargo xtask test`"
    );
}

/// The packages, and all that depend on them.
fn with_users(packages: &[Package], names: &BTreeSet<String>) -> BTreeSet<String> {
    let mut all = names.clone();
    loop {
        let uses = |package: &&Package| package.dependencies.iter().any(|one| all.contains(&one.name));
        let more: Vec<_> = packages.iter().filter(uses).map(|package| package.name.clone()).collect();
        let before = all.len();
        all.extend(more);
        if all.len() == before {
            return all;
        }
    }
}

fn select(packages: &[Package], files: &[PathBuf]) -> Selection {
    let mut selection = Selection::default();
    for file in files {
        let folder =
            |package: &&Package| package.manifest_path.parent().unwrap_or(Path::new("/")).to_path_buf();
        let owners = packages.iter().filter(|package| file.starts_with(folder(package)));
        let Some(package) = owners.max_by_key(|package| folder(package).components().count()) else {
            continue;
        };
        let is_source = file.starts_with(folder(&package).join("src"));
        let inside = |target: &&Target| file.starts_with(target.folder()) && !is_source;
        let named = |target: &&Target| file == &target.src_path;
        let tests = || package.targets.iter().filter(|target| target.is("test"));
        if let Some(target) = tests().find(named).or_else(|| tests().find(inside)) {
            let inside = file.strip_prefix(target.folder()).ok();
            let inside = inside.filter(|_| file != &target.src_path && !supports_tests_only(file));
            let module = inside.map(|path| path.with_extension("").to_string_lossy().replace('/', "::"));
            selection.modules.insert((package.name.clone(), target.name.clone(), module));
        } else if file.extension().is_some_and(|end| end == "rs" || end == "toml") {
            selection.packages.insert(package.name.clone());
        }
    }
    selection
}

/// Whether a file of a test binary has no tests itself. All tests of the binary may use it.
fn supports_tests_only(file: &Path) -> bool {
    std::fs::read_to_string(file)
        .is_ok_and(|text| !text.contains("#[test]") && !text.contains("#[tokio::test"))
}

impl Target {
    fn is(&self, kind: &str) -> bool {
        self.kind.iter().any(|one| one == kind)
    }

    fn folder(&self) -> &Path {
        self.src_path.parent().unwrap_or(Path::new("/"))
    }
}

impl Selection {
    /// A filter of nextest, if there is something to run.
    fn filter(&self) -> Option<String> {
        let units = self
            .packages
            .iter()
            .map(|name| format!("(not kind(test) & (package(={name}) | rdeps(={name}) & default()))"));
        let modules = self.modules.iter().map(|(package, binary, module)| match module {
            Some(module) => format!("(binary_id(={package}::{binary}) & test(/^{module}::/))"),
            None => format!("binary_id(={package}::{binary})"),
        });
        let parts: Vec<String> = units.chain(modules).collect();
        (!parts.is_empty()).then(|| parts.join(" | "))
    }
}

fn changed(workspace: &Path, revision: &str) -> Result<BTreeSet<String>> {
    let git = |args: &[&str]| printed(Command::new("git").args(args).current_dir(workspace));
    let tracked = git(&["diff", "--name-only", "--diff-filter=d", revision])?;
    let new = git(&["ls-files", "--others", "--exclude-standard"])?;
    Ok(tracked.lines().chain(new.lines()).map(ToOwned::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, folder: &str, tests: &[&str], dependencies: &[&str]) -> Package {
        let target = |path: &&str| Target {
            name: "all".to_owned(),
            kind: vec!["test".to_owned()],
            src_path: Path::new(folder).join(path),
        };
        Package {
            id: name.to_owned(),
            name: name.to_owned(),
            manifest_path: Path::new(folder).join("Cargo.toml"),
            targets: tests.iter().map(target).collect(),
            dependencies: dependencies.iter().map(|name| Dependency { name: (*name).to_owned() }).collect(),
        }
    }

    fn packages() -> Vec<Package> {
        vec![
            package("core", "/w/core", &[], &[]),
            package("cli", "/w/cli", &["tests/all/main.rs"], &["core"]),
            package("whole", "/w/tests", &["main.rs"], &["core"]),
        ]
    }

    fn filter(files: &[&str]) -> Option<String> {
        select(&packages(), &files.iter().map(PathBuf::from).collect::<Vec<_>>()).filter()
    }

    #[test]
    fn a_changed_source_leads_to_the_unit_tests_of_its_users() {
        let found = filter(&["/w/core/src/a.rs", "/w/core/Cargo.toml", "/w/README.md"]);
        assert_eq!(found.as_deref(), Some("(not kind(test) & (package(=core) | rdeps(=core) & default()))"));
        assert_eq!(filter(&["/w/README.md", "/w/core/notes.md"]), None);
        let users = with_users(&packages(), &BTreeSet::from(["core".to_owned()]));
        assert_eq!(users.len(), 3);
    }

    #[test]
    fn a_changed_test_leads_to_its_module() {
        let found = filter(&["/w/cli/tests/all/docs.rs"]);
        assert_eq!(found.as_deref(), Some("(binary_id(=cli::all) & test(/^docs::/))"));
        assert_eq!(filter(&["/w/cli/tests/all/main.rs"]).as_deref(), Some("binary_id(=cli::all)"));
        assert_eq!(filter(&["/w/tests/main.rs"]).as_deref(), Some("binary_id(=whole::all)"));
        let found = filter(&["/w/tests/calls/audit.rs"]);
        assert_eq!(found.as_deref(), Some("(binary_id(=whole::all) & test(/^calls::audit::/))"));
        assert_eq!(
            filter(&["/w/tests/src/lib.rs"]).as_deref(),
            Some("(not kind(test) & (package(=whole) | rdeps(=whole) & default()))")
        );
    }
}
