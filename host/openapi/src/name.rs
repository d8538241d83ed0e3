//! Derives tool names from the operations of a document.

use std::collections::{HashMap, HashSet};

use sha2::{Digest, Sha256};
use toolbay_policy::MAX_OPENAPI_QUALIFIED;
use toolbay_policy::name::{MAX_TOOL, NAME_SEPARATOR, PluginId};

/// The initial number of hash digits that distinguish two names.
const DIGITS: usize = 6;

/// Replaces each run of characters that a name may not have by `_`, and truncates the name.
pub(crate) fn legal_name(text: &str, most: usize) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || c == '-' {
            out.push(c);
        } else if !out.ends_with('_') {
            out.push('_');
        }
        // The rest is truncated anyway, apart from trimmed ends.
        if out.len() > most.saturating_add(2) {
            break;
        }
    }
    let out = out.trim_matches('_');
    out.get(..out.len().min(most)).unwrap_or_default().trim_end_matches('_').to_owned()
}

/// The longest name that is compared unchanged, in bytes. Longer names are compared by a hash.
const MAX_BASE_NAME: usize = 256;

/// A name from an untrusted author, who may refer to one long text from many operations.
fn short_name(text: &str) -> String {
    let name = legal_name(text, MAX_BASE_NAME);
    if text.len() > MAX_BASE_NAME { with_hash(&name, text, MAX_BASE_NAME, DIGITS) } else { name }
}

/// The naming input of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OperationIdentity<'a> {
    pub(crate) id: Option<&'a str>,
    pub(crate) method: &'static str,
    pub(crate) path: &'a str,
}

impl OperationIdentity<'_> {
    /// The name of a tool for this operation alone.
    pub(crate) fn tool_name(&self, namespace: &PluginId) -> String {
        fitted(&self.base_name(), most_bytes(namespace))
    }

    fn base_name(&self) -> String {
        let id = self.id.map(short_name).filter(|name| !name.is_empty());
        id.unwrap_or_else(|| short_name(&format!("{}_{}", self.method.to_ascii_lowercase(), self.path)))
    }
}

/// The names of all operations of a document, in order: the operation id, or method and path. A name that is too
/// long keeps its beginning and gets a hash. Operations with equal names each get the hash of their
/// method and path, so a name means the same operation whatever the order and whatever else the document has.
pub(crate) fn tool_names(namespace: &PluginId, all: &[OperationIdentity<'_>]) -> Vec<String> {
    let most = most_bytes(namespace);
    let spoken: Vec<String> = all.iter().map(OperationIdentity::base_name).collect();
    let wanted: Vec<String> = spoken.iter().map(|name| fitted(name, most)).collect();
    let mut counts: HashMap<String, usize> = HashMap::new();
    for name in &wanted {
        // Some clients ignore case in names.
        *counts.entry(name.to_ascii_lowercase()).or_default() += 1;
    }
    let mut taken = HashSet::new();
    let unique = |name: &String| counts.get(&name.to_ascii_lowercase()) == Some(&1);
    taken.extend(wanted.iter().filter(|name| unique(name)).map(|name| name.to_ascii_lowercase()));
    let named = wanted.iter().zip(&spoken).zip(all).map(|((name, spoken), one)| {
        if unique(name) {
            return name.clone();
        }
        let of = format!("{} {}", one.method, one.path);
        // More digits until the name is unique; in the end the name consists of digits.
        let longer = (DIGITS..=most).step_by(2).map(|digits| with_hash(spoken, &of, most, digits));
        let free = longer.into_iter().find(|name| taken.insert(name.to_ascii_lowercase()));
        free.unwrap_or_else(|| with_hash(spoken, &of, most, most))
    });
    named.collect()
}

/// The most bytes of a tool's name in a service.
fn most_bytes(namespace: &PluginId) -> usize {
    let prefix = NAME_SEPARATOR.len() + namespace.as_str().len();
    MAX_TOOL.min(MAX_OPENAPI_QUALIFIED.saturating_sub(prefix)).max(8)
}

fn fitted(name: &str, most: usize) -> String {
    if name.len() > most { with_hash(name, name, most, DIGITS) } else { name.to_owned() }
}

fn with_hash(name: &str, of: &str, most: usize, digits: usize) -> String {
    let hash: String = Sha256::digest(of.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let hash = hash.get(..digits.min(most).min(hash.len())).unwrap_or_default();
    let kept = legal_name(name, most.saturating_sub(hash.len() + 1));
    if kept.is_empty() { hash.to_owned() } else { format!("{kept}_{hash}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(namespace: &str, ids: &[Option<&str>]) -> Vec<String> {
        let paths: Vec<String> = (0..ids.len()).map(|n| format!("/a/{{b}}/{n}")).collect();
        let all: Vec<OperationIdentity<'_>> = ids
            .iter()
            .zip(&paths)
            .map(|(id, path)| OperationIdentity { id: *id, method: "GET", path })
            .collect();
        tool_names(&PluginId::new(namespace).unwrap(), &all)
    }

    #[test]
    fn names_are_legal_and_differ() {
        let long = "listEverythingThatWasEverSeenByAnybodyAnywhereInTheWorld";
        let ids = [
            Some("getPet"),
            Some("pets/find one!"),
            None,
            Some("GetPet"),
            Some("üöä"),
            Some(long),
            Some("one"),
        ];
        let names = named("pets", &ids);
        assert_eq!(
            (&*names[1], &*names[2], &*names[4], &*names[6]),
            ("pets_find_one", "get_a_b_2", "get_a_b_4", "one")
        );
        assert!(names[0].starts_with("getPet_") && names[0].len() == 13, "{names:?}");
        assert!(names[3].starts_with("GetPet_") && names[3].len() == 13, "{names:?}");
        assert!(names[5].starts_with("listEverything") && names[5].len() == 39, "{names:?}");
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), ids.len());
        let wide = named(&"n".repeat(24), &[Some(long), Some(long), Some("x")]);
        assert!(wide.iter().all(|name| !name.is_empty() && name.len() <= 19), "{wide:?}");
        assert_ne!(wide[0], wide[1]);
    }

    #[test]
    fn a_name_means_the_same_operation_whichever_stands_first() {
        let (a, b) = (
            OperationIdentity { id: Some("get"), method: "GET", path: "/a" },
            OperationIdentity { id: Some("get"), method: "GET", path: "/b" },
        );
        let namespace = PluginId::new("pets").unwrap();
        let (one, mut other) = (tool_names(&namespace, &[a, b]), tool_names(&namespace, &[b, a]));
        other.reverse();
        assert_eq!(one, other);
        assert!(one.iter().all(|name| name.starts_with("get_")), "{one:?}");
        let many: Vec<String> = (0..5000).map(|n| format!("/{n}")).collect();
        let many: Vec<OperationIdentity<'_>> =
            many.iter().map(|path| OperationIdentity { id: Some("same"), method: "GET", path }).collect();
        let names = tool_names(&namespace, &many);
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 5000);
    }
}
