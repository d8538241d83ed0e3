//! The lines of a grant in the operator's editor.
//!
//! | edited text | result |
//! |---|---|
//! | valid grants of the plugin | the lines to add |
//! | mistakes that a policy may not have | a diagnostic; the text opens again at the next edit |
//! | lines for other sections | a diagnostic: the question is about one plugin |
//!
//! Nothing is written into the policy here.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use toml_edit::{Document, Item, TableLike};
use toolbay::{PluginId, read_regular_text};
use toolbay_policy::{GrantKey, PolicyFinding, ProposedLine, Severity};

use crate::grants::proposal::{GrantEdit, policy_lines};
use crate::output::findings::{FileFindings, MAX_POLICY_BYTES};
use crate::output::{self, Printer, host_failure};
use crate::setup::PolicyFile;

/// The variables that name the editor, in order.
const VARIABLES: [&str; 2] = ["VISUAL", "EDITOR"];
/// The editor that POSIX systems have.
const DEFAULT_EDITOR: &str = "vi";
/// The name of the text in diagnostics.
const EDITED: &str = "edited lines";
/// What makes a policy of the edited lines, so that the policy's parser checks them.
const VERSION: &str = "version = 1\n";

/// Opens the lines of one plugin in an editor.
#[derive(Debug)]
pub(super) struct LineEditor<'a> {
    printer: Printer,
    plugin: &'a PluginId,
    /// The text of the last edit, if it had mistakes.
    broken: Option<String>,
}

impl<'a> LineEditor<'a> {
    pub(super) fn new(printer: Printer, plugin: &'a PluginId) -> Self {
        Self { printer, plugin, broken: None }
    }

    /// Lets the operator change the lines of `edit`. `None`: they stay, and the reason is printed.
    ///
    /// # Errors
    /// The temporary file cannot be written or read.
    pub(super) fn edit(&mut self, file: &PolicyFile, edit: &GrantEdit) -> Result<Option<GrantEdit>> {
        let lines = policy_lines(&edit.proposals).iter().map(|line| format!("{line}\n")).collect::<String>();
        let Some(text) = run_editor(self.printer, &self.broken.take().unwrap_or(lines))? else {
            return Ok(None);
        };
        let error = match parse(&text, self.plugin, file) {
            Ok(proposals) => match GrantEdit::from_lines(file, proposals) {
                Ok(edit) => return Ok(Some(edit)),
                Err(error) => error,
            },
            Err(findings) => findings.into(),
        };
        match error.downcast_ref::<FileFindings>() {
            Some(findings) => self.printer.findings(findings),
            None => self.printer.error(&format!("{error:#}")),
        }
        self.broken = Some(text);
        Ok(None)
    }
}

/// Opens a text in the editor and returns what the operator saved; `None`: the editor failed, and the reason is
/// printed.
fn run_editor(printer: Printer, text: &str) -> Result<Option<String>> {
    let opened = || -> std::io::Result<_> {
        // Readable by this user only, and removed when dropped.
        let mut file = tempfile::Builder::new().prefix("toolbay-grant-").suffix(".toml").tempfile()?;
        file.write_all(text.as_bytes())?;
        Ok(file.into_temp_path())
    };
    let path = opened().context("the file for the editor").map_err(host_failure)?;
    let editor = editor();
    let shown = editor.display();
    let status = editor_command(&editor, &path)?.status();
    let problem = match status {
        Ok(status) if status.success() => None,
        Ok(status) => Some(format!("the editor `{shown}` failed ({status})")),
        Err(error) => Some(format!("the editor `{shown}` cannot be run: {error}")),
    };
    if let Some(problem) = problem {
        printer.error(&problem);
        printer.help("name an editor with `EDITOR=nano`");
        return Ok(None);
    }
    match read_regular_text(&path, MAX_POLICY_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(error) => {
            printer.error(&format!("the edited lines cannot be read: {error}"));
            Ok(None)
        }
    }
}

fn editor() -> OsString {
    let named = VARIABLES.iter().filter_map(std::env::var_os).find(|name| !name.is_empty());
    named.unwrap_or_else(|| DEFAULT_EDITOR.into())
}

/// The editor with the file. The variable may hold options, so a shell splits it.
fn editor_command(editor: &OsStr, file: &Path) -> Result<Command> {
    let mut script = editor.to_owned();
    script.push(" \"$1\"");
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(script).arg("sh").arg(file);
    // stdout may be a pipe; stderr is the terminal of the question.
    command.stdout(output::stderr_for_program().map_err(host_failure)?);
    Ok(command)
}

/// Reads the edited lines.
fn parse(text: &str, plugin: &PluginId, file: &PolicyFile) -> Result<BTreeSet<ProposedLine>, FileFindings> {
    let findings = policy_findings(text, file);
    if !findings.is_empty() {
        return Err(edited(text, findings));
    }
    let error = |span: Option<std::ops::Range<usize>>, message: String| {
        edited(text, vec![PolicyFinding::new(Severity::Error, text, span.unwrap_or_default(), message)])
    };
    let document = Document::parse(text).map_err(|e| error(e.span(), e.message().to_owned()))?;
    let mut lines = GrantLines { plugin, found: BTreeSet::new() };
    lines
        .read_sections(document.as_table())
        .map_err(|MisplacedKey { span, message }| error(span, message))?;
    Ok(lines.found)
}

fn edited(text: &str, findings: Vec<PolicyFinding>) -> FileFindings {
    FileFindings { file: PathBuf::from(EDITED), text: Some(text.to_owned()), findings }
}

/// The mistakes of the lines as a policy of their own, with their places in `text`.
fn policy_findings(text: &str, file: &PolicyFile) -> Vec<PolicyFinding> {
    let mut findings = file.check(&format!("{VERSION}{text}")).errors;
    for finding in &mut findings {
        finding.line = finding.line.saturating_sub(1).max(1);
        let back = |at: usize| at.saturating_sub(VERSION.len());
        finding.span = back(finding.span.start)..back(finding.span.end);
    }
    findings
}

/// A key that a grant of the plugin does not have.
struct MisplacedKey {
    span: Option<std::ops::Range<usize>>,
    message: String,
}

/// Collects the lines of one plugin.
struct GrantLines<'a> {
    plugin: &'a PluginId,
    found: BTreeSet<ProposedLine>,
}

impl GrantLines<'_> {
    fn read_sections(&mut self, root: &dyn TableLike) -> Result<(), MisplacedKey> {
        let id = self.plugin.as_str();
        for (key, item) in root.iter() {
            let plugins = self.table(root, key, item, key == "plugins")?;
            for (key, item) in plugins.iter() {
                let section = self.table(plugins, key, item, key == id)?;
                for (key, item) in section.iter() {
                    let table = self.table(section, key, item, matches!(key, "grant" | "tools"))?;
                    if key == "grant" {
                        self.read_lists(&["plugins", id, "grant"], table)?;
                        continue;
                    }
                    for (tool, item) in table.iter() {
                        let lists = self.table(table, tool, item, true)?;
                        self.read_lists(&["plugins", id, "tools", tool], lists)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The table below a key that is expected to be one.
    fn table<'t>(
        &self,
        parent: &'t dyn TableLike,
        key: &str,
        item: &'t Item,
        is_expected: bool,
    ) -> Result<&'t dyn TableLike, MisplacedKey> {
        let found = item.as_table_like().filter(|_| is_expected);
        found.ok_or_else(|| self.misplaced(parent, key))
    }

    fn read_lists(&mut self, path: &[&str], lists: &dyn TableLike) -> Result<(), MisplacedKey> {
        for (name, item) in lists.iter() {
            let key = GrantKey::ALL.iter().find(|key| key.name() == name).copied();
            let key = key.ok_or_else(|| self.misplaced(lists, name))?;
            let mut add = |line: &str| {
                let table = path.iter().map(ToString::to_string).collect();
                self.found.insert(ProposedLine { table, key, line: line.to_owned() });
            };
            match item.as_bool() {
                Some(true) => add("true"),
                // A switch that is off grants nothing.
                Some(false) => {}
                None => item.as_array().into_iter().flatten().filter_map(|line| line.as_str()).for_each(add),
            }
        }
        Ok(())
    }

    fn misplaced(&self, parent: &dyn TableLike, key: &str) -> MisplacedKey {
        let id = self.plugin;
        MisplacedKey {
            span: parent.key(key).and_then(toml_edit::Key::span),
            message: format!(
                "`{key}` is not a grant of `{id}`: only [plugins.{id}.grant] and [plugins.{id}.tools.NAME] can be added \
                 here"
            ),
        }
    }
}
