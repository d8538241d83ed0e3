//! The sources of tools: replacement of all tools of an MCP server or an OpenAPI document, the state of a source without
//! tools, and tools that a source could not register.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolbay_policy::refusal::PolicyRefusal;

use super::entry::{Bundle, OnCollision, ToolEntry};
use super::source_state::{AbsentSource, SourceState};
use super::{RegistrationResult, Registry, schema_losses};
use crate::registry::event::HostEvent;

impl Registry {
    /// Replaces the tools and reducers of a source, as one change. `label` is the
    /// [label](crate::tool::ToolSource::label) of the tools. A tool whose name is taken is skipped and listed in the
    /// result; a reducer for a tool that already has one is skipped as well. An empty bundle removes the source.
    pub fn replace_source(&self, label: &str, mut bundle: Bundle) -> RegistrationResult {
        self.run_hooks(&mut bundle);
        self.change(|draft| {
            let is_own = |entry: &ToolEntry| entry.def.source.label() == label;
            let before = draft.remove_tools(is_own);
            for entry in &before {
                let name = entry.def.name.as_str();
                if draft.catalog.reducers.get(name).is_some_and(|reducer| reducer.owner.is_none()) {
                    draft.catalog.reducers.remove(name);
                }
            }
            let registered = draft.add(bundle, OnCollision::Keep).unwrap_or_default();
            let now: Vec<Arc<ToolEntry>> =
                draft.catalog.tools().filter(|entry| is_own(entry)).cloned().collect();
            let old = Some(&*before).filter(|tools| !tools.is_empty());
            let new = Some(&*now).filter(|tools| !tools.is_empty());
            schema_losses::log_change(label, old, new);
            draft.events.extend(HostEvent::from_source_change(label.to_owned(), old, new));
            registered
        })
    }

    /// Sets the state of a source without tools. `None` means that the source has tools or was removed. The names of
    /// its tools begin with `namespace`.
    pub fn set_source_state(&self, namespace: &str, label: &str, state: Option<SourceState>) {
        if self.snapshot().absent.get(namespace).map(|source| source.state) == state {
            return;
        }
        self.change(|draft| {
            draft.silent_change = true;
            match state {
                None => drop(draft.catalog.absent.remove(namespace)),
                Some(state) => {
                    let source = AbsentSource { label: label.into(), state };
                    draft.catalog.absent.insert(namespace.into(), source);
                }
            }
        });
    }

    /// Sets the tools that a source could not register, by qualified name, each with the reason. `label` is the
    /// [label](crate::tool::ToolSource::label) of the source. Views do not list them. An empty map removes the earlier
    /// entries.
    pub fn set_left_out(&self, label: &str, tools: BTreeMap<String, PolicyRefusal>) {
        self.change(|draft| {
            draft.silent_change = true;
            match tools.is_empty() {
                true => drop(draft.catalog.left_out.remove(label)),
                false => drop(draft.catalog.left_out.insert(label.into(), Arc::new(tools))),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::fixture::{mcp_tool, native_tool, reducer};

    fn names(registry: &Registry) -> Vec<String> {
        registry.snapshot().tools().map(|entry| entry.def.name.to_string()).collect()
    }

    #[test]
    fn a_source_is_replaced_completely_without_taking_names_of_others() {
        let registry = Registry::default();
        registry.register(native_tool("mcp__gh__taken")).unwrap();
        let first = vec![mcp_tool("gh", "a"), mcp_tool("gh", "taken")];
        let bundle = Bundle { tools: first, reducers: vec![reducer("mcp__gh__a", None)] };
        let registered = registry.replace_source("mcp:gh", bundle);
        assert_eq!((registered.added.len(), registered.skipped), (1, vec!["mcp__gh__taken".into()]));
        assert!(registry.snapshot().reducer("mcp__gh__a").is_some());
        registry.replace_source("mcp:other", mcp_tool("other", "x").into());
        registry.replace_source("mcp:gh", mcp_tool("gh", "b").into());
        assert_eq!(names(&registry), ["mcp__gh__b", "mcp__gh__taken", "mcp__other__x"]);
        assert!(registry.snapshot().reducer("mcp__gh__a").is_none(), "the reducer was removed with its tool");
        registry.replace_source("mcp:gh", Bundle::default());
        assert_eq!(names(&registry), ["mcp__gh__taken", "mcp__other__x"]);
    }
}
