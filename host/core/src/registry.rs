//! All tools and reducers that the host knows, as one snapshot that is swapped whole.
//!
//! Readers take an `Arc` of the catalog and keep it for as long as they like: a reload in the middle of a batch
//! changes nothing for that batch, and the old plugin lives until its last call drops it. Writers build the next
//! catalog and swap it in; a plugin enters whole or not at all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::invoke::Invoke;
use crate::name::PluginId;
use crate::reduce::Reduce;
use crate::tool::{ToolDef, ToolSource};

/// A tool with what runs it.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What the tool is.
    pub def: Arc<ToolDef>,
    /// What runs it.
    pub invoker: Arc<dyn Invoke>,
    /// Why it can not run here and now: a missing grant, for instance.
    pub unavailable: Option<String>,
    /// Most bytes of arguments.
    pub args_bytes: u64,
    /// Longest `value`, in characters: the operator's and the author's bounds together.
    pub result_chars: Option<u64>,
}

/// A reducer with the tool whose results it takes.
#[derive(Debug, Clone)]
pub struct ReducerEntry {
    /// Qualified name of the tool.
    pub target: String,
    /// The tool's name as the reducer declared it.
    pub declared: String,
    /// The plugin it belongs to.
    pub owner: Option<PluginId>,
    /// What runs it.
    pub reducer: Arc<dyn Reduce>,
}

/// Everything one source brings.
#[derive(Debug, Clone, Default)]
pub struct Bundle {
    /// Its tools.
    pub tools: Vec<Entry>,
    /// Its reducers.
    pub reducers: Vec<ReducerEntry>,
}

/// Two things of one name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Collision {
    /// A tool of this name is there.
    #[error("a tool `{name}` is already registered by {owner}")]
    Tool {
        /// The name.
        name: String,
        /// Who has it.
        owner: String,
    },
    /// The results of this tool already have a reducer.
    #[error("Reducer already registered for tool '{target}' by {owner}")]
    Reducer {
        /// The tool.
        target: String,
        /// Who has it.
        owner: String,
    },
}

/// One state of the registry. Tools are in the order of their names.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    revision: u64,
    tools: BTreeMap<Arc<str>, Arc<Entry>>,
    reducers: BTreeMap<String, Arc<ReducerEntry>>,
}

impl Catalog {
    /// The tool of this qualified name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.tools.get(name)
    }

    /// All tools, in the order of their names.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = &Arc<Entry>> {
        self.tools.values()
    }

    /// The reducer for results of this tool.
    #[must_use]
    pub fn reducer(&self, tool: &str) -> Option<&Arc<ReducerEntry>> {
        self.reducers.get(tool)
    }

    /// All reducers, in the order of their tools' names.
    pub fn reducers(&self) -> impl ExactSizeIterator<Item = &Arc<ReducerEntry>> {
        self.reducers.values()
    }

    /// Grows with each change.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    fn add(&mut self, bundle: Bundle) -> Result<(), Collision> {
        for entry in bundle.tools {
            let name: Arc<str> = entry.def.name.as_str().into();
            if let Some(old) = self.tools.get(&name) {
                return Err(Collision::Tool { name: name.to_string(), owner: owner_of(old) });
            }
            self.tools.insert(name, Arc::new(entry));
        }
        for reducer in bundle.reducers {
            if let Some(old) = self.reducers.get(&reducer.target) {
                let owner = shown(old.owner.as_ref());
                return Err(Collision::Reducer { target: reducer.target, owner });
            }
            self.reducers.insert(reducer.target.clone(), Arc::new(reducer));
        }
        Ok(())
    }

    fn drop_plugin(&mut self, plugin: &PluginId) -> usize {
        let before = self.tools.len() + self.reducers.len();
        self.tools.retain(|_, entry| entry.def.source.plugin() != Some(plugin));
        self.reducers.retain(|_, reducer| reducer.owner.as_ref() != Some(plugin));
        before - self.tools.len() - self.reducers.len()
    }
}

fn owner_of(entry: &Entry) -> String {
    match &entry.def.source {
        ToolSource::Builtin => shown(None),
        ToolSource::Plugin { id, .. } => shown(Some(id)),
    }
}

fn shown(owner: Option<&PluginId>) -> String {
    owner.map_or_else(|| "the host".to_owned(), |id| format!("plugin `{id}`"))
}

/// The registry.
#[derive(Debug, Default)]
pub struct Registry {
    current: ArcSwap<Catalog>,
    writing: Mutex<()>,
}

impl Registry {
    /// The state as it is now.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Catalog> {
        self.current.load_full()
    }

    /// Puts a plugin in, in place of what it brought before: whole, or not at all.
    ///
    /// # Errors
    /// A name that something else has.
    pub fn install(&self, plugin: &PluginId, bundle: Bundle) -> Result<(), Collision> {
        self.change(|catalog| {
            catalog.drop_plugin(plugin);
            catalog.add(bundle)
        })
    }

    /// Puts native tools in.
    ///
    /// # Errors
    /// A name that something else has.
    pub fn register(&self, bundle: Bundle) -> Result<(), Collision> {
        self.change(|catalog| catalog.add(bundle))
    }

    /// Takes a plugin out; returns how many tools and reducers went with it.
    pub fn remove(&self, plugin: &PluginId) -> usize {
        let mut removed = 0;
        let change: Result<(), Collision> = self.change(|catalog| {
            removed = catalog.drop_plugin(plugin);
            Ok(())
        });
        debug_assert!(change.is_ok());
        removed
    }

    fn change(&self, edit: impl FnOnce(&mut Catalog) -> Result<(), Collision>) -> Result<(), Collision> {
        let _one_writer = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = Catalog::clone(&self.current.load());
        edit(&mut next)?;
        next.revision += 1;
        self.current.store(Arc::new(next));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{plugin_tool, reducer};

    fn id(text: &str) -> PluginId {
        PluginId::new(text).unwrap()
    }

    fn names(catalog: &Catalog) -> Vec<&str> {
        catalog.tools().map(|e| e.def.name.as_str()).collect()
    }

    #[test]
    fn a_plugin_is_replaced_whole() {
        let registry = Registry::default();
        registry
            .install(
                &id("p"),
                Bundle { tools: vec![plugin_tool("p", "b"), plugin_tool("p", "a")], reducers: vec![] },
            )
            .unwrap();
        let before = registry.snapshot();
        registry.install(&id("p"), Bundle { tools: vec![plugin_tool("p", "c")], reducers: vec![] }).unwrap();
        assert_eq!(names(&before), ["p__a", "p__b"], "a snapshot does not change");
        assert_eq!(names(&registry.snapshot()), ["p__c"]);
        assert_eq!(registry.remove(&id("p")), 1);
        assert_eq!(registry.remove(&id("p")), 0);
    }

    #[test]
    fn a_collision_leaves_everything_as_it_was() {
        let registry = Registry::default();
        registry
            .install(
                &id("p"),
                Bundle { tools: vec![plugin_tool("p", "a")], reducers: vec![reducer("p__a", Some("p"))] },
            )
            .unwrap();
        let twice = Bundle { tools: vec![plugin_tool("q", "x"), plugin_tool("q", "x")], reducers: vec![] };
        assert!(matches!(registry.install(&id("q"), twice), Err(Collision::Tool { .. })));
        let second =
            Bundle { tools: vec![plugin_tool("q", "y")], reducers: vec![reducer("p__a", Some("q"))] };
        let error = registry.install(&id("q"), second).unwrap_err();
        assert_eq!(error.to_string(), "Reducer already registered for tool 'p__a' by plugin `p`");
        assert_eq!(names(&registry.snapshot()), ["p__a"]);
        assert_eq!(registry.snapshot().revision(), 1);
    }
}
