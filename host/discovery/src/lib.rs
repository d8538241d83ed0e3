//! Finding tools that are not in the list: what a view lets be found, searched by words and by name, and three tools
//! through which a model does the same: `tool_search`, `tool_describe` and `tool_call`.
//!
//! They are tools of the view itself: what they find is what it lets be called, and a call through `tool_call` is a
//! call of the tool it names, with all gates, limits and records of that one. The list never changes by what they do:
//! a model that has found a tool calls it by its name, or through `tool_call` where its client refuses names that were
//! not listed.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod search;
mod tools;

use std::sync::Arc;

pub use self::tools::{CALL, DESCRIBE, MAX_HITS, SEARCH, found};

use toolbay_core::registry::view::View;
use toolbay_core::registry::{Catalog, Entry, OnCollision};
use toolbay_policy::text::first_sentence;

use crate::search::{Document, Found, Index, Part, QueryError};

/// One tool that was found.
#[derive(Debug, Clone)]
pub struct Hit {
    /// The tool.
    pub entry: Arc<Entry>,
    /// How well it fits; comparable within one answer only. 1.0 for an exact name.
    pub score: f64,
    /// The query was its name, and it is the only hit.
    pub exact: bool,
}

/// Finds tools of a view by words, or by their name: at most `most`, best first, the same ones in the same order each
/// time. What may not be called, and what is hidden, is not found and moves no rank.
///
/// # Errors
/// A query without a word, or no hits asked for.
///
/// ```
/// # use std::sync::Arc;
/// # use toolbay_core::registry::{Registry, view::{Filter, View}};
/// # use toolbay_discovery as discovery;
/// # let registry = Registry::default();
/// let view = View::new(registry.snapshot(), Filter::default());
/// for hit in discovery::search(&view, "read a file", 5)? {
///     println!("{} {:.1}", hit.entry.def.name, hit.score);
/// }
/// # Ok::<(), toolbay_discovery::search::QueryError>(())
/// ```
pub fn search(view: &View, query: &str, most: usize) -> Result<Vec<Hit>, QueryError> {
    Searched::of(view).search(query, most)
}

/// The names of tools of a view that are most like one it does not have: at most three, best first.
#[must_use]
pub fn similar(view: &View, name: &str) -> Vec<String> {
    view.similar(name).into_iter().map(ToOwned::to_owned).collect()
}

/// The deferred tools of a view, each with the first sentence of its description, in the order of their names: for a
/// prompt that says what could be found.
pub fn summaries(view: &View) -> impl Iterator<Item = (&str, &str)> {
    let deferred = view.discoverable().filter(|entry| entry.flags.deferred);
    deferred.map(|entry| (entry.def.name.as_str(), first_sentence(&entry.def.description)))
}

/// The same view with the three tools, if it keeps something out of its list: if it is lazy or has deferred tools. Put
/// tools of your own in before; those that come later are not found. A tool of the registry that has one of the names
/// keeps it.
#[must_use]
pub fn offer(view: View) -> View {
    if !view.keeps_back() {
        return view;
    }
    // With `Keep` nothing collides.
    view.with(tools::bundle(&view), OnCollision::Keep).unwrap_or(view)
}

/// The words of all tools of a catalog, in their order. Made once for each state of the registry: some milliseconds for
/// thousands of tools.
fn index_of(catalog: &Catalog) -> Arc<Index> {
    catalog.derive(|catalog| Index::new(catalog.tools().map(|entry| Document::of(entry))))
}

/// The index of a view's catalog, and of the tools it has besides.
struct Searched<'v> {
    /// By place in the catalog, those that may be found.
    of_catalog: Vec<Option<&'v Arc<Entry>>>,
    catalog: Arc<Index>,
    own: Vec<&'v Arc<Entry>>,
    own_index: Index,
}

impl<'v> Searched<'v> {
    fn of(view: &'v View) -> Self {
        let (mut of_catalog, mut own) = (Vec::with_capacity(view.catalog().tools().len()), Vec::new());
        // Both are in the order of their names.
        let mut places = view.catalog().tools().peekable();
        for entry in view.discoverable() {
            while places.next_if(|there| there.def.name < entry.def.name).is_some() {
                of_catalog.push(None);
            }
            match places.next_if(|there| Arc::ptr_eq(there, entry)) {
                Some(_) => of_catalog.push(Some(entry)),
                None => own.push(entry),
            }
        }
        let own_index = Index::new(own.iter().map(|entry| Document::of(entry)));
        Self { of_catalog, catalog: index_of(view.catalog()), own, own_index }
    }

    fn search(&self, query: &str, most: usize) -> Result<Vec<Hit>, QueryError> {
        let counts = self.of_catalog.iter().map(Option::is_some).collect();
        let parts = [
            Part { index: &self.catalog, counts },
            Part { index: &self.own_index, counts: vec![true; self.own.len()] },
        ];
        let hit = |Found { part, tool, score, exact }: Found| {
            let entry = match part {
                0 => self.of_catalog.get(tool).copied().flatten(),
                _ => self.own.get(tool).copied(),
            };
            entry.map(|entry| Hit { entry: Arc::clone(entry), score, exact })
        };
        Ok(search::search(&parts, query, most)?.into_iter().filter_map(hit).collect())
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
