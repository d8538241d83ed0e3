//! The version of a release. `Cargo.toml` has it; everything else that names one must name the same.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::folder::read_text;

/// What Cargo calls a release before the final one, and what Python calls it (PEP 440).
const BEFORE_FINAL: [(&str, &str); 3] = [("alpha", "a"), ("beta", "b"), ("rc", "rc")];

/// The version as Python writes it: `0.2.0-rc.1` is `0.2.0rc1`.
pub(super) fn of_python(version: &str) -> Result<String> {
    let Some((number, before)) = version.split_once('-') else { return Ok(version.to_owned()) };
    let kinds = BEFORE_FINAL.iter().find_map(|(cargo, python)| Some((python, before.strip_prefix(cargo)?)));
    let (kind, count) = kinds.with_context(|| format!("Python has no word for `{before}` of `{version}`"))?;
    let count = count.strip_prefix('.').unwrap_or("0");
    ensure!(count.bytes().all(|byte| byte.is_ascii_digit()), "Python takes no `{before}` of `{version}`");
    Ok(format!("{number}{kind}{count}"))
}

/// Checks that the SDKs and the changelog have the version.
pub(super) fn check(workspace: &Path, version: &str) -> Result<()> {
    let same = |file: &str, found: Option<&str>, wanted: &str| {
        let found = found.with_context(|| format!("`{file}` has no version"))?;
        ensure!(
            found == wanted,
            "`{file}` has the version {found}, and the release is {version}: write {wanted}"
        );
        Ok(())
    };
    let file = "sdk/js/package.json";
    let manifest: Value = serde_json::from_str(&read_text(&workspace.join(file))?)?;
    same(file, manifest.get("version").and_then(Value::as_str), version)?;
    let file = "sdk/python/pyproject.toml";
    let manifest: toml::Table = read_text(&workspace.join(file))?.parse()?;
    let found = manifest.get("project").and_then(|project| project.get("version")?.as_str());
    same(file, found, &of_python(version)?)?;
    let file = "Cargo.toml";
    let manifest: toml::Table = read_text(&workspace.join(file))?.parse()?;
    let crates = manifest.get("workspace").and_then(|table| table.get("dependencies")?.as_table());
    for own in
        crates.context("the workspace has no dependencies")?.values().filter(|own| own.get("path").is_some())
    {
        let found = own.get("version").and_then(toml::Value::as_str);
        found.map_or(Ok(()), |found| same(file, Some(found), version))?;
    }
    check_changelog(&read_text(&workspace.join("CHANGELOG.md"))?, version)
}

/// The first heading is the version. Before a release, it is `Unreleased`.
fn check_changelog(text: &str, version: &str) -> Result<()> {
    let heading = text.lines().find_map(|line| line.strip_prefix("## ")).unwrap_or_default();
    let named = heading.split_whitespace().next().unwrap_or_default().trim_matches(['[', ']']);
    if named == "Unreleased" {
        println!("warning: the changelog calls {version} unreleased");
    } else if named != version {
        bail!("the changelog begins with `{heading}`, and the release is {version}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_has_its_own_form_of_a_version() {
        for (cargo, python) in [
            ("0.2.0", "0.2.0"),
            ("0.2.0-rc.1", "0.2.0rc1"),
            ("1.0.0-alpha", "1.0.0a0"),
            ("1.0.0-beta.12", "1.0.0b12"),
        ] {
            assert_eq!(of_python(cargo).unwrap(), python);
        }
        assert!(of_python("0.2.0-nightly.1").is_err());
        assert!(of_python("0.2.0-rc.x").is_err());
    }

    #[test]
    fn a_changelog_of_another_version_is_refused() {
        assert!(check_changelog("# Changelog\n\n## Unreleased\n\n## 0.1.0\n", "0.2.0").is_ok());
        assert!(check_changelog("## [0.2.0] 2026-11-30\n", "0.2.0").is_ok());
        let refused = check_changelog("## 0.1.0\n", "0.2.0").unwrap_err().to_string();
        assert!(refused.contains("`0.1.0`") && refused.contains("0.2.0"), "{refused}");
    }

    #[test]
    fn everything_in_the_workspace_has_one_version() {
        let workspace = wasm::workspace().unwrap();
        let manifest: toml::Table = read_text(&workspace.join("Cargo.toml")).unwrap().parse().unwrap();
        check(&workspace, manifest["workspace"]["package"]["version"].as_str().unwrap()).unwrap();
    }
}
