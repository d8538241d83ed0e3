//! Mistakes of a policy in the form of compiler diagnostics: file, line, column, the source line and a caret.

use std::fmt;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde_json::{Value, json};
use toolbay::read_regular;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::hidden_chars::escape_hidden;
use toolbay_policy::{PolicyError, PolicyFinding, Severity};

use crate::output::format::count_noun;
use crate::output::insert_member;

/// Most bytes of a policy: a thousand plugins with a page of grants each.
pub(crate) const MAX_POLICY_BYTES: u64 = 16 << 20;
/// Most characters of a message, which may repeat a value of the file.
const MAX_MESSAGE: usize = 1000;

/// The mistakes of one file.
#[derive(Debug, Clone)]
pub(crate) struct FileFindings {
    /// The file, as it is shown.
    pub(crate) file: PathBuf,
    /// The text; `None`: it is not shown, because it is unreadable or holds credentials.
    pub(crate) text: Option<String>,
    /// In the order of the lines.
    pub(crate) findings: Vec<PolicyFinding>,
}

impl FileFindings {
    /// The mistakes of a refused policy.
    pub(crate) fn from_error(file: &Path, text: &str, error: &PolicyError) -> Self {
        Self { file: file.to_path_buf(), text: Some(text.to_owned()), findings: error.findings().to_vec() }
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// Each finding with its source line.
    pub(crate) fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let file = escape_hidden(&self.file.display().to_string()).into_owned();
        let render = |finding| renderer.render(&[self.report(&file, finding)]) + "\n";
        self.findings.iter().map(render).collect()
    }

    fn report<'a>(&'a self, file: &'a str, finding: &'a PolicyFinding) -> Group<'a> {
        let level = match finding.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(one_line(&finding.message, MAX_MESSAGE));
        let help = finding.help.as_deref().map(|help| one_line(help, MAX_MESSAGE));
        match self.text.as_deref().filter(|text| !text.is_empty()) {
            Some(text) => {
                let mark = AnnotationKind::Primary.span(finding.span.clone()).label(help);
                title.element(Snippet::source(text).path(file).annotation(mark))
            }
            None => {
                let origin = Origin::path(file).line(finding.line).char_column(finding.column);
                let group = title.element(origin);
                help.into_iter().fold(group, |group, help| group.element(Level::HELP.message(help)))
            }
        }
    }

    /// One line for each finding: `FILE:LINE:COLUMN: message`.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.findings.iter().map(|finding| {
            let PolicyFinding { line, column, .. } = finding;
            format!("{}:{line}:{column}: {}", self.file.display(), sentence(finding))
        })
    }

    /// The findings as JSON, each with its file.
    pub(crate) fn json(&self) -> impl Iterator<Item = Value> {
        self.findings.iter().map(|finding| {
            let mut value = json!(finding);
            insert_member(&mut value, "file", json!(self.file));
            value
        })
    }
}

impl fmt::Display for FileFindings {
    /// The first mistake and the number of the others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.lines().next();
        f.write_str(first.as_deref().unwrap_or("the policy cannot be checked"))?;
        match self.findings.len().saturating_sub(1) {
            0 => Ok(()),
            more => write!(
                f,
                " (and {}: `toolbay policy check {}`)",
                count_noun(more, "more error", "more errors"),
                self.file.display()
            ),
        }
    }
}

impl std::error::Error for FileFindings {}

/// A mistake on one line: its table, the message and what would help.
pub(crate) fn sentence(finding: &PolicyFinding) -> String {
    let PolicyFinding { table, message, help, .. } = finding;
    let table = if table.is_empty() { String::new() } else { format!("{table}: ") };
    let help = help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
    one_line(&format!("{table}{message}{help}"), MAX_MESSAGE)
}

/// `1 error, 2 warnings`.
pub(crate) fn summary(files: &[FileFindings]) -> String {
    let count = |severity| files.iter().map(|one| one.count(severity)).sum::<usize>();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let parts = [(errors, "error", "errors"), (warnings, "warning", "warnings")];
    let parts = parts.into_iter().filter(|(number, ..)| *number > 0);
    let counts: Vec<String> = parts.map(|(number, one, many)| count_noun(number, one, many)).collect();
    if counts.is_empty() { "no problems found".to_owned() } else { counts.join(", ") }
}

/// Reads the text of a policy.
///
/// # Errors
/// Fails if the file cannot be read, is not UTF-8, or is too large.
pub(crate) fn read_policy(file: &Path) -> Result<String, FileFindings> {
    let failed = |text: &str, at: usize, message: String| FileFindings {
        file: file.to_path_buf(),
        text: None,
        findings: vec![PolicyFinding::new(Severity::Error, text, at..at, message)],
    };
    let bytes = read_regular(file, MAX_POLICY_BYTES)
        .map_err(|error| failed("", 0, format!("the file cannot be read: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes().get(..good).unwrap_or_default()).into_owned();
        failed(&text, good, "the file is not UTF-8: this byte does not start a character".to_owned())
    })?;
    // Some editors write a byte order mark, which is not part of the first line.
    Ok(text.strip_prefix('\u{feff}').map(ToOwned::to_owned).unwrap_or(text))
}
