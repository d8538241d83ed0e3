//! Plans one registry update from all plugin files: the possible versions of each plugin, best first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolbay_core::registry::{Collision, PluginUpdate, UpdateChoice, UpdateOutcome};
use toolbay_policy::Policy;
use toolbay_policy::consent::AskingVersion;
use toolbay_policy::name::{self, PluginId};

use super::ReplanReason;
use crate::error::LoadError;
use crate::plugins::loader::Loader;
use crate::plugins::plugin::Plugin;
use crate::plugins::report::LoadProblem;
use crate::plugins::state::{ActivePlugin, PluginFile, PluginState, PreparedPlugin};

/// A file, and the plugin that each of its choices would register.
type FileChoices = (Option<Arc<Path>>, Vec<Arc<ActivePlugin>>);

/// A registry update before it is applied.
pub(super) struct RegistryPlan<'a> {
    before: &'a BTreeMap<PluginId, Arc<ActivePlugin>>,
    loader: &'a Loader,
    why: &'a ReplanReason,
    pub(super) steps: Vec<PluginUpdate>,
    /// The choices of each step.
    pub(super) choices: Vec<FileChoices>,
    pub(super) problems: Vec<LoadProblem>,
}

impl<'a> RegistryPlan<'a> {
    /// Plans files in their order. The first file with an id gets it. Plugins in `awaited` wait until the files that
    /// reduce their results are read.
    pub(super) fn new<'f>(
        files: impl Iterator<Item = &'f mut PluginFile>,
        awaited: &BTreeSet<String>,
        before: &'a BTreeMap<PluginId, Arc<ActivePlugin>>,
        loader: &'a Loader,
        why: &'a ReplanReason,
    ) -> Self {
        let (steps, choices, problems) = (Vec::new(), Vec::new(), Vec::new());
        let mut plan = Self { before, loader, why, steps, choices, problems };
        let mut taken: BTreeSet<PluginId> = BTreeSet::new();
        for file in files {
            let Some(id) = file.id.clone() else {
                if let Some(Err(error)) = file.state.content() {
                    plan.add_problem(file, None, Arc::clone(error), false);
                }
                continue;
            };
            if taken.contains(&id) {
                plan.add_problem(file, None, Arc::new(LoadError::DuplicateId(id)), false);
                continue;
            }
            let active = before.get(&id).filter(|_| !why.unloads(&id));
            if !file.is_removed() && (active.is_some() || !awaited.contains(id.as_str())) {
                plan.plan_file(file, &id, active);
            }
            taken.insert(id);
        }
        plan
    }

    /// Adds the choices for a file, best first.
    fn plan_file(&mut self, file: &mut PluginFile, id: &PluginId, active: Option<&Arc<ActivePlugin>>) {
        let (mut choices, mut results) = (Vec::new(), Vec::new());
        let kept = active.is_some();
        match file.state.content().map(|content| content.map(Arc::clone).map_err(Arc::clone)) {
            Some(Ok(plugin)) if !active.is_some_and(|one| Arc::ptr_eq(&one.plugin, &plugin)) => {
                match self.prepare_file(&file.state, &plugin) {
                    Ok(prepared) => {
                        let held = prepared.active.held.as_ref();
                        // The older version stays, unless it is held as well.
                        if let Some(reason) = held.filter(|_| active.is_some_and(|one| one.held.is_none())) {
                            let error = LoadError::ConsentRequired(reason.clone());
                            self.add_problem(file, Some(id), Arc::new(error), kept);
                        } else {
                            choices.push(UpdateChoice::Put(prepared.bundle.clone()));
                            results.push(Arc::clone(&prepared.active));
                        }
                        file.set_prepared(prepared);
                    }
                    Err(error) => {
                        self.add_problem(file, Some(id), Arc::new(error), kept);
                        file.reset_prepared();
                    }
                }
            }
            Some(Err(error)) => self.add_problem(file, Some(id), error, kept),
            Some(Ok(_)) | None => {}
        }
        if let Some(active) = active {
            match self.prepare_active(active) {
                Ok(None) => {
                    choices.push(UpdateChoice::Keep);
                    results.push(Arc::clone(active));
                }
                Ok(Some(prepared)) => {
                    choices.push(UpdateChoice::Put(prepared.bundle));
                    results.push(prepared.active);
                }
                Err(error) => self.add_problem(file, Some(id), Arc::new(error), false),
            }
        }
        if !choices.is_empty() {
            self.steps.push(PluginUpdate { plugin: id.clone(), choices });
            self.choices.push((file.path.clone(), results));
        }
    }

    fn add_problem(&mut self, file: &PluginFile, id: Option<&PluginId>, error: Arc<LoadError>, kept: bool) {
        let file = file.path.as_deref().map(Path::to_path_buf).unwrap_or_default();
        self.problems.push(LoadProblem { file, plugin: id.cloned(), error, kept });
    }

    /// The registered plugins that the plan no longer has.
    pub(super) fn removed_plugins(&self) -> Vec<PluginId> {
        let wanted: BTreeSet<&PluginId> = self.steps.iter().map(|step| &step.plugin).collect();
        self.before.keys().filter(|id| !wanted.contains(id)).cloned().collect()
    }

    /// Joins a plugin with its grants, unless that is up to date.
    fn prepare_file(
        &self,
        state: &PluginState,
        plugin: &Arc<Plugin>,
    ) -> Result<Arc<PreparedPlugin>, LoadError> {
        match state {
            PluginState::Prepared(prepared) if self.is_current(&prepared.active) => Ok(Arc::clone(prepared)),
            _ => self.prepare(plugin, AskingVersion::Newest).map(Arc::new),
        }
    }

    /// Joins the registered plugin with its grants. Returns `None` if nothing changed.
    fn prepare_active(&self, active: &ActivePlugin) -> Result<Option<PreparedPlugin>, LoadError> {
        if self.is_current(active) {
            return Ok(None);
        }
        let prepared = self.prepare(&active.plugin, AskingVersion::Running)?;
        let is_unchanged = self.uses_current_policy(active) && active.held == prepared.active.held;
        Ok((!is_unchanged).then_some(prepared))
    }

    /// Whether a plugin's grants are up to date.
    fn is_current(&self, active: &ActivePlugin) -> bool {
        let may_be_agreed = active.held.is_some() && matches!(self.why, ReplanReason::ConsentsChanged);
        self.uses_current_policy(active) && !may_be_agreed
    }

    fn uses_current_policy(&self, active: &ActivePlugin) -> bool {
        Arc::ptr_eq(&active.services, &self.loader.services)
    }

    fn prepare(&self, plugin: &Arc<Plugin>, version: AskingVersion) -> Result<PreparedPlugin, LoadError> {
        let loader = self.loader;
        let mut warnings = Vec::new();
        let (mut bundle, held) = loader.bundle(plugin, version, |warning| warnings.push(warning))?;
        if let Some(runtime) = &loader.runtime
            && bundle.tools.iter().any(|tool| tool.availability.check.is_some())
        {
            runtime.block_on(bundle.check_availability());
        }
        let (plugin, services) = (Arc::clone(plugin), Arc::clone(&loader.services));
        Ok(PreparedPlugin { active: Arc::new(ActivePlugin { plugin, services, held, warnings }), bundle })
    }
}

/// The plugins whose results are reduced by a plugin that is still being compiled. They wait for it, because the
/// operator wants their results reduced from the first call on.
pub(super) fn awaited_plugins<'f>(
    files: impl Iterator<Item = &'f PluginFile>,
    policy: &Policy,
) -> BTreeSet<String> {
    let unread = files.filter(|file| file.state.content().is_none()).filter_map(|file| file.id.as_ref());
    let tools = unread.flat_map(|id| policy.reducer_bindings(id)).map(|wish| &wish.tool);
    tools.filter_map(|tool| name::split_qualified(tool)).map(|(plugin, _)| plugin.to_owned()).collect()
}

/// The problems of a plugin whose first choice collided.
pub(super) fn collision_problems(placed: &UpdateOutcome, file: Option<&Path>) -> Vec<LoadProblem> {
    let file: PathBuf = file.map(Path::to_path_buf).unwrap_or_default();
    let problem = |collision: &Collision| LoadProblem {
        file: file.clone(),
        plugin: Some(placed.plugin.clone()),
        error: Arc::new(LoadError::Collision(collision.clone())),
        kept: true,
    };
    // Only the first matters; the others are older versions.
    placed.refused.iter().take(1).map(problem).collect()
}
