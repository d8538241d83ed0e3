//! All mistakes of a policy in one run, each with its line and column.
//!
//! Errors are what [`Policy::parse`] refuses; it is the same function. Warnings compare the names that the policy uses
//! with those that the caller knows ([`super::Known`]): nothing is looked up here.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::document::{DocumentEdit, PolicyDocument, ProblemLocation, UNKNOWN_KEY};
use super::problem::{PathStep, PolicyProblem};
use super::{Policy, PolicyError, file};

/// Most findings of one file: who sees so many has not written a policy.
pub const MAX_FINDINGS: usize = 200;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The policy is refused.
    Error,
    /// The policy is used, but a part of it has no effect.
    Warning,
}

impl Severity {
    /// As a message begins: `error`, `warning`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// A mistake in a policy, or in a file that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct PolicyFinding {
    /// How much it matters.
    pub severity: Severity,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The bytes of the text that it is about; on one line.
    #[serde(skip)]
    pub span: Range<usize>,
    /// The table or the list in which it is, as a header has it: `[plugins.files.grant]`. Empty: the top of the file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub table: String,
    /// What is wrong.
    pub message: String,
    /// What would help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl PolicyFinding {
    /// A finding about a part of a text, of which the line and the column follow.
    #[must_use]
    pub fn new(severity: Severity, text: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        let start = text.floor_char_boundary(span.start);
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = text.get(start..).unwrap_or_default();
        // What stands on further lines is the same mistake.
        let line_end = rest.find('\n').map_or(text.len(), |at| start + at);
        let end = text.ceil_char_boundary(span.end).clamp(start, line_end.max(start));
        Self {
            severity,
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
            span: start..end,
            table: String::new(),
            message: message.into(),
            help: None,
        }
    }
}

impl fmt::Display for PolicyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        if !self.table.is_empty() {
            write!(f, "{}: ", self.table)?;
        }
        f.write_str(&self.message)?;
        self.help.iter().try_for_each(|help| write!(f, "; {help}"))
    }
}

/// The text that a policy was read from, and what of it was left out. Where something stands is not what it says: all
/// are equal.
#[derive(Debug, Clone, Default)]
pub(super) struct PolicySource {
    text: Arc<str>,
    edits: Vec<DocumentEdit>,
}

impl PartialEq for PolicySource {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl PolicySource {
    /// The findings for problems, in the order of their lines.
    pub(super) fn findings(&self, severity: Severity, problems: Vec<PolicyProblem>) -> Vec<PolicyFinding> {
        if problems.is_empty() {
            return Vec::new();
        }
        let (mut document, _) = PolicyDocument::read(&self.text);
        document.replay(&self.edits);
        let finding = |problem: PolicyProblem| {
            let located = document.locate(&problem);
            let is_written = !document.is_placeholder(&located.path);
            is_written.then(|| to_finding(severity, &self.text, problem, &located))
        };
        sort_findings(problems.into_iter().filter_map(finding).collect())
    }

    /// The line on which the key at the end of a path stands.
    pub(super) fn line(&self, problem: &PolicyProblem) -> Option<usize> {
        let (document, _) = PolicyDocument::read(&self.text);
        let located = document.locate(problem);
        (located.path == problem.path)
            .then(|| PolicyFinding::new(Severity::Error, &self.text, located.span, String::new()).line)
    }
}

/// What a check of a policy's text came to.
#[derive(Debug, Clone)]
pub struct PolicyCheck {
    /// The policy without what is wrong; `None`: nothing of it can be judged.
    pub policy: Option<Policy>,
    /// What is wrong, in the order of the lines: each of these refuses the policy.
    pub errors: Vec<PolicyFinding>,
}

impl Policy {
    /// Finds all mistakes in the text of a policy that can be seen in it alone. [`Policy::warnings`] of what is left has
    /// those that need to be compared with what is there. The arguments are those of [`Policy::parse`].
    #[must_use]
    pub fn check(text: &str, base: &Path, workspace: Option<&Path>) -> PolicyCheck {
        // What some editors write first says nothing.
        let body = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (mut document, broken) = PolicyDocument::read(body);
        let mut errors: Vec<PolicyFinding> = Vec::new();
        for error in broken {
            let found = PolicyFinding::new(Severity::Error, body, error.span, error.message);
            // The reader of TOML stumbles several times over one mistake.
            if errors.iter().all(|before| before.line != found.line) {
                errors.push(found);
            }
        }
        let broken: Vec<Range<usize>> = errors.iter().map(|error| broken_lines(body, error.line)).collect();
        let policy = loop {
            let problem = match file::read(&document, base, workspace) {
                Ok(policy) => break Some(policy),
                Err(problem) => problem,
            };
            let located = document.locate(&problem);
            let (is_final, wants) = (problem.is_final, problem.required_table.is_some());
            let follows =
                document.is_consequence(&problem, &located) || document.is_placeholder(&located.path);
            let mended = document.repair(&problem, &located);
            let found = to_finding(Severity::Error, body, problem, &located);
            // Behind broken text names may be missing that are written there.
            let follows = follows
                || broken.iter().any(|lines| lines.contains(&found.line))
                || (wants && !broken.is_empty());
            if !follows {
                errors.push(found);
            }
            if is_final || errors.len() >= MAX_FINDINGS || mended.is_none() {
                break None;
            }
        };
        let source = PolicySource { text: body.into(), edits: document.edits().to_vec() };
        let policy = policy.filter(|_| broken.is_empty()).map(|policy| Self { source, ..policy });
        PolicyCheck { policy, errors: sort_findings(errors) }
    }
}

impl PolicyError {
    pub(super) fn new(findings: Vec<PolicyFinding>) -> Self {
        Self(findings)
    }

    /// What is wrong, in the order of the lines; never empty.
    #[must_use]
    pub fn findings(&self) -> &[PolicyFinding] {
        &self.0
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("the policy cannot be judged"),
            [one] => one.fmt(f),
            [first, rest @ ..] => {
                let more = if rest.len() == 1 { "error" } else { "errors" };
                write!(f, "{first} (and {} more {more})", rest.len())
            }
        }
    }
}

fn sort_findings(mut findings: Vec<PolicyFinding>) -> Vec<PolicyFinding> {
    findings.sort_by_key(|finding| (finding.line, finding.column));
    findings.dedup();
    findings
}

fn to_finding(
    severity: Severity,
    text: &str,
    problem: PolicyProblem,
    located: &ProblemLocation,
) -> PolicyFinding {
    let PolicyProblem { message, help, .. } = problem;
    // An unknown key is in the table above it, even if it is one itself.
    let is_table = located.is_table && !message.starts_with(UNKNOWN_KEY);
    let table = format_header(if is_table { &located.path } else { parent_table(&located.path) });
    PolicyFinding { table, help, ..PolicyFinding::new(severity, text, located.span.clone(), message) }
}

/// The lines of which nothing can be said when one of them is not TOML: below a broken header all that it heads.
fn broken_lines(text: &str, line: usize) -> Range<usize> {
    let is_header = |text: &str| text.trim_start().starts_with('[');
    let mut lines = text.lines().skip(line.saturating_sub(1));
    let below = match lines.next() {
        Some(first) if is_header(first) => lines.take_while(|next| !is_header(next)).count(),
        _ => 0,
    };
    line..line + 1 + below
}

/// The path of the table in which a key stands that a path leads to, or an entry of its list.
fn parent_table(path: &[PathStep]) -> &[PathStep] {
    match path.split_last() {
        None => path,
        Some((PathStep::Key(_), table)) => table,
        Some((_, list)) => parent_table(list),
    }
}

/// A path as a header has it.
fn format_header(path: &[PathStep]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for step in path {
        match step {
            PathStep::Key(key) => parts.push(format_key(key)),
            PathStep::Index(index) => parts.push(format!("{}", index + 1)),
            PathStep::Text(_) | PathStep::Line(_) => {}
        }
    }
    if parts.is_empty() { String::new() } else { format!("[{}]", parts.join(".")) }
}

/// A key as a header has it.
fn format_key(key: &str) -> String {
    let is_bare =
        !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    if is_bare { key.to_owned() } else { format!("{key:?}") }
}
