//! The lock file of a new project: the crate versions that the SDK was tested with.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::author::project::Dependency;

/// The dependencies of some packages from a lock file. Cargo adds the packages themselves, whose paths differ.
pub(super) fn subset(lock: &str, roots: &[&str]) -> String {
    let (head, packages) = lock.split_once("[[package]]").unwrap_or((lock, ""));
    let packages: Vec<LockedPackage<'_>> = packages.split("[[package]]").map(LockedPackage::parse).collect();
    let mut wanted: BTreeSet<String> = roots.iter().map(|&root| root.to_owned()).collect();
    let mut found: Vec<&LockedPackage<'_>> = Vec::new();
    // Repeats while there are new names; chains of dependencies are short.
    loop {
        let is_new = |package: &&LockedPackage<'_>| {
            package.names().iter().any(|name| wanted.contains(name))
                && !found.iter().any(|one| std::ptr::eq(*one, *package))
        };
        let new: Vec<&LockedPackage<'_>> = packages.iter().filter(is_new).collect();
        if new.is_empty() {
            break;
        }
        wanted.extend(new.iter().flat_map(|package| package.dependencies()));
        found.extend(new);
    }
    found.sort_by_key(|package| (package.name, package.version));
    let mut text = head.to_owned();
    for package in found.iter().filter(|package| !roots.contains(&package.name)) {
        // Writing to a `String` does not fail.
        write!(text, "[[package]]\n{}\n\n", package.text.trim()).ok();
    }
    text
}

/// The dependencies of a package; the first is the package itself.
pub(super) fn dependencies(lock: &str, root: &str) -> Vec<Dependency> {
    let packages: Vec<LockedPackage<'_>> =
        lock.split("[[package]]").skip(1).map(LockedPackage::parse).collect();
    let named = |name: &str| packages.iter().find(|package| package.names().iter().any(|own| own == name));
    let mut found: Vec<&LockedPackage<'_>> = named(root).into_iter().collect();
    let mut all: Vec<Dependency> = Vec::new();
    while let Some(package) = found.get(all.len()).copied() {
        let mut indexes = Vec::new();
        for one in package.dependencies().filter_map(|name| named(&name)) {
            let known = found.iter().position(|known| std::ptr::eq(*known, one));
            indexes.push(known.unwrap_or(found.len()));
            if known.is_none() {
                found.push(one);
            }
        }
        all.push(Dependency {
            name: package.name.to_owned(),
            version: package.version.to_owned(),
            source: package.source(),
            dependencies: indexes,
        });
    }
    all
}

/// One `[[package]]` of a lock file.
struct LockedPackage<'a> {
    name: &'a str,
    version: &'a str,
    text: &'a str,
}

impl<'a> LockedPackage<'a> {
    fn parse(text: &'a str) -> Self {
        let field = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
            line.map_or("", |value| value.trim_matches('"'))
        };
        Self { name: field("name"), version: field("version"), text }
    }

    /// The source in the words of `.dep-v0`.
    fn source(&self) -> &'static str {
        let line = self.text.lines().find_map(|line| line.strip_prefix("source = \""));
        match line.and_then(|source| source.split_once('+')) {
            Some(("registry", url)) if url.contains("crates.io-index") => "crates.io",
            Some(("registry" | "sparse", _)) => "registry",
            Some(("git", _)) => "git",
            Some(_) => "other",
            None => "local",
        }
    }

    /// The names by which others refer to it: with the version if there are several.
    fn names(&self) -> [String; 2] {
        [self.name.to_owned(), format!("{} {}", self.name, self.version)]
    }

    fn dependencies(&self) -> impl Iterator<Item = String> {
        let lines = self.text.lines().skip_while(|line| !line.starts_with("dependencies = [")).skip(1);
        lines.take_while(|line| *line != "]").map(|line| line.trim_matches([' ', ',', '"']).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"# made by cargo
version = 4

[[package]]
name = "a"
version = "1.0.0"
source = "registry"
dependencies = [
 "c 2.0.0",
]

[[package]]
name = "b"
version = "1.0.0"

[[package]]
name = "c"
version = "1.0.0"

[[package]]
name = "c"
version = "2.0.0"

[[package]]
name = "sdk"
version = "0.1.0"
dependencies = [
 "a",
]
"#;

    #[test]
    fn a_subset_has_only_the_needed_packages() {
        let subset = subset(LOCK, &["sdk"]);
        let expected = "# made by cargo\nversion = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\
                        source = \"registry\"\ndependencies = [\n \"c 2.0.0\",\n]\n\n[[package]]\nname = \"c\"\n\
                        version = \"2.0.0\"\n\n";
        assert_eq!(subset, expected);
    }

    #[test]
    fn dependencies_are_listed_after_their_package() {
        let all = dependencies(LOCK, "sdk");
        let shown: Vec<_> = all
            .iter()
            .map(|one| (one.name.as_str(), one.version.as_str(), one.dependencies.as_slice()))
            .collect();
        assert_eq!(shown, [("sdk", "0.1.0", &[1][..]), ("a", "1.0.0", &[2]), ("c", "2.0.0", &[])]);
        assert_eq!(all[0].source, "local");
    }
}
