//! Path rules. A rule is a folder, patterns that must all match, and exclusions that must not match.
//!
//! | line | means |
//! |---|---|
//! | `$workspace`, `$workspace/**` | the workspace and everything below |
//! | `/srv/data`, `/srv/data/**` | an absolute folder and everything below, or one file |
//! | `/srv/*.csv` | files and folders directly in `/srv` with this suffix, without the content of the folders |
//! | `$workspace/**/*.rs` | matching names at any depth; wildcards are `*`, `?`, `[a-z]`, `**` |
//! | `**` | everything (in a declaration: everything that the operator grants) |
//! | `!**/.env`, `!$workspace/private`, `!/srv/*.key` | excludes these paths and everything below, for all lines of the list |
//! | `A & B & !C` | an intersection on one line |
//!
//! `~` is not supported, because a policy may run for another user than its author. Matching is case-sensitive. On a
//! case-insensitive file system of Linux, an exclusion must list every spelling. This module compares names only. The
//! runtime's `capability::files` resolves links and then asks about the real path.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use schemars::{Schema, json_schema};

use crate::capability::excluding_list::{self, AND};
use crate::capability::glob::{self, Glob, GlobSegment};
use crate::excerpt;
use crate::problem::PolicyProblem;
use crate::rule::{self, GrantRule};

const WORKSPACE_VARIABLE: &str = "$workspace";
/// Longest file name, in bytes (`NAME_MAX` of Linux and macOS).
const MAX_FILE_NAME: usize = 255;

/// A set of paths. Closed under intersection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathRule {
    /// The longest prefix without wildcards: an absolute, normalized path.
    folder: PathBuf,
    /// All must match. A pattern that matches everything below the folder is omitted.
    patterns: BTreeSet<Glob>,
    /// Exclusions. Each ends in `**` and can match something below the folder.
    except: BTreeSet<Glob>,
}

impl GrantRule for PathRule {
    const PATTERN: &'static str = r"^!?(/|\$workspace(/|$| )|\*\*(/|$| ))";

    fn list_schema() -> Schema {
        // A list of exclusions alone grants nothing.
        let grants = json_schema!({"contains": {"type": "string", "pattern": "^[^!]| & "}});
        json_schema!({"type": "array", "items": Self::schema(), "anyOf": [{"maxItems": 0}, grants]})
    }

    fn parse(text: &str, workspace: &Path) -> Result<Self, String> {
        let mut found: Option<Self> = None;
        let mut except = BTreeSet::new();
        for part in text.split(AND) {
            let read = |part: &str| {
                parse_pattern(part, workspace).map_err(|e| format!("`{}` {e}", printable_path(text)))
            };
            if let Some(part) = part.strip_prefix('!') {
                except.insert(exclusion_glob(read(part)?)?);
                continue;
            }
            let next = Self::from_glob(Glob::new(read(part)?)?);
            found = match found {
                None => Some(next),
                Some(before) => Some(before.intersect(&next).ok_or_else(|| grants_nothing(text))?),
            };
        }
        let found = found.ok_or_else(|| {
            format!("`{}` only excludes paths: add a line that grants the rest", printable_path(text))
        })?;
        found.with_exclusions(except).ok_or_else(|| grants_nothing(text))
    }

    fn parse_list(texts: &[String], workspace: &Path) -> Result<Vec<Self>, PolicyProblem> {
        let parse_exclusion = |text: &str| {
            let read =
                parse_pattern(text, workspace).map_err(|e| format!("`!{}` {e}", printable_path(text)))?;
            exclusion_glob(read)
        };
        excluding_list::parse(texts, parse_exclusion, |text, except| {
            Ok(Self::parse(text, workspace)?.with_exclusions(except.clone()))
        })
    }

    fn intersect(&self, other: &Self) -> Option<Self> {
        let folder = match (self.folder.starts_with(&other.folder), other.folder.starts_with(&self.folder)) {
            (true, _) => &self.folder,
            (false, true) => &other.folder,
            (false, false) => return None,
        };
        let patterns = self.patterns.union(&other.patterns).cloned().collect();
        let except = self.except.union(&other.except).cloned().collect();
        Self { folder: folder.clone(), patterns, except }.normalized()
    }

    fn includes(&self, inner: &Self) -> bool {
        // Equal to comparing with the intersection, without building it: each part that `inner` lacks has no effect
        // below its folder.
        inner.folder.starts_with(&self.folder)
            && self.patterns.iter().all(|p| inner.patterns.contains(p) || p.matches_all_below(&inner.folder))
            && self.except.iter().all(|e| inner.except.contains(e) || !e.matches_at_or_below(&inner.folder))
    }

    fn grants(&self, declared: &Self) -> bool {
        // An exclusion removes paths from the declaration. Another line would not restore them.
        rule::covers(&Self { except: BTreeSet::new(), ..self.clone() }, declared)
    }

    fn show(&self, workspace: &Path) -> String {
        self.show_except(workspace, &BTreeSet::new())
    }

    fn is_everything(&self) -> bool {
        self.is_whole_machine()
    }

    fn show_list(rules: &[Self], workspace: &Path) -> Vec<String> {
        let shared = excluding_list::shared_exclusions(rules, |rule| &rule.except);
        let lines = rules.iter().map(|rule| rule.show_except(workspace, &shared));
        lines.chain(shared.iter().map(|except| show_exclusion(except, workspace))).collect()
    }

    fn permits(&self, used: &Self) -> bool {
        // A use touches only the path itself, so exclusions below it do not matter.
        if used.is_whole() { self.allows(used.folder()) } else { self.grants(used) }
    }

    fn check_target(text: &str, workspace: &Path) -> Result<(), String> {
        Self::parse_declared(text, workspace)?;
        if text.split('/').any(|name| name.len() > MAX_FILE_NAME || name.contains('\0')) {
            return Err("no file can have this name".to_owned());
        }
        if text.split(AND).any(|part| part.trim_start_matches('!').starts_with('/')) {
            return Err("an absolute path exists only on your machine: write `$workspace/…`, or `**` for what the operator \
                        chooses"
                .to_owned());
        }
        Ok(())
    }

    fn proposed_line(&self, workspace: &Path) -> String {
        // For a declaration of everything, the workspace is proposed first.
        let first =
            if self.folder == Path::new("/") { self.intersect(&Self::whole_folder(workspace)) } else { None };
        first.as_ref().unwrap_or(self).show(workspace)
    }
}

impl PathRule {
    /// Creates the rule of a folder and everything below it, or of one file. `folder` is absolute and normalized.
    #[must_use]
    pub fn whole_folder(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), patterns: BTreeSet::new(), except: BTreeSet::new() }
    }

    /// The folder that contains all matching paths: the part before the first wildcard.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether it allows everything below its folder, without patterns and exclusions.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.patterns.is_empty() && self.except.is_empty()
    }

    /// Whether it allows everything on the machine but its exclusions.
    #[must_use]
    pub fn is_whole_machine(&self) -> bool {
        self.folder == Path::new("/") && self.patterns.is_empty()
    }

    /// The cost of a comparison with a path, in names and pattern characters.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.patterns.iter().chain(&self.except).map(Glob::weight).sum()
    }

    /// Whether the normalized absolute `path` is allowed.
    #[must_use]
    pub fn allows(&self, path: &Path) -> bool {
        is_below(path, &self.folder)
            && self.patterns.iter().all(|pattern| pattern.matches(path))
            && !self.except.iter().any(|except| except.matches(path))
    }

    /// Whether the normalized absolute `path` or something below it may be allowed.
    #[must_use]
    pub fn allows_at_or_below(&self, path: &Path) -> bool {
        is_below(path, &self.folder)
            && self.patterns.iter().all(|pattern| pattern.matches_at_or_below(path))
            && !self.except.iter().any(|except| except.matches(path))
    }

    /// Returns the exclusion that matches the normalized absolute `path`, as a policy line.
    #[must_use]
    pub fn excluded_by(&self, path: &Path, workspace: &Path) -> Option<String> {
        let except = self.except.iter().find(|except| except.matches(path))?;
        is_below(path, &self.folder).then(|| show_exclusion(except, workspace))
    }

    /// Whether an exclusion matches the normalized absolute `path` in any upper and lower case.
    #[must_use]
    pub fn excludes_in_any_case(&self, path: &Path) -> bool {
        self.except.iter().any(|except| except.matches_in_any_case(path))
    }

    /// Excludes a path and everything below it. `None` if nothing is left.
    #[must_use]
    pub fn without_path(&self, path: &Path) -> Option<Self> {
        let except = exclusion_glob(glob::literal_segments(path)).ok()?;
        self.clone().with_exclusions([except].into())
    }

    fn from_glob(glob: Glob) -> Self {
        let mut folder = PathBuf::from("/");
        for segment in glob.segments() {
            match segment {
                GlobSegment::Literal(name) => folder.push(name),
                GlobSegment::AnyNames | GlobSegment::Wildcard(_) => break,
            }
        }
        let literal = glob.segments().iter().all(|segment| matches!(segment, GlobSegment::Literal(_)));
        // A line without wildcards includes everything below. A pattern that matches everything below adds nothing.
        let needless = literal || glob.matches_all_below(&folder);
        let patterns = if needless { BTreeSet::new() } else { [glob].into() };
        Self { folder, patterns, except: BTreeSet::new() }
    }

    fn with_exclusions(mut self, except: BTreeSet<Glob>) -> Option<Self> {
        self.except.extend(except);
        self.normalized()
    }

    /// Drops patterns and exclusions without effect below the folder. `None` if no path is allowed.
    fn normalized(mut self) -> Option<Self> {
        let folder = &self.folder;
        if self.patterns.iter().any(|p| !p.matches_at_or_below(folder))
            || self.except.iter().any(|e| e.matches(folder))
        {
            return None;
        }
        self.patterns.retain(|pattern| !pattern.matches_all_below(folder));
        self.except.retain(|except| except.matches_at_or_below(folder));
        Some(self)
    }

    fn show_except(&self, workspace: &Path, except: &BTreeSet<Glob>) -> String {
        let is_folder_shown =
            self.patterns.iter().any(|pattern| Self::from_glob(pattern.clone()).folder == self.folder);
        let folder = (!is_folder_shown).then(|| show_folder(&self.folder, workspace));
        let patterns = self.patterns.iter().map(|pattern| show_glob(pattern, workspace));
        let except = self.except.difference(except).map(|except| show_exclusion(except, workspace));
        folder.into_iter().chain(patterns).chain(except).collect::<Vec<_>>().join(AND)
    }
}

fn grants_nothing(text: &str) -> String {
    format!("`{}` grants nothing: no path is in all of its parts", printable_path(text))
}

/// Parses one pattern into its segments.
fn parse_pattern(text: &str, workspace: &Path) -> Result<Vec<GlobSegment>, String> {
    glob::check_length(text)?;
    if text.contains('\0') {
        return Err("contains a zero byte".to_owned());
    }
    let (mut segments, rest) = match text.strip_prefix(WORKSPACE_VARIABLE) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => (glob::literal_segments(workspace), rest),
        _ if text.starts_with('/') || text == "**" || text.starts_with("**/") => (Vec::new(), text),
        _ if text.starts_with('~') => return Err("has a `~`: write an absolute path".to_owned()),
        _ => return Err("is not a path rule: write `$workspace/…`, an absolute path or `**/…`".to_owned()),
    };
    for part in rest.split('/') {
        match part {
            "" | "." => {}
            ".." => match segments.pop() {
                Some(GlobSegment::Literal(_)) => {}
                Some(GlobSegment::AnyNames | GlobSegment::Wildcard(_)) => {
                    return Err("has `..` after a wildcard".to_owned());
                }
                None => return Err("leads above the root".to_owned()),
            },
            name => segments.push(GlobSegment::parse(name)?),
        }
    }
    Ok(segments)
}

/// An exclusion also covers everything below the match.
fn exclusion_glob(segments: Vec<GlobSegment>) -> Result<Glob, String> {
    Glob::new(segments.into_iter().chain([GlobSegment::AnyNames]))
}

fn show_exclusion(except: &Glob, workspace: &Path) -> String {
    let names = except.segments().split_last().map_or(&[][..], |(_, names)| names);
    format!("!{}", show_names(names, workspace))
}

fn show_glob(glob: &Glob, workspace: &Path) -> String {
    show_names(glob.segments(), workspace)
}

/// Formats a pattern as a policy would write it.
fn show_names(segments: &[GlobSegment], workspace: &Path) -> String {
    let base = glob::literal_segments(workspace);
    let (start, rest) = match segments.strip_prefix(base.as_slice()) {
        Some(rest) if !base.is_empty() => (WORKSPACE_VARIABLE, rest),
        _ => ("", segments),
    };
    let text: String = rest.iter().map(|segment| format!("/{}", segment.show())).collect();
    let text = match (start, rest.first()) {
        ("", None) => "/",
        // A pattern from the root starts with `**`, without a slash.
        ("", Some(GlobSegment::AnyNames)) => text.strip_prefix('/').unwrap_or(&text),
        _ => &text,
    };
    format!("{start}{text}").replace(AND, " \\& ")
}

/// Formats a folder as a policy would write it.
#[must_use]
pub fn show_folder(folder: &Path, workspace: &Path) -> String {
    show_names(&glob::literal_segments(folder), workspace)
}

/// Whether a path equals a folder or is below it. Both are absolute and normalized, so comparing bytes is enough.
fn is_below(path: &Path, folder: &Path) -> bool {
    let (path, folder) = (path.as_os_str().as_encoded_bytes(), folder.as_os_str().as_encoded_bytes());
    let rest = path.strip_prefix(folder.strip_suffix(b"/").unwrap_or(folder));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Resolves `.` and `..` in an absolute path by name only. `None` if the path leads above the root.
#[must_use]
pub fn normalize(path: &Path) -> Option<PathBuf> {
    if is_normal(path.as_os_str().as_encoded_bytes()) {
        return Some(path.to_path_buf());
    }
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

/// Whether an absolute path certainly needs no normalization: no name starts with a dot or is empty.
fn is_normal(path: &[u8]) -> bool {
    let odd = |two: &[u8]| matches!(two, b"//" | b"/.");
    path.first() == Some(&b'/') && path.len() > 1 && path.last() != Some(&b'/') && !path.windows(2).any(odd)
}

/// Cuts and escapes a path from a guest for messages.
#[must_use]
pub fn printable_path(path: &str) -> String {
    const MAX: usize = 200;
    excerpt::one_line(path, MAX)
}

#[cfg(test)]
#[path = "path_rule_tests.rs"]
mod tests;
