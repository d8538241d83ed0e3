//! Reports all mistakes of a policy in one run, each with line and column.
//!
//! Errors are the mistakes that [`Policy::parse`] refuses; both use the same code. Warnings compare the names in the
//! policy with the names that the caller knows ([`super::KnownNames`]). This module does no lookups itself.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::document::{DocumentEdit, PolicyDocument, ProblemLocation, WrittenText};
use super::{Policy, PolicyError, file};
use crate::problem::{PathStep, PolicyProblem, ProblemKind};

/// Most findings reported for one file. A file with more is probably not a policy.
pub const MAX_FINDINGS: usize = 200;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The policy is refused.
    Error,
    /// The policy is used, but a part of it has no effect.
    Warning,
}

impl Severity {
    /// The first word of a message: `error` or `warning`.
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
    /// The severity.
    pub severity: Severity,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The byte range of the text that the finding is about, within one line.
    #[serde(skip)]
    pub span: Range<usize>,
    /// The table or list as in a header: `[plugins.files.grant]`. Empty at the top level.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub table: String,
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl PolicyFinding {
    /// Creates a finding for a byte range. Line and column follow from the range.
    #[must_use]
    pub fn new(severity: Severity, text: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        let start = text.floor_char_boundary(span.start);
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = text.get(start..).unwrap_or_default();
        // A finding covers one line only.
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

/// The text of a policy, and the edits that removed its mistakes. All sources are equal: two policies with the same
/// content are equal wherever their keys are.
#[derive(Debug, Clone, Default)]
pub(super) struct PolicySource {
    text: Arc<str>,
    edits: Vec<DocumentEdit>,
    /// The lines that are no TOML.
    broken: Vec<Range<usize>>,
}

impl PartialEq for PolicySource {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl PolicySource {
    /// The file without its mistakes.
    fn document(&self) -> PolicyDocument<'_> {
        let (mut document, _) = PolicyDocument::read(&self.text);
        document.replay(&self.edits);
        document
    }

    /// Whether parts of the file are left out, because they are wrong.
    pub(super) fn has_mistakes(&self) -> bool {
        !(self.edits.is_empty() && self.broken.is_empty())
    }

    /// Returns all texts that the file has as values.
    pub(super) fn texts(&self) -> Vec<WrittenText> {
        self.document().texts()
    }

    /// Returns the findings for problems, sorted by line. A problem that only follows from a mistake is left out.
    pub(super) fn findings(&self, severity: Severity, problems: Vec<PolicyProblem>) -> Vec<PolicyFinding> {
        if problems.is_empty() {
            return Vec::new();
        }
        let document = self.document();
        let finding = |problem: PolicyProblem| {
            let located = document.locate(&problem);
            // A name may be defined in a line that could not be parsed.
            let follows = document.is_consequence(&problem, &located)
                || (problem.required_table.is_some() && !self.broken.is_empty());
            let found = to_finding(severity, &self.text, problem, &located);
            let is_readable = !self.broken.iter().any(|lines| lines.contains(&found.line));
            (!follows && is_readable).then_some(found)
        };
        sort_findings(problems.into_iter().filter_map(finding).collect())
    }

    /// See [`Policy::section_texts`](super::Policy::section_texts).
    pub(super) fn section_texts(&self) -> BTreeMap<String, String> {
        // The text was parsed before.
        let Ok(table) = self.text.parse::<toml::Table>() else { return BTreeMap::new() };
        let mut sections = BTreeMap::new();
        for (name, value) in table {
            match value {
                toml::Value::Table(parts) if parts.values().all(toml::Value::is_table) => {
                    let parts = parts.into_iter().map(|(part, value)| (format!("{name}.{part}"), value));
                    sections.extend(parts.map(|(part, value)| (part, value.to_string())));
                }
                value => drop(sections.insert(name, value.to_string())),
            }
        }
        sections
    }

    /// Returns the line of the key at the end of a path.
    pub(super) fn line(&self, problem: &PolicyProblem) -> Option<usize> {
        let (document, _) = PolicyDocument::read(&self.text);
        let located = document.locate(problem);
        (located.path == problem.path)
            .then(|| PolicyFinding::new(Severity::Error, &self.text, located.span, String::new()).line)
    }
}

/// The result of checking the text of a policy.
#[derive(Debug, Clone)]
pub struct PolicyCheck {
    /// The policy without its mistakes. `None` if the rest cannot be checked.
    pub policy: Option<Policy>,
    /// The errors, sorted by line. Each of them refuses the policy.
    pub errors: Vec<PolicyFinding>,
}

impl Policy {
    /// Finds all mistakes that the text alone reveals. [`Policy::review`] finds mistakes that depend on known names
    /// and files. The arguments are those of [`Policy::parse`].
    #[must_use]
    pub fn check(text: &str, base: &Path, workspace: Option<&Path>) -> PolicyCheck {
        // Some editors write a byte order mark.
        let body = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (mut document, broken) = PolicyDocument::read(body);
        let mut errors: Vec<PolicyFinding> = Vec::new();
        for error in broken {
            let found = PolicyFinding::new(Severity::Error, body, error.span, error.message);
            // The TOML parser may report one mistake several times.
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
            let is_final = problem.is_final;
            // A name may be defined in a line that could not be parsed.
            let follows = document.is_consequence(&problem, &located)
                || (problem.required_table.is_some() && !broken.is_empty());
            let repaired = document.repair(&problem, &located);
            let found = to_finding(Severity::Error, body, problem, &located);
            if !follows && !broken.iter().any(|lines| lines.contains(&found.line)) {
                errors.push(found);
            }
            if is_final || errors.len() >= MAX_FINDINGS || repaired.is_none() {
                break None;
            }
        };
        let source = PolicySource { text: body.into(), edits: document.edits().to_vec(), broken };
        let policy = policy.map(|policy| Self { source, ..policy });
        PolicyCheck { policy, errors: sort_findings(errors) }
    }
}

impl PolicyError {
    pub(super) fn new(findings: Vec<PolicyFinding>) -> Self {
        Self(findings)
    }

    /// The errors, sorted by line. Never empty.
    #[must_use]
    pub fn findings(&self) -> &[PolicyFinding] {
        &self.0
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("the policy cannot be checked"),
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
    let PolicyProblem { message, kind, help, .. } = problem;
    // An unknown key belongs to its parent table, even if it is a table itself.
    let is_table = located.is_table && kind != ProblemKind::UnknownKey;
    let table = format_header(if is_table { &located.path } else { parent_table(&located.path) });
    PolicyFinding { table, help, ..PolicyFinding::new(severity, text, located.span.clone(), message) }
}

/// Returns the lines that cannot be checked because of a syntax error. A broken header includes all lines of its
/// table.
fn broken_lines(text: &str, line: usize) -> Range<usize> {
    let is_header = |text: &str| text.trim_start().starts_with('[');
    let mut lines = text.lines().skip(line.saturating_sub(1));
    let below = match lines.next() {
        Some(first) if is_header(first) => lines.take_while(|next| !is_header(next)).count(),
        _ => 0,
    };
    line..line + 1 + below
}

/// Returns the path of the table that contains a key, or an entry of the key's list.
fn parent_table(path: &[PathStep]) -> &[PathStep] {
    match path.split_last() {
        None => path,
        Some((PathStep::Key(_), table)) => table,
        Some((_, list)) => parent_table(list),
    }
}

/// Formats a path as a table header.
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

/// Formats a key as in a table header.
fn format_key(key: &str) -> String {
    let is_bare =
        !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    if is_bare { key.to_owned() } else { format!("{key:?}") }
}
