//! Versions in tags: Semantic Versioning 2.0, also with a `v` in front. `_` stands for `+`, which tags do not allow. A
//! tag that is not a version has no order.

use semver::Version;

/// A tag that names a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaggedVersion {
    /// The tag.
    pub tag: String,
    version: Version,
}

impl TaggedVersion {
    /// Parses a tag; `None` if it is not a version.
    #[must_use]
    pub fn parse(tag: &str) -> Option<Self> {
        let text = tag.strip_prefix('v').unwrap_or(tag).replacen('_', "+", 1);
        Some(Self { tag: tag.to_owned(), version: Version::parse(&text).ok()? })
    }

    /// Whether this version comes after another one. Build metadata does not count.
    #[must_use]
    pub fn is_after(&self, other: &Self) -> bool {
        self.version.cmp_precedence(&other.version).is_gt()
    }

    /// Whether a plugin that works with `other` should work with this version: the same major version, or before 1.0 the
    /// same minor one.
    #[must_use]
    pub fn is_compatible_with(&self, other: &Self) -> bool {
        let key = |version: &Version| match (version.major, version.minor) {
            (0, 0) => (0, 0, version.patch),
            (0, minor) => (0, minor, 0),
            (major, _) => (major, 0, 0),
        };
        key(&self.version) == key(&other.version)
    }

    fn is_prerelease(&self) -> bool {
        !self.version.pre.is_empty()
    }
}

/// The newer versions of a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewerVersions {
    /// The newest that is compatible with the locked one.
    pub compatible: Option<TaggedVersion>,
    /// The newest of all.
    pub newest: Option<TaggedVersion>,
}

impl NewerVersions {
    /// Finds them among the tags of a repository. Pre-releases count only if the locked version is one.
    #[must_use]
    pub fn find(locked: &TaggedVersion, tags: &[String]) -> Self {
        let mut found = Self::default();
        for version in tags.iter().filter_map(|tag| TaggedVersion::parse(tag)) {
            if !version.is_after(locked) || (version.is_prerelease() && !locked.is_prerelease()) {
                continue;
            }
            let is_newer =
                |held: &Option<TaggedVersion>| held.as_ref().is_none_or(|held| version.is_after(held));
            if version.is_compatible_with(locked) && is_newer(&found.compatible) {
                found.compatible = Some(version.clone());
            }
            if is_newer(&found.newest) {
                found.newest = Some(version);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_found_by_precedence() {
        let all: Vec<String> = [
            "latest",
            "1.4.2",
            "1.10.0",
            "1.9.0",
            "v2.0.0",
            "2.1.0-rc.1",
            "1.4",
            "01.5.0",
            "1.10.0_build",
            "sha256-ab",
        ]
        .map(str::to_owned)
        .to_vec();
        for (locked, compatible, newest) in [
            ("1.4.2", Some("1.10.0"), Some("v2.0.0")),
            ("1.10.0", None, Some("v2.0.0")),
            ("v2.0.0", None, None),
            ("2.1.0-beta", Some("2.1.0-rc.1"), Some("2.1.0-rc.1")),
            ("0.9.0", None, Some("v2.0.0")),
            ("3.0.0", None, None),
        ] {
            let found = NewerVersions::find(&TaggedVersion::parse(locked).unwrap(), &all);
            let tag = |version: Option<TaggedVersion>| version.map(|version| version.tag);
            assert_eq!(
                (tag(found.compatible).as_deref(), tag(found.newest).as_deref()),
                (compatible, newest),
                "{locked}"
            );
        }
        for tag in ["latest", "1.4", "01.5.0", "", "1.4.2.3"] {
            assert_eq!(TaggedVersion::parse(tag), None, "{tag}");
        }
    }

    #[test]
    fn before_one_a_minor_version_may_break() {
        let version = |tag: &str| TaggedVersion::parse(tag).unwrap();
        for (new, old, compatible) in [
            ("1.9.0", "1.0.0", true),
            ("2.0.0", "1.9.0", false),
            ("0.2.5", "0.2.0", true),
            ("0.3.0", "0.2.0", false),
            ("0.0.2", "0.0.1", false),
        ] {
            assert_eq!(version(new).is_compatible_with(&version(old)), compatible, "{new} {old}");
        }
    }
}
