//! Lists whose lines `!…` exclude something from all other lines of the list.

use std::collections::BTreeSet;

use crate::excerpt::one_line;
use crate::problem::PolicyProblem;

/// Separates the parts of a line: rules that must all match, and their exclusions.
pub(super) const AND: &str = " & ";

/// Parses a list. `parse_exclusion` gets the text after the `!`. `parse` gets a line and the exclusions of the list; it
/// returns `None` if they exclude all of the line.
pub(super) fn parse<R, E: Ord>(
    texts: &[String],
    parse_exclusion: impl Fn(&str) -> Result<E, String>,
    parse: impl Fn(&str, &BTreeSet<E>) -> Result<Option<R>, String>,
) -> Result<Vec<R>, PolicyProblem> {
    let at = |index: usize| move |why: String| PolicyProblem::from(why).in_entry(index);
    let mut except = BTreeSet::new();
    for (index, text) in texts.iter().enumerate() {
        if let Some(excluded) = excluded(text) {
            except.insert(parse_exclusion(excluded).map_err(at(index))?);
        }
    }
    let mut rules = Vec::new();
    for (index, text) in texts.iter().enumerate().filter(|(_, text)| excluded(text).is_none()) {
        let rule = parse(text, &except).and_then(|rule| {
            let shown = one_line(text, 200);
            rule.ok_or_else(|| format!("`{shown}` grants nothing: an exclusion of the same list covers it"))
        });
        rules.push(rule.map_err(at(index))?);
    }
    if rules.is_empty() && !except.is_empty() {
        let message = "a list of exclusions grants nothing: add a line to exclude from";
        return Err(PolicyProblem::from(message.to_owned()));
    }
    Ok(rules)
}

/// What a line excludes, if it grants nothing itself.
fn excluded(text: &str) -> Option<&str> {
    text.strip_prefix('!').filter(|_| !text.contains(AND))
}

/// Returns the exclusions that all rules of a list have. An operator writes them as lines of the list.
pub(super) fn shared_exclusions<R, E: Ord + Clone>(
    rules: &[R],
    exclusions: impl Fn(&R) -> &BTreeSet<E>,
) -> BTreeSet<E> {
    let mut shared = rules.first().map(|rule| exclusions(rule).clone()).unwrap_or_default();
    shared.retain(|one| rules.iter().all(|rule| exclusions(rule).contains(one)));
    shared
}
