//! `tidy`: project rules that the compiler does not check.
//!
//! `tables` lists which package may depend on which.

mod cycles;
mod tables;
mod words;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use tables::PACKAGES;

/// Lines of a file, without tests.
const WARN_LINES: usize = 500;
const MOST_LINES: usize = 600;

/// The first words of a generated file.
const GENERATED: &str = "// Written by wit-bindgen";

/// The path of the tables, for messages.
const HERE: &str = "xtask/src/tidy/tables.rs";

/// A text file of the project.
#[derive(Debug)]
pub(crate) struct Source {
    /// The path relative to the workspace, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The findings of all checks.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) errors: Vec<String>,
    warnings: Vec<String>,
}

/// Checks the whole project.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let sources = read(workspace)?;
    let mut report = Report::default();
    cycles::check(&sources, &mut report);
    check_sizes(&sources, &mut report);
    check_packages(&sources, &mut report);
    check_contract(&sources, &mut report);
    check_paths(&machine_paths(workspace), &sources, &mut report);
    crate::hostile::check(&sources, &mut report);
    crate::parity::check(&sources, &mut report);
    crate::wit_reference::check(&sources, &mut report);
    words::check(&sources, &mut report);
    for warning in &report.warnings {
        println!("warning: {warning}");
    }
    for error in &report.errors {
        println!("error: {error}");
    }
    if !report.errors.is_empty() {
        bail!("{} errors", report.errors.len());
    }
    println!("{} files are tidy", sources.len());
    Ok(())
}

fn check_sizes(sources: &[Source], report: &mut Report) {
    let is_written = |source: &&Source| !source.text.starts_with(GENERATED);
    let rust = sources.iter().filter(|source| source.path.ends_with(".rs") && !is_test_file(&source.path));
    for source in rust.filter(is_written) {
        let lines = without_tests(&source.text).lines().count();
        if lines > MOST_LINES {
            report.errors.push(format!("{}: {lines} lines, the limit is {MOST_LINES}", source.path));
        } else if lines > WARN_LINES {
            report.warnings.push(format!("{}: {lines} lines: consider two files", source.path));
        }
    }
}

fn check_packages(sources: &[Source], report: &mut Report) {
    let manifests: Vec<(&str, &Source)> = sources
        .iter()
        .filter_map(|source| Some((source.path.strip_suffix("/Cargo.toml")?, source)))
        .collect();
    let own: Vec<&str> = manifests.iter().filter_map(|(_, source)| package_name(&source.text)).collect();
    for (folder, source) in manifests {
        let in_folder = |pattern: &str| match pattern.strip_suffix("/*") {
            Some(parent) => folder.rsplit_once('/').is_some_and(|(above, _)| above == parent),
            None => pattern == folder,
        };
        let Some((_, allowed)) = PACKAGES.iter().find(|(pattern, _)| in_folder(pattern)) else {
            report.errors.push(format!(
                "{}: new package: add the packages that it may depend on to `PACKAGES` in `{HERE}`",
                source.path
            ));
            continue;
        };
        for dependency in dependencies(&source.text) {
            if own.contains(&dependency) && !allowed.contains(&dependency) {
                report.errors.push(format!(
                    "{}: `{folder}` may not depend on `{dependency}` (`PACKAGES` in `{HERE}`)",
                    source.path
                ));
            }
        }
    }
}

fn package_name(manifest: &str) -> Option<&str> {
    let line = manifest.lines().find(|line| line.starts_with("name = "))?;
    line.split('"').nth(1)
}

/// Names of a package's dependencies, without those of its tests.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            let table = section.rsplit('.').next().unwrap_or(section);
            inside = matches!(table, "dependencies" | "build-dependencies");
            // `[dependencies.name]`
            if let Some((table, name)) = section.rsplit_once('.')
                && matches!(table.rsplit('.').next(), Some("dependencies" | "build-dependencies"))
            {
                found.push(name);
            }
        } else if inside && !line.starts_with('#') && line.contains('=') {
            found.extend(line.split([' ', '.', '=']).next());
        }
    }
    found
}

/// Each SDK contains a copy of the contract, because a published package must be self-contained.
const COPIES: [&str; 4] = ["sdk/rust/wit/", "sdk/js/wit/", "sdk/python/toolbay/wit/", "sdk/c/wit/"];

fn check_contract(sources: &[Source], report: &mut Report) {
    const ORIGINAL: &str = "wit/";
    let files = |root: &'static str| {
        sources.iter().filter_map(move |source| Some((source.path.strip_prefix(root)?, source.text.as_str())))
    };
    // The folders in it hold released contracts.
    let original: BTreeSet<_> = files(ORIGINAL).filter(|(name, _)| !name.contains('/')).collect();
    for copied in COPIES {
        let copy: BTreeSet<_> = files(copied).collect();
        for (name, _) in original.symmetric_difference(&copy) {
            let error = format!(
                "`{copied}{name}` differs from `{ORIGINAL}{name}`: copy the contract, do not edit the copy"
            );
            if !report.errors.contains(&error) {
                report.errors.push(error);
            }
        }
    }
}

fn check_paths(paths: &[String], sources: &[Source], report: &mut Report) {
    for source in sources {
        for (number, line) in source.text.lines().enumerate() {
            if let Some(path) = paths.iter().find(|path| line.contains(path.as_str())) {
                report.errors.push(format!(
                    "{}:{}: names `{path}`, a path of this machine",
                    source.path,
                    number + 1
                ));
            }
        }
    }
}

/// Paths that exist on this machine only: the checkout and the user's home.
fn machine_paths(workspace: &Path) -> Vec<String> {
    let home = std::env::var("HOME").ok().filter(|home| home.len() > 1).map(|home| format!("{home}/"));
    let checkout = workspace.display().to_string();
    [Some(checkout), home].into_iter().flatten().filter(|path| path.matches('/').count() > 1).collect()
}

/// Whether a file is compiled for tests only, by its name.
pub(crate) fn is_test_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    matches!(name, "testing.rs" | "tests.rs") || name.ends_with("_tests.rs")
}

/// A source without its tests and its comments.
fn code(text: &str) -> String {
    without_tests(text)
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |all, line| all + line + "\n")
}

/// A source without its test items. After rustfmt, an item ends at a line with the indentation of its first line.
pub(crate) fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        if !line.trim_start().starts_with("#[cfg(test)]") {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        for line in lines.by_ref() {
            let depth = line.len() - line.trim_start().len();
            if depth == indent && (line.ends_with(';') || line.trim() == "}" || line.ends_with("{}")) {
                break;
            }
        }
    }
    kept
}

/// Reads the text files of the project.
pub(crate) fn read(workspace: &Path) -> Result<Vec<Source>> {
    const SKIPPED: [&str; 5] = ["target", ".git", ".venv", "node_modules", "__pycache__"];
    const KINDS: [&str; 15] =
        ["c", "h", "js", "json", "lock", "md", "mjs", "py", "rs", "sh", "toml", "ts", "txt", "wit", "yml"];
    let mut sources = Vec::new();
    let mut folders = vec![workspace.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read `{}`", folder.display()))? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() && !SKIPPED.contains(&entry.file_name().to_string_lossy().as_ref()) {
                folders.push(path);
            } else if kind.is_file()
                && path.extension().is_none_or(|kind| KINDS.contains(&kind.to_string_lossy().as_ref()))
                && let Ok(text) = fs::read_to_string(&path)
            {
                sources.push(Source { path: relative(workspace, &path), text });
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn relative(workspace: &Path, path: &Path) -> String {
    path.strip_prefix(workspace).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    fn errors(check: impl FnOnce(&mut Report)) -> Vec<String> {
        let mut report = Report::default();
        check(&mut report);
        report.errors
    }

    #[test]
    fn a_long_file_is_found_and_tests_do_not_count() {
        let sources = [source("a.rs", &"x\n".repeat(801)), source("b.rs", &"x\n".repeat(501))];
        let mut report = Report::default();
        check_sizes(&sources, &mut report);
        assert_eq!((report.errors.len(), report.warnings.len()), (1, 1), "{report:?}");
        let tests = format!("x\n#[cfg(test)]\nmod tests {{\n{}}}\n", "    x\n".repeat(900));
        assert!(errors(|report| check_sizes(&[source("a.rs", &tests)], report)).is_empty());
    }

    #[test]
    fn a_dependency_in_the_wrong_direction_is_found() {
        let check = |dependencies: &str| {
            let manifest = format!("[package]\nname = \"toolbay-mcp\"\n{dependencies}");
            let sources = [
                source("host/mcp/Cargo.toml", &manifest),
                source("host/runtime/Cargo.toml", "[package]\nname = \"toolbay\"\n"),
                source("host/core/Cargo.toml", "[package]\nname = \"toolbay-core\"\n"),
            ];
            errors(|report| check_packages(&sources, report)).len()
        };
        assert_eq!(check("[dependencies]\ntoolbay-core.workspace = true\nserde = \"1\"\n"), 0);
        assert_eq!(check("[dev-dependencies]\ntoolbay.workspace = true\n"), 0);
        assert_eq!(check("[dependencies]\ntoolbay.workspace = true\n"), 1);
        assert_eq!(check("[dependencies.toolbay]\nworkspace = true\n"), 1);
        assert_eq!(check("[target.'cfg(unix)'.dependencies]\ntoolbay = { path = \"../runtime\" }\n"), 1);
        let new = [source("host/new/Cargo.toml", "[package]\nname = \"new\"\n")];
        assert_eq!(errors(|report| check_packages(&new, report)).len(), 1);
    }

    #[test]
    fn a_copy_of_the_contract_that_differs_is_found() {
        // The files of one copy. The other copies are correct.
        let check = |last: &[(&str, &str)]| {
            let mut sources = vec![source("wit/a.wit", "a"), source("wit/b.wit", "b")];
            let (tried, others) = COPIES.split_last().unwrap();
            for copy in others {
                sources.extend(["a", "b"].map(|name| source(&format!("{copy}{name}.wit"), name)));
            }
            sources.extend(last.iter().map(|(name, text)| source(&format!("{tried}{name}.wit"), text)));
            errors(|report| check_contract(&sources, report)).len()
        };
        assert_eq!(check(&[("a", "a"), ("b", "b")]), 0);
        assert_eq!(check(&[("a", "a"), ("b", "c")]), 1);
        assert_eq!(check(&[("a", "a")]), 1);
    }

    #[test]
    fn a_path_of_this_machine_is_found() {
        let paths = ["/some/checkout".to_owned()];
        let sources = [source("a.md", "see\n/some/checkout/b\n"), source("c.md", "see /some/other\n")];
        let found = errors(|report| check_paths(&paths, &sources, report));
        assert_eq!(found, ["a.md:2: names `/some/checkout`, a path of this machine"]);
    }
}
