//! Sections that nothing names, and lines that are there twice.

use std::collections::BTreeSet;

use super::super::Policy;
use super::super::document::WrittenText;
use super::{CheckInput, CheckReport};
use crate::problem::{PathStep, PolicyProblem};

/// Lists whose entries may repeat: the arguments of programs.
const REPEATING_LISTS: [&str; 2] = ["command", "args"];

/// The secrets and programs that no text of the file names.
pub(super) fn unused_sections(policy: &Policy, texts: &[WrittenText]) -> Vec<PolicyProblem> {
    let outside = |table: &'static str| texts.iter().filter(move |one| one.keys().first() != Some(&table));
    let secrets = policy.secrets().map(|(name, _)| name);
    let secrets = secrets.filter(|name| !outside("secrets").any(|written| names_secret(&written.text, name)));
    let secrets = secrets.map(|name| {
        let message = "nothing uses this secret: no grant, service, server or registry names it";
        PolicyProblem::at_keys(["secrets", name], message)
    });
    let is_run = |written: &WrittenText, name: &str| {
        written.keys().last() == Some(&"process") && written.text.split_whitespace().next() == Some(name)
    };
    let programs = policy.programs().map(|(name, _)| name);
    let programs = programs.filter(|name| !outside("programs").any(|written| is_run(written, name)));
    let programs = programs.map(|name| {
        let message = "nothing uses this program: no grant of `process` names it";
        PolicyProblem::at_keys(["programs", name], message)
    });
    secrets.chain(programs).collect()
}

/// Whether a text is the name of a secret, or a line for all secrets below a name.
fn names_secret(text: &str, name: &str) -> bool {
    let below = |parent: &str| name.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/'));
    text == name || text.strip_suffix("/*").is_some_and(below)
}

/// Adds a problem for each entry that a list has twice.
pub(super) fn check_duplicates(input: &CheckInput<'_>, report: &mut CheckReport) {
    let mut texts: Vec<&WrittenText> = input.texts.iter().collect();
    texts.sort_by_key(|written| index(written));
    let mut seen = BTreeSet::new();
    for written in texts {
        let keys = written.keys();
        let (Some(_), Some(key)) = (index(written), keys.last()) else { continue };
        if !REPEATING_LISTS.contains(key) && !seen.insert((format!("{:?}", list(written)), &written.text)) {
            report.warn_at_text(written, "this line is there twice".to_owned(), None);
        }
    }
}

fn index(written: &WrittenText) -> Option<usize> {
    match written.path.last() {
        Some(PathStep::Index(index)) => Some(*index),
        _ => None,
    }
}

/// The path of the list that a text is in.
fn list(written: &WrittenText) -> &[PathStep] {
    written.path.split_last().map_or(&[], |(_, list)| list)
}
