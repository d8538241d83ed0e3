//! Many plugins at once: what a directory or a policy came to, as one change of the registry.
//!
//! The order of the steps decides who gets a name that two want, so that the same files under the same policy give
//! the same catalog, whatever came first.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::Bound;
use std::sync::Arc;

use toolbay_policy::Profile;
use toolbay_policy::name::{PluginId, SEAM};

use super::Registry;
use super::catalog::Catalog;
use super::draft::Draft;
use super::entry::{Bundle, Collision, Entry, ReducerEntry};
use crate::registry::event::Event;

/// The profiles of a policy by name.
pub type Profiles = Arc<BTreeMap<Arc<str>, Arc<Profile>>>;

/// What one plugin is to come to.
#[derive(Debug)]
pub struct Step {
    /// The plugin.
    pub plugin: PluginId,
    /// The best first: the first that collides with nothing is taken.
    pub choices: Vec<Choice>,
}

/// One way in which a plugin can be in the next catalog.
#[derive(Debug)]
pub enum Choice {
    /// As it is now.
    Keep,
    /// With these tools and reducers, in place of what it brought before.
    Put(Bundle),
}

/// What became of a step.
#[derive(Debug)]
pub struct Placed {
    /// The plugin.
    pub plugin: PluginId,
    /// Index of the choice that was taken; `None`: the plugin brings nothing now.
    pub choice: Option<usize>,
    /// Why each choice before it was not, in their order.
    pub refused: Vec<Collision>,
}

/// What one plugin brings.
#[derive(Debug, Default)]
struct Part {
    tools: Vec<Arc<Entry>>,
    reducers: Vec<Arc<ReducerEntry>>,
}

impl From<Bundle> for Part {
    fn from(bundle: Bundle) -> Self {
        let mut tools: Vec<_> = bundle.tools.into_iter().map(Arc::new).collect();
        tools.sort_by(|a, b| a.def.name.as_str().cmp(b.def.name.as_str()));
        Self { tools, reducers: bundle.reducers.into_iter().map(Arc::new).collect() }
    }
}

impl Registry {
    /// Takes plugins out and puts others in, in the order of the steps, as one change: nobody sees a part of it. What
    /// stands in the registry beside these plugins stays, and has its names first. `profiles` are those of the policy
    /// from now on; `None`: the same as before. A change that changes nothing leaves the snapshot as it is.
    ///
    /// What is to be told waits for [`Registry::tell`], so that who holds a lock can let go of it first.
    pub fn update(&self, gone: &[PluginId], mut steps: Vec<Step>, profiles: Option<Profiles>) -> Vec<Placed> {
        for choice in steps.iter_mut().flat_map(|step| &mut step.choices) {
            if let Choice::Put(bundle) = choice {
                self.ask_hooks(bundle);
            }
        }
        let Ok(placed) = self.swap(|draft| Ok::<_, Infallible>(draft.update(gone, steps, profiles)));
        placed
    }
}

impl Draft {
    fn update(&mut self, gone: &[PluginId], steps: Vec<Step>, profiles: Option<Profiles>) -> Vec<Placed> {
        let named: BTreeSet<PluginId> =
            gone.iter().chain(steps.iter().map(|step| &step.plugin)).cloned().collect();
        let mut before = self.catalog.take(&named);
        for id in gone {
            if let Some(old) = before.remove(id) {
                self.changed = true;
                self.events.extend(told(id, Some(&old), None));
            }
        }
        let mut all = Vec::with_capacity(steps.len());
        for Step { plugin, choices } in steps {
            let old = before.remove(&plugin);
            let (placed, new, kept) = self.catalog.place(plugin, choices, old.as_ref());
            if !kept {
                self.changed |= old.is_some() || placed.choice.is_some();
                self.events.extend(told(&placed.plugin, old.as_ref(), new.as_ref()));
            }
            all.push(placed);
        }
        if let Some(profiles) = profiles {
            self.changed = true;
            self.catalog.profiles = profiles;
        }
        all
    }
}

impl Catalog {
    /// Takes out what these plugins bring.
    fn take(&mut self, plugins: &BTreeSet<PluginId>) -> BTreeMap<PluginId, Part> {
        let mut parts: BTreeMap<PluginId, Part> = BTreeMap::new();
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

    /// Puts the first choice in that collides with nothing; also says what that is, and whether the plugin is as it was.
    fn place(
        &mut self,
        plugin: PluginId,
        choices: Vec<Choice>,
        old: Option<&Part>,
    ) -> (Placed, Option<Part>, bool) {
        let mut placed = Placed { plugin, choice: None, refused: Vec::new() };
        for (index, choice) in choices.into_iter().enumerate() {
            let (part, keep) = match choice {
                Choice::Put(mut bundle) => {
                    bundle.tools.iter_mut().for_each(|entry| self.settings.apply(entry));
                    (Part::from(bundle), false)
                }
                Choice::Keep => (
                    old.map(|old| Part { tools: old.tools.clone(), reducers: old.reducers.clone() })
                        .unwrap_or_default(),
                    true,
                ),
            };
            // What stays was there before whatever else came under its id.
            match self.add_part(&part, (!keep).then_some(&placed.plugin)) {
                Ok(()) => {
                    placed.choice = Some(index);
                    return (placed, Some(part), keep);
                }
                Err(collision) => placed.refused.push(collision),
            }
        }
        (placed, None, false)
    }

    /// Another source's tools that stand under a plugin's id, as native ones of that namespace do.
    fn foreign_in(&self, plugin: &PluginId) -> Option<Collision> {
        let start = format!("{plugin}{SEAM}");
        let from = (Bound::Included(start.as_str()), Bound::Unbounded);
        let mut there = self.tools.range::<str, _>(from).take_while(|(name, _)| name.starts_with(&start));
        let (_, there) = there.find(|(_, entry)| entry.def.source.plugin() != Some(plugin))?;
        Some(Collision::Namespace { namespace: plugin.to_string(), owner: there.owner() })
    }

    /// Puts all of it in, or nothing; a plugin that is new, only where no other source is under its id.
    fn add_part(&mut self, part: &Part, new: Option<&PluginId>) -> Result<(), Collision> {
        let (mut names, mut targets) = (BTreeSet::new(), BTreeSet::new());
        for entry in &part.tools {
            let name = entry.def.name.as_str();
            if let Some(there) = self.tools.get(name).or_else(|| (!names.insert(name)).then_some(entry)) {
                return Err(Collision::with_tool(there));
            }
        }
        for reducer in &part.reducers {
            let target = reducer.target.as_str();
            let there = self.reducers.get(target);
            if let Some(there) = there.or_else(|| (!targets.insert(target)).then_some(reducer)) {
                return Err(Collision::with_reducer(there));
            }
        }
        if let Some(foreign) = new.and_then(|plugin| self.foreign_in(plugin)) {
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

/// What is to be told of a plugin that brought `old` and brings `new`.
fn told(plugin: &PluginId, old: Option<&Part>, new: Option<&Part>) -> Option<Event> {
    let label = new.or(old)?.tools.first().map(|entry| entry.def.source.label());
    let source = label.unwrap_or_else(|| format!("plugin:{plugin}"));
    Event::of_source(source, old.map(|part| &*part.tools), new.map(|part| &*part.tools))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::registry::event::Events;
    use crate::testing::{install, native_tool, plugin_tool, reducer};

    fn id(text: &str) -> PluginId {
        PluginId::new(text).unwrap()
    }

    fn bundle(plugin: &str, tool: &str, reduces: &[&str]) -> Bundle {
        Bundle {
            tools: vec![plugin_tool(plugin, tool)],
            reducers: reduces.iter().map(|target| reducer(target, Some(plugin))).collect(),
        }
    }

    fn put(plugin: &str, tool: &str, reduces: &[&str]) -> Step {
        Step { plugin: id(plugin), choices: vec![Choice::Put(bundle(plugin, tool, reduces))] }
    }

    fn keep(plugin: &str) -> Step {
        Step { plugin: id(plugin), choices: vec![Choice::Keep] }
    }

    fn names(registry: &Registry) -> Vec<String> {
        registry.snapshot().tools().map(|entry| entry.def.name.to_string()).collect()
    }

    #[test]
    fn all_steps_are_one_change_and_nothing_is_none() {
        let (events, heard) = (Events::default(), Arc::new(Mutex::new(Vec::new())));
        let hear = Arc::clone(&heard);
        events.listen(move |event| hear.lock().unwrap().push(event.clone()));
        let registry = Registry::new(events);
        registry.update(&[], vec![put("p", "a", &[]), put("q", "b", &[])], None);
        assert_eq!(
            (names(&registry), registry.snapshot().revision()),
            (vec!["p__a".into(), "q__b".into()], 1)
        );
        assert!(heard.lock().unwrap().is_empty(), "it waits");
        registry.tell();
        assert_eq!(std::mem::take(&mut *heard.lock().unwrap()).len(), 2);
        let before = registry.snapshot();
        registry.update(&[id("absent")], vec![keep("p"), keep("q")], None);
        registry.tell();
        assert!(heard.lock().unwrap().is_empty() && Arc::ptr_eq(&before, &registry.snapshot()));
        registry.update(&[id("q")], vec![put("p", "c", &[])], None);
        registry.tell();
        assert_eq!(names(&registry), ["p__c"]);
        assert!(matches!(
            heard.lock().unwrap().as_slice(),
            [Event::Unregistered { .. }, Event::Replaced { tools, .. }] if **tools == [Arc::from("p__c")]
        ));
        assert_eq!(before.tools().len(), 2, "a snapshot does not change");
    }

    #[test]
    fn hooks_and_switches_hold_for_what_comes_in() {
        let registry = Registry::default();
        registry.add_hook(|entry| (entry.def.name.bare() == "b").then(|| "no b".to_owned()));
        registry.update(&[], vec![put("p", "a", &[]), put("q", "b", &[])], None);
        let catalog = registry.snapshot();
        assert_eq!(catalog.get("p__a").unwrap().availability.disabled, None);
        assert_eq!(catalog.get("q__b").unwrap().availability.disabled.as_deref(), Some("no b"));
    }

    #[test]
    fn the_first_step_has_the_name_whoever_had_it_before() {
        let registry = Registry::default();
        registry.update(&[], vec![put("q", "b", &["p__a"])], None);
        let steps = || vec![put("p", "a", &["p__a"]), keep("q")];
        let placed = registry.update(&[], steps(), None);
        assert_eq!((placed[0].choice, placed[1].choice), (Some(0), None), "{placed:?}");
        assert!(matches!(placed[1].refused.as_slice(), [Collision::Reducer { .. }]));
        assert_eq!(names(&registry), ["p__a"], "a plugin is in whole or not at all");
        registry.register(native_tool("math__add")).unwrap();
        let placed = registry.update(&[], vec![put("math", "sub", &[])], None);
        assert!(matches!(placed[0].refused.as_slice(), [Collision::Namespace { .. }]), "{placed:?}");
        assert!(install(&registry, &id("math"), bundle("math", "sub", &[])).is_err());
        registry.unregister("math__add");
        let step = Step {
            plugin: id("p"),
            choices: vec![
                Choice::Put(Bundle { tools: vec![plugin_tool("p", "x"); 2], reducers: vec![] }),
                Choice::Keep,
            ],
        };
        let placed = registry.update(&[], vec![step], None);
        assert_eq!((placed[0].choice, placed[0].refused.len()), (Some(1), 1), "the second choice stands");
        assert_eq!(names(&registry), ["p__a"]);
    }
}
