//! A mistake in a policy before its line is known: a path of keys and a message.
//!
//! Functions that check one value return a plain message. It starts with the key in backticks: `` `timeout`: … ``.
//! [`PolicyProblem::leading_words`] extracts it, so that checks need no knowledge of files and lines. A path that
//! does not exist ends at its last existing table: the finding may be one table too wide, but never in a wrong table.

use crate::similar::{TypedName, did_you_mean};

/// One step from a table or list to a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathStep {
    /// A key of a table.
    Key(String),
    /// The list entry with this text.
    Text(String),
    /// The list entry at this index.
    Index(usize),
    /// The line of a path list at this index, without counting exclusions (`!`).
    Line(usize),
}

/// What a mistake is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum ProblemKind {
    /// A value, or several.
    #[default]
    Value,
    /// A key that its table does not have.
    UnknownKey,
    /// A key that its table needs.
    MissingKey(Box<str>),
}

/// A mistake and its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PolicyProblem {
    /// The path from the top of the file.
    pub(super) path: Vec<PathStep>,
    pub(super) message: String,
    pub(super) kind: ProblemKind,
    /// How to fix it.
    pub(super) help: Option<String>,
    /// The table that must exist. If it exists but is broken, only that mistake is reported.
    pub(super) required_table: Option<Box<[String; 2]>>,
    /// Whether nothing else in the file can be checked.
    pub(super) is_final: bool,
}

impl PolicyProblem {
    /// Creates a problem at a path of keys.
    pub(super) fn at_keys<'a>(keys: impl IntoIterator<Item = &'a str>, message: impl Into<String>) -> Self {
        let path = keys.into_iter().map(|key| PathStep::Key(key.to_owned())).collect();
        let (message, kind) = (message.into(), ProblemKind::Value);
        Self { path, message, kind, help: None, required_table: None, is_final: false }
    }

    /// Moves the problem into a list entry with this text.
    pub(super) fn in_text(mut self, text: &str) -> Self {
        self.path.push(PathStep::Text(text.to_owned()));
        self
    }

    /// Moves the problem into a line of a path list.
    pub(super) fn in_line(mut self, index: usize) -> Self {
        self.path.push(PathStep::Line(index));
        self
    }

    /// Creates a problem in an entry of a list of tables.
    pub(super) fn at_list_entry(list: &str, index: usize, message: impl Into<String>) -> Self {
        let mut problem = Self::at_keys([list], message);
        problem.path.push(PathStep::Index(index));
        problem
    }

    /// Moves the problem into a key of its table.
    pub(super) fn in_key(mut self, key: &str) -> Self {
        self.path.push(PathStep::Key(key.to_owned()));
        self
    }

    /// Moves the problem into an entry of the table that its message starts with.
    pub(super) fn in_table_entry(mut self, entry: &str) -> Self {
        let table = self.leading_words().next().unwrap_or_default().to_owned();
        self.path.extend([PathStep::Key(table), PathStep::Key(entry.to_owned())]);
        self
    }

    /// Prefixes the path with these keys.
    pub(super) fn under_keys<'a>(mut self, keys: impl IntoIterator<Item = &'a str>) -> Self {
        let outer = keys.into_iter().map(|key| PathStep::Key(key.to_owned()));
        self.path = outer.chain(std::mem::take(&mut self.path)).collect();
        self
    }

    /// Makes it the problem of a key that the table needs.
    pub(super) fn with_missing_key(mut self, key: &str) -> Self {
        self.kind = ProblemKind::MissingKey(key.into());
        self
    }

    /// Sets the table that must exist.
    pub(super) fn with_required_table(mut self, table: [&str; 2]) -> Self {
        self.required_table = Some(Box::new(table.map(ToOwned::to_owned)));
        self
    }

    /// Adds a suggestion for an unknown name.
    pub(super) fn with_suggestion<'a>(
        mut self,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        self.help = suggest_name(name, known);
        self
    }

    /// The words in backticks at the start of the message, each without the part after `=`.
    pub(super) fn leading_words(&self) -> impl Iterator<Item = &str> {
        let words = if self.message.starts_with('`') { self.message.as_str() } else { "" };
        words.split('`').skip(1).step_by(2).map(|word| word.split(" = ").next().unwrap_or(word))
    }
}

/// Prefixes the path of a check's problem with these keys.
pub(super) fn nest_under<'a, P: Into<PolicyProblem>>(
    keys: impl IntoIterator<Item = &'a str>,
) -> impl FnOnce(P) -> PolicyProblem {
    move |problem| problem.into().under_keys(keys)
}

impl From<String> for PolicyProblem {
    fn from(message: String) -> Self {
        Self::at_keys([], message)
    }
}

/// Formats the help line that suggests the name most similar to an unknown one; `None` if no name is similar.
pub(super) fn suggest_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let near = TypedName::new(name).nearest(known);
    did_you_mean(near.get(..1)?)
}
