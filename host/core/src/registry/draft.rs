//! The next state of the registry while it is made, with what will be told of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolbay_policy::name::PluginId;

use super::Registered;
use super::catalog::Catalog;
use super::entry::{Bundle, Collision, Entry, OnCollision, ReducerEntry};
use super::settings::Settings;
use crate::registry::event::Event;

pub(super) struct Draft {
    pub(super) catalog: Catalog,
    pub(super) events: Vec<Event>,
    pub(super) changed: bool,
    /// The tools that others took the place of.
    pub(super) old: Vec<Arc<Entry>>,
    /// It is to be kept, though nothing changed that anybody sees.
    pub(super) kept: bool,
}

impl Draft {
    pub(super) fn of(catalog: &Catalog) -> Self {
        Self { catalog: catalog.clone(), events: Vec::new(), changed: false, old: Vec::new(), kept: false }
    }

    /// Puts everything in, or stops at the first name that is taken: the draft is then of no use.
    pub(super) fn add(&mut self, bundle: Bundle, on_collision: OnCollision) -> Result<Registered, Collision> {
        let mut registered = Registered::default();
        for mut entry in bundle.tools {
            let name: Arc<str> = entry.def.name.as_str().into();
            match (self.catalog.tools.get(&name), entry.on_collision.unwrap_or(on_collision)) {
                (None, _) => registered.added.push(Arc::clone(&name)),
                (Some(there), OnCollision::Throw) => return Err(Collision::with_tool(there)),
                (Some(_), OnCollision::Keep) => {
                    registered.kept.push(name);
                    continue;
                }
                (Some(there), OnCollision::Replace) => {
                    registered.replaced.push(Arc::clone(&name));
                    let old = Arc::clone(there);
                    self.drop_own_reducer(&old);
                    self.old.push(old);
                }
            }
            self.catalog.settings.apply(&mut entry);
            self.catalog.tools.insert(name, Arc::new(entry));
            self.changed = true;
        }
        for reducer in bundle.reducers {
            if !registered.kept.iter().any(|kept| **kept == *reducer.target) {
                self.add_reducer(Arc::new(reducer), on_collision)?;
            }
        }
        Ok(registered)
    }

    pub(super) fn add_reducer(
        &mut self,
        reducer: Arc<ReducerEntry>,
        on_collision: OnCollision,
    ) -> Result<(), Collision> {
        match (self.catalog.reducers.get(&reducer.target), on_collision) {
            (Some(there), OnCollision::Throw) => return Err(Collision::with_reducer(there)),
            (Some(_), OnCollision::Keep) => return Ok(()),
            (None, _) | (Some(_), OnCollision::Replace) => {}
        }
        self.changed = true;
        self.catalog.reducers.insert(reducer.target.clone(), reducer);
        Ok(())
    }

    /// Takes tools out, each with the reducer that its own plugin has for it.
    pub(super) fn drop_tools(&mut self, goes: impl Fn(&Entry) -> bool) -> Vec<Arc<Entry>> {
        let gone: Vec<_> = self.catalog.tools().filter(|entry| goes(entry)).cloned().collect();
        for entry in &gone {
            self.catalog.tools.remove(entry.def.name.as_str());
            self.drop_own_reducer(entry);
        }
        self.changed |= !gone.is_empty();
        gone
    }

    /// Takes out all that a plugin brought, reducers for tools of others included; returns how many of those went.
    pub(super) fn drop_reducers_of(&mut self, plugin: &PluginId) -> usize {
        let before = self.catalog.reducers.len();
        self.catalog.reducers.retain(|_, reducer| reducer.owner.as_ref() != Some(plugin));
        let gone = before - self.catalog.reducers.len();
        self.changed |= gone > 0;
        gone
    }

    fn drop_own_reducer(&mut self, tool: &Entry) {
        let name = tool.def.name.as_str();
        let owner = self.catalog.reducers.get(name).and_then(|reducer| reducer.owner.as_ref());
        if owner.is_some() && owner == tool.def.source.plugin() {
            self.catalog.reducers.remove(name);
        }
    }

    /// Changes what is said of tools, and makes of those that `touches` means what is said of them now; tells who may be
    /// called and who may not any more. The edit returns tools that it changed by themselves.
    pub(super) fn set(
        &mut self,
        touches: impl Fn(&Entry) -> bool,
        edit: impl FnOnce(&mut Settings) -> Vec<Entry>,
    ) {
        let before = Arc::clone(&self.catalog.settings);
        let settings = Arc::make_mut(&mut self.catalog.settings);
        let mut edited: BTreeMap<Arc<str>, Entry> =
            edit(settings).into_iter().map(|entry| (entry.def.name.as_str().into(), entry)).collect();
        settings.tidy();
        self.changed |= before != self.catalog.settings || !edited.is_empty();
        let settings = Arc::clone(&self.catalog.settings);
        for (name, entry) in self.catalog.tools.iter_mut().filter(|(_, entry)| touches(entry)) {
            let mut next = edited.remove(name).unwrap_or_else(|| Entry::clone(entry));
            settings.apply(&mut next);
            self.events.extend(told(entry, &next));
            *entry = Arc::new(next);
        }
    }

    /// Tells of tools that came, went or were replaced, source by source.
    pub(super) fn tell(
        &mut self,
        tools: impl IntoIterator<Item = Arc<Entry>>,
        event: impl Fn(String, Vec<Arc<str>>) -> Event,
    ) {
        let mut sources: BTreeMap<String, Vec<Arc<str>>> = BTreeMap::new();
        for entry in tools {
            sources.entry(entry.def.source.label()).or_default().push(entry.def.name.as_str().into());
        }
        self.events.extend(sources.into_iter().map(|(source, tools)| event(source, tools)));
    }
}

/// What is to be told of a tool that settings changed.
fn told(old: &Entry, new: &Entry) -> Option<Event> {
    let tool = || Arc::from(new.def.name.as_str());
    match &new.availability.disabled {
        None if old.availability.disabled.is_some() => return Some(Event::Enabled { tool: tool() }),
        Some(reason) if old.availability.disabled != new.availability.disabled => {
            return Some(Event::Disabled { tool: tool(), reason: reason.to_string() });
        }
        None | Some(_) => {}
    }
    let same = old.tags() == new.tags()
        && old.flags == new.flags
        && old.def.title == new.def.title
        && old.def.description == new.def.description
        && old.def.keywords == new.def.keywords;
    (!same).then(|| Event::Metadata { tool: tool() })
}
