//! A draft of the next catalog, with the events of its changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::RegistrationResult;
use super::catalog::Catalog;
use super::entry::{Bundle, Collision, OnCollision, ReducerEntry, ToolEntry};
use super::settings::RegistrySettings;
use crate::registry::event::HostEvent;

pub(super) struct Draft {
    pub(super) catalog: Catalog,
    pub(super) events: Vec<HostEvent>,
    pub(super) changed: bool,
    /// The tools that were replaced.
    pub(super) replaced: Vec<Arc<ToolEntry>>,
    /// Whether to store the draft although no visible property changed.
    pub(super) silent_change: bool,
}

impl Draft {
    pub(super) fn from_catalog(catalog: &Catalog) -> Self {
        Self {
            catalog: catalog.clone(),
            events: Vec::new(),
            changed: false,
            replaced: Vec::new(),
            silent_change: false,
        }
    }

    /// Adds everything. After an error the draft must be dropped, since it is incomplete.
    pub(super) fn add(
        &mut self,
        bundle: Bundle,
        on_collision: OnCollision,
    ) -> Result<RegistrationResult, Collision> {
        let mut registered = RegistrationResult::default();
        for mut entry in bundle.tools {
            let name: Arc<str> = entry.def.name.as_str().into();
            match (self.catalog.tools.get(&name), entry.on_collision.unwrap_or(on_collision)) {
                (None, _) => registered.added.push(Arc::clone(&name)),
                (Some(there), OnCollision::Fail) => return Err(Collision::with_tool(there)),
                (Some(_), OnCollision::Keep) => {
                    registered.skipped.push(name);
                    continue;
                }
                (Some(there), OnCollision::Replace) => {
                    registered.replaced.push(Arc::clone(&name));
                    let old = Arc::clone(there);
                    self.remove_own_reducer(&old);
                    self.replaced.push(old);
                }
            }
            self.catalog.settings.apply(&mut entry);
            self.catalog.tools.insert(name, Arc::new(entry));
            self.changed = true;
        }
        for reducer in bundle.reducers {
            if !registered.skipped.iter().any(|kept| **kept == *reducer.target) {
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
            (Some(there), OnCollision::Fail) => return Err(Collision::with_reducer(there)),
            (Some(_), OnCollision::Keep) => return Ok(()),
            (None, _) | (Some(_), OnCollision::Replace) => {}
        }
        self.changed = true;
        self.catalog.reducers.insert(reducer.target.clone(), reducer);
        Ok(())
    }

    /// Removes tools, each with the reducer of its own plugin.
    pub(super) fn remove_tools(&mut self, is_removed: impl Fn(&ToolEntry) -> bool) -> Vec<Arc<ToolEntry>> {
        let removed: Vec<_> = self.catalog.tools().filter(|entry| is_removed(entry)).cloned().collect();
        for entry in &removed {
            self.catalog.tools.remove(entry.def.name.as_str());
            self.remove_own_reducer(entry);
        }
        self.changed |= !removed.is_empty();
        removed
    }

    /// Removes tools, and queues one event for each of their sources. Returns the number of removed tools.
    pub(super) fn unregister_tools(&mut self, is_removed: impl Fn(&ToolEntry) -> bool) -> usize {
        let removed = self.remove_tools(is_removed);
        let count = removed.len();
        for (source, tools) in group_by_source(removed) {
            self.events.extend(HostEvent::from_source_change(source, Some(&tools), None));
        }
        count
    }

    fn remove_own_reducer(&mut self, tool: &ToolEntry) {
        let name = tool.def.name.as_str();
        let owner = self.catalog.reducers.get(name).and_then(|reducer| reducer.owner.as_ref());
        if owner.is_some() && owner == tool.def.source.plugin() {
            self.catalog.reducers.remove(name);
        }
    }

    /// Edits the settings and applies them to the tools that `touches` selects. It queues an event for each tool that
    /// changes. `edit` returns the tools that it changed itself.
    pub(super) fn update_settings(
        &mut self,
        touches: impl Fn(&ToolEntry) -> bool,
        edit: impl FnOnce(&mut RegistrySettings) -> Vec<ToolEntry>,
    ) {
        let before = Arc::clone(&self.catalog.settings);
        let settings = Arc::make_mut(&mut self.catalog.settings);
        let mut edited: BTreeMap<Arc<str>, ToolEntry> =
            edit(settings).into_iter().map(|entry| (entry.def.name.as_str().into(), entry)).collect();
        settings.remove_empty();
        self.changed |= before != self.catalog.settings || !edited.is_empty();
        let settings = Arc::clone(&self.catalog.settings);
        for (name, entry) in self.catalog.tools.iter_mut().filter(|(_, entry)| touches(entry)) {
            let mut next = edited.remove(name).unwrap_or_else(|| ToolEntry::clone(entry));
            settings.apply(&mut next);
            self.events.extend(settings_event(entry, &next));
            *entry = Arc::new(next);
        }
    }
}

/// The tools of each source, by its label.
pub(super) fn group_by_source(tools: Vec<Arc<ToolEntry>>) -> BTreeMap<String, Vec<Arc<ToolEntry>>> {
    let mut sources: BTreeMap<String, Vec<Arc<ToolEntry>>> = BTreeMap::new();
    for entry in tools {
        sources.entry(entry.def.source.label()).or_default().push(entry);
    }
    sources
}

/// The event of a tool that settings changed.
fn settings_event(old: &ToolEntry, new: &ToolEntry) -> Option<HostEvent> {
    let tool = || Arc::from(new.def.name.as_str());
    match &new.availability.disabled {
        None if old.availability.disabled.is_some() => return Some(HostEvent::Enabled { tool: tool() }),
        Some(reason) if old.availability.disabled != new.availability.disabled => {
            return Some(HostEvent::Disabled { tool: tool(), reason: reason.to_string() });
        }
        None | Some(_) => {}
    }
    let is_same = old.tags() == new.tags()
        && old.flags == new.flags
        && old.def.title == new.def.title
        && old.def.description == new.def.description
        && old.def.keywords == new.def.keywords;
    (!is_same).then(|| HostEvent::Metadata { tool: tool() })
}
