//! Entries of a registry for tests.

use std::sync::Arc;

use toolbay_policy::name::PluginId;

use crate::call::fixture::{FixedReducer, ScriptedTool};
use crate::registry::{Bundle, Collision, PluginUpdate, ReducerEntry, Registry, ToolEntry, UpdateChoice};
use crate::tool::ToolDef;
use crate::tool::fixture::{mcp_def, native_def, plugin_def};

fn entry(def: ToolDef) -> ToolEntry {
    let mut entry = ToolEntry::new(def, Arc::new(ScriptedTool::default()));
    entry.call.args_bytes = 10_000;
    entry
}

pub(crate) fn plugin_tool(plugin: &str, tool: &str) -> ToolEntry {
    entry(plugin_def(plugin, tool))
}

pub(crate) fn mcp_tool(server: &str, tool: &str) -> ToolEntry {
    entry(mcp_def(server, tool))
}

pub(crate) fn native_tool(tool: &str) -> ToolEntry {
    entry(native_def(tool))
}

pub(crate) fn reducer(target: &str, owner: Option<&str>) -> ReducerEntry {
    ReducerEntry {
        target: target.to_owned(),
        declared: target.to_owned(),
        owner: owner.map(|id| PluginId::new(id).unwrap()),
        reducer: Arc::new(FixedReducer(Ok(None))),
    }
}

/// Registers a plugin in place of its current version, completely or not at all.
pub(crate) fn install(registry: &Registry, plugin: &PluginId, bundle: Bundle) -> Result<(), Collision> {
    let choices = vec![UpdateChoice::Put(bundle), UpdateChoice::Keep];
    let placed = registry.update(&[], vec![PluginUpdate { plugin: plugin.clone(), choices }], None);
    registry.flush_events();
    placed.into_iter().flat_map(|one| one.refused).next().map_or(Ok(()), Err)
}

/// Removes a plugin.
pub(crate) fn remove(registry: &Registry, plugin: &PluginId) {
    registry.update(std::slice::from_ref(plugin), Vec::new(), None);
    registry.flush_events();
}
