//! A mistake in a policy before its line is known: a path of keys and a message.
//!
//! A function that checks a value knows its key, but not the tables above it. `nest_under` adds them, so that checks
//! need no knowledge of files and lines. A path that does not exist ends at its last existing table: the finding may be
//! one table too wide, but never in a wrong table.

use crate::similar::{TypedName, did_you_mean};

/// One step from a table or list to a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathStep {
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ProblemKind {
    /// A value, or several.
    #[default]
    Value,
    /// A key that its table does not have.
    UnknownKey,
    /// A key that its table needs: the last step of the path.
    MissingKey,
}

/// A mistake in a policy: its keys and a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PolicyProblem {
    /// The path from the table that was checked; at the end, from the top of the file.
    pub(crate) path: Vec<PathStep>,
    pub(crate) message: String,
    pub(crate) kind: ProblemKind,
    /// How to fix it.
    pub(crate) help: Option<String>,
    /// Further keys of the same table. One of them would have avoided the problem.
    pub(crate) avoiding_keys: &'static [&'static str],
    /// The table that must exist. If it exists but is broken, only that mistake is reported.
    pub(crate) required_table: Option<Box<[String; 2]>>,
    /// Whether nothing else in the file can be checked.
    pub(crate) is_final: bool,
}

impl PolicyProblem {
    /// Creates a problem at a path of keys.
    pub(crate) fn at_keys<'a>(keys: impl IntoIterator<Item = &'a str>, message: impl Into<String>) -> Self {
        Self::from(message.into()).under_keys(keys)
    }

    /// Creates a problem in an entry of a list of tables.
    pub(crate) fn at_list_entry(list: &str, index: usize, message: impl Into<String>) -> Self {
        Self::from(message.into()).under_entry(list, index)
    }

    /// Creates the problem of a key that its table needs.
    pub(crate) fn missing_key(key: &str, message: impl Into<String>) -> Self {
        Self { kind: ProblemKind::MissingKey, ..Self::at_keys([key], message) }
    }

    /// Moves the problem into a list entry with this text.
    pub(crate) fn in_text(self, text: &str) -> Self {
        self.in_step(PathStep::Text(text.to_owned()))
    }

    /// Moves the problem into the list entry at this index.
    pub(crate) fn in_entry(self, index: usize) -> Self {
        self.in_step(PathStep::Index(index))
    }

    /// Moves the problem into a line of a path list.
    pub(crate) fn in_line(self, index: usize) -> Self {
        self.in_step(PathStep::Line(index))
    }

    /// Moves the problem into a key of its table.
    pub(crate) fn in_key(self, key: &str) -> Self {
        self.in_step(PathStep::Key(key.to_owned()))
    }

    fn in_step(mut self, step: PathStep) -> Self {
        self.path.push(step);
        self
    }

    /// Prefixes the path with these keys.
    pub(crate) fn under_keys<'a>(self, keys: impl IntoIterator<Item = &'a str>) -> Self {
        self.under(keys.into_iter().map(|key| PathStep::Key(key.to_owned())))
    }

    /// Prefixes the path with an entry of a list of tables.
    pub(crate) fn under_entry(self, list: &str, index: usize) -> Self {
        self.under([PathStep::Key(list.to_owned()), PathStep::Index(index)])
    }

    fn under(self, steps: impl IntoIterator<Item = PathStep>) -> Self {
        Self { path: steps.into_iter().chain(self.path).collect(), ..self }
    }

    /// Sets the further keys of the table that would have avoided the problem.
    pub(crate) fn avoided_by(self, keys: &'static [&'static str]) -> Self {
        Self { avoiding_keys: keys, ..self }
    }

    /// Sets the table that must exist.
    pub(crate) fn with_required_table(mut self, table: [&str; 2]) -> Self {
        self.required_table = Some(Box::new(table.map(ToOwned::to_owned)));
        self
    }

    /// Adds a suggestion for an unknown name.
    pub(crate) fn with_suggestion<'a>(
        mut self,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        self.help = suggest_name(name, known);
        self
    }
}

/// Prefixes the path of a check's problem with these keys.
pub(crate) fn nest_under<'a, P: Into<PolicyProblem>>(
    keys: impl IntoIterator<Item = &'a str>,
) -> impl FnOnce(P) -> PolicyProblem {
    move |problem| problem.into().under_keys(keys)
}

/// Turns the problem of a value into that of its key: the path and the message begin with the key.
pub(crate) fn of_key<P: Into<PolicyProblem>>(key: &str) -> impl FnOnce(P) -> PolicyProblem {
    move |problem| {
        let problem: PolicyProblem = problem.into();
        let message = format!("`{key}`: {problem}");
        PolicyProblem { message, ..problem.under_keys([key]) }
    }
}

impl From<String> for PolicyProblem {
    fn from(message: String) -> Self {
        Self {
            path: Vec::new(),
            message,
            kind: ProblemKind::Value,
            help: None,
            avoiding_keys: &[],
            required_table: None,
            is_final: false,
        }
    }
}

/// Formats the help line that suggests the name most similar to an unknown one; `None` if no name is similar.
pub(crate) fn suggest_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let near = TypedName::new(name).nearest(known);
    did_you_mean(near.get(..1)?)
}
