//! What runs: made from what was found and from the policy, always in the same way, and swapped in as one change.
//!
//! For each plugin there is what its file comes to now and what runs under its id. The new version takes the old one's
//! place only if it can be had whole: if it is broken, is not the one the operator pinned, collides, or would get more
//! than was agreed to, the old version goes on and the reason is told. What was given to the host plugin by plugin
//! comes before what directories hold; directories come in the order in which they were first loaded, their files in
//! the order of their names. So the same files under the same policy give the same catalog, whatever came first; only
//! a version that goes on because its file is broken now would not be there after a fresh start.

mod news;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use toolbay_core::registry::event::Event;
use toolbay_core::registry::{Bundle, Registry};
use toolbay_policy::Policy;
use toolbay_policy::name::{self, PluginId};

use crate::capability::Services;
use crate::engine::Metering;
use crate::error::LoadError;
use crate::plugins::loader::Loader;
use crate::plugins::plugin::{Plugin, Shared};
use crate::plugins::report::{LoadProblem, LoadReport, LoadWarning};
use crate::storage::consent::Keeper;
use news::{changes, news, warnings};
use plan::{Plan, refusals};

/// What a file comes to.
pub(crate) type Outcome = Result<Arc<Plugin>, Arc<LoadError>>;

/// A place for one plugin.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) file: Option<Arc<Path>>,
    pub(crate) id: Result<PluginId, Arc<LoadError>>,
    /// `None`: it is not known yet.
    pub(crate) outcome: Option<Outcome>,
}

/// A plugin that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) plugin: Arc<Plugin>,
    /// What it was joined with.
    services: Arc<Services>,
    /// Why none of its tools can be called.
    held: Option<String>,
    warnings: Vec<String>,
}

impl Running {
    /// What bounds it as a whole.
    pub(crate) fn metering(&self) -> Metering {
        Metering::of(&self.services.policy.limits(&self.plugin.id, None))
    }
}

/// A plugin that is joined with what it may, and can be put in.
#[derive(Debug)]
struct Ready {
    running: Arc<Running>,
    bundle: Bundle,
}

/// What runs, and what does not.
#[derive(Debug, Default, Clone)]
pub(crate) struct Loaded {
    pub(crate) plugins: BTreeMap<PluginId, Arc<Running>>,
    /// Their ids in the order of their files.
    pub(crate) order: Vec<PluginId>,
    pub(crate) problems: Vec<LoadProblem>,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// What was given plugin by plugin.
    single: Vec<Slot>,
    /// What directories hold.
    directories: Vec<(PathBuf, Vec<Slot>)>,
    /// What was taken out by hand, until its file holds something else.
    taken_out: BTreeMap<PluginId, Arc<Plugin>>,
    /// What is ready and not in.
    waiting: BTreeMap<PluginId, Arc<Ready>>,
    /// What is ready is put in while other files are still read for the first time.
    reading: bool,
}

/// What runs, and how it comes to run.
pub(crate) struct Installed {
    pub(crate) shared: Arc<Shared>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) registry: Arc<Registry>,
    services: ArcSwap<Services>,
    loaded: ArcSwap<Loaded>,
    found: Mutex<Found>,
}

impl Slot {
    /// Whether it comes to the same as another one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let id = match (&self.id, &other.id) {
            (Ok(one), Ok(other)) => one == other,
            (Err(one), Err(other)) => one.to_string() == other.to_string(),
            _ => false,
        };
        let outcome = match (&self.outcome, &other.outcome) {
            (Some(Ok(one)), Some(Ok(other))) => Arc::ptr_eq(one, other),
            (Some(Err(one)), Some(Err(other))) => {
                Arc::ptr_eq(one, other) || one.to_string() == other.to_string()
            }
            (None, None) => true,
            _ => false,
        };
        id && outcome && self.file == other.file
    }
}

/// Why things are put in order again.
#[derive(Debug, Clone)]
pub(crate) enum Why {
    /// Something else was found.
    Found,
    /// What is held may have been agreed to.
    Agreed,
    /// The policy is another one.
    Policy(Arc<Services>),
}

impl Why {
    /// Whether it asks for a new judgement where nothing else was found.
    pub(crate) fn judges(&self) -> bool {
        !matches!(self, Self::Found)
    }
}

impl Installed {
    pub(crate) fn new(
        shared: Arc<Shared>,
        services: Services,
        keeper: Arc<Keeper>,
        registry: Registry,
    ) -> Self {
        let registry = Arc::new(registry);
        registry.update(&[], Vec::new(), Some(services.policy.all_profiles()));
        Self {
            shared,
            keeper,
            registry,
            services: ArcSwap::from_pointee(services),
            loaded: ArcSwap::default(),
            found: Mutex::default(),
        }
    }

    pub(crate) fn services(&self) -> Arc<Services> {
        self.services.load_full()
    }

    pub(crate) fn loaded(&self) -> Arc<Loaded> {
        self.loaded.load_full()
    }

    /// What makes plugins under the policy that holds now.
    pub(crate) fn loader(&self) -> Loader {
        self.loader_under(self.services())
    }

    /// What makes plugins under another policy.
    pub(crate) fn loader_under(&self, services: Arc<Services>) -> Loader {
        Loader { shared: Arc::clone(&self.shared), services, keeper: Arc::clone(&self.keeper), runtime: None }
    }

    /// Puts what directories hold in the place of what they held before, and in order. Blocks on folders and consents.
    pub(crate) fn place(&self, directories: Vec<(PathBuf, Vec<Slot>)>, why: &Why) -> LoadReport {
        let mut found = self.found();
        found.directories = directories;
        let (report, events) = self.order(&mut found, why, true);
        drop(found);
        self.tell(&report, events);
        report
    }

    /// Puts one plugin in, in place of what its id had before. Blocks on folders and consents.
    ///
    /// # Errors
    /// Why it can not be; what the id had before then stays.
    pub(crate) fn put(
        &self,
        file: Option<Arc<Path>>,
        plugin: &Arc<Plugin>,
    ) -> Result<Vec<LoadWarning>, LoadError> {
        let id = plugin.id.clone();
        let mut found = self.found();
        let before = found.single.clone();
        found.single.retain(|slot| slot.id.as_ref().ok() != Some(&id));
        found.single.push(Slot { file, id: Ok(id.clone()), outcome: Some(Ok(Arc::clone(plugin))) });
        let (mut report, events) = self.order(&mut found, &Why::Found, true);
        let runs = self.loaded().plugins.get(&id).is_some_and(|one| Arc::ptr_eq(&one.plugin, plugin));
        if !runs {
            found.single = before;
            found.waiting.remove(&id);
            let mut loaded = Loaded::clone(&self.loaded());
            loaded.problems.retain(|problem| problem.plugin.as_ref() != Some(&id));
            self.loaded.store(Arc::new(loaded));
        }
        drop(found);
        let failed = report.problems.iter().position(|problem| problem.plugin.as_ref() == Some(&id));
        let failed = failed.filter(|_| !runs).map(|at| report.problems.swap_remove(at).error);
        self.tell(&report, events);
        match failed {
            Some(error) => {
                Err(Arc::try_unwrap(error).unwrap_or_else(|error| LoadError::Host(error.to_string())))
            }
            None => Ok(report.warnings.into_iter().filter(|warning| warning.plugin == id).collect()),
        }
    }

    /// Takes a plugin out; returns whether it was there.
    pub(crate) fn take_out(&self, id: &PluginId) -> bool {
        let mut found = self.found();
        let Some(running) = self.loaded().plugins.get(id).cloned() else { return false };
        found.single.retain(|slot| slot.id.as_ref().ok() != Some(id));
        found.taken_out.insert(id.clone(), Arc::clone(&running.plugin));
        let (report, events) = self.order(&mut found, &Why::Found, false);
        drop(found);
        self.tell(&report, events);
        true
    }

    /// The ids of all plugins that there are, loaded or not. `None`: no directory was loaded, and no plugin given.
    pub(crate) fn offered(&self) -> Option<BTreeSet<PluginId>> {
        let found = self.found();
        let looked = !(found.single.is_empty() && found.directories.is_empty());
        let slots = found.single.iter().chain(found.directories.iter().flat_map(|(_, slots)| slots));
        looked.then(|| slots.filter_map(|slot| slot.id.as_ref().ok()).cloned().collect())
    }

    /// Notes whether files are still read for the first time while others are put in.
    pub(crate) fn set_reading(&self, reading: bool) {
        self.found().reading = reading;
    }

    /// Lets plugins in again that were taken out by hand.
    pub(crate) fn forget_taken_out(&self) {
        self.found().taken_out.clear();
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one way from what was found to what runs. What is to be told comes back: no lock may be held then. With
    /// `asks`, plugins that are new are asked what of them is available: that blocks, and is not for an async thread.
    fn order(&self, found: &mut Found, why: &Why, asks: bool) -> (LoadReport, Vec<Event>) {
        let mut profiles = None;
        if let Why::Policy(services) = why {
            profiles = Some(services.policy.all_profiles());
            self.services.store(Arc::clone(services));
        }
        let (before, mut loader) = (self.loaded(), self.loader());
        loader.runtime = Handle::try_current().ok().filter(|_| asks);
        let plan = Plan::of(found, &before, &loader, why);
        let wanted: BTreeSet<&PluginId> = plan.steps.iter().map(|step| &step.plugin).collect();
        let gone: Vec<PluginId> = before.plugins.keys().filter(|id| !wanted.contains(id)).cloned().collect();
        let Plan { steps, ways, mut problems, waiting } = plan;
        let old = self.registry.snapshot();
        let all_placed = self.registry.update(&gone, steps, profiles);
        let new = self.registry.snapshot();
        let mut after = Loaded::default();
        let mut report = LoadReport::default();
        for (placed, (file, choices)) in all_placed.into_iter().zip(ways) {
            problems.extend(refusals(&placed, file.as_deref()));
            let Some(running) = placed.choice.and_then(|index| choices.get(index)) else { continue };
            after.order.push(placed.plugin.clone());
            after.plugins.insert(placed.plugin, Arc::clone(running));
        }
        // What was refused has become what runs, or not.
        for problem in &mut problems {
            problem.kept =
                problem.kept && problem.plugin.as_ref().is_some_and(|id| after.plugins.contains_key(id));
        }
        report.changes = changes(&before, &after, &old, &new);
        report.warnings = warnings(&report.changes, &after);
        report.loaded.clone_from(&after.order);
        report.problems.clone_from(&problems);
        after.problems = problems;
        let is_in = |id: &PluginId, ready: &Ready| {
            after.plugins.get(id).is_some_and(|running| Arc::ptr_eq(running, &ready.running))
        };
        found.waiting = waiting.into_iter().filter(|(id, ready)| !is_in(id, ready)).collect();
        found.forget_what_is_back(&after);
        let events = news(&before, &after);
        self.loaded.store(Arc::new(after));
        self.shared.folders.release_unused();
        (report, events)
    }

    fn tell(&self, report: &LoadReport, events: Vec<Event>) {
        self.registry.tell();
        for change in &report.changes {
            tracing::info!(plugin = %change.plugin, "{}", change.kind.said());
            for tool in &change.tools {
                tracing::info!(plugin = %change.plugin, "tool {tool}");
            }
        }
        for event in events {
            match &event {
                Event::NotLoaded { file, problem, kept } => {
                    tracing::warn!(file, kept, "not loaded: {problem}");
                }
                Event::Held { plugin, reason, kept } => tracing::warn!(plugin, kept, "{reason}"),
                _ => {}
            }
            self.registry.events().tell(event);
        }
        // Nothing holds any more what was replaced but calls that run.
        self.shared.warm.sweep();
    }
}

impl Found {
    /// The plugins whose results another one is to reduce that is still being compiled. They wait for it, as the operator
    /// wants their results reduced and not, for the first seconds, whole.
    fn awaited(&self, policy: &Policy) -> BTreeSet<String> {
        let slots = self.directories.iter().flat_map(|(_, slots)| slots).filter(|_| self.reading);
        let unread = slots.filter(|slot| slot.outcome.is_none()).filter_map(|slot| slot.id.as_ref().ok());
        let tools = unread.flat_map(|id| policy.reduces(id)).map(|wish| &wish.tool);
        tools.filter_map(|tool| name::split(tool)).map(|(plugin, _)| plugin.to_owned()).collect()
    }

    /// What was taken out by hand is remembered for as long as a directory offers it.
    fn forget_what_is_back(&mut self, after: &Loaded) {
        if self.taken_out.is_empty() {
            return;
        }
        let slots = self.directories.iter().flat_map(|(_, slots)| slots);
        let offered: BTreeSet<&PluginId> = slots.filter_map(|slot| slot.id.as_ref().ok()).collect();
        self.taken_out.retain(|id, _| offered.contains(id) && !after.plugins.contains_key(id));
    }
}
