//! Plans one registry update from all plugin files: the possible versions of each plugin, best first.
//!
//! A plan does no I/O, because it is made under the lock of the files. It takes the plugins that are
//! [prepared](Preparations), and names those that are missing. A plan that lacks some is not applied.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolbay_capabilities::Services;
use toolbay_core::registry::{Collision, PluginUpdate, UpdateChoice, UpdateOutcome};
use toolbay_policy::Policy;
use toolbay_policy::consent::AskingVersion;
use toolbay_policy::name::{self, PluginId};

use super::ReplanReason;
use super::prepare::{MissingPlugin, Preparation, Preparations};
use crate::error::LoadError;
use crate::plugins::plugin::Plugin;
use crate::plugins::report::LoadProblem;
use crate::plugins::state::{ActivePlugin, PluginFile, PluginState, PreparedPlugin};

/// A file, and the plugin that each of its choices would register.
type FileChoices = (Option<Arc<Path>>, Vec<Arc<ActivePlugin>>);

/// A registry update before it is applied.
pub(super) struct RegistryPlan<'a> {
    before: &'a BTreeMap<PluginId, Arc<ActivePlugin>>,
    services: &'a Arc<Services>,
    why: &'a ReplanReason,
    prepared: &'a Preparations,
    /// The plugins without which the plan cannot be applied.
    pub(super) missing: Vec<MissingPlugin>,
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
        services: &'a Arc<Services>,
        why: &'a ReplanReason,
        prepared: &'a Preparations,
    ) -> Self {
        let mut plan = Self {
            before,
            services,
            why,
            prepared,
            missing: Vec::new(),
            steps: Vec::new(),
            choices: Vec::new(),
            problems: Vec::new(),
        };
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
        let mut choices = Choices::default();
        match file.state.content().map(|content| content.map(Arc::clone).map_err(Arc::clone)) {
            Some(Ok(plugin)) if !active.is_some_and(|one| Arc::ptr_eq(&one.plugin, &plugin)) => {
                match self.prepare_file(&file.state, &plugin) {
                    Some(Ok(prepared)) => {
                        self.plan_newest(file, id, active, &prepared, &mut choices);
                        file.set_prepared(prepared);
                    }
                    Some(Err(error)) => {
                        self.add_problem(file, Some(id), error, active.is_some());
                        file.reset_prepared();
                    }
                    None => {}
                }
            }
            Some(Err(error)) => self.add_problem(file, Some(id), error, active.is_some()),
            Some(Ok(_)) | None => {}
        }
        if let Some(active) = active {
            match self.prepare_active(active) {
                Some(Ok(None)) => choices.add(UpdateChoice::Keep, active),
                Some(Ok(Some(prepared))) => choices.put(&prepared),
                Some(Err(error)) => self.add_problem(file, Some(id), error, false),
                None => {}
            }
        }
        let Choices { updates, results } = choices;
        if !updates.is_empty() {
            self.steps.push(PluginUpdate { plugin: id.clone(), choices: updates });
            self.choices.push((file.path.clone(), results));
        }
    }

    /// Adds the newest version of a file. While it is held, the version that the operator agreed to stays.
    fn plan_newest(
        &mut self,
        file: &PluginFile,
        id: &PluginId,
        active: Option<&Arc<ActivePlugin>>,
        newest: &PreparedPlugin,
        choices: &mut Choices,
    ) {
        let Some(reason) = &newest.active.held else { return choices.put(newest) };
        let error = || Arc::new(LoadError::ConsentRequired(reason.clone()));
        if active.is_some_and(|one| one.held.is_none()) {
            return self.add_problem(file, Some(id), error(), true);
        }
        // After a restart nothing runs yet. What the embedder names itself is never replaced by another version.
        let agreed = newest.agreed.as_ref().filter(|_| active.is_none() && file.is_listed());
        match agreed.and_then(|agreed| self.find(agreed, AskingVersion::Kept)) {
            Some(Ok(agreed)) if agreed.active.held.is_none() => {
                self.add_problem(file, Some(id), error(), true);
                choices.put(&agreed);
            }
            Some(Ok(_) | Err(_)) | None => choices.put(newest),
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

    /// A plugin joined with its grants. `None` if it is missing.
    fn prepare_file(&mut self, state: &PluginState, plugin: &Arc<Plugin>) -> Option<Preparation> {
        match state {
            PluginState::Prepared(prepared) if self.is_current(&prepared.active) => {
                Some(Ok(Arc::clone(prepared)))
            }
            _ => self.find(plugin, AskingVersion::Newest),
        }
    }

    /// The registered plugin joined with its grants, or nothing if they did not change. `None` if it is missing.
    fn prepare_active(
        &mut self,
        active: &ActivePlugin,
    ) -> Option<Result<Option<Arc<PreparedPlugin>>, Arc<LoadError>>> {
        if self.is_current(active) {
            return Some(Ok(None));
        }
        let prepared = match self.find(&active.plugin, AskingVersion::Running)? {
            Ok(prepared) => prepared,
            Err(error) => return Some(Err(error)),
        };
        let is_unchanged = self.uses_current_policy(active) && active.held == prepared.active.held;
        Some(Ok((!is_unchanged).then_some(prepared)))
    }

    /// The prepared plugins. A plugin that was not prepared is missing.
    fn find(&mut self, plugin: &Arc<Plugin>, version: AskingVersion) -> Option<Preparation> {
        let found = self.prepared.get(plugin, version, self.services).cloned();
        if found.is_none() {
            self.missing.push(MissingPlugin { plugin: Arc::clone(plugin), version });
        }
        found
    }

    /// Whether a plugin's grants are up to date.
    fn is_current(&self, active: &ActivePlugin) -> bool {
        let may_be_agreed = active.held.is_some() && matches!(self.why, ReplanReason::ConsentsChanged);
        self.uses_current_policy(active) && !may_be_agreed
    }

    fn uses_current_policy(&self, active: &ActivePlugin) -> bool {
        Arc::ptr_eq(&active.services, self.services)
    }
}

/// The choices for one plugin, and the plugin that each would register.
#[derive(Default)]
struct Choices {
    updates: Vec<UpdateChoice>,
    results: Vec<Arc<ActivePlugin>>,
}

impl Choices {
    fn add(&mut self, update: UpdateChoice, result: &Arc<ActivePlugin>) {
        self.updates.push(update);
        self.results.push(Arc::clone(result));
    }

    fn put(&mut self, prepared: &PreparedPlugin) {
        self.add(UpdateChoice::Put(prepared.bundle.clone()), &prepared.active);
    }
}

/// The plugins whose results are reduced by a plugin that is still being compiled. They wait for it, because the
/// operator wants their results reduced from the first call on.
pub(super) fn awaited_plugins<'f>(
    files: impl Iterator<Item = &'f PluginFile>,
    policy: &Policy,
) -> BTreeSet<String> {
    let unread = files.filter(|file| file.state.content().is_none()).filter_map(|file| file.id.as_ref());
    let tools = unread.flat_map(|id| policy.reducer_bindings(id)).map(|binding| &binding.tool);
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
