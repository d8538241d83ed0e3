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
use crate::capability::path_rule::PathRule;
use crate::rule::GrantRule;
use pattern::ArgumentListPattern;

/// Stands for any program.
const ANY_PROGRAM: &str = "*";

/// Processes that a program and all it starts may be at once, unless the policy says otherwise: a parallel build has some
/// dozens, a browser about a hundred.
pub const DEFAULT_PROCESSES: u64 = 256;
/// Most that a policy can say: as many as a kernel counts.
pub(crate) const MAX_PROCESSES: u64 = 4 << 20;

/// Reads `processes` of a section.
///
/// # Errors
/// It is zero, or more than a kernel counts.
pub fn check_processes(written: Option<u64>) -> Result<u64, String> {
    match written.unwrap_or(DEFAULT_PROCESSES) {
        most @ 1..=MAX_PROCESSES => Ok(most),
        _ => Err(format!("`processes` must be from 1 to {MAX_PROCESSES}")),
    }
}

/// Longest line, in bytes.
const MAX_LINE: usize = 1000;
/// Most patterns between `&` in a declaration: each is compared with each of another line.
const MAX_DECLARED_PATTERNS: usize = 8;

/// One line of a `process` list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramRule {
    /// The name under which the policy knows the program, or `*`.
    program: String,
    /// Patterns that the arguments must match, all of them; none covers another, and there is at least one.
    patterns: BTreeSet<ArgumentListPattern>,
}

impl ProgramRule {
    /// The rule that allows one command line and no other.
    #[must_use]
    pub fn exact(program: &str, arguments: &[String]) -> Self {
        Self {
            program: program.to_owned(),
            patterns: BTreeSet::from([ArgumentListPattern::exact(arguments)]),
        }
    }

    /// The name of the program; `*` for any.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Whether a program may be run with these arguments.
    #[must_use]
    pub fn allows(&self, program: &str, arguments: &[String]) -> bool {
        (self.program == ANY_PROGRAM || self.program == program)
            && self.patterns.iter().all(|pattern| pattern.matches(arguments))
    }

    /// A rule of all these patterns, without those that follow from others; `None` if two exclude each other.
    fn from_patterns(program: &str, patterns: impl IntoIterator<Item = ArgumentListPattern>) -> Option<Self> {
        let all: BTreeSet<ArgumentListPattern> = patterns.into_iter().collect();
        // With itself a pattern always overlaps.
        let before = |n: usize| all.iter().take(n);
        if all.iter().enumerate().any(|(n, one)| before(n).any(|other| !one.overlaps(other))) {
            return None;
        }
        let needed = |one: &&ArgumentListPattern| !all.iter().any(|other| other != *one && one.covers(other));
        Some(Self { program: program.to_owned(), patterns: all.iter().filter(needed).cloned().collect() })
    }
}

impl GrantRule for ProgramRule {
    const PATTERN: &'static str = r"^\s*(\*|[A-Za-z0-9_+][A-Za-z0-9._+-]*)(\s|$)";

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        if text.len() > MAX_LINE {
            return Err(format!("a line can have at most {MAX_LINE} bytes"));
        }
        let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
        let (program, rest) = text.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((text, ""));
        if program != ANY_PROGRAM {
            check_name(program).map_err(|problem| format!("`{text}`: {problem}"))?;
        }
        let patterns = pattern::parse(rest).map_err(|problem| format!("`{text}`: {problem}"))?;
        Self::from_patterns(program, patterns)
            .ok_or_else(|| format!("`{text}`: no arguments match all of the patterns between `&`"))
    }

    fn parse_declared(text: &str, workspace: &Path) -> Result<Self, String> {
        let wish = Self::parse(text, workspace)?;
        if wish.patterns.len() > MAX_DECLARED_PATTERNS {
            return Err(format!(
                "a declaration can have at most {MAX_DECLARED_PATTERNS} patterns between `&`"
            ));
        }
        let bare = wish.patterns.iter().all(ArgumentListPattern::is_empty);
        let any =
            Self { program: wish.program.clone(), patterns: BTreeSet::from([ArgumentListPattern::any()]) };
        Ok(if bare { any } else { wish })
    }

    fn intersect(&self, other: &Self) -> Option<Self> {
        let program = match (self.program.as_str(), other.program.as_str()) {
            (ANY_PROGRAM, name) | (name, ANY_PROGRAM) => name,
            (one, other) if one == other => one,
            _ => return None,
        };
        Self::from_patterns(program, self.patterns.iter().chain(&other.patterns).cloned())
    }

    fn includes(&self, inner: &Self) -> bool {
        let same = self.patterns == inner.patterns;
        let narrower = |outer: &ArgumentListPattern| inner.patterns.iter().any(|inner| outer.covers(inner));
        (self.program == ANY_PROGRAM || self.program == inner.program)
            && (same || self.patterns.iter().all(narrower))
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

    fn proposed_line(&self, workspace: &Path) -> String {
        // A policy names its programs, and one command line after the other is better than all of them.
        if self.program == ANY_PROGRAM { "PROGRAM ARGUMENT".to_owned() } else { self.show(workspace) }
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
    pub read: Vec<PathRule>,
    /// Folders and files that it may write besides those of the tool.
    pub write: Vec<PathRule>,
    /// Folders and files whose programs it may run besides the system's.
    pub execute: Vec<PathRule>,
    /// Whether it may change modes, owners and extended attributes: of every file of the host's user, since the
    /// kernel does not bound these by folder.
    pub chmod: bool,
    /// What happens where the kernel cannot confine it.
    pub sandbox: SandboxMode,
}

/// What happens where the kernel cannot confine a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// It is not run.
    Required,
    /// It is run with what confinement there is.
    BestEffort,
}

#[cfg(test)]
mod tests;
