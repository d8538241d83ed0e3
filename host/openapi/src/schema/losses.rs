//! What a conversion loses of its schemas, named for the operator.

use toolbay_policy::excerpt::one_line;

/// The most losses of one operation that are named.
const MAX_LINES: usize = 10;

/// The losses so far, and the place of the schema that is being converted.
#[derive(Debug, Default)]
pub(super) struct NamedLosses {
    place: Vec<String>,
    lines: Vec<String>,
    more: usize,
}

impl NamedLosses {
    /// Goes to a named schema within the current one.
    pub(super) fn enter(&mut self, name: &str) {
        self.place.push(one_line(name, 60));
    }

    /// Goes back.
    pub(super) fn leave(&mut self) {
        self.place.pop();
    }

    /// Names a loss of the current schema. The same loss is named once.
    pub(super) fn add(&mut self, what: &str) {
        let line = format!("`{}`: {what}", one_line(&self.place.join("."), 200));
        if self.lines.contains(&line) {
            return;
        }
        if self.lines.len() < MAX_LINES {
            self.lines.push(line);
        } else {
            self.more += 1;
        }
    }

    /// The lines, with a count of what has none.
    pub(super) fn into_lines(self) -> Vec<String> {
        let more = (self.more > 0).then(|| format!("{} more parts of its schemas are lost", self.more));
        self.lines.into_iter().chain(more).collect()
    }
}
