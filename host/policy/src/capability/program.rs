//! Program rules: the name of a program that the operator mapped to a file, and a pattern for its whole argument
//! list. No shell is involved.
//!
//! | text | allows |
//! |---|---|
//! | `make` | `make` without arguments |
//! | `git status --short` | these arguments and no others |
//! | `git status *` | `status` and any further arguments |
//! | `git log -n <arg>` | one operand: an argument that is not empty and does not start with `-` |
//! | `cat <args>` | any number of operands |
//! | `git log --max-count=*` | any text in place of the `*` |
//! | `git commit -m "two words"` | the literal text in single or double quotes |
//! | `git log <args> & <arg> *` | both patterns must match |
//! | `* --version` | in a declaration: any program that the operator grants |
//!
//! A pattern compares text and does not know what the program does with it. `git *` allows `--git-dir=/elsewhere` and
//! `-c core.pager=…`; `git status *` allows every option of future versions of `git status`. The sandbox limits what
//! the program can access (the runtime's `capability::process`).

mod pattern;
mod word;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::capability::environment::EnvRule;
use crate::capability::path_rule::PathRule;
use crate::problem::PolicyProblem;
use crate::rule::GrantRule;
use pattern::ArgumentListPattern;

/// Matches any program.
const ANY_PROGRAM: &str = "*";

/// Default limit of the processes of a program, its descendants included. A parallel build has some dozens, a browser
/// about a hundred.
pub const DEFAULT_PROCESSES: u64 = 256;
/// Largest limit of processes: the most that a Linux kernel supports.
pub(crate) const MAX_PROCESSES: u64 = 4 << 20;

/// Checks the key `processes` of a section.
///
/// # Errors
/// Fails if the number is zero, or above 2²², the most that a Linux kernel supports.
pub(crate) fn check_processes(written: Option<u64>) -> Result<u64, PolicyProblem> {
    match written.unwrap_or(DEFAULT_PROCESSES) {
        most @ 1..=MAX_PROCESSES => Ok(most),
        _ => {
            let message = format!("`processes` must be from 1 to {MAX_PROCESSES}");
            Err(PolicyProblem::at_keys(["processes"], message))
        }
    }
}

/// Longest line, in bytes.
const MAX_LINE: usize = 1000;
/// Most patterns between `&` in a declaration. Each is compared with each pattern of the policy line.
const MAX_DECLARED_PATTERNS: usize = 8;

/// One line of a `process` list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramRule {
    /// The program's name in the policy, or `*`.
    program: String,
    /// Patterns that the arguments must all match. At least one; none covers another.
    patterns: BTreeSet<ArgumentListPattern>,
}

impl ProgramRule {
    /// Creates the rule that allows exactly one command line.
    #[must_use]
    pub fn exact(program: &str, arguments: &[String]) -> Self {
        Self {
            program: program.to_owned(),
            patterns: BTreeSet::from([ArgumentListPattern::exact(arguments)]),
        }
    }

    /// The name of the program, or `*` for any.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Whether a program may run with these arguments.
    #[must_use]
    pub fn allows(&self, program: &str, arguments: &[String]) -> bool {
        (self.program == ANY_PROGRAM || self.program == program)
            && self.patterns.iter().all(|pattern| pattern.matches(arguments))
    }

    /// Creates a rule of these patterns without redundant ones. `None` if two patterns have no match in common.
    fn from_patterns(program: &str, patterns: impl IntoIterator<Item = ArgumentListPattern>) -> Option<Self> {
        let all: BTreeSet<ArgumentListPattern> = patterns.into_iter().collect();
        // A pattern always overlaps itself.
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
        let declared = Self::parse(text, workspace)?;
        if declared.patterns.len() > MAX_DECLARED_PATTERNS {
            return Err(format!(
                "a declaration can have at most {MAX_DECLARED_PATTERNS} patterns between `&`"
            ));
        }
        let bare = declared.patterns.iter().all(ArgumentListPattern::is_empty);
        let any = Self {
            program: declared.program.clone(),
            patterns: BTreeSet::from([ArgumentListPattern::any()]),
        };
        Ok(if bare { any } else { declared })
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
        // A policy names its programs. Single command lines are safer than all of them.
        if self.program == ANY_PROGRAM { "PROGRAM ARGUMENT".to_owned() } else { self.show(workspace) }
    }
}

/// Checks the name of a program: the key after `[programs.`.
///
/// # Errors
/// Describes a valid name.
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

/// A program in the policy (`[programs.NAME]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The absolute path of the file to run. No search path is used.
    pub path: PathBuf,
    /// Its environment variables. No other variable of the host is passed.
    pub env: Vec<EnvRule>,
    /// Names of variables that a plugin may set.
    pub guest_env: BTreeSet<String>,
    /// Whether it may use the network, without the restrictions of the tool's `net`.
    pub network: bool,
    /// The absolute folder in which it starts, unless the plugin names another one.
    pub cwd: PathBuf,
    /// Timeout of one run. The timeout of the call also ends it.
    pub timeout: Option<Duration>,
    /// Address space of each of its processes, in bytes.
    pub memory_bytes: Option<u64>,
    /// Most processes of the program, its descendants included.
    pub processes: u64,
    /// Folders and files that it may read, besides those of the tool.
    pub read: Vec<PathRule>,
    /// Folders and files that it may write, besides those of the tool.
    pub write: Vec<PathRule>,
    /// Folders and files from which it may run programs, besides the system's.
    pub execute: Vec<PathRule>,
    /// Whether it may change modes, owners and extended attributes. This applies to every file of the host's user,
    /// because the kernel cannot restrict it by folder.
    pub chmod: bool,
    /// What happens if the kernel cannot confine it.
    pub sandbox: SandboxMode,
}

/// What happens if the kernel cannot confine a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// The program does not run.
    Required,
    /// The program runs with the available confinement, and not without any.
    BestEffort,
    /// The program runs without a sandbox, whatever the kernel can do.
    None,
}

impl SandboxMode {
    /// The word of the policy.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::BestEffort => "best-effort",
            Self::None => "none",
        }
    }
}

#[cfg(test)]
mod tests;
