//! Parts of the file system, compared as text: an absolute folder and all below it.
//!
//! | text | means |
//! |---|---|
//! | `$workspace`, `$workspace/**` | the workspace and all below |
//! | `$workspace/notes`, `$workspace/notes/**` | that folder of it |
//! | `/srv/data`, `/srv/data/**` | an absolute folder |
//! | `**` | everything (in a declaration: whatever the operator grants) |
//!
//! Other globs are refused for now. This module decides on names only; the handle that is opened later is what
//! keeps symbolic links inside (see the runtime's `capability::files`).

use std::path::{Component, Path, PathBuf};

use crate::text;

/// An absolute folder, normalised: no `.`, no `..`, no trailing slash.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reach(PathBuf);

impl Reach {
    /// Reads one of the forms in the module's table.
    ///
    /// # Errors
    /// Says which forms there are.
    pub fn parse(text: &str, workspace: &Path) -> Result<Self, String> {
        let folder = text.strip_suffix("/**").unwrap_or(text);
        if text == "**" || text == "/**" {
            return Ok(Self(PathBuf::from("/")));
        }
        if folder.contains(['*', '?', '[', '{', '!', '\0']) {
            return Err(format!(
                "`{text}`: write a folder, with or without `/**` behind it; other globs are not read"
            ));
        }
        let path = match folder.strip_prefix("$workspace") {
            Some("") => workspace.to_path_buf(),
            Some(rest) if rest.starts_with('/') => workspace.join(rest.trim_start_matches('/')),
            _ if folder.starts_with('/') => PathBuf::from(folder),
            _ => return Err(format!("`{text}`: write `$workspace/…` or an absolute folder")),
        };
        normalise(&path).map(Self).ok_or_else(|| format!("`{text}` leads above the root"))
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Whether the normalised absolute `path` is this folder or below it.
    #[must_use]
    pub fn covers(&self, path: &Path) -> bool {
        path.starts_with(&self.0)
    }

    /// What lies in both: the deeper one, if one contains the other.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        if self.covers(&other.0) {
            Some(other.clone())
        } else if other.covers(&self.0) {
            Some(self.clone())
        } else {
            None
        }
    }

    /// The folder as a policy would write it.
    #[must_use]
    pub fn shown(&self, workspace: &Path) -> String {
        show(&self.0, workspace)
    }
}

/// A folder as a policy would write it.
#[must_use]
pub fn show(folder: &Path, workspace: &Path) -> String {
    match folder.strip_prefix(workspace) {
        Ok(rest) if rest.as_os_str().is_empty() => "$workspace".to_owned(),
        Ok(rest) => format!("$workspace/{}", rest.display()),
        Err(_) => folder.display().to_string(),
    }
}

/// All that lies in one of `left` and one of `right`, without what another already covers.
#[must_use]
pub fn intersect_all(left: &[Reach], right: &[Reach]) -> Vec<Reach> {
    let mut found: Vec<Reach> =
        left.iter().flat_map(|l| right.iter().filter_map(|r| l.intersect(r))).collect();
    found.sort();
    found.dedup();
    let all = found.clone();
    found.retain(|one| !all.iter().any(|other| other != one && other.covers(one.path())));
    found
}

/// Resolves `.` and `..` in an absolute path by name alone; `None` when it leads above the root.
#[must_use]
pub fn normalise(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Prefix(_) => return None,
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir => {
                if !out.pop() {
                    return None;
                }
            }
            Component::Normal(name) => out.push(name),
        }
    }
    Some(out)
}

/// Cuts and escapes a path that a guest gave, for a message.
#[must_use]
pub fn shown(path: &str) -> String {
    const MAX: usize = 200;
    text::one_line(path, MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: &str = "/home/me/project";

    fn reach(text: &str) -> Reach {
        Reach::parse(text, Path::new(W)).unwrap()
    }

    #[test]
    fn the_table_of_forms() {
        for (text, path) in [
            ("$workspace", W),
            ("$workspace/**", W),
            ("$workspace/", W),
            ("$workspace/a/../b/./c", "/home/me/project/b/c"),
            ("/srv/data/**", "/srv/data"),
            ("//srv//data/", "/srv/data"),
            ("**", "/"),
        ] {
            assert_eq!(reach(text).path(), Path::new(path), "{text}");
        }
        for text in [
            "",
            "notes",
            "./notes",
            "~/x",
            "$HOME/x",
            "$workspacex",
            "/a/*.txt",
            "!/a",
            "/..",
            "/a/../../b",
            "/a\0",
        ] {
            assert!(Reach::parse(text, Path::new(W)).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_folder_covers_itself_and_what_is_below() {
        let data = reach("/data");
        for (path, inside) in
            [("/data", true), ("/data/a/b", true), ("/database", false), ("/", false), ("/dat", false)]
        {
            assert_eq!(data.covers(Path::new(path)), inside, "{path}");
        }
    }

    #[test]
    fn an_intersection_exceeds_neither_side() {
        let cases =
            ["**", "$workspace", "$workspace/a", "$workspace/a/b", "/srv", "/srv/x", "/other"].map(reach);
        for left in &cases {
            for right in &cases {
                let both = intersect_all(std::slice::from_ref(left), std::slice::from_ref(right));
                assert!(
                    both.iter().all(|r| left.covers(r.path()) && right.covers(r.path())),
                    "{left:?} {right:?}"
                );
                assert_eq!(both, intersect_all(std::slice::from_ref(right), std::slice::from_ref(left)));
            }
        }
        assert_eq!(intersect_all(&cases, &[]), []);
        let kept = intersect_all(&[reach("**")], &[reach("/srv/x"), reach("/srv"), reach("/srv")]);
        assert_eq!(kept, [reach("/srv")], "what another covers is dropped");
    }
}
