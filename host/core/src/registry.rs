//! All tools and reducers that the host knows, as one snapshot that is swapped whole.
//!
//! Readers take an `Arc` of the catalog and keep it for as long as they like: a reload in the middle of a batch
//! changes nothing for that batch, and the old plugin lives until its last call drops it. Writers build the next
//! catalog and swap it in; a plugin enters whole or not at all. What changed is told afterwards, in the order of the
//! changes and with no lock held.

mod availability;
mod catalog;
mod draft;
mod entry;
pub mod event;
pub mod native;
mod outbox;
pub mod read_output;
mod settings;
mod source;
mod status;
mod switch;
mod update;
pub mod view;

use std::convert::Infallible;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub(crate) use self::availability::CheckFn;
pub use self::availability::{ANSWER_AGE, ANSWER_WAIT, Check};
pub use self::catalog::Catalog;
pub(crate) use self::catalog::Listing;
pub use self::entry::{
    Bundle, CallSettings, Collision, Derived, Entry, Flags, OnCollision, ReducerEntry, ReducerHandle,
    ToolAvailability,
};
pub use self::settings::{MAX_REASON, Metadata, Settings, Switches};
pub use self::status::ToolStatus;
pub use self::switch::{Tags, Unknown};
pub use self::update::{Choice, Placed, Profiles, Step};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use toolbay_policy::name::PluginId;

use self::availability::Schedule;
use self::draft::Draft;
use self::outbox::Outbox;
use crate::registry::event::{Event, Events};
use crate::tool::diff::SourceDiff;

/// What came of registering tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registered {
    /// The tools that are new.
    pub added: Vec<Arc<str>>,
    /// The tools that took the place of others.
    pub replaced: Vec<Arc<str>>,
    /// The tools that were left out, because their names are taken.
    pub kept: Vec<Arc<str>>,
}

type Hook = Arc<dyn Fn(&Entry) -> Option<String> + Send + Sync>;

/// The registry.
#[derive(Default)]
pub struct Registry {
    current: ArcSwap<Catalog>,
    writing: Mutex<()>,
    hooks: Mutex<Vec<Hook>>,
    outbox: Outbox,
    schedule: Schedule,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("revision", &self.snapshot().revision()).finish_non_exhaustive()
    }
}

impl Registry {
    /// An empty registry that tells its changes to `events`.
    #[must_use]
    pub fn new(events: Events) -> Self {
        Self { outbox: Outbox::new(events), ..Self::default() }
    }

    /// What listens to its changes.
    #[must_use]
    pub fn events(&self) -> &Events {
        self.outbox.events()
    }

    /// The state as it is now.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Catalog> {
        self.current.load_full()
    }

    /// Puts tools and reducers in: all of them, or none.
    ///
    /// # Errors
    /// A name that something else has.
    pub fn register(&self, bundle: impl Into<Bundle>) -> Result<Registered, Collision> {
        self.register_with(bundle, OnCollision::Throw)
    }

    /// Puts tools and reducers in: all of them, or none. `on_collision` says what becomes of those whose names are
    /// taken; a tool's own policy ([`Entry::on_collision`]) comes before it.
    ///
    /// # Errors
    /// A name that something else has, where the policy is to throw.
    pub fn register_with(
        &self,
        bundle: impl Into<Bundle>,
        on_collision: OnCollision,
    ) -> Result<Registered, Collision> {
        let mut bundle = bundle.into();
        self.ask_hooks(&mut bundle);
        self.change(|draft| {
            let registered = draft.add(bundle, on_collision)?;
            let entries = |names: &[Arc<str>], of: &Catalog| -> Vec<_> {
                names.iter().filter_map(|name| of.get(name).cloned()).collect()
            };
            let added = entries(&registered.added, &draft.catalog);
            draft.tell(added, |source, tools| Event::Registered { tools, source });
            let old = std::mem::take(&mut draft.old);
            let new = entries(&registered.replaced, &draft.catalog);
            draft.tell(new.clone(), move |source, tools| {
                let of = |all: &[Arc<Entry>]| -> Vec<_> {
                    let named =
                        |entry: &&Arc<Entry>| tools.iter().any(|tool| **tool == *entry.def.name.as_str());
                    all.iter().filter(named).cloned().collect()
                };
                let (old, new) = (of(&old), of(&new));
                let diff =
                    SourceDiff::new(old.iter().map(|entry| &*entry.def), new.iter().map(|entry| &*entry.def));
                Event::Replaced { tools, source, diff }
            });
            Ok(registered)
        })
    }

    /// Takes in the tools of another registry, or those of one namespace of it, with their reducers. The other is not
    /// changed.
    ///
    /// # Errors
    /// A name that something else has, where the policy is to throw.
    pub fn merge(
        &self,
        other: &Catalog,
        namespace: Option<&str>,
        on_collision: OnCollision,
    ) -> Result<Registered, Collision> {
        let meant = |entry: &Entry| namespace.is_none_or(|one| entry.def.namespace() == Some(one));
        self.register_with(other.bundle(meant), on_collision)
    }

    /// Takes the tools of a namespace out, into a registry of their own, with their reducers.
    #[must_use]
    pub fn spin_off(&self, namespace: &str) -> Self {
        let meant = |entry: &Entry| entry.def.namespace() == Some(namespace);
        let bundle = self.always(|draft| {
            let bundle = draft.catalog.bundle(meant);
            let gone = draft.drop_tools(meant);
            draft.tell(gone, |source, tools| Event::Unregistered { tools, source });
            bundle
        });
        let own = Self::default();
        // Nothing can collide: the names were in one registry.
        let moved = own.register(bundle);
        debug_assert!(moved.is_ok());
        own
    }

    /// Takes one tool out; returns whether it was there.
    pub fn unregister(&self, name: &str) -> bool {
        self.unregister_where(|entry| entry.def.name.as_str() == name) > 0
    }

    /// Takes the tools of a source or of several out ([`SourceLabel::matches`](toolbay_policy::permission::SourceLabel::matches));
    /// returns how many there were.
    pub fn remove_source(&self, pattern: &str) -> usize {
        self.unregister_where(|entry| entry.def.source.as_label().matches(pattern))
    }

    /// Takes the tools of a namespace out; returns how many there were.
    pub fn remove_namespace(&self, namespace: &str) -> usize {
        self.unregister_where(|entry| entry.def.namespace() == Some(namespace))
    }

    fn unregister_where(&self, goes: impl Fn(&Entry) -> bool) -> usize {
        self.always(|draft| {
            let gone = draft.drop_tools(goes);
            let count = gone.len();
            draft.tell(gone, |source, tools| Event::Unregistered { tools, source });
            count
        })
    }

    /// Takes a plugin out; returns how many tools and reducers went with it.
    pub fn remove(&self, plugin: &PluginId) -> usize {
        self.always(|draft| {
            let reducers = draft.drop_reducers_of(plugin);
            let tools = draft.drop_tools(|entry| entry.def.source.plugin() == Some(plugin));
            let count = reducers + tools.len();
            if count > 0 {
                let tools = tools.iter().map(|entry| Arc::from(entry.def.name.as_str())).collect();
                draft.events.push(Event::Unregistered { tools, source: format!("plugin:{plugin}") });
            }
            count
        })
    }

    /// Puts one reducer in; the handle takes it out again.
    ///
    /// # Errors
    /// The tool has a reducer: there is one for each tool, and the first stays.
    pub fn register_reducer(&self, entry: ReducerEntry) -> Result<ReducerHandle, Collision> {
        let entry = Arc::new(entry);
        self.change(|draft| draft.add_reducer(Arc::clone(&entry), OnCollision::Throw))?;
        Ok(ReducerHandle(entry))
    }

    /// Takes that very reducer out; returns whether it was there. One that came later for the same tool stays.
    pub fn remove_reducer(&self, handle: &ReducerHandle) -> bool {
        self.always(|draft| {
            let there = draft.catalog.reducers.get(handle.target());
            draft.changed = there.is_some_and(|entry| Arc::ptr_eq(entry, &handle.0));
            if draft.changed {
                draft.catalog.reducers.remove(handle.target());
            }
            draft.changed
        })
    }

    /// Asks `hook` about each tool that comes in from now on, before anybody sees it. A text that is not blank
    /// switches the tool off, for that reason; it can be enabled afterwards. All hooks are asked, the last reason
    /// counts, and one that panics is logged and has said nothing.
    pub fn add_hook(&self, hook: impl Fn(&Entry) -> Option<String> + Send + Sync + 'static) {
        self.hooks.lock().push(Arc::new(hook));
    }

    /// Asks those who are asked before tools come in: hooks, and checks that answer at once. With no lock held: they
    /// may read the registry, or change it.
    fn ask_hooks(&self, bundle: &mut Bundle) {
        let hooks = self.hooks.lock().clone();
        for entry in &mut bundle.tools {
            let mut wanted = None;
            for hook in &hooks {
                match catch_unwind(AssertUnwindSafe(|| hook(entry))) {
                    Ok(reason) => wanted = reason.filter(|reason| !reason.trim().is_empty()).or(wanted),
                    Err(_) => tracing::error!(tool = %entry.def.name, "a hook of the registry panicked"),
                }
            }
            entry.ask_at_once();
            entry.derived.by_hook = wanted.map(|reason| settings::reason(&reason));
        }
    }

    fn always<T>(&self, edit: impl FnOnce(&mut Draft) -> T) -> T {
        let Ok(value) = self.change(|draft| Ok::<_, Infallible>(edit(draft)));
        value
    }

    /// The one way to a new state: built whole, swapped in, then told.
    fn change<T, E>(&self, edit: impl FnOnce(&mut Draft) -> Result<T, E>) -> Result<T, E> {
        let value = self.swap(edit)?;
        self.tell();
        Ok(value)
    }

    /// Tells what [`Registry::update`] left to be told.
    pub fn tell(&self) {
        self.outbox.tell();
    }

    /// A new state, of which nothing is told yet.
    fn swap<T, E>(&self, edit: impl FnOnce(&mut Draft) -> Result<T, E>) -> Result<T, E> {
        let writing = self.writing.lock();
        let mut draft = Draft::of(&self.current.load());
        let value = edit(&mut draft)?;
        draft.catalog.revision += u64::from(draft.changed);
        if draft.changed || draft.kept {
            self.schedule.plan(&draft.catalog);
            self.current.store(Arc::new(draft.catalog));
        }
        self.outbox.put(draft.events);
        drop(writing);
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
