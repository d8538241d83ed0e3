//! Parts of the file system, compared as text: a folder, patterns that all must match, exclusions none of which may.
//!
//! | line | means |
//! |---|---|
//! | `$workspace`, `$workspace/**` | the workspace and all below |
//! | `/srv/data`, `/srv/data/**` | an absolute folder and all below, or one file |
//! | `/srv/*.csv` | what lies in `/srv` under such a name; not what lies below that |
//! | `$workspace/**/*.rs` | such names at any depth; `*`, `?`, `[a-z]`, `**` |
//! | `**` | everything (in a declaration: whatever the operator grants) |
//! | `!**/.env`, `!$workspace/private`, `!/srv/*.key` | not this, nor anything below it; for all lines of its list |
//! | `A & B & !C` | what lies in all of them, on one line: how an intersection is shown |
//!
//! `~` is not read: a policy may run for another user than the one who wrote it. Case counts, so that on a file
//! system that ignores case an exclusion has to name every spelling. This module decides on names only; what a name
//! leads to is the business of the runtime's `capability::files`, which asks about the name behind all links.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use schemars::{Schema, json_schema};

use crate::capability::glob::{self, Glob, GlobSegment};
use crate::rule::{self, GrantRule};
use crate::text;

/// Between the parts of an intersection.
const AND: &str = " & ";
const WORKSPACE_VARIABLE: &str = "$workspace";
/// Longest name of a file, in bytes (`NAME_MAX` of Linux and macOS).
const MAX_FILE_NAME: usize = 255;

/// A part of the file system. Closed under intersection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathRule {
    /// The longest prefix without wildcards: an absolute path, normalised.
    folder: PathBuf,
    /// Each matches what is reached. None is there that all below the folder matches.
    patterns: BTreeSet<Glob>,
    /// None matches what is reached. Each ends in `**`, and may match something below the folder.
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
            format!(
                "`{}` only excludes: it stands in a list, beside what it is an exclusion from",
                printable_path(text)
            )
        })?;
        found.with_exclusions(except).ok_or_else(|| grants_nothing(text))
    }

    fn parse_list(texts: &[String], workspace: &Path) -> Result<Vec<Self>, String> {
        let (narrow, wide): (Vec<&String>, Vec<&String>) =
            texts.iter().partition(|text| text.starts_with('!') && !text.contains(AND));
        if wide.is_empty() && !narrow.is_empty() {
            return Err("a list of exclusions grants nothing: write what they are exclusions from, \
                        `**` for everything"
                .to_owned());
        }
        let mut except = BTreeSet::new();
        for text in narrow {
            let part = text.strip_prefix('!').unwrap_or(text);
            let read =
                parse_pattern(part, workspace).map_err(|e| format!("`{}` {e}", printable_path(text)))?;
            except.insert(exclusion_glob(read)?);
        }
        let read = |text: &String| {
            let reach = Self::parse(text, workspace)?;
            reach.with_exclusions(except.clone()).ok_or_else(|| {
                format!("`{}` grants nothing: an exclusion of the same list covers it", printable_path(text))
            })
        };
        wide.into_iter().map(read).collect()
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
        // As `meet` would say, without putting it together: what it would add to `inner` says nothing below its folder.
        inner.folder.starts_with(&self.folder)
            && self.patterns.iter().all(|p| inner.patterns.contains(p) || p.matches_all_below(&inner.folder))
            && self.except.iter().all(|e| inner.except.contains(e) || !e.matches_at_or_below(&inner.folder))
    }

    fn grants(&self, wish: &Self) -> bool {
        // An exclusion takes something out of a wish; another line would not bring it back.
        rule::covers(&Self { except: BTreeSet::new(), ..self.clone() }, wish)
    }

    fn show(&self, workspace: &Path) -> String {
        self.show_except(workspace, &BTreeSet::new())
    }

    fn show_list(rules: &[Self], workspace: &Path) -> Vec<String> {
        // What all of them exclude stands on lines of its own, as an operator would write it.
        let mut shared = rules.first().map(|rule| rule.except.clone()).unwrap_or_default();
        shared.retain(|except| rules.iter().all(|rule| rule.except.contains(except)));
        let lines = rules.iter().map(|rule| rule.show_except(workspace, &shared));
        lines.chain(shared.iter().map(|except| show_exclusion(except, workspace))).collect()
    }

    fn permits(&self, used: &Self) -> bool {
        // Only the path itself is used: an exclusion below it is not in its way.
        if used.is_whole() { self.allows(used.folder()) } else { self.grants(used) }
    }

    fn check_target(text: &str, workspace: &Path) -> Result<(), String> {
        Self::parse_declared(text, workspace)?;
        if text.split('/').any(|name| name.len() > MAX_FILE_NAME || name.contains('\0')) {
            return Err("no file can have such a name".to_owned());
        }
        if text.split(AND).any(|part| part.trim_start_matches('!').starts_with('/')) {
            return Err("an absolute path is one of your machine: write `$workspace/…`, or `**` for what the operator \
                        chooses"
                .to_owned());
        }
        Ok(())
    }

    fn proposed_line(&self, workspace: &Path) -> String {
        // Whoever asks for everything is given the workspace first.
        let first =
            if self.folder == Path::new("/") { self.intersect(&Self::whole_folder(workspace)) } else { None };
        first.as_ref().unwrap_or(self).show(workspace)
    }
}

impl PathRule {
    /// A folder and everything below it, or one file. `folder` is absolute and normalised.
    #[must_use]
    pub fn whole_folder(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), patterns: BTreeSet::new(), except: BTreeSet::new() }
    }

    /// The folder that holds all of it: what stands before the first wildcard.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether it is all below its folder, without a pattern and without an exclusion.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.patterns.is_empty() && self.except.is_empty()
    }

    /// How much there is to compare with a path, in names and characters of patterns.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.patterns.iter().chain(&self.except).map(Glob::weight).sum()
    }

    /// Whether the normalised absolute `path` lies in it.
    #[must_use]
    pub fn allows(&self, path: &Path) -> bool {
        is_below(path, &self.folder)
            && self.patterns.iter().all(|pattern| pattern.matches(path))
            && !self.except.iter().any(|except| except.matches(path))
    }

    /// Whether the normalised absolute `path`, or something below it, may lie in it.
    #[must_use]
    pub fn allows_at_or_below(&self, path: &Path) -> bool {
        is_below(path, &self.folder)
            && self.patterns.iter().all(|pattern| pattern.matches_at_or_below(path))
            && !self.except.iter().any(|except| except.matches(path))
    }

    /// The exclusion that keeps the normalised absolute `path` out, as a policy would write it, if one does.
    #[must_use]
    pub fn excluded_by(&self, path: &Path, workspace: &Path) -> Option<String> {
        let except = self.except.iter().find(|except| except.matches(path))?;
        is_below(path, &self.folder).then(|| show_exclusion(except, workspace))
    }

    /// The same without a path and all below it; `None` if nothing is left.
    #[must_use]
    pub fn without_path(&self, path: &Path) -> Option<Self> {
        let names = glob::names(path).map(|name| GlobSegment::Literal(name.to_owned()));
        let except = Glob::new(names.chain([GlobSegment::AnyNames])).ok()?;
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
        // A line without wildcards means all below, too; else a pattern for all below the folder is none.
        let needless = literal || glob.matches_all_below(&folder);
        let patterns = if needless { BTreeSet::new() } else { [glob].into() };
        Self { folder, patterns, except: BTreeSet::new() }
    }

    fn with_exclusions(mut self, except: BTreeSet<Glob>) -> Option<Self> {
        self.except.extend(except);
        self.normalized()
    }

    /// Drops what says nothing below the folder; `None` if nothing can be reached.
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
        let folder_is_told =
            self.patterns.iter().any(|pattern| Self::from_glob(pattern.clone()).folder == self.folder);
        let folder = (!folder_is_told).then(|| show_folder(&self.folder, workspace));
        let patterns = self.patterns.iter().map(|pattern| show_glob(pattern, workspace));
        let except = self.except.difference(except).map(|except| show_exclusion(except, workspace));
        folder.into_iter().chain(patterns).chain(except).collect::<Vec<_>>().join(AND)
    }
}

fn grants_nothing(text: &str) -> String {
    format!("`{}` grants nothing: no path is in all of its parts", printable_path(text))
}

/// Reads one pattern, in the names it consists of.
fn parse_pattern(text: &str, workspace: &Path) -> Result<Vec<GlobSegment>, String> {
    glob::check_length(text)?;
    if text.contains('\0') {
        return Err("has a NUL character".to_owned());
    }
    let (mut segments, rest) = match text.strip_prefix(WORKSPACE_VARIABLE) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            (glob::names(workspace).map(|name| GlobSegment::Literal(name.to_owned())).collect(), rest)
        }
        _ if text.starts_with('/') || text == "**" || text.starts_with("**/") => (Vec::new(), text),
        _ if text.starts_with('~') => return Err("has a `~`: write the absolute folder".to_owned()),
        _ => return Err("is no rule: write `$workspace/…`, an absolute path or `**/…`".to_owned()),
    };
    for part in rest.split('/') {
        match part {
            "" | "." => {}
            ".." => match segments.pop() {
                Some(GlobSegment::Literal(_)) => {}
                Some(GlobSegment::AnyNames | GlobSegment::Wildcard(_)) => {
                    return Err("has `..` behind a wildcard".to_owned());
                }
                None => return Err("leads above the root".to_owned()),
            },
            name => segments.push(GlobSegment::parse(name)?),
        }
    }
    Ok(segments)
}

/// An exclusion holds for all below what it matches.
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

/// A pattern as a policy would write it.
fn show_names(segments: &[GlobSegment], workspace: &Path) -> String {
    let base: Vec<GlobSegment> =
        glob::names(workspace).map(|name| GlobSegment::Literal(name.to_owned())).collect();
    let (start, rest) = match segments.strip_prefix(base.as_slice()) {
        Some(rest) if !base.is_empty() => (WORKSPACE_VARIABLE, rest),
        _ => ("", segments),
    };
    let text: String = rest.iter().map(|segment| format!("/{}", segment.show())).collect();
    let text = match (start, rest.first()) {
        ("", None) => "/",
        // From the root, `**` needs no slash before it.
        ("", Some(GlobSegment::AnyNames)) => text.strip_prefix('/').unwrap_or(&text),
        _ => &text,
    };
    format!("{start}{text}").replace(AND, " \\& ")
}

/// A folder as a policy would write it.
#[must_use]
pub fn show_folder(folder: &Path, workspace: &Path) -> String {
    let names: Vec<GlobSegment> =
        glob::names(folder).map(|name| GlobSegment::Literal(name.to_owned())).collect();
    show_names(&names, workspace)
}

/// Whether a path is a folder or lies below it. Both are absolute and normalised, so that what they are written with
/// says it.
fn is_below(path: &Path, folder: &Path) -> bool {
    let (path, folder) = (path.as_os_str().as_encoded_bytes(), folder.as_os_str().as_encoded_bytes());
    let rest = path.strip_prefix(folder.strip_suffix(b"/").unwrap_or(folder));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Resolves `.` and `..` in an absolute path by name alone; `None` when it leads above the root.
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

/// Whether a path is absolute and surely has nothing to resolve: no name begins with a dot, none is empty.
fn is_normal(path: &[u8]) -> bool {
    let odd = |two: &[u8]| matches!(two, b"//" | b"/.");
    path.first() == Some(&b'/') && path.len() > 1 && path.last() != Some(&b'/') && !path.windows(2).any(odd)
}

/// Cuts and escapes a path that a guest gave, for a message.
#[must_use]
pub fn printable_path(path: &str) -> String {
    const MAX: usize = 200;
    text::one_line(path, MAX)
}

#[cfg(test)]
#[path = "path_rule_tests.rs"]
mod tests;
