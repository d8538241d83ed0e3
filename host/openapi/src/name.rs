//! Names of tools, made from what a document calls its operations.

use std::collections::HashSet;

use sha2::{Digest, Sha256};
use toolbay_core::name::{MAX_QUALIFIED, MAX_TOOL, PluginId, SEAM};

/// A text with only what a name may have, at most so long: everything else becomes one `_`.
pub(crate) fn legal(text: &str, most: usize) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || c == '-' {
            out.push(c);
        } else if !out.ends_with('_') {
            out.push('_');
        }
    }
    let out = out.trim_matches('_');
    out.get(..out.len().min(most)).unwrap_or_default().trim_end_matches('_').to_owned()
}

/// The name of an operation: the id that it has, or its method and path. One that is too long keeps its beginning, and
/// six digits of a hash tell it from others.
pub(crate) fn of_operation(
    namespace: &PluginId,
    id: Option<&str>,
    method: &str,
    path: &str,
    taken: &mut HashSet<String>,
) -> String {
    let most = MAX_TOOL.min(MAX_QUALIFIED - SEAM.len() - namespace.as_str().len());
    let spoken = id.map(|id| legal(id, usize::MAX)).filter(|name| !name.is_empty());
    let whole =
        spoken.unwrap_or_else(|| legal(&format!("{}_{path}", method.to_ascii_lowercase()), usize::MAX));
    let mut name = whole.clone();
    if whole.len() > most {
        name = with_hash(&whole, &whole, most);
    }
    if taken.contains(&name) {
        name = with_hash(&whole, &format!("{method} {path}"), most);
    }
    taken.insert(name.clone());
    name
}

fn with_hash(name: &str, of: &str, most: usize) -> String {
    let hash: String =
        Sha256::digest(of.as_bytes()).iter().take(3).map(|byte| format!("{byte:02x}")).collect();
    let kept = legal(name, most.saturating_sub(hash.len() + 1));
    if kept.is_empty() {
        hash.get(..most.min(hash.len())).unwrap_or_default().to_owned()
    } else {
        format!("{kept}_{hash}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(namespace: &str, ids: &[Option<&str>]) -> Vec<String> {
        let (namespace, mut taken) = (PluginId::new(namespace).unwrap(), HashSet::new());
        ids.iter()
            .enumerate()
            .map(|(n, id)| of_operation(&namespace, *id, "GET", &format!("/a/{{b}}/{n}"), &mut taken))
            .collect()
    }

    #[test]
    fn names_are_legal_and_differ() {
        let long = "listEverythingThatWasEverSeenByAnybodyAnywhereInTheWorld";
        let names = named(
            "pets",
            &[Some("getPet"), Some("pets/find one!"), None, Some("getPet"), Some("üöä"), Some(long)],
        );
        assert_eq!(&names[..3], ["getPet", "pets_find_one", "get_a_b_2"]);
        assert!(names[3].starts_with("getPet_") && names[3].len() == 13, "{names:?}");
        assert_eq!(names[4], "get_a_b_4");
        assert!(names[5].starts_with("listEverything") && names[5].len() == 48, "{names:?}");
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 6);
        let narrow = "n".repeat(57);
        let names = named(&narrow, &[Some("getPet"), Some("getPet")]);
        assert!(names.iter().all(|name| !name.is_empty() && name.len() <= 5), "{names:?}");
        assert_ne!(names[0], names[1]);
    }
}
