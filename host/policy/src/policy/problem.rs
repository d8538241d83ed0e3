//! A mistake in a policy before its line is known: where it stands as a path of keys, and what is wrong there.
//!
//! Functions that check one value return a plain text. Such a text begins with the key that it is about, in backticks:
//! `` `timeout`: … ``. [`Problem::leads`] reads that, so that a check needs to know nothing of files and lines. A path
//! that leads nowhere ends at the last table that is there: a finding is then one table too wide, never in a wrong one.

use crate::similar::{did_you_mean, similar_names};

/// One step from a table or a list of the policy to what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathStep {
    /// A key of a table.
    Key(String),
    /// The entry of a list that is this text.
    Text(String),
    /// The entry of a list at this index.
    Index(usize),
    /// The line of a list of paths at this index, where those that begin with `!` do not count.
    Line(usize),
}

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PolicyProblem {
    /// From the top of the file.
    pub(super) path: Vec<PathStep>,
    pub(super) message: String,
    /// What would help.
    pub(super) help: Option<String>,
    /// The table that should be there: if it is there but broken, only that is reported.
    pub(super) required_table: Option<Vec<String>>,
    /// Nothing else of this file can be judged.
    pub(super) is_final: bool,
}

impl PolicyProblem {
    /// A mistake at a path of keys.
    pub(super) fn at_keys<'a>(keys: impl IntoIterator<Item = &'a str>, message: impl Into<String>) -> Self {
        let path = keys.into_iter().map(|key| PathStep::Key(key.to_owned())).collect();
        Self { path, message: message.into(), help: None, required_table: None, is_final: false }
    }

    /// The same in an entry of the list to which the path leads.
    pub(super) fn in_text(mut self, text: &str) -> Self {
        self.path.push(PathStep::Text(text.to_owned()));
        self
    }

    /// The same in a line of a list of paths.
    pub(super) fn in_line(mut self, index: usize) -> Self {
        self.path.push(PathStep::Line(index));
        self
    }

    /// A mistake in an entry of a list of tables.
    pub(super) fn at_list_entry(list: &str, index: usize, message: impl Into<String>) -> Self {
        let mut problem = Self::at_keys([list], message);
        problem.path.push(PathStep::Index(index));
        problem
    }

    /// The same under a key of what the path leads to.
    pub(super) fn in_key(mut self, key: &str) -> Self {
        self.path.push(PathStep::Key(key.to_owned()));
        self
    }

    /// The same in an entry of the table that the message begins with.
    pub(super) fn in_table_entry(mut self, entry: &str) -> Self {
        let table = self.leading_words().next().unwrap_or_default().to_owned();
        self.path.extend([PathStep::Key(table), PathStep::Key(entry.to_owned())]);
        self
    }

    /// The same below these keys.
    pub(super) fn under_keys<'a>(mut self, keys: impl IntoIterator<Item = &'a str>) -> Self {
        let outer = keys.into_iter().map(|key| PathStep::Key(key.to_owned()));
        self.path = outer.chain(std::mem::take(&mut self.path)).collect();
        self
    }

    /// Says which table is missing.
    pub(super) fn with_required_table(mut self, table: [&str; 2]) -> Self {
        self.required_table = Some(table.map(ToOwned::to_owned).to_vec());
        self
    }

    /// Proposes the names most like an unknown one.
    pub(super) fn with_suggestion<'a>(
        mut self,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        self.help = suggest_name(name, known);
        self
    }

    /// The words in backticks at the beginning of the message, each without what stands behind `=`.
    pub(super) fn leading_words(&self) -> impl Iterator<Item = &str> {
        let words = if self.message.starts_with('`') { self.message.as_str() } else { "" };
        words.split('`').skip(1).step_by(2).map(|word| word.split(" = ").next().unwrap_or(word))
    }
}

/// Puts a text of a check below these keys.
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
    let near = similar_names(name, known);
    did_you_mean(near.get(..1)?)
}
