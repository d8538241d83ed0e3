//! What is told of a change: in the report, as events.

use std::sync::Arc;

use toolbay_core::registry::Catalog;
use toolbay_core::registry::event::Event;
use toolbay_core::tool::diff::{SourceDiff, ToolChange};
use toolbay_policy::name::PluginId;

use super::PluginSnapshot;
use crate::error::LoadError;
use crate::plugins::report::{ChangeKind, LoadProblem, LoadWarning, PluginChange};

/// What is another one than before.
pub(super) fn changes(
    before: &PluginSnapshot,
    after: &PluginSnapshot,
    old: &Catalog,
    new: &Catalog,
) -> Vec<PluginChange> {
    let mut changes = Vec::new();
    for id in before.plugins.keys().filter(|id| !after.plugins.contains_key(*id)) {
        let kind = ChangeKind::Removed;
        changes.push(PluginChange { plugin: id.clone(), kind, tools: tool_changes(id, old, new) });
    }
    for (id, now) in &after.plugins {
        let (kind, tools) = match before.plugins.get(id) {
            Some(was) if Arc::ptr_eq(was, now) => continue,
            None => (ChangeKind::Added, Vec::new()),
            Some(was) if was.plugin.digest == now.plugin.digest => (ChangeKind::Regranted, Vec::new()),
            Some(_) => (ChangeKind::Replaced, tool_changes(id, old, new)),
        };
        changes.push(PluginChange { plugin: id.clone(), kind, tools });
    }
    changes
}

fn tool_changes(id: &PluginId, old: &Catalog, new: &Catalog) -> Vec<ToolChange> {
    let of = |catalog: &Catalog| {
        let own = catalog.tools().filter(|entry| entry.def.source.plugin() == Some(id));
        own.map(|entry| Arc::clone(&entry.def)).collect::<Vec<_>>()
    };
    let (old, new) = (of(old), of(new));
    SourceDiff::new(old.iter().map(|def| &**def), new.iter().map(|def| &**def)).changes()
}

/// What should be known of the plugins that were changed.
pub(super) fn warnings(changes: &[PluginChange], after: &PluginSnapshot) -> Vec<LoadWarning> {
    let changed = changes.iter().filter_map(|change| after.plugins.get(&change.plugin));
    let warnings = changed.flat_map(|one| {
        let plugin = &one.plugin.id;
        one.warnings.iter().map(|message| LoadWarning { plugin: plugin.clone(), message: message.clone() })
    });
    warnings.collect()
}

/// What is to be told besides what the registry tells. A problem is told once, not at each pass.
pub(super) fn news(before: &PluginSnapshot, after: &PluginSnapshot) -> Vec<Event> {
    let mut events = Vec::new();
    let is_new = |problem: &&LoadProblem| !before.problems.iter().any(|old| old.is(problem));
    for problem in after.problems.iter().filter(is_new) {
        let kept = problem.kept;
        events.push(match (&*problem.error, &problem.plugin) {
            (LoadError::Held(reason), Some(plugin)) => {
                Event::Held { plugin: plugin.to_string(), reason: reason.clone(), kept }
            }
            (error, _) => Event::NotLoaded {
                file: problem.file.display().to_string(),
                problem: error.to_string(),
                kept,
            },
        });
    }
    for (id, now) in &after.plugins {
        let was = before.plugins.get(id).and_then(|was| was.held.as_ref());
        if let Some(reason) = now.held.as_ref().filter(|reason| was != Some(*reason)) {
            events.push(Event::Held { plugin: id.to_string(), reason: reason.clone(), kept: false });
        }
    }
    events
}
