//! One state of the registry.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use toolbay_policy::Profile;

use super::entry::{Bundle, Entry, ReducerEntry};
use super::settings::Settings;
use super::update::Profiles;

/// What a filter lists of a catalog, worked out once.
pub(crate) type Listing = Arc<[Arc<Entry>]>;

/// Filters of which a catalog keeps the listing.
const LISTINGS: usize = 16;

/// One state of the registry. Tools are in the order of their names.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    pub(super) revision: u64,
    pub(super) tools: BTreeMap<Arc<str>, Arc<Entry>>,
    pub(super) reducers: BTreeMap<String, Arc<ReducerEntry>>,
    pub(super) settings: Arc<Settings>,
    pub(super) profiles: Profiles,
    listings: Listings,
    found: Found,
}

/// What is worked out of all tools when it is first asked for.
#[derive(Debug, Default)]
struct Found {
    /// Values that other crates work out, one of each type.
    derived: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
    has_deferred: OnceLock<bool>,
}

impl Clone for Found {
    /// What is cloned is about to change.
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// A filter, of which no more is asked than which it is. Held, so that no other can come to its address.
type Key = Arc<dyn Any + Send + Sync>;

/// The latest listings, each with its filter.
#[derive(Debug, Default)]
struct Listings(Mutex<VecDeque<(Key, Listing)>>);

impl Clone for Listings {
    /// What is cloned is about to change: the listings are worked out anew.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Catalog {
    /// The tool of this qualified name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.tools.get(name)
    }

    /// A profile of the policy under which the tools of this state were granted what they may.
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<&Arc<Profile>> {
        self.profiles.get(name)
    }

    /// Whether there is a tool of this qualified name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }

    /// All tools, in the order of their names.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = &Arc<Entry>> {
        self.tools.values()
    }

    /// The tools of one source or of several, in the order of their names; see
    /// [`SourceLabel::matches`](toolbay_policy::permission::SourceLabel::matches).
    pub fn from_source(&self, pattern: &str) -> impl Iterator<Item = &Arc<Entry>> {
        self.tools().filter(move |entry| entry.def.source.as_label().matches(pattern))
    }

    /// The tools of a namespace, in the order of their names; see
    /// [`ToolDef::namespace`](crate::tool::ToolDef::namespace).
    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<Entry>> {
        self.tools().filter(move |entry| entry.def.namespace() == Some(namespace))
    }

    /// All namespaces, in their order.
    #[must_use]
    pub fn namespaces(&self) -> BTreeSet<&str> {
        self.tools().filter_map(|entry| entry.def.namespace()).collect()
    }

    /// The reducer for results of this tool.
    #[must_use]
    pub fn reducer(&self, tool: &str) -> Option<&Arc<ReducerEntry>> {
        self.reducers.get(tool).or_else(|| self.tools.get(tool)?.reducer.as_ref())
    }

    /// The reducer for results of one of these tools.
    pub(crate) fn reducer_of<'a>(&'a self, entry: &'a Entry) -> Option<&'a Arc<ReducerEntry>> {
        self.reducers.get(entry.def.name.as_str()).or(entry.reducer.as_ref())
    }

    /// All reducers, in the order of their tools' names.
    pub fn reducers(&self) -> impl ExactSizeIterator<Item = &Arc<ReducerEntry>> {
        self.reducers.values()
    }

    /// Some of the tools, as their sources defined them, with their reducers: to be registered elsewhere.
    pub fn bundle(&self, of: impl Fn(&Entry) -> bool) -> Bundle {
        let entries = || self.tools().filter(|entry| of(entry));
        let reducers = entries().filter_map(|entry| self.reducers.get(entry.def.name.as_str()));
        Bundle {
            tools: entries().map(|entry| entry.as_defined()).collect(),
            reducers: reducers.map(|reducer| ReducerEntry::clone(reducer)).collect(),
        }
    }

    /// Grows with each change.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// A value that is worked out of all tools: the one that was made before for this state of the registry, or a new
    /// one. One value is kept for each type.
    pub fn derive<T: Any + Send + Sync>(&self, make: impl FnOnce(&Self) -> T) -> Arc<T> {
        if let Some(value) = self.derived() {
            return value;
        }
        // Not under the lock: two callers at once both do the work, and neither waits for the other.
        let value = Arc::new(make(self));
        self.found.derived.lock().push(Arc::clone(&value) as Arc<dyn Any + Send + Sync>);
        value
    }

    /// The value of this type that [`Catalog::derive`] made, if it did.
    #[must_use]
    pub fn derived<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.found.derived.lock().iter().find_map(|value| Arc::clone(value).downcast().ok())
    }

    /// Whether a tool is left out of first lists.
    pub(crate) fn has_deferred(&self) -> bool {
        *self.found.has_deferred.get_or_init(|| self.tools().any(|entry| entry.flags.deferred))
    }

    /// What the operator said of tools by their names.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The listing of a filter: the one that is kept for this very filter, or a new one.
    pub(crate) fn listing<F: Any + Send + Sync>(
        &self,
        filter: &Arc<F>,
        list: impl FnOnce() -> Listing,
    ) -> Listing {
        let is_its = |key: &Key| std::ptr::addr_eq(Arc::as_ptr(key), Arc::as_ptr(filter));
        let kept = || self.listings.0.lock();
        if let Some((_, listing)) = kept().iter().find(|(key, _)| is_its(key)) {
            return Arc::clone(listing);
        }
        // Not under the lock: two who come at once both do the work, and wait for nobody.
        let listing = list();
        let mut kept = kept();
        kept.truncate(LISTINGS - 1);
        kept.push_front((Arc::clone(filter) as Key, Arc::clone(&listing)));
        listing
    }
}
