//! Updates of many plugins, after a directory scan or a policy reload, as one change of the registry.
//!
//! If two plugins claim a name, the first update gets it. So the same files under the same policy always result in the
//! same catalog, in whatever order the files appeared.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::Bound;
use std::sync::Arc;

use toolbay_policy::name::{NAME_SEPARATOR, PluginId};

use super::catalog::{Catalog, ViewDefaults};
use super::draft::Draft;
use super::entry::{Bundle, Collision, ReducerEntry, ToolEntry};
use super::{Registry, schema_losses};
use crate::registry::event::HostEvent;

/// The update of one plugin.
#[derive(Debug)]
pub struct PluginUpdate {
    /// The plugin.
    pub plugin: PluginId,
    /// The choices by preference: the first without a collision is applied.
    pub choices: Vec<UpdateChoice>,
}

/// A possible state of a plugin in the next catalog.
#[derive(Debug)]
pub enum UpdateChoice {
    /// The current tools and reducers stay.
    Keep,
    /// These tools and reducers replace the current ones.
    Put(Bundle),
}

/// The outcome of a plugin update.
#[derive(Debug)]
pub struct UpdateOutcome {
    /// The plugin.
    pub plugin: PluginId,
    /// The index of the applied choice; `None` if the plugin has no tools and reducers now.
    pub choice: Option<usize>,
    /// The collisions of the earlier choices, in their order.
    pub refused: Vec<Collision>,
}

/// The tools and reducers of one plugin.
#[derive(Debug, Default)]
struct PluginContents {
    tools: Vec<Arc<ToolEntry>>,
    reducers: Vec<Arc<ReducerEntry>>,
}

impl From<Bundle> for PluginContents {
    fn from(bundle: Bundle) -> Self {
        let mut tools: Vec<_> = bundle.tools.into_iter().map(Arc::new).collect();
        tools.sort_by(|a, b| a.def.name.as_str().cmp(b.def.name.as_str()));
        Self { tools, reducers: bundle.reducers.into_iter().map(Arc::new).collect() }
    }
}

impl Registry {
    /// Removes the plugins in `removed` and applies the updates in order, as one atomic change. All other entries stay and
    /// keep their names. `defaults` replaces what the policy says about views, if given. An update without effect keeps
    /// the snapshot.
    ///
    /// The events wait for [`Registry::flush_events`], so that the caller can release its locks first.
    pub fn update(
        &self,
        removed: &[PluginId],
        mut steps: Vec<PluginUpdate>,
        defaults: Option<ViewDefaults>,
    ) -> Vec<UpdateOutcome> {
        for choice in steps.iter_mut().flat_map(|step| &mut step.choices) {
            if let UpdateChoice::Put(bundle) = choice {
                self.run_hooks(bundle);
            }
        }
        let Ok(outcomes) = self.commit(|draft| Ok::<_, Infallible>(draft.update(removed, steps, defaults)));
        outcomes
    }
}

impl Draft {
    fn update(
        &mut self,
        removed: &[PluginId],
        steps: Vec<PluginUpdate>,
        defaults: Option<ViewDefaults>,
    ) -> Vec<UpdateOutcome> {
        let named: BTreeSet<PluginId> =
            removed.iter().chain(steps.iter().map(|step| &step.plugin)).cloned().collect();
        let mut before = self.catalog.take_plugins(&named);
        for id in removed {
            if let Some(old) = before.remove(id) {
                self.changed = true;
                self.events.extend(plugin_event(id, Some(&old), None));
            }
        }
        let mut outcomes = Vec::with_capacity(steps.len());
        for PluginUpdate { plugin, choices } in steps {
            let old = before.remove(&plugin);
            let (outcome, new, is_kept) = self.catalog.apply_choices(plugin, choices, old.as_ref());
            if !is_kept {
                self.changed |= old.is_some() || outcome.choice.is_some();
                self.events.extend(plugin_event(&outcome.plugin, old.as_ref(), new.as_ref()));
            }
            outcomes.push(outcome);
        }
        if let Some(defaults) = defaults {
            self.changed = true;
            self.catalog.view_defaults = defaults;
        }
        outcomes
    }
}

impl Catalog {
    /// Removes and returns the contents of these plugins.
    fn take_plugins(&mut self, plugins: &BTreeSet<PluginId>) -> BTreeMap<PluginId, PluginContents> {
        let mut parts: BTreeMap<PluginId, PluginContents> = BTreeMap::new();
        self.tools.retain(|_, entry| match entry.def.source.plugin() {
            Some(id) if plugins.contains(id) => {
                parts.entry(id.clone()).or_default().tools.push(Arc::clone(entry));
                false
            }
            _ => true,
        });
        self.reducers.retain(|_, reducer| match &reducer.owner {
            Some(id) if plugins.contains(id) => {
                parts.entry(id.clone()).or_default().reducers.push(Arc::clone(reducer));
                false
            }
            _ => true,
        });
        parts
    }

    /// Applies the first choice without a collision. Also returns the new contents, and whether they are the old ones.
    fn apply_choices(
        &mut self,
        plugin: PluginId,
        choices: Vec<UpdateChoice>,
        old: Option<&PluginContents>,
    ) -> (UpdateOutcome, Option<PluginContents>, bool) {
        let mut outcome = UpdateOutcome { plugin, choice: None, refused: Vec::new() };
        for (index, choice) in choices.into_iter().enumerate() {
            let (part, keep) = match choice {
                UpdateChoice::Put(mut bundle) => {
                    bundle.tools.iter_mut().for_each(|entry| self.settings.apply(entry));
                    (PluginContents::from(bundle), false)
                }
                UpdateChoice::Keep => (
                    old.map(|old| PluginContents {
                        tools: old.tools.clone(),
                        reducers: old.reducers.clone(),
                    })
                    .unwrap_or_default(),
                    true,
                ),
            };
            // Contents that stay are older than any other source in the namespace.
            match self.add_contents(&part, (!keep).then_some(&outcome.plugin)) {
                Ok(()) => {
                    outcome.choice = Some(index);
                    return (outcome, Some(part), keep);
                }
                Err(collision) => outcome.refused.push(collision),
            }
        }
        (outcome, None, false)
    }

    /// The collision with a tool of another source in the plugin's namespace, such as a native tool.
    fn find_foreign_tool(&self, plugin: &PluginId) -> Option<Collision> {
        let start = format!("{plugin}{NAME_SEPARATOR}");
        let from = (Bound::Included(start.as_str()), Bound::Unbounded);
        let mut registered =
            self.tools.range::<str, _>(from).take_while(|(name, _)| name.starts_with(&start));
        let (_, registered) = registered.find(|(_, entry)| entry.def.source.plugin() != Some(plugin))?;
        Some(Collision::Namespace { namespace: plugin.to_string(), owner: registered.owner() })
    }

    /// Adds all contents, or nothing. If `new` is set, the namespace of that plugin must not have tools of other
    /// sources.
    fn add_contents(&mut self, part: &PluginContents, new: Option<&PluginId>) -> Result<(), Collision> {
        let (mut names, mut targets) = (BTreeSet::new(), BTreeSet::new());
        for entry in &part.tools {
            let name = entry.def.name.as_str();
            if let Some(registered) = self.tools.get(name).or_else(|| (!names.insert(name)).then_some(entry))
            {
                return Err(Collision::with_tool(registered));
            }
        }
        for reducer in &part.reducers {
            let target = reducer.target.as_str();
            let registered = self.reducers.get(target);
            if let Some(registered) = registered.or_else(|| (!targets.insert(target)).then_some(reducer)) {
                return Err(Collision::with_reducer(registered));
            }
        }
        if let Some(foreign) = new.and_then(|plugin| self.find_foreign_tool(plugin)) {
            return Err(foreign);
        }
        for entry in &part.tools {
            self.tools.insert(entry.def.name.as_str().into(), Arc::clone(entry));
        }
        for reducer in &part.reducers {
            self.reducers.insert(reducer.target.clone(), Arc::clone(reducer));
        }
        Ok(())
    }
}

/// The event for a plugin whose contents change from `old` to `new`.
fn plugin_event(
    plugin: &PluginId,
    old: Option<&PluginContents>,
    new: Option<&PluginContents>,
) -> Option<HostEvent> {
    let label = new.or(old)?.tools.first().map(|entry| entry.def.source.label());
    let source = label.unwrap_or_else(|| format!("plugin:{plugin}"));
    let (old, new) = (old.map(|part| &*part.tools), new.map(|part| &*part.tools));
    schema_losses::log_change(&source, old, new);
    HostEvent::from_source_change(source, old, new)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::registry::event::Events;
    use crate::registry::fixture::{install, native_tool, plugin_tool, reducer};

    fn id(text: &str) -> PluginId {
        PluginId::new(text).unwrap()
    }

    fn bundle(plugin: &str, tool: &str, reduces: &[&str]) -> Bundle {
        Bundle {
            tools: vec![plugin_tool(plugin, tool)],
            reducers: reduces.iter().map(|target| reducer(target, Some(plugin))).collect(),
        }
    }

    fn put(plugin: &str, tool: &str, reduces: &[&str]) -> PluginUpdate {
        PluginUpdate { plugin: id(plugin), choices: vec![UpdateChoice::Put(bundle(plugin, tool, reduces))] }
    }

    fn keep(plugin: &str) -> PluginUpdate {
        PluginUpdate { plugin: id(plugin), choices: vec![UpdateChoice::Keep] }
    }

    fn names(registry: &Registry) -> Vec<String> {
        registry.snapshot().tools().map(|entry| entry.def.name.to_string()).collect()
    }

    #[test]
    fn all_updates_are_one_change_and_an_empty_update_is_none() {
        let (events, heard) = (Events::default(), Arc::new(Mutex::new(Vec::new())));
        let hear = Arc::clone(&heard);
        events.listen(move |event| hear.lock().unwrap().push(event.clone()));
        let registry = Registry::new(events);
        registry.update(&[], vec![put("p", "a", &[]), put("q", "b", &[])], None);
        assert_eq!(
            (names(&registry), registry.snapshot().revision()),
            (vec!["p__a".into(), "q__b".into()], 1)
        );
        assert!(heard.lock().unwrap().is_empty(), "the events wait for `flush_events`");
        registry.flush_events();
        assert_eq!(std::mem::take(&mut *heard.lock().unwrap()).len(), 2);
        let before = registry.snapshot();
        registry.update(&[id("absent")], vec![keep("p"), keep("q")], None);
        registry.flush_events();
        assert!(heard.lock().unwrap().is_empty() && Arc::ptr_eq(&before, &registry.snapshot()));
        registry.update(&[id("q")], vec![put("p", "c", &[])], None);
        registry.flush_events();
        assert_eq!(names(&registry), ["p__c"]);
        assert!(matches!(
            heard.lock().unwrap().as_slice(),
            [HostEvent::Unregistered { .. }, HostEvent::Replaced { tools, .. }] if **tools == [Arc::from("p__c")]
        ));
        assert_eq!(before.tools().len(), 2, "a snapshot does not change");
    }

    #[test]
    fn hooks_apply_to_updated_plugins() {
        let registry = Registry::default();
        registry.add_hook(|entry| (entry.def.name.tool_part() == "b").then(|| "no b".to_owned()));
        registry.update(&[], vec![put("p", "a", &[]), put("q", "b", &[])], None);
        let catalog = registry.snapshot();
        assert_eq!(catalog.get("p__a").unwrap().availability.disabled, None);
        assert_eq!(catalog.get("q__b").unwrap().availability.disabled.as_deref(), Some("no b"));
    }

    #[test]
    fn the_first_update_gets_a_name_that_two_plugins_claim() {
        let registry = Registry::default();
        registry.update(&[], vec![put("q", "b", &["p__a"])], None);
        let steps = || vec![put("p", "a", &["p__a"]), keep("q")];
        let placed = registry.update(&[], steps(), None);
        assert_eq!((placed[0].choice, placed[1].choice), (Some(0), None), "{placed:?}");
        assert!(matches!(placed[1].refused.as_slice(), [Collision::Reducer { .. }]));
        assert_eq!(names(&registry), ["p__a"], "a plugin enters completely or not at all");
        registry.register(native_tool("math__add")).unwrap();
        let placed = registry.update(&[], vec![put("math", "sub", &[])], None);
        assert!(matches!(placed[0].refused.as_slice(), [Collision::Namespace { .. }]), "{placed:?}");
        assert!(install(&registry, &id("math"), bundle("math", "sub", &[])).is_err());
        registry.unregister("math__add");
        let step = PluginUpdate {
            plugin: id("p"),
            choices: vec![
                UpdateChoice::Put(Bundle { tools: vec![plugin_tool("p", "x"); 2], reducers: vec![] }),
                UpdateChoice::Keep,
            ],
        };
        let placed = registry.update(&[], vec![step], None);
        assert_eq!((placed[0].choice, placed[0].refused.len()), (Some(1), 1), "the second choice is applied");
        assert_eq!(names(&registry), ["p__a"]);
    }
}
