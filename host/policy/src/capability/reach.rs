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

use crate::capability::glob::{self, Glob, Segment};
use crate::rule::{self, Rule};
use crate::text;

/// Between the parts of an intersection.
const AND: &str = " & ";
const WORKSPACE: &str = "$workspace";
/// Longest name of a file, in bytes (`NAME_MAX` of Linux and macOS).
const MAX_FILE_NAME: usize = 255;

/// A part of the file system. Closed under intersection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reach {
    /// The longest prefix without wildcards: an absolute path, normalised.
    folder: PathBuf,
    /// Each matches what is reached. None is there that all below the folder matches.
    patterns: BTreeSet<Glob>,
    /// None matches what is reached. Each ends in `**`, and may match something below the folder.
    except: BTreeSet<Glob>,
}

impl Rule for Reach {
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
            let read = |part: &str| read(part, workspace).map_err(|e| format!("`{}` {e}", shown(text)));
            if let Some(part) = part.strip_prefix('!') {
                except.insert(exclusion(read(part)?)?);
                continue;
            }
            let next = Self::of(Glob::new(read(part)?)?);
            found = match found {
                None => Some(next),
                Some(before) => Some(before.meet(&next).ok_or_else(|| nothing(text))?),
            };
        }
        let found = found.ok_or_else(|| {
            format!(
                "`{}` only excludes: it stands in a list, beside what it is an exclusion from",
                shown(text)
            )
        })?;
        found.without(except).ok_or_else(|| nothing(text))
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
            let read = read(part, workspace).map_err(|e| format!("`{}` {e}", shown(text)))?;
            except.insert(exclusion(read)?);
        }
        let read = |text: &String| {
            let reach = Self::parse(text, workspace)?;
            reach.without(except.clone()).ok_or_else(|| {
                format!("`{}` grants nothing: an exclusion of the same list covers it", shown(text))
            })
        };
        wide.into_iter().map(read).collect()
    }

    fn meet(&self, other: &Self) -> Option<Self> {
        let folder = match (self.folder.starts_with(&other.folder), other.folder.starts_with(&self.folder)) {
            (true, _) => &self.folder,
            (false, true) => &other.folder,
            (false, false) => return None,
        };
        let patterns = self.patterns.union(&other.patterns).cloned().collect();
        let except = self.except.union(&other.except).cloned().collect();
        Self { folder: folder.clone(), patterns, except }.normal()
    }

    fn holds(&self, inner: &Self) -> bool {
        // As `meet` would say, without putting it together: what it would add to `inner` says nothing below its folder.
        inner.folder.starts_with(&self.folder)
            && self.patterns.iter().all(|p| inner.patterns.contains(p) || p.holds_below(&inner.folder))
            && self.except.iter().all(|e| inner.except.contains(e) || !e.enters(&inner.folder))
    }

    fn grants(&self, wish: &Self) -> bool {
        // An exclusion takes something out of a wish; another line would not bring it back.
        rule::covers(&Self { except: BTreeSet::new(), ..self.clone() }, wish)
    }

    fn show(&self, workspace: &Path) -> String {
        self.show_without(workspace, &BTreeSet::new())
    }

    fn show_list(rules: &[Self], workspace: &Path) -> Vec<String> {
        // What all of them exclude stands on lines of its own, as an operator would write it.
        let mut shared = rules.first().map(|rule| rule.except.clone()).unwrap_or_default();
        shared.retain(|except| rules.iter().all(|rule| rule.except.contains(except)));
        let lines = rules.iter().map(|rule| rule.show_without(workspace, &shared));
        lines.chain(shared.iter().map(|except| show_exclusion(except, workspace))).collect()
    }

    fn permits(&self, used: &Self) -> bool {
        // Only the path itself is used: an exclusion below it is not in its way.
        if used.is_whole() { self.allows(used.folder()) } else { self.grants(used) }
    }

    fn check_target(text: &str, workspace: &Path) -> Result<(), String> {
        Self::parse_wish(text, workspace)?;
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

    fn ask_for(&self, workspace: &Path) -> String {
        // Whoever asks for everything is given the workspace first.
        let first = if self.folder == Path::new("/") { self.meet(&Self::below(workspace)) } else { None };
        first.as_ref().unwrap_or(self).show(workspace)
    }
}

impl Reach {
    /// A folder and everything below it, or one file. `folder` is absolute and normalised.
    #[must_use]
    pub fn below(folder: &Path) -> Self {
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
    pub fn enters(&self, path: &Path) -> bool {
        is_below(path, &self.folder)
            && self.patterns.iter().all(|pattern| pattern.enters(path))
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
    pub fn excluding(&self, path: &Path) -> Option<Self> {
        let names = glob::names(path).map(|name| Segment::Literal(name.to_owned()));
        let except = Glob::new(names.chain([Segment::Many])).ok()?;
        self.clone().without([except].into())
    }

    fn of(glob: Glob) -> Self {
        let mut folder = PathBuf::from("/");
        for segment in glob.segments() {
            match segment {
                Segment::Literal(name) => folder.push(name),
                Segment::Many | Segment::Name(_) => break,
            }
        }
        let literal = glob.segments().iter().all(|segment| matches!(segment, Segment::Literal(_)));
        // A line without wildcards means all below, too; else a pattern for all below the folder is none.
        let needless = literal || glob.holds_below(&folder);
        let patterns = if needless { BTreeSet::new() } else { [glob].into() };
        Self { folder, patterns, except: BTreeSet::new() }
    }

    fn without(mut self, except: BTreeSet<Glob>) -> Option<Self> {
        self.except.extend(except);
        self.normal()
    }

    /// Drops what says nothing below the folder; `None` if nothing can be reached.
    fn normal(mut self) -> Option<Self> {
        let folder = &self.folder;
        if self.patterns.iter().any(|p| !p.enters(folder)) || self.except.iter().any(|e| e.matches(folder)) {
            return None;
        }
        self.patterns.retain(|pattern| !pattern.holds_below(folder));
        self.except.retain(|except| except.enters(folder));
        Some(self)
    }

    fn show_without(&self, workspace: &Path, except: &BTreeSet<Glob>) -> String {
        let folder_is_told =
            self.patterns.iter().any(|pattern| Self::of(pattern.clone()).folder == self.folder);
        let folder = (!folder_is_told).then(|| show(&self.folder, workspace));
        let patterns = self.patterns.iter().map(|pattern| show_glob(pattern, workspace));
        let except = self.except.difference(except).map(|except| show_exclusion(except, workspace));
        folder.into_iter().chain(patterns).chain(except).collect::<Vec<_>>().join(AND)
    }
}

fn nothing(text: &str) -> String {
    format!("`{}` grants nothing: no path is in all of its parts", shown(text))
}

/// Reads one pattern, in the names it consists of.
fn read(text: &str, workspace: &Path) -> Result<Vec<Segment>, String> {
    glob::check_length(text)?;
    if text.contains('\0') {
        return Err("has a NUL character".to_owned());
    }
    let (mut segments, rest) = match text.strip_prefix(WORKSPACE) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            (glob::names(workspace).map(|name| Segment::Literal(name.to_owned())).collect(), rest)
        }
        _ if text.starts_with('/') || text == "**" || text.starts_with("**/") => (Vec::new(), text),
        _ if text.starts_with('~') => return Err("has a `~`: write the absolute folder".to_owned()),
        _ => return Err("is no rule: write `$workspace/…`, an absolute path or `**/…`".to_owned()),
    };
    for part in rest.split('/') {
        match part {
            "" | "." => {}
            ".." => match segments.pop() {
                Some(Segment::Literal(_)) => {}
                Some(Segment::Many | Segment::Name(_)) => {
                    return Err("has `..` behind a wildcard".to_owned());
                }
                None => return Err("leads above the root".to_owned()),
            },
            name => segments.push(Segment::parse(name)?),
        }
    }
    Ok(segments)
}

/// An exclusion holds for all below what it matches.
fn exclusion(segments: Vec<Segment>) -> Result<Glob, String> {
    Glob::new(segments.into_iter().chain([Segment::Many]))
}

fn show_exclusion(except: &Glob, workspace: &Path) -> String {
    let names = except.segments().split_last().map_or(&[][..], |(_, names)| names);
    format!("!{}", show_names(names, workspace))
}

fn show_glob(glob: &Glob, workspace: &Path) -> String {
    show_names(glob.segments(), workspace)
}

/// A pattern as a policy would write it.
fn show_names(segments: &[Segment], workspace: &Path) -> String {
    let base: Vec<Segment> = glob::names(workspace).map(|name| Segment::Literal(name.to_owned())).collect();
    let (start, rest) = match segments.strip_prefix(base.as_slice()) {
        Some(rest) if !base.is_empty() => (WORKSPACE, rest),
        _ => ("", segments),
    };
    let text: String = rest.iter().map(|segment| format!("/{}", segment.show())).collect();
    let text = match (start, rest.first()) {
        ("", None) => "/",
        // From the root, `**` needs no slash before it.
        ("", Some(Segment::Many)) => text.strip_prefix('/').unwrap_or(&text),
        _ => &text,
    };
    format!("{start}{text}").replace(AND, " \\& ")
}

/// A folder as a policy would write it.
#[must_use]
pub fn show(folder: &Path, workspace: &Path) -> String {
    let names: Vec<Segment> = glob::names(folder).map(|name| Segment::Literal(name.to_owned())).collect();
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
pub fn normalise(path: &Path) -> Option<PathBuf> {
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
pub fn shown(path: &str) -> String {
    const MAX: usize = 200;
    text::one_line(path, MAX)
}

#[cfg(test)]
#[path = "reach_tests.rs"]
mod tests;
