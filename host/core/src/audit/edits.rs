//! What changed between two versions of a file of the operator, for the audit: the names of its entries, never their
//! contents.

use std::collections::BTreeMap;

use toolbay_policy::name_list::list_names;

/// Most names of each kind that a text has.
const MAX_NAMES: usize = 20;

/// Describes the entries that were added, removed and changed, as `added `a`; removed `b``. `None` if there are none. An
/// entry is a name with a text that differs if the entry does.
#[must_use]
pub fn describe_edits(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Option<String> {
    let added: Vec<&String> = after.keys().filter(|name| !before.contains_key(*name)).collect();
    let removed: Vec<&String> = before.keys().filter(|name| !after.contains_key(*name)).collect();
    let differs = |(name, text): &(&String, &String)| before.get(*name).is_some_and(|old| old != *text);
    let changed: Vec<&String> = after.iter().filter(differs).map(|(name, _)| name).collect();
    let kinds = [("added", added), ("removed", removed), ("changed", changed)];
    let parts: Vec<String> = kinds.iter().filter_map(|(what, names)| list(what, names)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn list(what: &str, names: &[&String]) -> Option<String> {
    (!names.is_empty()).then(|| format!("{what} {}", list_names(names, MAX_NAMES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_named_and_their_number_is_bounded() {
        let entries = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        let before = entries(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let after = entries(&[("b", "2"), ("c", "4"), ("d", "5")]);
        let text = describe_edits(&before, &after).unwrap();
        assert_eq!(text, "added `d`; removed `a`; changed `c`");
        assert_eq!(describe_edits(&before, &before), None);
        let many: BTreeMap<_, _> = (0..100).map(|n| (n.to_string(), String::new())).collect();
        assert!(describe_edits(&BTreeMap::new(), &many).unwrap().ends_with(" and 80 more"));
    }
}
