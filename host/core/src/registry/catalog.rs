//! The catalog: one immutable state of the registry.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::{Profile, name};

use super::cache::Cache;
use super::entry::{Bundle, ReducerEntry, ToolEntry};
use super::settings::RegistrySettings;
use super::source_state::AbsentSource;

/// The tools that a filter lists, computed once.
pub(crate) type ToolListing = Arc<[Arc<ToolEntry>]>;

/// Most listings that a catalog caches, one for each filter.
const MAX_LISTINGS: usize = 16;

/// The profiles of a policy by name.
pub type Profiles = Arc<BTreeMap<Arc<str>, Arc<Profile>>>;

/// The settings of a policy for all views.
#[derive(Debug, Clone, Default)]
pub struct ViewDefaults {
    /// Its profiles.
    pub profiles: Profiles,
    /// Whether callers are asked for a reason ([`crate::tool::toolcall_reason`]), if neither the tool nor the view sets it.
    pub toolcall_reason: bool,
}

/// One state of the registry. Tools are sorted by name.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    pub(super) revision: u64,
    pub(super) tools: BTreeMap<Arc<str>, Arc<ToolEntry>>,
    pub(super) reducers: BTreeMap<String, Arc<ReducerEntry>>,
    pub(super) settings: Arc<RegistrySettings>,
    pub(super) view_defaults: ViewDefaults,
    /// The tools that sources could not register, each with the reason, by the label of the source.
    pub(super) left_out: BTreeMap<Arc<str>, Arc<BTreeMap<String, PolicyRefusal>>>,
    /// The sources without tools, by namespace.
    pub(super) absent: BTreeMap<Arc<str>, AbsentSource>,
    /// The latest listings with their filters.
    listings: Cache<Mutex<VecDeque<(FilterKey, ToolListing)>>>,
    derived_values: Cache<DerivedValues>,
}

/// Values derived from all tools on first use.
#[derive(Debug, Default)]
struct DerivedValues {
    /// Values of other crates, at most one of each type.
    derived: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
    has_deferred: OnceLock<bool>,
}

/// A filter, compared by address. The `Arc` is kept so that the address cannot be reused.
type FilterKey = Arc<dyn Any + Send + Sync>;

impl Catalog {
    /// The tool with this qualified name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<ToolEntry>> {
        self.tools.get(name)
    }

    /// A profile of the policy that granted the capabilities of these tools.
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<&Arc<Profile>> {
        self.view_defaults.profiles.get(name)
    }

    /// Whether a tool has this qualified name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }

    /// All tools, sorted by name.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = &Arc<ToolEntry>> {
        self.tools.values()
    }

    /// The tools whose source matches a pattern
    /// ([`SourceLabel::matches`](toolbay_policy::permission::SourceLabel::matches)), sorted by name.
    pub fn from_source(&self, pattern: &str) -> impl Iterator<Item = &Arc<ToolEntry>> {
        self.tools().filter(move |entry| entry.def.source.as_label().matches(pattern))
    }

    /// The tools of a namespace ([`ToolDef::namespace`](crate::tool::ToolDef::namespace)), sorted by name.
    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<ToolEntry>> {
        self.tools().filter(move |entry| entry.def.namespace() == Some(namespace))
    }

    /// All namespaces, sorted.
    #[must_use]
    pub fn namespaces(&self) -> BTreeSet<&str> {
        self.tools().filter_map(|entry| entry.def.namespace()).collect()
    }

    /// The reducer for results of a tool.
    #[must_use]
    pub fn reducer(&self, tool: &str) -> Option<&Arc<ReducerEntry>> {
        self.reducers.get(tool).or_else(|| self.tools.get(tool)?.reducer.as_ref())
    }

    /// The reducer for results of a tool of this catalog.
    pub(crate) fn reducer_of<'a>(&'a self, entry: &'a ToolEntry) -> Option<&'a Arc<ReducerEntry>> {
        self.reducers.get(entry.def.name.as_str()).or(entry.reducer.as_ref())
    }

    /// All reducers, sorted by the names of their tools.
    pub fn reducers(&self) -> impl ExactSizeIterator<Item = &Arc<ReducerEntry>> {
        self.reducers.values()
    }

    /// A bundle of the tools that `of` selects, with their reducers and without the settings of this registry.
    pub fn bundle(&self, of: impl Fn(&ToolEntry) -> bool) -> Bundle {
        let entries = || self.tools().filter(|entry| of(entry));
        let reducers = entries().filter_map(|entry| self.reducers.get(entry.def.name.as_str()));
        Bundle {
            tools: entries().map(|entry| entry.without_settings()).collect(),
            reducers: reducers.map(|reducer| ReducerEntry::clone(reducer)).collect(),
        }
    }

    /// The sources without tools, in the order of their namespaces.
    pub fn absent_sources(&self) -> impl Iterator<Item = &AbsentSource> {
        self.absent.values()
    }

    /// The source that a tool of this name would have, if that source has no tools.
    pub(super) fn absent_source_of(&self, tool: &str) -> Option<&AbsentSource> {
        let (namespace, _) = name::split_qualified(tool)?;
        let source = self.absent.get(namespace)?;
        self.in_namespace(namespace).next().is_none().then_some(source)
    }

    /// The source that could not register a tool of this name, and the reason.
    pub(super) fn left_out(&self, name: &str) -> Option<(&str, &PolicyRefusal)> {
        self.left_out.iter().find_map(|(label, tools)| Some((&**label, tools.get(name)?)))
    }

    /// The revision, which grows with each change.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// A value derived from all tools. The first call computes it; later calls for the same catalog and type return the
    /// cached value.
    pub fn derive<T: Any + Send + Sync>(&self, make: impl FnOnce(&Self) -> T) -> Arc<T> {
        if let Some(value) = self.derived() {
            return value;
        }
        // Computed without the lock: two concurrent callers both do the work, and neither waits for the other.
        let value = Arc::new(make(self));
        self.derived_values.0.derived.lock().push(Arc::clone(&value) as Arc<dyn Any + Send + Sync>);
        value
    }

    /// The cached value of [`Catalog::derive`] for this type.
    #[must_use]
    pub fn derived<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.derived_values.0.derived.lock().iter().find_map(|value| Arc::clone(value).downcast().ok())
    }

    /// Whether a tool is deferred.
    pub(crate) fn has_deferred(&self) -> bool {
        *self.derived_values.0.has_deferred.get_or_init(|| self.tools().any(|entry| entry.flags.deferred))
    }

    /// The operator's settings for tools.
    #[must_use]
    pub fn settings(&self) -> &RegistrySettings {
        &self.settings
    }

    /// The listing of a filter, from the cache or computed by `list`.
    pub(crate) fn listing<F: Any + Send + Sync>(
        &self,
        filter: &Arc<F>,
        list: impl FnOnce() -> ToolListing,
    ) -> ToolListing {
        let is_of_filter = |key: &FilterKey| std::ptr::addr_eq(Arc::as_ptr(key), Arc::as_ptr(filter));
        if let Some((_, listing)) = self.listings.0.lock().iter().find(|(key, _)| is_of_filter(key)) {
            return Arc::clone(listing);
        }
        // Computed without the lock: two concurrent callers both do the work, and neither waits for the other.
        let listing = list();
        let mut listings = self.listings.0.lock();
        listings.truncate(MAX_LISTINGS - 1);
        listings.push_front((Arc::clone(filter) as FilterKey, Arc::clone(&listing)));
        listing
    }
}
