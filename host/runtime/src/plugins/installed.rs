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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use toolbay_core::registry::Registry;
use toolbay_core::registry::event::Event;
use toolbay_policy::name::PluginId;

use crate::capability::Services;
use crate::error::LoadError;
use crate::plugins::cache::Index;
use crate::plugins::directory::{Directory, Look, ReadFile, ReadTask, list};
use crate::plugins::loader::Loader;
use crate::plugins::plugin::{Plugin, Shared};
use crate::plugins::report::{LoadProblem, LoadReport, LoadWarning};
use crate::plugins::state::{ActivePlugin, PluginFile};
use crate::storage::consent::Keeper;
use news::{changes, news, warnings};
use plan::{Plan, awaited, refusals};

/// What runs, and what does not.
#[derive(Debug, Default, Clone)]
pub(crate) struct PluginSnapshot {
    pub(crate) plugins: BTreeMap<PluginId, Arc<ActivePlugin>>,
    /// Their ids in the order of their files.
    pub(crate) order: Vec<PluginId>,
    pub(crate) problems: Vec<LoadProblem>,
}

/// All plugin files, in the order in which they are considered.
#[derive(Debug, Default)]
struct PluginFiles {
    /// What was given plugin by plugin.
    given: Vec<PluginFile>,
    /// Only ever added to.
    directories: Vec<Directory>,
}

/// The result of a pass over all directories.
#[derive(Default)]
pub(crate) struct PassResult {
    pub(crate) report: LoadReport,
    /// Whether something is still changing.
    pub(crate) pending: bool,
    /// Whether no file was ever read before.
    pub(crate) is_first: bool,
    /// The files to read, each with the index of its directory.
    pub(crate) tasks: Vec<(usize, ReadTask)>,
}

/// What runs, and how it comes to run.
pub(crate) struct InstalledPlugins {
    pub(crate) shared: Arc<Shared>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) registry: Arc<Registry>,
    services: ArcSwap<Services>,
    snapshot: ArcSwap<PluginSnapshot>,
    files: Mutex<PluginFiles>,
    /// Whether what is ready is put in while other files are still read for the first time.
    reading: AtomicBool,
}

/// Why things are put in order again.
#[derive(Debug, Clone)]
pub(crate) enum ReplanReason {
    /// Something else was found.
    Found,
    /// What is held may have been agreed to.
    Agreed,
    /// The policy is another one.
    Policy(Arc<Services>),
    /// A plugin was taken out by hand.
    TakenOut(PluginId),
}

impl ReplanReason {
    /// Whether it asks for a new judgement where nothing else was found.
    fn judges(&self) -> bool {
        !matches!(self, Self::Found)
    }

    fn takes_out(&self, id: &PluginId) -> bool {
        matches!(self, Self::TakenOut(out) if out == id)
    }
}

impl PluginFiles {
    fn all(&self) -> impl Iterator<Item = &PluginFile> {
        self.given.iter().chain(self.directories.iter().flat_map(|one| &one.files))
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut PluginFile> {
        self.given.iter_mut().chain(self.directories.iter_mut().flat_map(|one| &mut one.files))
    }
}

impl InstalledPlugins {
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
            snapshot: ArcSwap::default(),
            files: Mutex::default(),
            reading: AtomicBool::new(false),
        }
    }

    pub(crate) fn services(&self) -> Arc<Services> {
        self.services.load_full()
    }

    pub(crate) fn snapshot(&self) -> Arc<PluginSnapshot> {
        self.snapshot.load_full()
    }

    /// What makes plugins under the policy that holds now.
    pub(crate) fn loader(&self) -> Loader {
        self.loader_under(self.services())
    }

    fn loader_under(&self, services: Arc<Services>) -> Loader {
        Loader { shared: Arc::clone(&self.shared), services, keeper: Arc::clone(&self.keeper), runtime: None }
    }

    /// Adds a directory, unless it is there. The next pass looks at it.
    pub(crate) fn add_directory(&self, dir: &Path) {
        let mut files = self.files.lock();
        if !files.directories.iter().any(|known| known.path == dir) {
            files.directories.push(Directory::new(dir.to_path_buf()));
        }
    }

    pub(crate) fn directory_paths(&self) -> Vec<PathBuf> {
        self.files.lock().directories.iter().map(|one| one.path.clone()).collect()
    }

    /// Looks at all directories, and puts what is known of their files in order if it is not what it was. Blocks on
    /// folders and consents. Must not run while another pass does.
    pub(crate) fn pass(&self, how: Look, why: &ReplanReason) -> PassResult {
        let loader = match why {
            ReplanReason::Policy(services) => self.loader_under(Arc::clone(services)),
            _ => self.loader(),
        };
        let directories =
            self.files.lock().directories.iter().map(|one| (one.path.clone(), one.is_new())).collect();
        let directories: Vec<(PathBuf, bool)> = directories;
        let is_first = directories.iter().all(|(_, is_new)| *is_new);
        let listed = directories.iter().map(|(path, is_new)| list(path, *is_new, &loader, how));
        let listed: Vec<_> = listed.collect();
        let mut result = PassResult { is_first, ..PassResult::default() };
        let mut changed = why.judges();
        let mut files = self.files.lock();
        if matches!(why, ReplanReason::Policy(_)) {
            files.all_mut().for_each(PluginFile::forget_pin);
        }
        for (index, (directory, listed)) in files.directories.iter_mut().zip(listed).enumerate() {
            match listed {
                Ok(listed) => {
                    let scan = directory.look(listed, how);
                    result.pending |= scan.pending;
                    changed |= scan.changed;
                    result.tasks.extend(scan.tasks.into_iter().map(|task| (index, task)));
                }
                Err(error) => changed |= directory.gone(&error),
            }
        }
        result.report = match changed {
            true => self.order(files, why),
            false => self.unchanged(),
        };
        result
    }

    /// Puts in order what was read under a loader's policy; also tells whether all of it stood still meanwhile. What was
    /// read `at_once` needs no look at what came and went in that time. Blocks as [`InstalledPlugins::pass`] does.
    pub(crate) fn learn(
        &self,
        read: Vec<ReadFile>,
        services: &Arc<Services>,
        at_once: bool,
    ) -> (LoadReport, bool) {
        let now = self.loader();
        let same_policy = Arc::ptr_eq(&now.services, services);
        let mut by_directory: BTreeMap<usize, Vec<ReadFile>> = BTreeMap::new();
        for file in read {
            by_directory.entry(file.directory).or_default().push(file);
        }
        let paths = self.directory_paths();
        let again = |index: &usize| {
            let path = paths.get(*index).filter(|_| !(at_once && same_policy))?;
            Some(list(path, false, &now, Look::Known))
        };
        let listed: Vec<_> = by_directory.keys().map(again).collect();
        let mut stood_still = true;
        let mut files = self.files.lock();
        for ((index, read), listed) in by_directory.into_iter().zip(listed) {
            let Some(directory) = files.directories.get_mut(index) else { continue };
            stood_still &= directory.learn(read);
            if !same_policy {
                directory.files.iter_mut().for_each(PluginFile::forget_pin);
            }
            match listed {
                Some(Ok(listed)) => drop(directory.look(listed, Look::Known)),
                Some(Err(error)) => drop(directory.gone(&error)),
                None => {}
            }
        }
        (self.order(files, &ReplanReason::Found), stood_still)
    }

    /// What runs now, as a report of a pass that changed nothing.
    fn unchanged(&self) -> LoadReport {
        let snapshot = self.snapshot();
        LoadReport {
            loaded: snapshot.order.clone(),
            problems: snapshot.problems.clone(),
            ..LoadReport::default()
        }
    }

    /// The indexes of directories in which files were read since the last ones.
    pub(crate) fn indexes(&self) -> Vec<(PathBuf, Index)> {
        let index = |one: &mut Directory| Some((one.path.clone(), one.index()?));
        self.files.lock().directories.iter_mut().filter_map(index).collect()
    }

    /// Puts one plugin in, in place of what its id had before. Blocks on folders and consents.
    ///
    /// # Errors
    /// Why it cannot be; what the id had before then stays.
    pub(crate) fn put(
        &self,
        path: Option<Arc<Path>>,
        plugin: &Arc<Plugin>,
    ) -> Result<Vec<LoadWarning>, LoadError> {
        let id = &plugin.id;
        let mut files = self.files.lock();
        let at = files.given.iter().position(|file| file.id.as_ref() == Some(id));
        let before = at.map(|at| (at, files.given.remove(at)));
        files.given.push(PluginFile::given(path, Arc::clone(plugin)));
        let (mut report, events) = self.plan(&mut files, &ReplanReason::Found);
        let active = self.snapshot().plugins.get(id).cloned();
        let runs = active.as_ref().is_some_and(|one| Arc::ptr_eq(&one.plugin, plugin));
        if !runs {
            files.given.pop();
            if let Some((at, mut before)) = before {
                before.registered(active.as_ref());
                files.given.insert(at, before);
            }
            let mut snapshot = PluginSnapshot::clone(&self.snapshot());
            snapshot.problems.retain(|problem| problem.plugin.as_ref() != Some(id));
            self.snapshot.store(Arc::new(snapshot));
        }
        drop(files);
        let failed = report.problems.iter().position(|problem| problem.plugin.as_ref() == Some(id));
        let failed = failed.filter(|_| !runs).map(|at| report.problems.swap_remove(at).error);
        self.tell(&report, events);
        match failed {
            Some(error) => {
                Err(Arc::try_unwrap(error).unwrap_or_else(|error| LoadError::Host(error.to_string())))
            }
            None => Ok(report.warnings.into_iter().filter(|warning| warning.plugin == *id).collect()),
        }
    }

    /// Takes a plugin out; returns whether it was there.
    pub(crate) fn take_out(&self, id: &PluginId) -> bool {
        let mut files = self.files.lock();
        let Some(active) = self.snapshot().plugins.get(id).cloned() else { return false };
        files.given.retain(|file| file.id.as_ref() != Some(id));
        for file in files.all_mut().filter(|file| file.id.as_ref() == Some(id)) {
            file.removed(&active.plugin);
        }
        self.order(files, &ReplanReason::TakenOut(id.clone()));
        true
    }

    /// The ids of all plugins that there are, loaded or not. `None`: no directory was looked at, and no plugin given.
    pub(crate) fn offered(&self) -> Option<BTreeSet<PluginId>> {
        let files = self.files.lock();
        let looked = !files.given.is_empty() || files.directories.iter().any(|one| one.is_listed);
        looked.then(|| files.all().filter_map(|file| file.id.clone()).collect())
    }

    /// Notes whether files are still read for the first time while others are put in.
    pub(crate) fn set_reading(&self, reading: bool) {
        self.reading.store(reading, Ordering::Relaxed);
    }

    /// Lets plugins in again that were taken out by hand.
    pub(crate) fn readmit(&self) {
        self.files.lock().all_mut().for_each(PluginFile::readmitted);
    }

    fn order(&self, mut files: MutexGuard<'_, PluginFiles>, why: &ReplanReason) -> LoadReport {
        let (report, events) = self.plan(&mut files, why);
        drop(files);
        self.tell(&report, events);
        report
    }

    /// The one way from files to what runs. What is to be told comes back: no lock may be held then. Plugins that are
    /// new are asked what of them is available, but when one was taken out: that may be on an async thread.
    fn plan(&self, files: &mut PluginFiles, why: &ReplanReason) -> (LoadReport, Vec<Event>) {
        let mut profiles = None;
        if let ReplanReason::Policy(services) = why {
            profiles = Some(services.policy.all_profiles());
            self.services.store(Arc::clone(services));
        }
        let (before, mut loader) = (self.snapshot(), self.loader());
        let asks = !matches!(why, ReplanReason::TakenOut(_));
        loader.runtime = Handle::try_current().ok().filter(|_| asks);
        let awaited = match self.reading.load(Ordering::Relaxed) {
            true => awaited(files.all(), &loader.services.policy),
            false => BTreeSet::new(),
        };
        let plan = Plan::new(files.all_mut(), &awaited, &before.plugins, &loader, why);
        let gone = plan.gone();
        let Plan { steps, choices, mut problems, .. } = plan;
        let old = self.registry.snapshot();
        let all_placed = self.registry.update(&gone, steps, profiles);
        let new = self.registry.snapshot();
        let mut after = PluginSnapshot::default();
        for (placed, (file, choices)) in all_placed.into_iter().zip(choices) {
            problems.extend(refusals(&placed, file.as_deref()));
            let Some(active) = placed.choice.and_then(|index| choices.get(index)) else { continue };
            after.order.push(placed.plugin.clone());
            after.plugins.insert(placed.plugin, Arc::clone(active));
        }
        // What was refused has become what runs, or not.
        for problem in &mut problems {
            problem.kept =
                problem.kept && problem.plugin.as_ref().is_some_and(|id| after.plugins.contains_key(id));
        }
        for file in files.all_mut() {
            file.registered(file.id.as_ref().and_then(|id| after.plugins.get(id)));
        }
        let changes = changes(&before, &after, &old, &new);
        after.problems.clone_from(&problems);
        let report = LoadReport {
            loaded: after.order.clone(),
            warnings: warnings(&changes, &after),
            changes,
            problems,
            restart: Vec::new(),
        };
        let events = news(&before, &after);
        self.snapshot.store(Arc::new(after));
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
