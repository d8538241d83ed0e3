//! The registry: all tools and reducers of the host in one immutable snapshot.
//!
//! Readers hold an `Arc` of a [`Catalog`], so a reload in the middle of a batch does not affect that batch, and the old
//! plugin lives until its last call drops it. A writer builds the next catalog and swaps it in; a plugin enters
//! completely or not at all. Events follow in the order of the changes, with no lock held.

mod availability;
mod availability_check;
mod cache;
mod catalog;
mod draft;
mod entry;
pub mod event;
mod event_queue;
pub mod native;
mod pending;
pub mod read_output;
mod reason;
mod schema_losses;
mod settings;
mod source;
mod source_state;
mod status;
mod switch;
mod update;
pub mod view;

use std::convert::Infallible;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub use self::availability::{AVAILABILITY_CHECK_TIMEOUT, AVAILABILITY_MAX_AGE};
pub use self::availability_check::AvailabilityCheck;
pub(crate) use self::availability_check::CheckFn;
pub(crate) use self::catalog::ToolListing;
pub use self::catalog::{Catalog, Profiles, ViewDefaults};
pub use self::entry::{
    Bundle, CallSettings, Collision, DerivedFields, MetadataOverride, OnCollision, ReducerEntry,
    ReducerHandle, ToolAvailability, ToolEntry, ToolFlags,
};
pub use self::pending::PendingSource;
pub use self::reason::MAX_REASON;
pub use self::settings::{RegistrySettings, Switches};
pub use self::source_state::{AbsentSource, SourceState};
pub use self::status::ToolStatus;
pub use self::switch::{TagSelector, UnknownNameError};
pub use self::update::{PluginUpdate, UpdateChoice, UpdateOutcome};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use self::availability::CheckSchedule;
use self::draft::{Draft, group_by_source};
use self::event_queue::EventQueue;
use self::pending::PendingSources;
use crate::registry::event::{Events, HostEvent};

/// The result of a registration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistrationResult {
    /// The new tools.
    pub added: Vec<Arc<str>>,
    /// The tools that replaced others.
    pub replaced: Vec<Arc<str>>,
    /// The tools that were skipped because their names are taken.
    pub skipped: Vec<Arc<str>>,
}

type RegistrationHook = Arc<dyn Fn(&ToolEntry) -> Option<String> + Send + Sync>;

/// The registry of tools and reducers.
#[derive(Default)]
pub struct Registry {
    catalog: ArcSwap<Catalog>,
    write_lock: Mutex<()>,
    hooks: Mutex<Vec<RegistrationHook>>,
    event_queue: EventQueue,
    check_schedule: CheckSchedule,
    pending: PendingSources,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("revision", &self.snapshot().revision()).finish_non_exhaustive()
    }
}

impl Registry {
    /// An empty registry that emits its changes to `events`.
    #[must_use]
    pub fn new(events: Events) -> Self {
        Self { event_queue: EventQueue::new(events), ..Self::default() }
    }

    /// The event channel of the registry.
    #[must_use]
    pub fn events(&self) -> &Events {
        self.event_queue.events()
    }

    /// The current catalog.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// Registers tools and reducers: all of them, or none.
    ///
    /// # Errors
    /// A name is taken.
    pub fn register(&self, bundle: impl Into<Bundle>) -> Result<RegistrationResult, Collision> {
        self.register_with(bundle, OnCollision::Fail)
    }

    /// Registers tools and reducers: all of them, or none. `on_collision` decides about taken names, unless the tool
    /// has its own action ([`ToolEntry::on_collision`]).
    ///
    /// # Errors
    /// A name is taken and the action is [`OnCollision::Fail`].
    pub fn register_with(
        &self,
        bundle: impl Into<Bundle>,
        on_collision: OnCollision,
    ) -> Result<RegistrationResult, Collision> {
        let mut bundle = bundle.into();
        self.run_hooks(&mut bundle);
        self.try_change(|draft| {
            let registered = draft.add(bundle, on_collision)?;
            let entries = |names: &[Arc<str>]| -> Vec<Arc<ToolEntry>> {
                names.iter().filter_map(|name| draft.catalog.get(name).cloned()).collect()
            };
            let added = group_by_source(entries(&registered.added));
            let replacing = group_by_source(entries(&registered.replaced));
            let replaced = std::mem::take(&mut draft.replaced);
            for (source, new) in added {
                draft.events.extend(HostEvent::from_source_change(source, None, Some(&new)));
            }
            for (source, new) in replacing {
                let is_replaced = |old: &&Arc<ToolEntry>| new.iter().any(|new| new.def.name == old.def.name);
                let old: Vec<_> = replaced.iter().filter(is_replaced).cloned().collect();
                draft.events.extend(HostEvent::from_source_change(source, Some(&old), Some(&new)));
            }
            Ok(registered)
        })
    }

    /// Registers copies of the tools of another catalog, or of one of its namespaces, with their reducers.
    ///
    /// # Errors
    /// A name is taken and the action is [`OnCollision::Fail`].
    pub fn merge(
        &self,
        other: &Catalog,
        namespace: Option<&str>,
        on_collision: OnCollision,
    ) -> Result<RegistrationResult, Collision> {
        let is_in_namespace =
            |entry: &ToolEntry| namespace.is_none_or(|one| entry.def.namespace() == Some(one));
        self.register_with(other.bundle(is_in_namespace), on_collision)
    }

    /// Moves the tools of a namespace, with their reducers, into a new registry.
    #[must_use]
    pub fn spin_off(&self, namespace: &str) -> Self {
        let is_in_namespace = |entry: &ToolEntry| entry.def.namespace() == Some(namespace);
        let bundle = self.change(|draft| {
            let bundle = draft.catalog.bundle(is_in_namespace);
            draft.unregister_tools(is_in_namespace);
            bundle
        });
        let registry = Self::default();
        // Collisions are impossible: the names come from one registry.
        let result = registry.register(bundle);
        debug_assert!(result.is_ok());
        registry
    }

    /// Removes a tool. Returns whether it existed.
    pub fn unregister(&self, name: &str) -> bool {
        self.unregister_where(|entry| entry.def.name.as_str() == name) > 0
    }

    /// Removes the tools of all sources that match a pattern
    /// ([`SourceLabel::matches`](toolbay_policy::permission::SourceLabel::matches)). Returns the number of removed
    /// tools.
    pub fn remove_source(&self, pattern: &str) -> usize {
        self.unregister_where(|entry| entry.def.source.as_label().matches(pattern))
    }

    /// Removes the tools of a namespace. Returns the number of removed tools.
    pub fn remove_namespace(&self, namespace: &str) -> usize {
        self.unregister_where(|entry| entry.def.namespace() == Some(namespace))
    }

    fn unregister_where(&self, is_removed: impl Fn(&ToolEntry) -> bool) -> usize {
        self.change(|draft| draft.unregister_tools(is_removed))
    }

    /// Registers a reducer. Pass the handle to [`Registry::remove_reducer`] to remove it.
    ///
    /// # Errors
    /// The tool already has a reducer.
    pub fn register_reducer(&self, entry: ReducerEntry) -> Result<ReducerHandle, Collision> {
        let entry = Arc::new(entry);
        self.try_change(|draft| draft.add_reducer(Arc::clone(&entry), OnCollision::Fail))?;
        Ok(ReducerHandle(entry))
    }

    /// Removes the reducer of a handle. Returns whether it existed. A later reducer for the same tool is not removed.
    pub fn remove_reducer(&self, handle: &ReducerHandle) -> bool {
        self.change(|draft| {
            let registered = draft.catalog.reducers.get(handle.target());
            draft.changed = registered.is_some_and(|entry| Arc::ptr_eq(entry, &handle.0));
            if draft.changed {
                draft.catalog.reducers.remove(handle.target());
            }
            draft.changed
        })
    }

    /// Adds a hook that runs for each later tool before the tool becomes visible. A hook that returns a text that is
    /// not blank disables the tool with that reason; the tool can be enabled later. All hooks run and the last reason
    /// counts. A panic is logged and counts as no reason.
    pub fn add_hook(&self, hook: impl Fn(&ToolEntry) -> Option<String> + Send + Sync + 'static) {
        self.hooks.lock().push(Arc::new(hook));
    }

    /// Runs the hooks and the immediate availability checks of new tools. It holds no lock, since they may read or
    /// change the registry.
    fn run_hooks(&self, bundle: &mut Bundle) {
        let hooks = self.hooks.lock().clone();
        for entry in &mut bundle.tools {
            let mut wanted = None;
            for hook in &hooks {
                match catch_unwind(AssertUnwindSafe(|| hook(entry))) {
                    Ok(reason) => wanted = reason.filter(|reason| !reason.trim().is_empty()).or(wanted),
                    Err(_) => tracing::error!(tool = %entry.def.name, "a hook of the registry panicked"),
                }
            }
            entry.run_immediate_check();
            entry.derived.hook_reason = wanted.map(|reason| reason::normalize_reason(&reason));
        }
    }

    fn change<T>(&self, edit: impl FnOnce(&mut Draft) -> T) -> T {
        let Ok(value) = self.try_change(|draft| Ok::<_, Infallible>(edit(draft)));
        value
    }

    /// Edits a draft of the catalog, swaps it in and emits the events.
    fn try_change<T, E>(&self, edit: impl FnOnce(&mut Draft) -> Result<T, E>) -> Result<T, E> {
        let value = self.commit(edit)?;
        self.flush_events();
        Ok(value)
    }

    /// Emits the events that [`Registry::update`] has queued.
    pub fn flush_events(&self) {
        self.event_queue.flush();
    }

    /// Edits a draft of the catalog, swaps it in and queues the events.
    fn commit<T, E>(&self, edit: impl FnOnce(&mut Draft) -> Result<T, E>) -> Result<T, E> {
        let writing = self.write_lock.lock();
        let mut draft = Draft::from_catalog(&self.catalog.load());
        let value = edit(&mut draft)?;
        draft.catalog.revision += u64::from(draft.changed);
        if draft.changed || draft.silent_change {
            self.check_schedule.plan(&draft.catalog);
            self.catalog.store(Arc::new(draft.catalog));
        }
        self.event_queue.push(draft.events);
        drop(writing);
        Ok(value)
    }
}

#[cfg(test)]
#[path = "registry/fixture_tests.rs"]
pub(crate) mod fixture;

#[cfg(test)]
mod tests;
