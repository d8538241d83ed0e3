//! Grant rules. A rule is a set (of files, requests or names) written as one line of text: by an author who asks, or
//! by an operator who allows. The grant is the intersection of both.

use std::path::Path;

use schemars::{Schema, json_schema};

use crate::problem::PolicyProblem;

/// One line of a list in a declaration or a policy.
///
/// Laws, which the tests of each kind check: `a.intersect(b)` is included in `a` and in `b` and equals
/// `b.intersect(a)`; `a.intersect(a)` is `a`; a shown rule parses back to itself.
pub trait GrantRule: Clone + Eq {
    /// Whether a policy writes `true` or `false` in place of a list.
    const IS_SWITCH: bool = false;
    /// A regular expression (ECMA 262) that every line of a policy matches.
    const PATTERN: &'static str;

    /// The JSON Schema of a line.
    #[must_use]
    fn schema() -> Schema {
        json_schema!({"type": "string", "pattern": Self::PATTERN})
    }

    /// The JSON Schema of a list.
    #[must_use]
    fn list_schema() -> Schema {
        json_schema!({"type": "array", "items": Self::schema()})
    }

    /// Parses one line. `workspace` is the absolute folder that `$workspace` stands for.
    ///
    /// # Errors
    /// Describes what to write instead.
    fn parse(text: &str, workspace: &Path) -> Result<Self, String>;

    /// Parses a list. Some kinds have lines that narrow the other lines (`!**/.env`).
    ///
    /// # Errors
    /// As [`GrantRule::parse`], at the entry.
    fn parse_list(texts: &[String], workspace: &Path) -> Result<Vec<Self>, PolicyProblem> {
        let parse = |(index, text): (usize, &String)| {
            Self::parse(text, workspace).map_err(|why| PolicyProblem::from(why).in_entry(index))
        };
        texts.iter().enumerate().map(parse).collect()
    }

    /// Parses the target of a declaration. A declaration may be shorter and wider than a policy line.
    ///
    /// # Errors
    /// As [`GrantRule::parse`].
    fn parse_declared(text: &str, workspace: &Path) -> Result<Self, String> {
        Self::parse(text, workspace)
    }

    /// Refuses a declared target that no policy could grant, or only a policy on the author's machine.
    ///
    /// # Errors
    /// Describes what the author should write.
    fn check_target(text: &str, workspace: &Path) -> Result<(), String> {
        Self::parse_declared(text, workspace).map(drop)
    }

    /// Returns the intersection, or `None` if it is empty.
    #[must_use]
    fn intersect(&self, other: &Self) -> Option<Self>;

    /// Whether `inner` is a subset, so that the intersection of both is `inner`.
    #[must_use]
    fn includes(&self, inner: &Self) -> bool {
        self.intersect(inner).as_ref() == Some(inner)
    }

    /// Whether it grants `declared`, so that another line of the same list would change nothing.
    #[must_use]
    fn grants(&self, declared: &Self) -> bool {
        covers(self, declared)
    }

    /// Whether a line of a narrower level stays within this one. What the narrower line leaves open, it inherits.
    #[must_use]
    fn holds(&self, narrower: &Self) -> bool {
        self.grants(narrower) || covers(self, narrower)
    }

    /// Whether it permits exactly the use that `used` names.
    #[must_use]
    fn permits(&self, used: &Self) -> bool {
        covers(self, used)
    }

    /// Whether it stands for everything, so that it narrows nothing but what the other lines of its list exclude.
    #[must_use]
    fn is_everything(&self) -> bool {
        false
    }

    /// Formats the line as a policy would write it.
    #[must_use]
    fn show(&self, workspace: &Path) -> String;

    /// Formats a whole list as a policy would write it.
    #[must_use]
    fn show_list(rules: &[Self], workspace: &Path) -> Vec<String> {
        rules.iter().map(|rule| rule.show(workspace)).collect()
    }

    /// Returns the line that is proposed to an operator for this declaration. It is narrower if the declaration asks
    /// for everything.
    #[must_use]
    fn proposed_line(&self, workspace: &Path) -> String {
        self.show(workspace)
    }
}

/// Returns the intersections of each pair of `left` and `right`, without those that another one covers.
#[must_use]
pub fn intersect_lists<R: GrantRule>(left: &[R], right: &[R]) -> Vec<R> {
    let mut found: Vec<R> = Vec::new();
    for both in left.iter().flat_map(|l| right.iter().filter_map(|r| l.intersect(r))) {
        if found.iter().any(|old| covers(old, &both)) {
            continue;
        }
        found.retain(|old| !covers(&both, old));
        found.push(both);
    }
    found
}

/// Whether `outer` includes everything in `inner`.
#[must_use]
pub fn covers<R: GrantRule>(outer: &R, inner: &R) -> bool {
    outer.includes(inner)
}
