//! Which programs may be run with which arguments: a name that the operator mapped to a file, and a pattern for the
//! whole list of arguments. No shell is involved.
//!
//! | text | allows |
//! |---|---|
//! | `make` | `make` without arguments |
//! | `git status --short` | these arguments and no others |
//! | `git status *` | `status` and whatever follows |
//! | `git log -n <arg>` | one more argument that is not empty and does not begin with `-` |
//! | `cat <args>` | any number of them |
//! | `git log --max-count=*` | a `*` inside of an argument: any text |
//! | `git commit -m "two words"` | quotes of either kind take literally what is in them |
//! | `git log <args> & <arg> *` | both patterns must match |
//! | `* --version` | in a declaration: any program that the operator grants |
//!
//! A pattern compares text; it does not know what a program makes of it. `git *` lets `--git-dir=/elsewhere` and
//! `-c core.pager=…` through, and `git status *` whatever the next version of `git status` takes. What a program can
//! reach in spite of that, its sandbox bounds (the runtime's `capability::process`).

mod pattern;
mod word;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::capability::environment::EnvRule;
use crate::capability::reach::Reach;
use crate::rule::Rule;
use pattern::Pattern;

/// Stands for any program.
const ANY: &str = "*";

/// Processes that a program and all it starts may be at once, unless the policy says otherwise: a parallel build has some
/// dozens, a browser about a hundred.
pub const DEFAULT_PROCESSES: u64 = 256;
/// Most that a policy can say: as many as a kernel counts.
pub(crate) const MAX_PROCESSES: u64 = 4 << 20;

/// Reads `processes` of a section.
///
/// # Errors
/// It is zero, or more than a kernel counts.
pub fn processes(written: Option<u64>) -> Result<u64, String> {
    match written.unwrap_or(DEFAULT_PROCESSES) {
        most @ 1..=MAX_PROCESSES => Ok(most),
        _ => Err(format!("`processes` is at least 1 and at most {MAX_PROCESSES}")),
    }
}

/// Longest line, in bytes.
const MAX_LINE: usize = 1000;
/// Most patterns between `&` in a declaration: each is compared with each of another line.
const MAX_WISHED: usize = 8;

/// One line of a `process` list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramRule {
    /// The name under which the policy knows the program, or `*`.
    program: String,
    /// Patterns that the arguments must match, all of them; none covers another, and there is at least one.
    patterns: BTreeSet<Pattern>,
}

impl ProgramRule {
    /// The rule that allows one command line and no other.
    #[must_use]
    pub fn exact(program: &str, arguments: &[String]) -> Self {
        Self { program: program.to_owned(), patterns: BTreeSet::from([Pattern::exact(arguments)]) }
    }

    /// The name of the program; `*` for any.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Whether a program may be run with these arguments.
    #[must_use]
    pub fn allows(&self, program: &str, arguments: &[String]) -> bool {
        (self.program == ANY || self.program == program)
            && self.patterns.iter().all(|pattern| pattern.matches(arguments))
    }

    /// A rule of all these patterns, without those that follow from others; `None` if two exclude each other.
    fn of(program: &str, patterns: impl IntoIterator<Item = Pattern>) -> Option<Self> {
        let all: BTreeSet<Pattern> = patterns.into_iter().collect();
        // With itself a pattern always overlaps.
        let before = |n: usize| all.iter().take(n);
        if all.iter().enumerate().any(|(n, one)| before(n).any(|other| !one.overlaps(other))) {
            return None;
        }
        let needed = |one: &&Pattern| !all.iter().any(|other| other != *one && one.covers(other));
        Some(Self { program: program.to_owned(), patterns: all.iter().filter(needed).cloned().collect() })
    }
}

impl Rule for ProgramRule {
    const PATTERN: &'static str = r"^\s*(\*|[A-Za-z0-9_+][A-Za-z0-9._+-]*)(\s|$)";

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        if text.len() > MAX_LINE {
            return Err(format!("a line can have at most {MAX_LINE} bytes"));
        }
        let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
        let (program, rest) = text.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((text, ""));
        if program != ANY {
            check_name(program).map_err(|problem| format!("`{text}`: {problem}"))?;
        }
        let patterns = pattern::parse(rest).map_err(|problem| format!("`{text}`: {problem}"))?;
        Self::of(program, patterns)
            .ok_or_else(|| format!("`{text}`: no arguments match all of the patterns between `&`"))
    }

    fn parse_wish(text: &str, workspace: &Path) -> Result<Self, String> {
        let wish = Self::parse(text, workspace)?;
        if wish.patterns.len() > MAX_WISHED {
            return Err(format!("a declaration can have at most {MAX_WISHED} patterns between `&`"));
        }
        let bare = wish.patterns.iter().all(Pattern::is_empty);
        let any = Self { program: wish.program.clone(), patterns: BTreeSet::from([Pattern::any()]) };
        Ok(if bare { any } else { wish })
    }

    fn meet(&self, other: &Self) -> Option<Self> {
        let program = match (self.program.as_str(), other.program.as_str()) {
            (ANY, name) | (name, ANY) => name,
            (one, other) if one == other => one,
            _ => return None,
        };
        Self::of(program, self.patterns.iter().chain(&other.patterns).cloned())
    }

    fn holds(&self, inner: &Self) -> bool {
        let same = self.patterns == inner.patterns;
        let narrower = |outer: &Pattern| inner.patterns.iter().any(|inner| outer.covers(inner));
        (self.program == ANY || self.program == inner.program) && (same || self.patterns.iter().all(narrower))
    }

    fn show(&self, _: &Path) -> String {
        let mut out = self.program.clone();
        for (n, pattern) in self.patterns.iter().enumerate() {
            if n > 0 {
                out.push_str(" &");
            }
            pattern.show(&mut out);
        }
        out
    }

    fn ask_for(&self, workspace: &Path) -> String {
        // A policy names its programs, and one command line after the other is better than all of them.
        if self.program == ANY { "PROGRAM ARGUMENT".to_owned() } else { self.show(workspace) }
    }
}

/// Checks the name of a program: what stands behind `[programs.`.
///
/// # Errors
/// Says what a name is.
pub fn check_name(name: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-');
    if name.is_empty() || !name.chars().all(legal) || name.starts_with(['.', '-']) {
        return Err(
            "write the name of a program as in [programs.NAME]: letters, digits, `.`, `_`, `+`, `-`; \
                    not a path"
                .to_owned(),
        );
    }
    Ok(())
}

/// A program that the operator put on the list (`[programs.NAME]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The file that is run: absolute, not looked for anywhere.
    pub path: PathBuf,
    /// The variables it gets; nothing else of the host's environment reaches it.
    pub env: Vec<EnvRule>,
    /// Names of variables that a plugin may set for it.
    pub guest_env: BTreeSet<String>,
    /// Whether it may use the network: all of it, whatever the tool's own `net` says.
    pub network: bool,
    /// The absolute folder in which it starts, unless the plugin names another.
    pub cwd: PathBuf,
    /// How long one run may take; the call's own time-out ends it anyway.
    pub timeout: Option<Duration>,
    /// Bytes of address space of each of its processes.
    pub memory_bytes: Option<u64>,
    /// Processes that it and all it starts may be at once.
    pub processes: u64,
    /// Folders and files that it may read besides those of the tool.
    pub read: Vec<Reach>,
    /// Folders and files that it may write besides those of the tool.
    pub write: Vec<Reach>,
    /// Folders and files whose programs it may run besides the system's.
    pub execute: Vec<Reach>,
    /// Whether it may change modes, owners and extended attributes: of every file of the host's user, since the
    /// kernel does not bound these by folder.
    pub chmod: bool,
    /// What happens where the kernel cannot confine it.
    pub sandbox: Sandbox,
}

/// What happens where the kernel cannot confine a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// It is not run.
    Required,
    /// It is run with what confinement there is.
    BestEffort,
}

#[cfg(test)]
mod tests;
