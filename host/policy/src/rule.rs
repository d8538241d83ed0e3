//! What all rules have in common: a rule is a set (of files, of requests, of names) that is written as one line of
//! text, by an author who asks and by an operator who allows. What is granted is where both meet.

use std::path::Path;

use schemars::{Schema, json_schema};

/// One line of a list in a declaration or a policy.
///
/// The laws, which the tests of each kind check: `a.meet(b)` lies in `a` and in `b`; it equals `b.meet(a)`;
/// `a.meet(a)` is `a`; what is shown is read back as the same rule.
pub trait GrantRule: Clone + Eq {
    /// Whether a policy writes `true` or `false` in place of a list.
    const IS_SWITCH: bool = false;
    /// What every line of a policy matches: its form, as far as a regular expression of ECMA 262 can say it.
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

    /// Reads one line. `workspace` is the absolute folder that `$workspace` means.
    ///
    /// # Errors
    /// Says what can be written instead.
    fn parse(text: &str, workspace: &Path) -> Result<Self, String>;

    /// Reads a list. Lines that narrow the others (`!**/.env`) are known to the kinds that have them.
    ///
    /// # Errors
    /// As [`GrantRule::parse`].
    fn parse_list(texts: &[String], workspace: &Path) -> Result<Vec<Self>, String> {
        texts.iter().map(|text| Self::parse(text, workspace)).collect()
    }

    /// Reads a declaration's target, which may ask for more with less text than a policy grants.
    ///
    /// # Errors
    /// As [`GrantRule::parse`].
    fn parse_declared(text: &str, workspace: &Path) -> Result<Self, String> {
        Self::parse(text, workspace)
    }

    /// Refuses a declaration's target that no policy could grant, or only on the machine of its author.
    ///
    /// # Errors
    /// Says what the author should write.
    fn check_target(text: &str, workspace: &Path) -> Result<(), String> {
        Self::parse_declared(text, workspace).map(drop)
    }

    /// What lies in both; `None` if that is nothing.
    #[must_use]
    fn intersect(&self, other: &Self) -> Option<Self>;

    /// Whether everything in `inner` is in it, which is to say that both meet in `inner`.
    #[must_use]
    fn includes(&self, inner: &Self) -> bool {
        self.intersect(inner).as_ref() == Some(inner)
    }

    /// Whether it grants what `wish` is about, so that no further line of the same list would help.
    #[must_use]
    fn grants(&self, wish: &Self) -> bool {
        covers(self, wish)
    }

    /// Whether it permits the use of exactly what `used` names.
    #[must_use]
    fn permits(&self, used: &Self) -> bool {
        covers(self, used)
    }

    /// The line as a policy would write it.
    #[must_use]
    fn show(&self, workspace: &Path) -> String;

    /// The lines of a whole list as a policy would write it.
    #[must_use]
    fn show_list(rules: &[Self], workspace: &Path) -> Vec<String> {
        rules.iter().map(|rule| rule.show(workspace)).collect()
    }

    /// The line that is proposed to an operator who wants to grant this wish: narrower where the wish is for
    /// everything.
    #[must_use]
    fn proposed_line(&self, workspace: &Path) -> String {
        self.show(workspace)
    }
}

/// All that lies in one of `left` and one of `right`, without what another already covers.
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

/// Whether everything in `inner` is in `outer`.
#[must_use]
pub fn covers<R: GrantRule>(outer: &R, inner: &R) -> bool {
    outer.includes(inner)
}
