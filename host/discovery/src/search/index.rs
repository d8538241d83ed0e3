//! The index of a list of tools: for each word the tools that have it, and how often in which field.

use std::collections::HashMap;

use serde_json::Value;
use toolbay_core::registry::ToolEntry;
use toolbay_core::tool::{ToolDef, tags};
use toolbay_policy::excerpt::first_sentence;
use toolbay_policy::similar::normalize;

use super::actions::{Actions, Effect};
use super::words::{is_stop_word, root, words};

/// Most words of one field of a tool that are read. Authors write names and descriptions.
const MAX_FIELD_WORDS: usize = 2000;
/// The words of a summary that may name the action: `Returns a list of …`.
const SUMMARY_VERBS: usize = 3;

/// A part of a tool that is weighted on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IndexedField {
    /// The tool's own name.
    Name,
    /// The first sentence of the description.
    Summary,
    /// The rest of the description.
    Details,
    /// Further words of the operator or the author.
    Hint,
    /// Tags, toolset and namespace.
    Tags,
    /// The names of the arguments.
    Parameters,
}

/// The number of fields.
pub(super) const FIELDS: usize = 6;

/// A tool as the index reads it.
#[derive(Debug, Clone)]
pub struct ToolDocument<'a> {
    /// The definition.
    pub def: &'a ToolDef,
    /// The tags, including those that the host derives.
    pub tags: Vec<&'a str>,
}

impl<'a> ToolDocument<'a> {
    /// The document of a tool of the registry.
    #[must_use]
    pub fn from_entry(entry: &'a ToolEntry) -> Self {
        Self { def: &entry.def, tags: entry.tags().iter().map(|tag| &**tag).collect() }
    }
}

/// The search index of a list of tools. A tool is identified by its index in the list.
#[derive(Debug, Default)]
pub struct Index {
    pub(super) tools: Vec<IndexedTool>,
    pub(super) words: HashMap<String, Vec<Posting>>,
    /// The words by root.
    pub(super) related: HashMap<String, Vec<String>>,
    /// The tools by normalized name: by qualified name, and by name without namespace.
    pub(super) keys: HashMap<String, Vec<usize>>,
    pub(super) bare_keys: HashMap<String, Vec<usize>>,
}

#[derive(Debug)]
pub(super) struct IndexedTool {
    pub(super) name: String,
    /// The number of words of each field.
    pub(super) lengths: [u16; FIELDS],
    /// What the tool does, by its summary or else its name.
    pub(super) actions: Actions,
    /// Whether the tool changes something, by its claims or its grants. A wrong claim affects only its rank.
    pub(super) effect: Effect,
}

impl IndexedTool {
    /// The number of words of a field.
    pub(super) fn length(&self, field: IndexedField) -> u16 {
        self.lengths.get(field as usize).copied().unwrap_or_default()
    }
}

/// The occurrences of a word in a tool.
#[derive(Debug)]
pub(super) struct Posting {
    pub(super) tool: usize,
    /// How often each field has the word.
    pub(super) counts: [u16; FIELDS],
}

impl Posting {
    /// How often a field has the word.
    pub(super) fn count(&self, field: IndexedField) -> u16 {
        self.counts.get(field as usize).copied().unwrap_or_default()
    }
}

impl Index {
    /// Builds the index of tools.
    #[must_use]
    pub fn new<'a>(tools: impl IntoIterator<Item = ToolDocument<'a>>) -> Self {
        let mut index = Self::default();
        for document in tools {
            index.add(&document);
        }
        for word in index.words.keys() {
            index.related.entry(root(word).to_owned()).or_default().push(word.clone());
        }
        index
    }

    fn add(&mut self, document: &ToolDocument<'_>) {
        let (def, tool) = (document.def, self.tools.len());
        let mut occurrences = Occurrences::default();
        let summary = first_sentence(&def.description);
        let details = def.description.trim_start().get(summary.len()..).unwrap_or_default();
        let (name_words, summary_words): (Vec<_>, Vec<_>) =
            (words(def.bare()).collect(), prose(summary).collect());
        let actions = match Actions::first_in(summary_words.iter().take(SUMMARY_VERBS)) {
            none if none.is_empty() => Actions::first_in(&name_words),
            found => found,
        };
        occurrences.add(IndexedField::Name, name_words.into_iter());
        occurrences.add(IndexedField::Summary, summary_words.into_iter());
        occurrences.add(IndexedField::Details, prose(details));
        occurrences.add(IndexedField::Hint, search_hint(def).iter().flat_map(|hint| words(hint)));
        let tags =
            document.tags.iter().copied().chain(def.keywords.toolset.as_deref()).chain(def.namespace());
        occurrences.add(IndexedField::Tags, tags.flat_map(words));
        occurrences.add(IndexedField::Parameters, parameters(def.input_schema.value()).flat_map(words));
        for (word, counts) in occurrences.words {
            self.words.entry(word).or_default().push(Posting { tool, counts });
        }
        self.keys.entry(normalize(def.name.as_str())).or_default().push(tool);
        self.bare_keys.entry(normalize(def.bare())).or_default().push(tool);
        let read_only = def.traits.read_only || document.tags.contains(&tags::READ_ONLY);
        self.tools.push(IndexedTool {
            name: def.name.as_str().to_owned(),
            lengths: occurrences.lengths,
            actions,
            effect: if read_only { Effect::Reads } else { Effect::Changes },
        });
    }
}

/// The words of one tool.
#[derive(Debug, Default)]
struct Occurrences {
    words: HashMap<String, [u16; FIELDS]>,
    lengths: [u16; FIELDS],
}

impl Occurrences {
    fn add(&mut self, field: IndexedField, words: impl Iterator<Item = String>) {
        for word in words.take(MAX_FIELD_WORDS) {
            let counts = self.words.entry(word).or_default();
            for counts in [counts, &mut self.lengths] {
                if let Some(count) = counts.get_mut(field as usize) {
                    *count = count.saturating_add(1);
                }
            }
        }
    }
}

/// The words of a description.
fn prose(text: &str) -> impl Iterator<Item = String> {
    words(text).filter(|word| !is_stop_word(word))
}

fn parameters(schema: &Value) -> impl Iterator<Item = &str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(|properties| properties.keys().map(String::as_str))
}

/// Further words for search: the operator's, or `search_hint` in the tool's metadata.
fn search_hint(def: &ToolDef) -> Option<String> {
    if let Some(hint) = &def.keywords.search_hint {
        return Some(hint.clone());
    }
    let meta: Value = serde_json::from_str(def.meta.as_ref()?.get()).ok()?;
    meta.get("search_hint").and_then(Value::as_str).map(ToOwned::to_owned)
}
