//! The licences of what a package contains: one expression of SPDX, and all texts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::iter::Peekable;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use super::Release;
use super::graph::{Graph, Package};
use super::tree::Tree;
use crate::cargo;
use crate::folder::read_text;

/// What the names of files with licences begin with, in capitals.
const LICENCE_FILES: [&str; 5] = ["LICEN", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
/// The C library in the program, and what Zig links into modules. These come with the toolchains, without their licences.
const LINKED: [(&str, &str); 2] = [
    ("musl (MIT)", include_str!("../../packages/musl.txt")),
    ("Zig's runtime library (MIT)", include_str!("../../packages/zig.txt")),
];
/// The unwinder in the program and in modules.
const UNWINDER: &str = "LLVM's libunwind (Apache-2.0 WITH LLVM-exception)";
/// The licences of the standard library, which the toolchain has as a page.
const STANDARD_LIBRARY: &str = "COPYRIGHT-library.html";

/// The licences of what a package contains.
#[derive(Debug, Clone)]
pub(super) struct Notices {
    /// Which licences apply together, as SPDX writes it.
    pub(super) expression: String,
    /// The texts.
    pub(super) files: Tree,
}

impl Notices {
    /// The licences of what is built from these packages.
    pub(super) fn of(release: &Release, graph: &Graph) -> Result<Self> {
        let documents = cargo::sysroot(&release.workspace)?.join("share/doc/rust");
        let mut files = Tree::default();
        files.file("LICENSE", read_text(&release.workspace.join("LICENSE"))?);
        files.file("THIRD-PARTY-LICENSES", third_party(graph, &documents.join("licenses"))?);
        files.file("RUST-STANDARD-LIBRARY.html", read_text(&documents.join(STANDARD_LIBRARY))?);
        Ok(Self { expression: expression(release, graph)?, files })
    }
}

/// The fewest licences of `deny.toml` that satisfy each package. Of alternatives, the one that others need anyway is chosen.
fn expression(release: &Release, graph: &Graph) -> Result<String> {
    let deny: toml::Table = read_text(&release.workspace.join("deny.toml"))?.parse()?;
    let allowed = deny.get("licenses").and_then(|table| table.get("allow")?.as_array());
    let allowed = allowed.context("`deny.toml` allows no licence")?.iter().filter_map(toml::Value::as_str);
    let expressions: BTreeSet<String> =
        graph.packages().filter_map(|(package, _)| package.license_expression()).collect();
    fewest(allowed.collect(), &expressions).map(|chosen| chosen.join(" AND "))
}

fn fewest<'a>(mut chosen: Vec<&'a str>, expressions: &BTreeSet<String>) -> Result<Vec<&'a str>> {
    let unsatisfied = |chosen: &[&str]| -> Result<Option<&String>> {
        for expression in expressions {
            if !is_satisfied(expression, chosen)? {
                return Ok(Some(expression));
            }
        }
        Ok(None)
    };
    if let Some(expression) = unsatisfied(&chosen)? {
        bail!("`deny.toml` allows no licence of `{expression}`");
    }
    for licence in chosen.clone() {
        let fewer: Vec<&str> = chosen.iter().copied().filter(|other| *other != licence).collect();
        if unsatisfied(&fewer)?.is_none() {
            chosen = fewer;
        }
    }
    Ok(chosen)
}

/// Whether an expression of SPDX is satisfied by these licences.
fn is_satisfied(expression: &str, licences: &[&str]) -> Result<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let satisfied = alternatives(&mut words, licences);
    ensure!(words.next().is_none(), "`{expression}` is no expression of SPDX");
    Ok(satisfied)
}

fn alternatives<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, licences: &[&str]) -> bool {
    let mut satisfied = conjunction(words, licences);
    while words.next_if_eq(&"OR").is_some() {
        satisfied |= conjunction(words, licences);
    }
    satisfied
}

fn conjunction<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, licences: &[&str]) -> bool {
    let mut satisfied = licence(words, licences);
    while words.next_if_eq(&"AND").is_some() {
        satisfied &= licence(words, licences);
    }
    satisfied
}

fn licence<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, licences: &[&str]) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let satisfied = alternatives(words, licences);
        return words.next_if_eq(&")").is_some() && satisfied;
    }
    let Some(mut name) = words.next().map(str::to_owned) else { return false };
    if words.next_if_eq(&"WITH").is_some() {
        name = format!("{name} WITH {}", words.next().unwrap_or_default());
    }
    licences.contains(&name.as_str())
}

/// The texts of all packages that are not of the workspace. Equal texts are there once, with all their packages.
fn third_party(graph: &Graph, canonical: &Path) -> Result<String> {
    let packages: Vec<&Package> =
        graph.packages().map(|(package, _)| package).filter(|package| package.source.is_some()).collect();
    let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in &packages {
        let mut texts = own_texts(package)?;
        if texts.is_empty() {
            texts = relative_texts(package, &packages)?;
        }
        if texts.is_empty() {
            texts = canonical_texts(package, canonical)?;
        }
        let expression = package.license_expression().unwrap_or_default();
        for text in texts {
            let title = format!("{} {} ({expression})", package.name, package.version);
            owners.entry(text).or_default().insert(title);
        }
    }
    let mut linked = LINKED.map(|(name, text)| (name, text.to_owned())).to_vec();
    for name in ["Apache-2.0", "LLVM-exception"] {
        linked.push((UNWINDER, text(&canonical.join(format!("{name}.txt")))?));
    }
    for (name, text) in linked {
        owners.entry(text).or_default().insert(name.to_owned());
    }
    let mut sections: Vec<(BTreeSet<String>, String)> =
        owners.into_iter().map(|(text, titles)| (titles, text)).collect();
    sections.sort();
    let line = "=".repeat(80);
    let mut all = "This package contains the packages below, each under the licence that follows it. The licences of Rust's\n\
                   standard library are in RUST-STANDARD-LIBRARY.html.\n"
        .to_owned();
    for (titles, text) in sections {
        let titles = titles.into_iter().collect::<Vec<_>>().join("\n");
        all += &format!("\n{line}\n{titles}\n{}\n\n{}\n", "-".repeat(80), text.trim_end());
    }
    Ok(all)
}

/// The texts that a package ships.
fn own_texts(package: &Package) -> Result<Vec<String>> {
    let folder = package.manifest_path.parent().context("a manifest has a folder")?;
    let mut texts = BTreeSet::new();
    if let Some(file) = package.license_file.as_ref().map(|file| folder.join(file)) {
        texts.insert(text(&file)?);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if !LICENCE_FILES.iter().any(|start| name.starts_with(start)) {
            continue;
        }
        if path.is_dir() {
            for inner in fs::read_dir(&path)? {
                texts.insert(text(&inner?.path())?);
            }
        } else {
            texts.insert(text(&path)?);
        }
    }
    Ok(texts.into_iter().collect())
}

/// The texts of another package of the same repository: some projects put them into one of their packages only.
fn relative_texts(package: &Package, all: &[&Package]) -> Result<Vec<String>> {
    let repository = |package: &Package| {
        let url = package.repository.as_ref()?.trim_end_matches(".git");
        Some(url.split("/tree/").next().unwrap_or(url).to_owned())
    };
    let Some(own) = repository(package) else { return Ok(Vec::new()) };
    for other in all {
        let is_relative = repository(other).as_ref() == Some(&own) && other.license == package.license;
        let texts = if is_relative { own_texts(other)? } else { Vec::new() };
        if !texts.is_empty() {
            return Ok(texts);
        }
    }
    Ok(Vec::new())
}

/// The texts of SPDX, from the toolchain, below the authors that the manifest names: those of the first alternative that the
/// toolchain has.
fn canonical_texts(package: &Package, folder: &Path) -> Result<Vec<String>> {
    let expression = package.license_expression().unwrap_or_default();
    let authors = match package.authors.as_slice() {
        [] => String::new(),
        authors => format!("Authors: {}\n\n", authors.join(", ")),
    };
    for alternative in expression.split(" OR ") {
        let names = alternative.split(" WITH ").flat_map(|part| part.split(" AND "));
        let texts = names.map(|name| Ok(authors.clone() + &text(&folder.join(format!("{name}.txt")))?));
        if let Ok(texts) = texts.collect::<Result<Vec<String>>>() {
            return Ok(texts);
        }
    }
    bail!("there is no text of the licence `{expression}` of `{}`", package.name)
}

/// A text, with the line breaks of Unix.
fn text(file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_satisfied_by_one_of_its_alternatives() {
        for (expression, satisfied) in [
            ("MIT", true),
            ("ISC", false),
            ("ISC OR MIT", true),
            ("ISC AND MIT", false),
            ("(ISC OR MIT) AND Zlib", true),
            ("Apache-2.0 WITH LLVM-exception OR ISC", true),
            ("Apache-2.0", false),
            ("(MIT", false),
        ] {
            let licences = ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"];
            assert_eq!(is_satisfied(expression, &licences).unwrap(), satisfied, "{expression}");
        }
        assert!(is_satisfied("MIT ISC", &["MIT"]).is_err());
    }

    #[test]
    fn a_licence_that_nothing_needs_is_left_out() {
        let expressions = BTreeSet::from(["MIT".to_owned(), "ISC OR MIT".to_owned(), "Zlib".to_owned()]);
        assert_eq!(fewest(vec!["ISC", "MIT", "Zlib"], &expressions).unwrap(), ["MIT", "Zlib"]);
        assert!(fewest(vec!["ISC"], &expressions).unwrap_err().to_string().contains("`MIT`"));
    }
}
