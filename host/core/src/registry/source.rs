//! A source that brings its tools as a whole and may bring others later: another MCP server, an OpenAPI document.

use std::sync::Arc;

use super::entry::{Bundle, Entry, OnCollision};
use super::{Registered, Registry};
use crate::registry::event::Event;

impl Registry {
    /// Puts the tools of a source in, in place of those it brought before, as one change; `label` is what
    /// [`ToolSource::label`](crate::tool::ToolSource::label) says of each. A tool whose name something else has is left
    /// out, and named in the answer; so is a reducer for a tool that has one. Without tools the source is gone.
    pub fn replace_source(&self, label: &str, mut bundle: Bundle) -> Registered {
        self.ask_hooks(&mut bundle);
        self.always(|draft| {
            let is_own = |entry: &Entry| entry.def.source.label() == label;
            let before = draft.drop_tools(is_own);
            for entry in &before {
                let name = entry.def.name.as_str();
                if draft.catalog.reducers.get(name).is_some_and(|reducer| reducer.owner.is_none()) {
                    draft.catalog.reducers.remove(name);
                }
            }
            let registered = draft.add(bundle, OnCollision::Keep).unwrap_or_default();
            let now: Vec<Arc<Entry>> = draft.catalog.tools().filter(|entry| is_own(entry)).cloned().collect();
            let old = Some(&*before).filter(|tools| !tools.is_empty());
            let new = Some(&*now).filter(|tools| !tools.is_empty());
            draft.events.extend(Event::of_source(label.to_owned(), old, new));
            registered
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{mcp_tool, native_tool, reducer};

    fn names(registry: &Registry) -> Vec<String> {
        registry.snapshot().tools().map(|entry| entry.def.name.to_string()).collect()
    }

    #[test]
    fn a_source_is_replaced_whole_and_takes_no_name_of_others() {
        let registry = Registry::default();
        registry.register(native_tool("mcp__gh__taken")).unwrap();
        let first = vec![mcp_tool("gh", "a"), mcp_tool("gh", "taken")];
        let bundle = Bundle { tools: first, reducers: vec![reducer("mcp__gh__a", None)] };
        let registered = registry.replace_source("mcp:gh", bundle);
        assert_eq!((registered.added.len(), registered.kept), (1, vec!["mcp__gh__taken".into()]));
        assert!(registry.snapshot().reducer("mcp__gh__a").is_some());
        registry.replace_source("mcp:other", mcp_tool("other", "x").into());
        registry.replace_source("mcp:gh", mcp_tool("gh", "b").into());
        assert_eq!(names(&registry), ["mcp__gh__b", "mcp__gh__taken", "mcp__other__x"]);
        assert!(registry.snapshot().reducer("mcp__gh__a").is_none(), "its reducer went with it");
        registry.replace_source("mcp:gh", Bundle::default());
        assert_eq!(names(&registry), ["mcp__gh__taken", "mcp__other__x"]);
    }
}
