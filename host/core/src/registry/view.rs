//! What one caller sees of the registry, and therefore may call: definitions and admission come from one object.
//!
//! A view is a snapshot of the registry behind a filter, and perhaps some tools of its own. It never changes; making
//! one walks through nothing. What it lists is worked out once, and shared by all views of one snapshot and one filter.

mod filter;
mod merge;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

pub use self::filter::Filter;
pub use crate::registry::Entry;

use toolbay_policy::Profile;
use toolbay_policy::name::SEAM;
use toolbay_policy::similar;
use toolbay_policy::text::one_line;

use self::filter::{Gate, Origin};
use crate::registry::{Bundle, Catalog, Collision, Listing, OnCollision, ReducerEntry};
use crate::tool::content::{ErrorCode, ToolError};
use crate::tool::offer::Offers;

/// Longest name that a refusal repeats, in characters.
const MAX_NAME: usize = 100;
/// Most names that one that nothing has is compared with: a millisecond or two. Any client can ask for such a name.
const MAX_COMPARED: usize = 2000;

/// A snapshot of the registry behind a filter. Cheap to make and to clone.
#[derive(Debug, Clone)]
pub struct View {
    catalog: Arc<Catalog>,
    filter: Arc<Filter>,
    own: Option<Arc<Own>>,
    listing: Arc<OnceLock<Listing>>,
}

/// What a view has besides its catalog. A tool here stands before one of the same name there.
#[derive(Debug, Clone, Default)]
struct Own {
    tools: BTreeMap<Arc<str>, Added>,
    reducers: BTreeMap<String, Arc<ReducerEntry>>,
}

/// A tool that is not of the view's catalog, with the filter it came through.
#[derive(Debug, Clone)]
struct Added {
    entry: Arc<Entry>,
    filter: Arc<Filter>,
    origin: Origin,
}

/// A tool of a view, with what decides whether it may be called.
#[derive(Clone, Copy)]
pub(crate) struct FoundTool<'v> {
    entry: &'v Arc<Entry>,
    filter: &'v Arc<Filter>,
    origin: Origin,
}

impl<'v> FoundTool<'v> {
    fn gate(&self) -> Option<Gate> {
        self.filter.gate(self.entry, self.origin)
    }

    fn added(&self) -> Added {
        Added { entry: Arc::clone(self.entry), filter: Arc::clone(self.filter), origin: self.origin }
    }

    fn passing(self) -> Option<&'v Arc<Entry>> {
        self.gate().is_none().then_some(self.entry)
    }

    /// The tool, whether or not it may be called.
    pub(crate) fn entry(self) -> &'v Arc<Entry> {
        self.entry
    }

    /// The tool, if it may be called; else the first gate it does not pass. The texts are the seed's.
    pub(crate) fn check_available(self) -> Result<&'v Arc<Entry>, ToolError> {
        let name = self.entry.def.name.as_str();
        let why = match self.gate() {
            None => return Ok(self.entry),
            Some(Gate::Excluded) => format!("Tool {name} is not available on this surface"),
            Some(Gate::NotPermitted) => format!("Tool {name} is not permitted for this agent"),
            Some(Gate::NotInProfile(profile)) => format!("Tool {name} is not in the profile `{profile}`"),
            Some(Gate::Disabled(reason)) => format!("Tool {name} is disabled: {reason}"),
            Some(Gate::Unavailable(refusal)) => {
                let text = format!("Tool {name} is not currently available: {}", refusal.for_model(name));
                return Err(ToolError::new(ErrorCode::NotAvailable, text).with_hint(refusal.hint));
            }
        };
        Err(ToolError::new(ErrorCode::NotAvailable, why))
    }

    /// Whether it may be called.
    pub(crate) fn is_available(self) -> bool {
        self.gate().is_none()
    }

    /// The profile under which its calls run.
    pub(crate) fn profile(self) -> Option<&'v Profile> {
        self.filter.profile.as_deref()
    }

    /// The name of that profile.
    pub(crate) fn profile_name(self) -> Option<&'v Arc<str>> {
        self.filter.profile_name()
    }
}

impl Added {
    fn held(&self) -> FoundTool<'_> {
        FoundTool { entry: &self.entry, filter: &self.filter, origin: self.origin }
    }
}

impl View {
    /// A view on one state of the registry. A filter that many views share is given as an `Arc`: they then share the
    /// list of definitions, too.
    #[must_use]
    pub fn new(catalog: Arc<Catalog>, filter: impl Into<Arc<Filter>>) -> Self {
        let filter = filter.into();
        let filter = filter.under_policy_of(&catalog).map_or(filter, Arc::new);
        Self { catalog, filter, own: None, listing: Arc::default() }
    }

    /// The same view with tools and reducers of its own, which end with it; neither the registry nor this view knows
    /// of them. The lists of the filter are not asked about them, but what it excludes stays out.
    ///
    /// # Errors
    /// A name that the registry or this view has, whether or not the filter lets it through, unless `on_collision`,
    /// or the tool's own policy, says what becomes of it.
    pub fn with(&self, bundle: impl Into<Bundle>, on_collision: OnCollision) -> Result<Self, Collision> {
        let Bundle { tools, reducers } = bundle.into();
        let mut own = self.own.as_deref().cloned().unwrap_or_default();
        for mut entry in tools {
            let name: Arc<str> = entry.def.name.as_str().into();
            let there = own.tools.get(&name).map(|added| &added.entry).or_else(|| self.catalog.get(&name));
            match (there, entry.on_collision.unwrap_or(on_collision)) {
                (Some(there), OnCollision::Throw) => return Err(Collision::with_tool(there)),
                (Some(_), OnCollision::Keep) => {}
                (None, _) | (Some(_), OnCollision::Replace) => {
                    self.catalog.settings().apply(&mut entry);
                    own.reducers.remove(&*name);
                    let filter = Arc::clone(&self.filter);
                    let added = Added { entry: Arc::new(entry), filter, origin: Origin::Ephemeral };
                    own.tools.insert(name, added);
                }
            }
        }
        for reducer in reducers {
            let target = reducer.target.clone();
            let there = match own.tools.contains_key(&*target) {
                true => own.reducers.get(&target),
                false => own.reducers.get(&target).or_else(|| self.catalog.reducer(&target)),
            };
            match (there, on_collision) {
                (Some(there), OnCollision::Throw) => return Err(Collision::with_reducer(there)),
                (Some(_), OnCollision::Keep) => {}
                (None, _) | (Some(_), OnCollision::Replace) => {
                    own.reducers.insert(target, Arc::new(reducer));
                }
            }
        }
        Ok(self.having(own))
    }

    fn having(&self, own: Own) -> Self {
        let (catalog, filter) = (Arc::clone(&self.catalog), Arc::clone(&self.filter));
        Self { catalog, filter, own: Some(Arc::new(own)), listing: Arc::default() }
    }

    /// The tools of the first list, in the order of their names: those that may be called, without the hidden and
    /// the deferred ones.
    pub fn definitions(&self) -> impl ExactSizeIterator<Item = &Arc<Entry>> {
        let list = || self.held().filter(|held| held.filter.shows(held.entry)).filter_map(FoundTool::passing);
        let listing = self.listing.get_or_init(|| match self.own {
            None => self.catalog.listing(&self.filter, || list().cloned().collect()),
            Some(_) => list().cloned().collect(),
        });
        listing.iter()
    }

    /// Whether tools that may be found can be missing in the first list: it is lazy, or some of them are deferred.
    #[must_use]
    pub fn keeps_back(&self) -> bool {
        let deferred = |own: &Own| own.tools.values().any(|added| added.entry.flags.deferred);
        let some = self.catalog.has_deferred() || self.own.as_deref().is_some_and(deferred);
        self.filter.is_lazy() || (some && self.discoverable().any(|entry| entry.flags.deferred))
    }

    /// The tools that may be found, in the order of their names: those of the first list and the deferred ones.
    pub fn discoverable(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.callable().filter(|entry| !entry.flags.hidden)
    }

    /// The tools that may be called, in the order of their names: also the deferred and the hidden ones.
    pub fn callable(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.held().filter_map(FoundTool::passing)
    }

    /// What the sources of the tools that may be called offer beside them: each once, in the order of its first tool.
    #[must_use]
    pub fn offers(&self) -> Vec<&Arc<Offers>> {
        let mut found: Vec<&Arc<Offers>> = Vec::new();
        for offers in self.callable().filter_map(|entry| entry.offers.as_ref()) {
            // The tools of a plugin stand side by side.
            let known = |one: &&Arc<Offers>| Arc::ptr_eq(one, offers);
            if !offers.is_empty() && !found.iter().rev().any(known) {
                found.push(offers);
            }
        }
        found
    }

    /// All tools that the view knows, in the order of their names, also those that may not be called.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.held().map(|held| held.entry)
    }

    /// What the view knows under a name; whether it may be called is [`View::find`]'s.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.find_tool(name).map(|held| held.entry)
    }

    /// The tool of this name, if it may be called; [`View::find`] says why not.
    #[must_use]
    pub fn get_callable(&self, name: &str) -> Option<&Arc<Entry>> {
        self.find_tool(name).and_then(FoundTool::passing)
    }

    /// The tool of this name, if it may be called.
    ///
    /// # Errors
    /// The first gate it does not pass; the texts are the seed's.
    pub fn find(&self, name: &str) -> Result<&Arc<Entry>, ToolError> {
        self.find_tool(name).ok_or_else(|| self.unknown(name)).and_then(FoundTool::check_available)
    }

    /// Why a tool may not be called, for the operator, with the lines that would help; `None`: it may.
    #[must_use]
    pub fn why_not(&self, entry: &Entry) -> Option<String> {
        let held = self.find_tool(entry.def.name.as_str()).filter(|held| std::ptr::eq(&**held.entry, entry));
        let gate = held.map_or_else(|| self.filter.gate(entry, Origin::Catalog), |held| held.gate());
        Some(match gate? {
            Gate::Excluded => "it is excluded on this surface".to_owned(),
            Gate::NotPermitted => "it is not permitted for this agent".to_owned(),
            Gate::NotInProfile(profile) => format!("it is not in the profile `{profile}`"),
            Gate::Disabled(reason) => format!("it is disabled: {reason}"),
            Gate::Unavailable(refusal) => refusal.for_operator(),
        })
    }

    /// The profile of the view.
    #[must_use]
    pub fn profile(&self) -> Option<&Arc<str>> {
        self.filter.profile_name()
    }

    /// The reducer for results of this tool.
    #[must_use]
    pub fn reducer(&self, tool: &str) -> Option<&Arc<ReducerEntry>> {
        let Some(own) = &self.own else { return self.catalog.reducer(tool) };
        match own.reducers.get(tool) {
            None if !own.tools.contains_key(tool) => self.catalog.reducer(tool),
            reducer => reducer,
        }
    }

    /// The same for a tool that was looked up.
    pub(crate) fn reducer_of<'a>(&'a self, entry: &'a Entry) -> Option<&'a Arc<ReducerEntry>> {
        let name = entry.def.name.as_str();
        match &self.own {
            Some(_) => self.reducer(name),
            None => self.catalog.reducer_of(entry),
        }
    }

    /// The state of the registry behind the view.
    #[must_use]
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The answer to a name that nothing has, with the names that are most like it: only such as this view lets its
    /// caller find.
    #[must_use]
    pub fn unknown(&self, name: &str) -> ToolError {
        let meant = similar::did_you_mean(&self.similar(name));
        ToolError::new(ErrorCode::NotAvailable, format!("Unknown tool: {}{meant}", one_line(name, MAX_NAME)))
    }

    /// The names of tools that may be found which are most like one that the view does not have: at most three, best
    /// first. Where there are more than `MAX_COMPARED` tools, only those of the same namespace are compared.
    #[must_use]
    pub fn similar(&self, name: &str) -> Vec<&str> {
        let namespace = name.split_once(SEAM).map(|(namespace, _)| namespace);
        let all = self.catalog.tools().len() <= MAX_COMPARED;
        let near = |entry: &&Arc<Entry>| all || (namespace.is_some() && entry.def.namespace() == namespace);
        let names = self.discoverable().filter(near).take(MAX_COMPARED);
        similar::similar(name, names.map(|entry| entry.def.name.as_str()))
    }

    /// What the view knows under a name, with what decides whether it may be called.
    pub(crate) fn find_tool(&self, name: &str) -> Option<FoundTool<'_>> {
        let own = self.own.as_ref().and_then(|own| own.tools.get(name));
        own.map(Added::held).or_else(|| self.catalog.get(name).map(|entry| self.of_catalog(entry)))
    }

    fn of_catalog<'v>(&'v self, entry: &'v Arc<Entry>) -> FoundTool<'v> {
        FoundTool { entry, filter: &self.filter, origin: Origin::Catalog }
    }

    /// All tools in the order of their names: two sorted rows, zipped; of two with one name, the view's own.
    fn held(&self) -> impl Iterator<Item = FoundTool<'_>> {
        let mut catalog = self.catalog.tools().map(|entry| self.of_catalog(entry)).peekable();
        let own = self.own.as_ref().map(|own| own.tools.values());
        let mut own = own.into_iter().flatten().map(Added::held).peekable();
        std::iter::from_fn(move || {
            let (Some(next), Some(added)) = (catalog.peek(), own.peek()) else {
                return catalog.next().or_else(|| own.next());
            };
            match next.entry.def.name.cmp(&added.entry.def.name) {
                Ordering::Less => catalog.next(),
                Ordering::Greater => own.next(),
                Ordering::Equal => {
                    catalog.next();
                    own.next()
                }
            }
        })
    }
}

#[cfg(test)]
mod profile_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;
