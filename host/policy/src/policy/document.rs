//! The TOML tree of a policy, with the position of every key and value.
//!
//! Deserializing stops at the first mistake. To find the others, the mistake is removed from the tree and the tree is
//! read again. Each check can then return at its first mistake, and all mistakes are still reported.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

use crate::problem::{PathStep, PolicyProblem, ProblemKind, suggest_name};

/// Required keys, each with a placeholder value that is valid in every table.
const REQUIRED: [(&str, &str); 10] = [
    ("version", "1"),
    ("path", "'/'"),
    ("from", "'env:_'"),
    ("document", "'_'"),
    ("issuer", "'https://_.invalid'"),
    ("jwks", "'_'"),
    ("default", "'allow'"),
    ("action", "'deny'"),
    ("preset", "'ask-network'"),
    ("command", "['/']"),
];

/// Old keys and their new names.
const RENAMED_KEYS: [(&str, &str); 8] = [
    ("body_bytes_in_all", "body_bytes_total"),
    ("kept_bytes", "resume_buffer_bytes"),
    ("kept_bytes_per_client", "resume_buffer_bytes_per_client"),
    ("spool_age", "saved_output_age"),
    ("spool_bytes", "saved_output_bytes"),
    ("spool_session_bytes", "saved_output_bytes_per_session"),
    ("warm_idle", "instance_idle_timeout"),
    ("warm_instances", "idle_instances"),
];

/// Keys of other programs' settings and of other tables, each with a key that the table must know, and what to write.
const FOREIGN_KEYS: [(&str, &str, &str); 5] = [
    ("mcpServers", "mcp", "write a table [mcp.NAME] for each server; `toolbay mcp add` does it"),
    ("mcp_servers", "mcp", "write a table [mcp.NAME] for each server; `toolbay mcp add` does it"),
    ("servers", "mcp", "write a table [mcp.NAME] for each server; `toolbay mcp add` does it"),
    ("approve", "toolcall_reason", "write a [[rule]] with `tool` and `action = \"ask\"`"),
    ("permission", "toolcall_reason", "write a [[rule]] with `tool` and `action`"),
];

/// A TOML tree from which mistakes are removed.
#[derive(Debug)]
pub(super) struct PolicyDocument<'t> {
    root: Spanned<DeTable<'t>>,
    /// The edits so far.
    edits: Vec<DocumentEdit>,
    /// Paths of placeholder values that are not in the file.
    placeholders: Vec<Vec<PathStep>>,
}

/// An edit of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DocumentEdit {
    /// Remove the value at this path.
    Remove(Vec<PathStep>),
    /// Put a placeholder value at this path.
    Place(Vec<PathStep>),
}

/// A text of the file with its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrittenText {
    pub(super) path: Vec<PathStep>,
    pub(super) text: String,
}

impl WrittenText {
    /// The keys of its path, from the top of the file.
    pub(super) fn keys(&self) -> Vec<&str> {
        self.path
            .iter()
            .filter_map(|step| match step {
                PathStep::Key(key) => Some(key.as_str()),
                PathStep::Text(_) | PathStep::Index(_) | PathStep::Line(_) => None,
            })
            .collect()
    }
}

/// A TOML syntax error.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) message: String,
    pub(super) span: Range<usize>,
}

/// The location of a problem: the longest existing part of its path, and the text range to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProblemLocation {
    pub(super) path: Vec<PathStep>,
    pub(super) span: Range<usize>,
    /// Whether the path ends at a table instead of a single value.
    pub(super) is_table: bool,
}

/// A node of the tree, with its key if it has one.
#[derive(Clone, Copy)]
struct TomlNode<'a, 't> {
    key: Option<&'a Spanned<DeString<'t>>>,
    value: &'a Spanned<DeValue<'t>>,
}

impl<'a, 't> TomlNode<'a, 't> {
    /// Returns the child at a step, and the step to it: a key or an index.
    fn child(self, step: &PathStep) -> Option<(PathStep, Self)> {
        let list = match (step, self.value.get_ref()) {
            (PathStep::Key(key), DeValue::Table(table)) => {
                return Some((step.clone(), table_entry(table, key)?));
            }
            (_, DeValue::Array(list)) => list,
            _ => return None,
        };
        let index = match step {
            PathStep::Key(_) => return None,
            PathStep::Text(text) => {
                list.iter().position(|value| value.get_ref().as_str() == Some(text.as_str()))?
            }
            PathStep::Index(index) => *index,
            PathStep::Line(line) => {
                let is_exclusion = |value: &Spanned<DeValue<'_>>| {
                    value.get_ref().as_str().is_some_and(|text| text.starts_with('!'))
                };
                let mut lines = list.iter().enumerate().filter(|(_, value)| !is_exclusion(value));
                lines.nth(*line)?.0
            }
        };
        Some((PathStep::Index(index), Self { key: None, value: list.get(index)? }))
    }

    /// Returns the text range to show. For a table it is the key, for a list of tables the first key.
    fn span(self) -> Range<usize> {
        let is_table = match self.value.get_ref() {
            DeValue::Table(_) => true,
            DeValue::Array(list) => list.iter().any(|value| value.get_ref().is_table()),
            _ => false,
        };
        self.key.filter(|_| is_table).map_or_else(|| self.value.span(), Spanned::span)
    }
}

fn table_entry<'a, 't>(table: &'a DeTable<'t>, key: &str) -> Option<TomlNode<'a, 't>> {
    table.get_key_value(key).map(|(key, value)| TomlNode { key: Some(key), value })
}

impl<'t> PolicyDocument<'t> {
    /// Parses the text as far as it is valid TOML.
    pub(super) fn read(text: &'t str) -> (Self, Vec<SyntaxError>) {
        let (root, errors) = DeTable::parse_recoverable(text);
        let error = |error: toml::de::Error| {
            let span = error.span().unwrap_or_default();
            SyntaxError {
                message: syntax_message(error.message(), text.get(span.clone()).unwrap_or_default()),
                span,
            }
        };
        let mut errors: Vec<SyntaxError> = errors.into_iter().map(error).collect();
        errors.sort_by_key(|error| error.span.start);
        (Self { root, edits: Vec::new(), placeholders: Vec::new() }, errors)
    }

    /// The edits in order.
    pub(super) fn edits(&self) -> &[DocumentEdit] {
        &self.edits
    }

    /// Returns the version of the file if this host does not support it.
    pub(super) fn unsupported_version(&self) -> Option<String> {
        let version = self.root.get_ref().get("version")?.get_ref().as_integer()?.as_str();
        (version != "1").then(|| version.to_owned())
    }

    /// Returns the edited tree.
    pub(super) fn tree(&self) -> Spanned<DeTable<'t>> {
        self.root.clone()
    }

    /// Locates a problem.
    pub(super) fn locate(&self, problem: &PolicyProblem) -> ProblemLocation {
        let (mut path, mut node) = (Vec::new(), None);
        for step in &problem.path {
            let Some((found, next)) = self.child_of(node, step) else { break };
            path.push(found);
            node = Some(next);
        }
        let is_table = node.is_none_or(|node| node.value.get_ref().is_table());
        let key = node.and_then(|node| node.key).filter(|_| problem.kind == ProblemKind::UnknownKey);
        let span = key.map(Spanned::span).or_else(|| node.map(TomlNode::span));
        ProblemLocation { path, span: span.unwrap_or_default(), is_table }
    }

    fn child_of<'a>(
        &'a self,
        node: Option<TomlNode<'a, 't>>,
        step: &PathStep,
    ) -> Option<(PathStep, TomlNode<'a, 't>)> {
        match (node, step) {
            (Some(node), step) => node.child(step),
            (None, PathStep::Key(key)) => Some((step.clone(), table_entry(self.root.get_ref(), key)?)),
            (None, PathStep::Text(_) | PathStep::Index(_) | PathStep::Line(_)) => None,
        }
    }

    /// Whether a problem is only a consequence of an earlier one, because it concerns a removed part or a placeholder.
    pub(super) fn is_consequence(&self, problem: &PolicyProblem, located: &ProblemLocation) -> bool {
        let of_table = |wanted: &[String], path: &[PathStep]| {
            path.iter().zip(wanted).all(|(step, key)| *step == PathStep::Key(key.clone()))
        };
        let concerns = |removed: &[PathStep]| match removed.split_last() {
            Some((PathStep::Key(key), table)) => {
                problem.path.starts_with(removed)
                    || (table == located.path && problem.avoiding_keys.contains(&key.as_str()))
            }
            // What is left of a list says nothing about the list.
            Some((_, list)) => list == located.path,
            None => false,
        };
        let is_placeholder = self.placeholders.iter().any(|placed| located.path.starts_with(placed));
        is_placeholder
            || self.edits.iter().any(|edit| {
                let (DocumentEdit::Place(path) | DocumentEdit::Remove(path)) = edit;
                let is_gone = matches!(edit, DocumentEdit::Remove(_));
                (is_gone && concerns(path))
                    || problem.required_table.as_ref().is_some_and(|wanted| of_table(&**wanted, path))
            })
    }

    /// Edits the tree so that it no longer contains a problem, and returns the edit. `None` if no edit helps.
    pub(super) fn repair(
        &mut self,
        problem: &PolicyProblem,
        located: &ProblemLocation,
    ) -> Option<DocumentEdit> {
        let mut edits = Vec::new();
        if located.is_table && problem.kind == ProblemKind::MissingKey {
            edits.push(DocumentEdit::Place(problem.path.clone()));
        }
        // A command line is one value.
        let is_command = |path: &[PathStep]| matches!(path, [.., PathStep::Key(key), _] if key == "command");
        let path = match located.path.split_last() {
            Some((PathStep::Index(_), list)) if is_command(&located.path) => list.to_vec(),
            _ => located.path.clone(),
        };
        edits.extend([DocumentEdit::Place(path.clone()), DocumentEdit::Remove(path)]);
        // If a placeholder does not fix the problem, the value is removed.
        let done = edits.into_iter().find(|edit| !self.was_placed_by(edit) && self.apply(edit))?;
        self.edits.push(done.clone());
        Some(done)
    }

    fn was_placed_by(&self, edit: &DocumentEdit) -> bool {
        matches!(edit, DocumentEdit::Place(path) if self.placeholders.contains(path))
    }

    /// Repeats edits on another tree of the same text.
    pub(super) fn replay(&mut self, edits: &[DocumentEdit]) {
        for edit in edits {
            self.apply(edit);
            self.edits.push(edit.clone());
        }
    }

    fn apply(&mut self, edit: &DocumentEdit) -> bool {
        let (DocumentEdit::Place(path) | DocumentEdit::Remove(path)) = edit;
        let Some((last, above)) = path.split_last() else { return false };
        match (container(self.root.get_mut(), above), last, edit) {
            (Some(TomlContainer::Table(table)), PathStep::Key(key), DocumentEdit::Remove(_)) => {
                table.remove(key.as_str()).is_some()
            }
            (Some(TomlContainer::Table(table)), PathStep::Key(key), DocumentEdit::Place(_)) => {
                let is_placed = insert_placeholder(table, key);
                self.placeholders.extend(is_placed.then(|| path.clone()));
                is_placed
            }
            (Some(TomlContainer::List(list)), step, DocumentEdit::Remove(_)) => {
                // Removing an entry shifts the following ones, so placeholders in them are no longer known.
                self.placeholders.retain(|placed| !placed.starts_with(above));
                remove_entry(list, step)
            }
            _ => false,
        }
    }

    /// Converts a TOML error into a problem with its path.
    pub(super) fn problem_from(&self, error: &toml::de::Error) -> PolicyProblem {
        let mut path = error.span().and_then(|span| self.path_of(&span)).unwrap_or_default();
        if let Some(key) = missing_key(error.message()) {
            path.push(PathStep::Key(key.to_owned()));
            let message = format!("the key `{key}` is missing");
            return PolicyProblem { path, ..PolicyProblem::missing_key(key, message) };
        }
        let (message, kind, help) = reword(error.message());
        let of_key = match path.last() {
            Some(PathStep::Key(key)) if kind == ProblemKind::Value => format!("`{key}`: {message}"),
            _ => message,
        };
        PolicyProblem { path, kind, help, ..PolicyProblem::from(of_key) }
    }

    /// Returns the deepest path whose key or value has this range.
    fn path_of(&self, span: &Range<usize>) -> Option<Vec<PathStep>> {
        let mut found = None;
        self.visit(|path, node| {
            let has = node.value.span() == *span || node.key.is_some_and(|key| key.span() == *span);
            if has && found.as_ref().is_none_or(|before: &Vec<PathStep>| before.len() < path.len()) {
                found = Some(path.to_vec());
            }
        });
        found
    }

    /// Returns all texts that the file has as values.
    pub(super) fn texts(&self) -> Vec<WrittenText> {
        let mut texts = Vec::new();
        self.visit(|path, node| {
            if let DeValue::String(text) = node.value.get_ref() {
                texts.push(WrittenText { path: path.to_vec(), text: text.clone().into_owned() });
            }
        });
        texts
    }

    /// Visits all nodes with their paths, in no order.
    fn visit(&self, mut visit: impl FnMut(&[PathStep], TomlNode<'_, 't>)) {
        let mut nodes: Vec<(Vec<PathStep>, TomlNode<'_, 't>)> = entries(self.root.get_ref(), &[]);
        while let Some((path, node)) = nodes.pop() {
            visit(&path, node);
            match node.value.get_ref() {
                DeValue::Table(table) => nodes.extend(entries(table, &path)),
                DeValue::Array(list) => nodes.extend(list.iter().enumerate().map(|(index, value)| {
                    let step = [path.as_slice(), &[PathStep::Index(index)]].concat();
                    (step, TomlNode { key: None, value })
                })),
                _ => {}
            }
        }
    }
}

fn entries<'a, 't>(table: &'a DeTable<'t>, path: &[PathStep]) -> Vec<(Vec<PathStep>, TomlNode<'a, 't>)> {
    let entry = |(key, value): (&'a Spanned<DeString<'t>>, _)| {
        let step = PathStep::Key(key.get_ref().clone().into_owned());
        ([path, &[step]].concat(), TomlNode { key: Some(key), value })
    };
    table.iter().map(entry).collect()
}

/// A mutable table or list of the tree.
enum TomlContainer<'a, 't> {
    Table(&'a mut DeTable<'t>),
    List(&'a mut DeArray<'t>),
}

fn container<'a, 't>(root: &'a mut DeTable<'t>, path: &[PathStep]) -> Option<TomlContainer<'a, 't>> {
    let mut at = TomlContainer::Table(root);
    for step in path {
        let value = match (at, step) {
            (TomlContainer::Table(table), PathStep::Key(key)) => table.get_mut(key.as_str())?,
            (TomlContainer::List(list), PathStep::Index(index)) => list.get_mut(*index)?,
            _ => return None,
        };
        at = match value.get_mut() {
            DeValue::Table(table) => TomlContainer::Table(table),
            DeValue::Array(list) => TomlContainer::List(list),
            _ => return None,
        };
    }
    Some(at)
}

/// Puts a placeholder under a required key, so that the rest of the table can be checked.
fn insert_placeholder(table: &mut DeTable<'_>, key: &str) -> bool {
    let Some((_, text)) = REQUIRED.into_iter().find(|(required, _)| *required == key) else { return false };
    let Ok(value) = DeValue::parse(text) else { return false };
    match table.get_mut(key) {
        Some(written) => *written.get_mut() = value.into_inner(),
        None => drop(table.insert(Spanned::new(0..0, key.to_owned().into()), value)),
    }
    true
}

fn remove_entry(list: &mut DeArray<'_>, step: &PathStep) -> bool {
    let PathStep::Index(index) = step else { return false };
    let (before, entries) = (list.len(), std::mem::replace(list, DeArray::new()).into_iter().enumerate());
    *list = entries.filter(|(at, _)| at != index).map(|(_, entry)| entry).collect();
    list.len() < before
}

/// Rewords a message of the TOML parser. `at` is the text at the error.
fn syntax_message(message: &str, at: &str) -> String {
    match message {
        "duplicate key" => format!("`{at}` is written twice"),
        _ if message.starts_with("string values must be quoted") && at.trim().is_empty() => {
            "the value is missing".to_owned()
        }
        other => other.to_owned(),
    }
}

/// The key that a message of serde says is missing.
fn missing_key(message: &str) -> Option<&str> {
    Some(message.strip_prefix("missing field ")?.trim_matches('`'))
}

/// Rewords a message of serde, and returns its kind and the help line with a suggestion. `toml` has no type for them.
fn reword(message: &str) -> (String, ProblemKind, Option<String>) {
    for (prefix, what, kind) in [
        ("unknown field ", "unknown key", ProblemKind::UnknownKey),
        ("unknown variant ", "unknown value", ProblemKind::Value),
    ] {
        let Some(rest) = message.strip_prefix(prefix) else { continue };
        let (name, known) = rest.rsplit_once(", expected ").unwrap_or((rest, ""));
        let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        let name_only = name.trim_matches('`');
        let renamed = RENAMED_KEYS.iter().find(|(old, new)| *old == name_only && known.contains(new));
        let foreign =
            FOREIGN_KEYS.iter().find(|(key, beside, _)| *key == name_only && known.contains(beside));
        let help = match (renamed, foreign) {
            (Some((_, new)), _) => Some(format!("it is called `{new}` now")),
            (None, Some((.., instead))) => Some((*instead).to_owned()),
            (None, None) => suggest_name(name_only, known.iter().copied()),
        };
        let alternatives = match (&help, known.is_empty()) {
            (None, false) => format!("; use one of `{}`", known.join("`, `")),
            _ => String::new(),
        };
        return (format!("{what} {name}{alternatives}"), kind, help);
    }
    let expected = [
        ("invalid type: ", "wrong type: "),
        ("invalid value: ", "wrong value: "),
        ("a sequence", "a list"),
        ("a map", "a table"),
        ("expected path string", "expected a string"),
        ("a borrowed string", "a string"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number from 0 on"),
        ("expected usize", "expected a whole number from 0 on"),
        ("expected f64", "expected a number"),
    ];
    let text = expected.iter().fold(message.to_owned(), |text, (from, to)| text.replacen(from, to, 1));
    let text = match text.split_once("expected struct ") {
        Some((head, _)) => format!("{head}expected a table"),
        None => text,
    };
    (text, ProblemKind::Value, None)
}
