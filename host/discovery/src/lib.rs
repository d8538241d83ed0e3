//! Search for tools that are not in a view's default list, by words and by name, and three tools through which a model
//! searches: `tool_search`, `tool_describe` and `tool_call`.
//!
//! The three are local tools of the view. They find only tools that the view makes callable. A call through `tool_call`
//! is a call of the tool that it names, with the gates, limits and audit record of that tool. They never change the
//! list: a model calls a found tool by its name, or through `tool_call` if its client refuses names that were not
//! listed.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod search;
mod tools;

use std::sync::Arc;

pub use self::tools::{CALL, DESCRIBE, MAX_HITS, SEARCH, format_hits};

use toolbay_core::registry::view::View;
use toolbay_core::registry::{Catalog, OnCollision, ToolEntry};
use toolbay_policy::excerpt::first_sentence;

use crate::search::{Index, IndexPart, QueryError, RankedTool, ToolDocument};

/// A tool that a search found.
#[derive(Debug, Clone)]
pub struct ToolHit {
    /// The tool.
    pub entry: Arc<ToolEntry>,
    /// The score, comparable within one search only. An exact name has 1.0.
    pub score: f64,
    /// Whether the query was the exact name of the tool, which is then the only hit.
    pub exact: bool,
}

/// Finds tools of a view by words or by name: at most `most`, best first, in a deterministic order. Hidden tools,
/// tools that are not callable, and the tools of [`add_search_tools`] are not found and do not affect the ranking.
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
///
/// # Errors
/// The query has no words, or `most` is 0.
pub fn search(view: &View, query: &str, most: usize) -> Result<Vec<ToolHit>, QueryError> {
    ViewIndex::new(view).search(query, most)
}

/// The deferred tools of a view with the first sentence of their descriptions, sorted by name. Use it for a prompt that
/// tells the model which tools a search can find.
pub fn summaries(view: &View) -> impl Iterator<Item = (&str, &str)> {
    let deferred = view.discoverable().filter(|entry| entry.flags.deferred);
    deferred.map(|entry| (entry.def.name.as_str(), first_sentence(&entry.def.description)))
}

/// Adds the three search tools to a view that is lazy or has deferred tools; other views are returned unchanged. Add
/// local tools before, since the search does not find tools that are added later. A tool of the registry with one of
/// the three names keeps its name.
#[must_use]
pub fn add_search_tools(view: View) -> View {
    if !view.is_partial() {
        return view;
    }
    // `Keep` never fails with a collision.
    view.with_bundle(tools::bundle(&view), OnCollision::Keep).unwrap_or(view)
}

/// The search index of a catalog, with tools in the catalog's order. It is built once for each catalog, which takes a
/// few milliseconds for thousands of tools.
fn index_for(catalog: &Catalog) -> Arc<Index> {
    catalog.derive(|catalog| Index::new(catalog.tools().map(|entry| ToolDocument::from_entry(entry))))
}

/// The indexes of a view: of its catalog and of its local tools.
struct ViewIndex<'v> {
    /// The tools that the view lets a search find, by position in the catalog.
    catalog_tools: Vec<Option<&'v Arc<ToolEntry>>>,
    catalog_index: Arc<Index>,
    local_tools: Vec<&'v Arc<ToolEntry>>,
    local_index: Index,
}

impl<'v> ViewIndex<'v> {
    fn new(view: &'v View) -> Self {
        let mut catalog_tools = Vec::with_capacity(view.catalog().tools().len());
        let mut local_tools = Vec::new();
        // Both sequences are sorted by name.
        let mut registered = view.catalog().tools().peekable();
        for entry in view.discoverable() {
            while registered.next_if(|there| there.def.name < entry.def.name).is_some() {
                catalog_tools.push(None);
            }
            match registered.next_if(|there| entry.is_shown_form_of(there)) {
                Some(_) => catalog_tools.push(Some(entry)),
                // A search never finds itself, whether a model or a program runs it.
                None if tools::is_search_tool(entry) => {}
                None => local_tools.push(entry),
            }
        }
        let local_index = Index::new(local_tools.iter().map(|entry| ToolDocument::from_entry(entry)));
        Self { catalog_tools, catalog_index: index_for(view.catalog()), local_tools, local_index }
    }

    fn search(&self, query: &str, most: usize) -> Result<Vec<ToolHit>, QueryError> {
        let included = self.catalog_tools.iter().map(Option::is_some).collect();
        let parts = [
            IndexPart { index: &self.catalog_index, included },
            IndexPart { index: &self.local_index, included: vec![true; self.local_tools.len()] },
        ];
        let hit = |RankedTool { part, tool, score, exact }: RankedTool| {
            let entry = match part {
                0 => self.catalog_tools.get(tool).copied().flatten(),
                _ => self.local_tools.get(tool).copied(),
            };
            entry.map(|entry| ToolHit { entry: Arc::clone(entry), score, exact })
        };
        Ok(search::search(&parts, query, most)?.into_iter().filter_map(hit).collect())
    }
}

#[cfg(test)]
#[path = "fixture_tests.rs"]
mod fixture;
#[cfg(test)]
mod tests;
