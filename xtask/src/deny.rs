//! `deny`: licences, bans and duplicate versions of the dependencies, as `deny.toml` allows them.
//!
//! The file has the format of cargo-deny. Building cargo-deny takes longer than the whole check, so this task implements the
//! three parts that need no network.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Rules {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    #[serde(default)]
    deny: Vec<Ban>,
    #[serde(default)]
    skip: Vec<SkippedDuplicate>,
}

#[derive(Debug, Deserialize)]
struct Ban {
    name: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
struct SkippedDuplicate {
    name: String,
    version: String,
}

#[derive(Debug, Deserialize)]
struct CargoMetadata {
    packages: Vec<Package>,
}

#[derive(Debug, Clone, Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
}

/// Checks all packages of the lock file.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let rules = std::fs::read_to_string(workspace.join("deny.toml")).context("cannot read `deny.toml`")?;
    let rules: Rules = toml::from_str(&rules).context("`deny.toml`")?;
    let arguments = ["metadata", "--format-version", "1", "--locked"];
    let metadata = Command::new(env!("CARGO")).args(arguments).current_dir(workspace).output()?;
    if !metadata.status.success() {
        bail!("`cargo metadata`: {}", String::from_utf8_lossy(&metadata.stderr));
    }
    let CargoMetadata { packages } = serde_json::from_slice(&metadata.stdout)?;
    let problems = problems(&rules, &packages)?;
    for problem in &problems {
        println!("error: {problem}");
    }
    if !problems.is_empty() {
        bail!("{} problems with dependencies", problems.len());
    }
    println!("{} packages comply with `deny.toml`", packages.len());
    Ok(())
}

fn problems(rules: &Rules, packages: &[Package]) -> Result<Vec<String>> {
    let mut problems = licence_problems(&rules.licenses, packages)?;
    for ban in &rules.bans.deny {
        if packages.iter().any(|package| package.name == ban.name) {
            problems.push(format!("`{}` is banned: {}", ban.name, ban.reason));
        }
    }
    problems.extend(duplicates(&rules.bans.skip, packages));
    Ok(problems)
}

fn licence_problems(licenses: &Licenses, packages: &[Package]) -> Result<Vec<String>> {
    let parsed = licenses.allow.iter().map(|text| spdx::Licensee::parse(text));
    let allowed = parsed.collect::<Result<Vec<_>, _>>().context("`[licenses] allow` in `deny.toml`")?;
    let mut problems = Vec::new();
    for Package { name, version, license } in packages {
        let Some(license) = license else {
            problems.push(format!("`{name}` {version} names no licence"));
            continue;
        };
        // Older packages write `MIT/Apache-2.0`.
        let parsed = spdx::Expression::parse_mode(license, spdx::ParseMode::LAX);
        let expression = parsed.with_context(|| format!("the licence of `{name}` {version}"))?;
        let is_allowed = |request: &spdx::LicenseReq| allowed.iter().any(|one| one.satisfies(request));
        if !expression.evaluate(is_allowed) {
            problems.push(format!(
                "`{name}` {version} is under `{license}`, which `[licenses] allow` does not cover"
            ));
        }
    }
    Ok(problems)
}

/// Packages with more than one version apart from the skipped ones, and skipped ones that are missing.
fn duplicates(skip: &[SkippedDuplicate], packages: &[Package]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    let mut problems = Vec::new();
    for SkippedDuplicate { name, version } in skip {
        let there = versions.get_mut(name.as_str()).is_some_and(|all| all.remove(version.as_str()));
        if !there {
            problems.push(format!("`{name}` {version} is no longer used: remove it from `[bans] skip`"));
        }
    }
    for (name, all) in versions.into_iter().filter(|(_, all)| all.len() > 1) {
        let all = all.into_iter().collect::<Vec<_>>().join(", ");
        problems.push(format!("`{name}` has several versions: {all}"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str, license: Option<&str>) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            license: license.map(ToOwned::to_owned),
        }
    }

    fn found(packages: &[Package]) -> String {
        let rules = r#"
            [licenses]
            allow = ["MIT", "Apache-2.0 WITH LLVM-exception"]
            [bans]
            skip = [{ name = "old", version = "1.0.0" }]
            [[bans.deny]]
            name = "bad"
            reason = "it is bad"
        "#;
        let mut packages = packages.to_vec();
        packages.push(package("old", "1.0.0", Some("MIT")));
        packages.push(package("old", "2.0.0", Some("MIT")));
        problems(&toml::from_str(rules).unwrap(), &packages).unwrap().join("\n")
    }

    #[test]
    fn what_is_allowed_passes() {
        let licenses =
            ["MIT", "MIT OR GPL-3.0-only", "MIT/Apache-2.0", "Apache-2.0 WITH LLVM-exception AND MIT"];
        let packages = licenses.map(|license| package(license, "1.0.0", Some(license)));
        assert_eq!(found(&packages), "");
    }

    #[test]
    fn other_licences_banned_packages_and_duplicates_are_found() {
        for (packages, part) in [
            (vec![package("a", "1.0.0", Some("GPL-3.0-only"))], "`a` 1.0.0 is under `GPL-3.0-only`"),
            (vec![package("a", "1.0.0", Some("MIT AND GPL-3.0-only"))], "does not cover"),
            (vec![package("a", "1.0.0", None)], "names no licence"),
            (vec![package("bad", "1.0.0", Some("MIT"))], "it is bad"),
            (
                vec![package("a", "1.0.0", Some("MIT")), package("a", "1.1.0", Some("MIT"))],
                "`a` has several versions: 1.0.0, 1.1.0",
            ),
        ] {
            let found = found(&packages);
            assert!(found.contains(part), "{found}");
        }
        let rules: Rules =
            toml::from_str("[licenses]\nallow = []\n[bans]\nskip = [{ name = \"x\", version = \"1.0.0\" }]")
                .unwrap();
        assert_eq!(
            problems(&rules, &[]).unwrap(),
            ["`x` 1.0.0 is no longer used: remove it from `[bans] skip`"]
        );
    }
}
