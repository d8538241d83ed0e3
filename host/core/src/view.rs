//! What one caller sees of the registry, and therefore may call: definitions and admission come from one object.
//!
//! An absent list means everything, an empty list means nothing (the seed's rule, and the one its users trip over).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::content::{ErrorCode, ToolError};
pub use crate::registry::Entry;
use crate::registry::{Catalog, ReducerEntry};

/// What is let through.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Qualified names; `None`: all.
    pub allowed_tools: Option<BTreeSet<String>>,
    /// Plugin ids; `None`: all. Native tools are not asked for a plugin.
    pub allowed_plugins: Option<BTreeSet<String>>,
    /// Qualified names that are out whatever else lets them in.
    pub exclude_tools: BTreeSet<String>,
}

/// A snapshot of the registry behind a filter. Cheap to make and to clone.
#[derive(Debug, Clone)]
pub struct View {
    catalog: Arc<Catalog>,
    filter: Arc<Filter>,
}

impl View {
    /// A view on one state of the registry. A filter that many views share is given as an `Arc`.
    #[must_use]
    pub fn new(catalog: Arc<Catalog>, filter: impl Into<Arc<Filter>>) -> Self {
        Self { catalog, filter: filter.into() }
    }

    /// The tools that may be called, in the order of their names.
    pub fn definitions(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.catalog.tools().filter(|entry| self.admit(entry).is_ok())
    }

    /// The tool of this name, if it may be called.
    ///
    /// # Errors
    /// The first gate it does not pass; the texts are the seed's.
    pub fn find(&self, name: &str) -> Result<&Arc<Entry>, ToolError> {
        match self.catalog.get(name) {
            Some(entry) => self.admit(entry).map(|()| entry),
            None => {
                let shown: String = name.chars().take(100).collect();
                Err(ToolError::new(ErrorCode::NotAvailable, format!("Unknown tool: {shown}")))
            }
        }
    }

    /// The gates, in the seed's order. This order is a security property: read it at one glance.
    fn admit(&self, entry: &Entry) -> Result<(), ToolError> {
        let name = entry.def.name.as_str();
        let refuse = |text: String| Err(ToolError::new(ErrorCode::NotAvailable, text));
        if self.filter.exclude_tools.contains(name) {
            return refuse(format!("Tool {name} is not available on this surface"));
        }
        if self.filter.allowed_tools.as_ref().is_some_and(|list| !list.contains(name)) {
            return refuse(format!("Tool {name} is not permitted for this personality"));
        }
        if let (Some(list), Some(plugin)) = (&self.filter.allowed_plugins, entry.def.source.plugin())
            && !list.contains(plugin.as_str())
        {
            return refuse(format!("Tool {name} is not permitted for this personality"));
        }
        if let Some(reason) = &entry.unavailable {
            return refuse(format!("Tool {name} is not currently available: {reason}"));
        }
        Ok(())
    }

    /// The reducer for results of this tool.
    #[must_use]
    pub fn reducer(&self, tool: &str) -> Option<&Arc<ReducerEntry>> {
        self.catalog.reducer(tool)
    }

    /// The state of the registry behind the view.
    #[must_use]
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Bundle, Registry};
    use crate::testing::{native_tool, plugin_tool};

    fn catalog() -> Arc<Catalog> {
        let registry = Registry::default();
        let mut broken = plugin_tool("q", "broken");
        broken.unavailable = Some("no grant".to_owned());
        let tools = vec![
            plugin_tool("p", "a"),
            plugin_tool("p", "b"),
            plugin_tool("q", "c"),
            broken,
            native_tool("n"),
        ];
        registry.register(Bundle { tools, reducers: vec![] }).unwrap();
        registry.snapshot()
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn filters_follow_the_rule_of_absent_and_empty() {
        let catalog = catalog();
        for (filter, expect) in [
            (Filter::default(), vec!["n", "p__a", "p__b", "q__c"]),
            (Filter { allowed_tools: Some(set(&[])), ..Filter::default() }, vec![]),
            (Filter { allowed_tools: Some(set(&["p__a", "q__broken"])), ..Filter::default() }, vec!["p__a"]),
            (Filter { allowed_plugins: Some(set(&[])), ..Filter::default() }, vec!["n"]),
            (
                Filter {
                    allowed_plugins: Some(set(&["p"])),
                    exclude_tools: set(&["p__a"]),
                    ..Filter::default()
                },
                vec!["n", "p__b"],
            ),
        ] {
            let view = View::new(Arc::clone(&catalog), filter);
            let seen: Vec<_> = view.definitions().map(|e| e.def.name.as_str()).collect();
            assert_eq!(seen, expect);
            for entry in catalog.tools() {
                let name = entry.def.name.as_str();
                assert_eq!(
                    view.find(name).is_ok(),
                    seen.contains(&name),
                    "definitions and admission agree on {name}"
                );
            }
        }
    }

    #[test]
    fn each_gate_has_the_seeds_text_and_order() {
        let filter = Filter {
            allowed_tools: Some(set(&["p__b", "q__broken", "q__c"])),
            allowed_plugins: Some(set(&["q"])),
            exclude_tools: set(&["q__c", "p__a"]),
        };
        let view = View::new(catalog(), filter);
        for (name, text) in [
            ("nope", "Unknown tool: nope"),
            ("q__c", "Tool q__c is not available on this surface"),
            ("p__a", "Tool p__a is not available on this surface"),
            ("p__b", "Tool p__b is not permitted for this personality"),
            ("n", "Tool n is not permitted for this personality"),
            ("q__broken", "Tool q__broken is not currently available: no grant"),
        ] {
            let error = view.find(name).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (ErrorCode::NotAvailable, text));
        }
    }
}
