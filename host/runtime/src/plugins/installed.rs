//! The installed plugins: planned from the plugin files and the policy, and registered as one change.
//!
//! For each plugin, the host knows the result of its file and the version that runs under its id. A new version
//! replaces the old one only as a whole. If it is broken, differs from the pinned digest, collides, or would get more
//! than the operator agreed to, the old version stays and the reason is reported. Plugins that were loaded directly
//! take precedence over those of directories. Directories are ordered by their first load, and their files by name. The
//! same files and policy therefore always give the same catalog, with one exception: a fresh start does not have an old
//! version whose file is broken now.

mod changes;
mod plan;
mod prepare;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use toolbay_capabilities::Services;
use toolbay_core::registry::event::HostEvent;
use toolbay_core::registry::{Registry, ViewDefaults};
use toolbay_policy::Policy;
use toolbay_policy::name::PluginId;
use toolbay_state::digest::Digest;

use crate::error::LoadError;
use crate::plugins::consent_gate::ConsentGate;
use crate::plugins::directory::{
    Directory, DirectoryIndex, PluginLocation, ReadFile, ReadTask, ScanMode, list,
};
use crate::plugins::loader::Loader;
use crate::plugins::plugin::{HostResources, Plugin};
use crate::plugins::report::{LoadProblem, LoadReport, LoadWarning};
use crate::plugins::state::{ActivePlugin, PluginFile};
use changes::{new_events, plugin_changes, plugin_warnings};
use plan::{RegistryPlan, awaited_plugins, collision_problems};
use prepare::{MissingPlugin, Preparations};

/// The registered plugins and the current problems.
#[derive(Debug, Default, Clone)]
pub(crate) struct PluginSnapshot {
    pub(crate) plugins: BTreeMap<PluginId, Arc<ActivePlugin>>,
    /// The plugin ids in the order of their files.
    pub(crate) order: Vec<PluginId>,
    pub(crate) problems: Vec<LoadProblem>,
}

/// All plugin files, in order of precedence.
#[derive(Debug, Default)]
struct PluginFiles {
    /// Plugins that were loaded with `load_file` or `load_bytes`.
    direct: Vec<PluginFile>,
    /// Directories are only ever added.
    directories: Vec<Directory>,
}

/// The result of a pass over all directories.
#[derive(Default)]
pub(crate) struct PassResult {
    pub(crate) report: LoadReport,
    /// Whether a file is still changing.
    pub(crate) pending: bool,
    /// Whether no file has been read before.
    pub(crate) is_first: bool,
    /// The files to read, each with the index of its directory.
    pub(crate) tasks: Vec<(usize, ReadTask)>,
}

/// The plugins of a host, with everything needed to change them.
pub(crate) struct InstalledPlugins {
    pub(crate) shared: Arc<HostResources>,
    pub(crate) consent_gate: Arc<ConsentGate>,
    pub(crate) registry: Arc<Registry>,
    services: ArcSwap<Services>,
    snapshot: ArcSwap<PluginSnapshot>,
    files: Mutex<PluginFiles>,
    /// Whether an initial scan registers plugins while it still reads other files.
    initial_scan: AtomicBool,
}

/// A file that may be a plugin.
#[derive(Debug)]
pub(crate) struct KnownFile {
    /// `None` if it has no valid plugin id, or another file has it.
    pub(crate) id: Option<PluginId>,
    /// `None` for a component that was loaded from bytes.
    pub(crate) path: Option<Arc<Path>>,
    /// The digest of its content; `None` if it was not read.
    pub(crate) digest: Option<Digest>,
}

/// Why the plugins are planned again.
#[derive(Debug, Clone)]
pub(crate) enum ReplanReason {
    /// Files changed.
    FilesChanged,
    /// The operator may have agreed to a held plugin.
    ConsentsChanged,
    /// The policy was replaced.
    PolicyChanged(Arc<Services>),
    /// The embedder unloaded a plugin.
    Unloaded(PluginId),
}

impl ReplanReason {
    /// Whether to plan again even if no file changed.
    fn forces_replan(&self) -> bool {
        !matches!(self, Self::FilesChanged)
    }

    fn unloads(&self, id: &PluginId) -> bool {
        matches!(self, Self::Unloaded(unloaded) if unloaded == id)
    }
}

impl PluginFiles {
    fn all(&self) -> impl Iterator<Item = &PluginFile> {
        self.direct.iter().chain(self.directories.iter().flat_map(|one| &one.files))
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut PluginFile> {
        self.direct.iter_mut().chain(self.directories.iter_mut().flat_map(|one| &mut one.files))
    }
}

fn view_defaults(policy: &Policy) -> ViewDefaults {
    ViewDefaults { profiles: policy.profiles_by_name(), toolcall_reason: policy.asks_reason() }
}

impl InstalledPlugins {
    pub(crate) fn new(
        shared: Arc<HostResources>,
        services: Services,
        consent_gate: Arc<ConsentGate>,
        registry: Registry,
    ) -> Self {
        let registry = Arc::new(registry);
        registry.update(&[], Vec::new(), Some(view_defaults(&services.policy)));
        Self {
            shared,
            consent_gate,
            registry,
            services: ArcSwap::from_pointee(services),
            snapshot: ArcSwap::default(),
            files: Mutex::default(),
            initial_scan: AtomicBool::new(false),
        }
    }

    pub(crate) fn services(&self) -> Arc<Services> {
        self.services.load_full()
    }

    pub(crate) fn snapshot(&self) -> Arc<PluginSnapshot> {
        self.snapshot.load_full()
    }

    /// A loader with the current policy.
    pub(crate) fn loader(&self) -> Loader {
        self.loader_with(self.services())
    }

    fn loader_with(&self, services: Arc<Services>) -> Loader {
        Loader { shared: Arc::clone(&self.shared), services, consent_gate: Arc::clone(&self.consent_gate) }
    }

    /// Adds a directory or lock, unless it is known. The next pass lists it.
    pub(crate) fn add_location(&self, location: PluginLocation) {
        let mut files = self.files.lock();
        if !files.directories.iter().any(|known| known.location.is_same(&location)) {
            files.directories.push(Directory::new(location));
        }
    }

    pub(crate) fn locations(&self) -> Vec<PluginLocation> {
        self.files.lock().directories.iter().map(|one| one.location.clone()).collect()
    }

    /// Lists all directories, and plans again if their files or the policy changed. Blocks on folders and consents.
    /// Only one pass may run at a time.
    pub(crate) fn pass(&self, mode: ScanMode, why: &ReplanReason) -> PassResult {
        let loader = self.loader_for(why);
        let directories: Vec<(PluginLocation, bool)> =
            self.files.lock().directories.iter().map(|one| (one.location.clone(), one.is_new())).collect();
        let is_first = directories.iter().all(|(_, is_new)| *is_new);
        let listed = directories.iter().map(|(location, is_new)| list(location, *is_new, &loader, mode));
        let listed: Vec<_> = listed.collect();
        let mut result = PassResult { is_first, ..PassResult::default() };
        let mut changed = why.forces_replan();
        let mut files = self.files.lock();
        if matches!(why, ReplanReason::PolicyChanged(_)) {
            files.all_mut().for_each(PluginFile::clear_pin_refusal);
        }
        for (index, (directory, listed)) in files.directories.iter_mut().zip(listed).enumerate() {
            match listed {
                Ok(listed) => {
                    let scan = directory.apply_listing(listed, mode);
                    result.pending |= scan.pending;
                    changed |= scan.changed;
                    result.tasks.extend(scan.tasks.into_iter().map(|task| (index, task)));
                }
                Err(error) => changed |= directory.set_unreadable(&error),
            }
        }
        result.report = match changed {
            true => self.replan(files, why),
            false => self.unchanged_report(),
        };
        result
    }

    /// Applies the results of reading files. `services` is the policy they were read under. With `immediate`, no time
    /// has passed since the pass, and the directories are not listed again. Also returns whether all files were stable.
    /// Blocks like [`InstalledPlugins::pass`].
    pub(crate) fn apply_reads(
        &self,
        read: Vec<ReadFile>,
        services: &Arc<Services>,
        immediate: bool,
    ) -> (LoadReport, bool) {
        let now = self.loader();
        let same_policy = Arc::ptr_eq(&now.services, services);
        let mut by_directory: BTreeMap<usize, Vec<ReadFile>> = BTreeMap::new();
        for file in read {
            by_directory.entry(file.directory).or_default().push(file);
        }
        let locations = self.locations();
        let relist = |index: &usize| {
            let location = locations.get(*index).filter(|_| !(immediate && same_policy))?;
            Some(list(location, false, &now, ScanMode::ListOnly))
        };
        let listed: Vec<_> = by_directory.keys().map(relist).collect();
        let mut all_stable = true;
        let mut files = self.files.lock();
        for ((index, read), listed) in by_directory.into_iter().zip(listed) {
            let Some(directory) = files.directories.get_mut(index) else { continue };
            all_stable &= directory.apply_reads(read);
            if !same_policy {
                directory.files.iter_mut().for_each(PluginFile::clear_pin_refusal);
            }
            match listed {
                Some(Ok(listed)) => drop(directory.apply_listing(listed, ScanMode::ListOnly)),
                Some(Err(error)) => drop(directory.set_unreadable(&error)),
                None => {}
            }
        }
        (self.replan(files, &ReplanReason::FilesChanged), all_stable)
    }

    /// The report of a pass without changes.
    fn unchanged_report(&self) -> LoadReport {
        let snapshot = self.snapshot();
        LoadReport {
            loaded: snapshot.order.clone(),
            problems: snapshot.problems.clone(),
            ..LoadReport::default()
        }
    }

    /// The indexes of directories whose files were read since the last call.
    pub(crate) fn take_indexes(&self) -> Vec<(PathBuf, DirectoryIndex)> {
        let index = |one: &mut Directory| Some((one.location.path().to_path_buf(), one.take_index()?));
        self.files.lock().directories.iter_mut().filter_map(index).collect()
    }

    /// Installs one plugin and replaces the one with its id. Blocks on folders and consents.
    ///
    /// # Errors
    /// The reason why the plugin was not installed. The previous one stays.
    pub(crate) fn install(
        &self,
        path: Option<&Arc<Path>>,
        plugin: &Arc<Plugin>,
    ) -> Result<Vec<LoadWarning>, LoadError> {
        let id = &plugin.id;
        let (mut report, events, runs) = self.put_direct(path, plugin);
        let failed = report.problems.iter().position(|problem| problem.plugin.as_ref() == Some(id));
        let failed = failed.filter(|_| !runs).map(|at| report.problems.swap_remove(at).error);
        self.report_changes(&report, events);
        match failed {
            Some(error) => {
                Err(Arc::try_unwrap(error).unwrap_or_else(|error| LoadError::Host(error.to_string())))
            }
            None => Ok(report.warnings.into_iter().filter(|warning| warning.plugin == *id).collect()),
        }
    }

    /// Puts a plugin before those of directories, if it can run. Also returns the events, and whether it runs.
    fn put_direct(
        &self,
        path: Option<&Arc<Path>>,
        plugin: &Arc<Plugin>,
    ) -> (LoadReport, Vec<HostEvent>, bool) {
        let (id, why) = (&plugin.id, ReplanReason::FilesChanged);
        let mut prepared = Preparations::default();
        loop {
            let mut files = self.files.lock();
            let at = files.direct.iter().position(|file| file.id.as_ref() == Some(id));
            let before = at.map(|at| (at, files.direct.remove(at)));
            files.direct.push(PluginFile::direct(path.cloned(), Arc::clone(plugin)));
            let planned = self.try_plan(&mut files, &why, &prepared);
            let active = self.snapshot().plugins.get(id).cloned();
            let runs = planned.is_ok() && active.as_ref().is_some_and(|one| Arc::ptr_eq(&one.plugin, plugin));
            if !runs {
                files.direct.pop();
                if let Some((at, mut before)) = before {
                    before.set_registered(active.as_ref());
                    files.direct.insert(at, before);
                }
            }
            match planned {
                Ok((report, events)) => {
                    if !runs {
                        let mut snapshot = PluginSnapshot::clone(&self.snapshot());
                        snapshot.problems.retain(|problem| problem.plugin.as_ref() != Some(id));
                        self.snapshot.store(Arc::new(snapshot));
                    }
                    return (report, events, runs);
                }
                Err(missing) => {
                    drop(files);
                    self.prepare(missing, &why, &mut prepared);
                }
            }
        }
    }

    /// Unloads a plugin. Returns `false` if it is not loaded.
    pub(crate) fn unload(&self, id: &PluginId) -> bool {
        let mut files = self.files.lock();
        let Some(active) = self.snapshot().plugins.get(id).cloned() else { return false };
        files.direct.retain(|file| file.id.as_ref() != Some(id));
        for file in files.all_mut().filter(|file| file.id.as_ref() == Some(id)) {
            file.set_removed(&active.plugin);
        }
        self.replan(files, &ReplanReason::Unloaded(id.clone()));
        true
    }

    /// All files that may be plugins, loaded or not. Returns `None` if no directory was listed and no plugin loaded directly.
    pub(crate) fn known_files(&self) -> Option<Vec<KnownFile>> {
        let files = self.files.lock();
        let looked = !files.direct.is_empty() || files.directories.iter().any(|one| one.is_listed);
        let known = |file: &PluginFile| KnownFile {
            id: file.id.clone(),
            path: file.path.clone(),
            digest: file.record.as_ref().and_then(|record| record.digest),
        };
        looked.then(|| files.all().map(known).collect())
    }

    /// Marks whether an initial scan is still reading files.
    pub(crate) fn set_initial_scan(&self, active: bool) {
        self.initial_scan.store(active, Ordering::Relaxed);
    }

    /// Allows plugins that were unloaded to be registered again.
    pub(crate) fn restore_unloaded(&self) {
        self.files.lock().all_mut().for_each(PluginFile::clear_removed);
    }

    /// Plans until nothing is missing, and applies the plan.
    fn replan(&self, mut files: MutexGuard<'_, PluginFiles>, why: &ReplanReason) -> LoadReport {
        let mut prepared = Preparations::default();
        loop {
            match self.try_plan(&mut files, why, &prepared) {
                Ok((report, events)) => {
                    drop(files);
                    self.report_changes(&report, events);
                    return report;
                }
                Err(missing) => {
                    MutexGuard::unlocked(&mut files, || self.prepare(missing, why, &mut prepared));
                }
            }
        }
    }

    /// Prepares plugins. No lock may be held. Availability checks of new plugins run here, except after an unload, which may
    /// run on a thread of the runtime.
    fn prepare(&self, missing: Vec<MissingPlugin>, why: &ReplanReason, prepared: &mut Preparations) {
        let checks_availability = !matches!(why, ReplanReason::Unloaded(_));
        let runtime = Handle::try_current().ok().filter(|_| checks_availability);
        prepared.add(missing, &self.loader_for(why), runtime.as_ref());
    }

    /// A loader with the policy that applies after the plan.
    fn loader_for(&self, why: &ReplanReason) -> Loader {
        match why {
            ReplanReason::PolicyChanged(services) => self.loader_with(Arc::clone(services)),
            _ => self.loader(),
        }
    }

    /// Turns the plugin files into registered plugins. No other function does. Returns the events, because no lock may
    /// be held while they are emitted. Does no I/O.
    ///
    /// # Errors
    /// Plugins are missing that must be prepared first. Nothing was changed.
    fn try_plan(
        &self,
        files: &mut PluginFiles,
        why: &ReplanReason,
        prepared: &Preparations,
    ) -> Result<(LoadReport, Vec<HostEvent>), Vec<MissingPlugin>> {
        let before = self.snapshot();
        let services = self.loader_for(why).services;
        let awaited = match self.initial_scan.load(Ordering::Relaxed) {
            true => awaited_plugins(files.all(), &services.policy),
            false => BTreeSet::new(),
        };
        let plan = RegistryPlan::new(files.all_mut(), &awaited, &before.plugins, &services, why, prepared);
        if !plan.missing.is_empty() {
            return Err(plan.missing);
        }
        let defaults = match why {
            ReplanReason::PolicyChanged(services) => {
                self.services.store(Arc::clone(services));
                Some(view_defaults(&services.policy))
            }
            _ => None,
        };
        let removed = plan.removed_plugins();
        let RegistryPlan { steps, choices, mut problems, .. } = plan;
        let old = self.registry.snapshot();
        let all_placed = self.registry.update(&removed, steps, defaults);
        let new = self.registry.snapshot();
        let mut after = PluginSnapshot::default();
        for (placed, (file, choices)) in all_placed.into_iter().zip(choices) {
            problems.extend(collision_problems(&placed, file.as_deref()));
            let Some(active) = placed.choice.and_then(|index| choices.get(index)) else { continue };
            after.order.push(placed.plugin.clone());
            after.plugins.insert(placed.plugin, Arc::clone(active));
        }
        // A refused file may still have an older version that runs.
        for problem in &mut problems {
            problem.kept =
                problem.kept && problem.plugin.as_ref().is_some_and(|id| after.plugins.contains_key(id));
        }
        for file in files.all_mut() {
            file.set_registered(file.id.as_ref().and_then(|id| after.plugins.get(id)));
        }
        let changes = plugin_changes(&before, &after, &old, &new);
        after.problems.clone_from(&problems);
        let report = LoadReport {
            loaded: after.order.clone(),
            warnings: plugin_warnings(&changes, &after),
            changes,
            problems,
            restart: Vec::new(),
        };
        let events = new_events(&before, &after);
        self.snapshot.store(Arc::new(after));
        self.shared.folders.release_unused();
        Ok((report, events))
    }

    fn report_changes(&self, report: &LoadReport, events: Vec<HostEvent>) {
        self.registry.flush_events();
        for change in &report.changes {
            tracing::info!(plugin = %change.plugin, "{}", change.kind.as_str());
            for tool in &change.tools {
                tracing::info!(plugin = %change.plugin, "tool {tool}");
            }
        }
        for event in events {
            match &event {
                HostEvent::NotLoaded { file, problem, kept } => {
                    tracing::warn!(file, kept, "not loaded: {problem}");
                }
                HostEvent::ConsentRequired { plugin, reason, kept } => {
                    tracing::warn!(plugin, kept, "{reason}");
                }
                _ => {}
            }
            self.registry.events().emit(event);
        }
        // Only calls in flight still hold the replaced plugins.
        self.shared.idle_instances.drop_expired();
    }
}
