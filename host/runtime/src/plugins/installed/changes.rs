//! The changes between two snapshots, for reports and events.

use std::sync::Arc;

use toolbay_core::registry::Catalog;
use toolbay_core::registry::event::HostEvent;
use toolbay_core::tool::diff::{SourceDiff, ToolChange};
use toolbay_policy::name::PluginId;

use super::PluginSnapshot;
use crate::error::LoadError;
use crate::plugins::report::{ChangeKind, LoadProblem, LoadWarning, PluginChange};

/// The plugins that changed.
pub(super) fn plugin_changes(
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

/// The warnings of the plugins that changed.
pub(super) fn plugin_warnings(changes: &[PluginChange], after: &PluginSnapshot) -> Vec<LoadWarning> {
    let changed = changes.iter().filter_map(|change| after.plugins.get(&change.plugin));
    let warnings = changed.flat_map(|one| {
        let plugin = &one.plugin.id;
        one.warnings.iter().map(|message| LoadWarning { plugin: plugin.clone(), message: message.clone() })
    });
    warnings.collect()
}

/// The events beyond those of the registry. A problem is reported once, not at each pass.
pub(super) fn new_events(before: &PluginSnapshot, after: &PluginSnapshot) -> Vec<HostEvent> {
    let mut events = Vec::new();
    let is_new = |problem: &&LoadProblem| !before.problems.iter().any(|old| old.is_same_as(problem));
    for problem in after.problems.iter().filter(is_new) {
        let kept = problem.kept;
        events.push(match (&*problem.error, &problem.plugin) {
            (LoadError::ConsentRequired(reason), Some(plugin)) => {
                HostEvent::ConsentRequired { plugin: plugin.to_string(), reason: reason.clone(), kept }
            }
            (error, _) => HostEvent::NotLoaded {
                file: problem.file.display().to_string(),
                problem: error.to_string(),
                kept,
            },
        });
    }
    for (id, now) in &after.plugins {
        let was = before.plugins.get(id).and_then(|was| was.held.as_ref());
        if let Some(reason) = now.held.as_ref().filter(|reason| was != Some(*reason)) {
            events.push(HostEvent::ConsentRequired {
                plugin: id.to_string(),
                reason: reason.clone(),
                kept: false,
            });
        }
    }
    events
}
