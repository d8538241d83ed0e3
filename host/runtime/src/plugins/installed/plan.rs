//! One pass over all files: what each plugin can come to, the best first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolbay_core::registry::{Choice, Collision, Placed, Step};
use toolbay_policy::Policy;
use toolbay_policy::name::{self, PluginId};

use super::ReplanReason;
use crate::error::LoadError;
use crate::plugins::loader::Loader;
use crate::plugins::plugin::Plugin;
use crate::plugins::report::LoadProblem;
use crate::plugins::state::{ActivePlugin, PluginFile, PluginState, PreparedPlugin};

/// A file, and what each of its choices would be.
type FileChoices = (Option<Arc<Path>>, Vec<Arc<ActivePlugin>>);

/// One pass over all files, before it is swapped in.
pub(super) struct Plan<'a> {
    before: &'a BTreeMap<PluginId, Arc<ActivePlugin>>,
    loader: &'a Loader,
    why: &'a ReplanReason,
    pub(super) steps: Vec<Step>,
    /// For each step.
    pub(super) choices: Vec<FileChoices>,
    pub(super) problems: Vec<LoadProblem>,
}

impl<'a> Plan<'a> {
    /// A plan for files in their order, of which the first with an id has it. Plugins whose files are still read wait
    /// for those that reduce their results (`awaited`).
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
                    plan.problem(file, None, Arc::clone(error), false);
                }
                continue;
            };
            if taken.contains(&id) {
                plan.problem(file, None, Arc::new(LoadError::DuplicateId(id)), false);
                continue;
            }
            let active = before.get(&id).filter(|_| !why.takes_out(&id));
            if !file.is_removed() && (active.is_some() || !awaited.contains(id.as_str())) {
                plan.file(file, &id, active);
            }
            taken.insert(id);
        }
        plan
    }

    /// What a file can come to, the best first.
    fn file(&mut self, file: &mut PluginFile, id: &PluginId, active: Option<&Arc<ActivePlugin>>) {
        let (mut choices, mut results) = (Vec::new(), Vec::new());
        let kept = active.is_some();
        match file.state.content().map(|content| content.map(Arc::clone).map_err(Arc::clone)) {
            Some(Ok(plugin)) if !active.is_some_and(|one| Arc::ptr_eq(&one.plugin, &plugin)) => {
                match self.prepared(&file.state, &plugin) {
                    Ok(prepared) => {
                        let held = prepared.active.held.as_ref();
                        // Its older version goes on, unless that is held as well.
                        if let Some(reason) = held.filter(|_| active.is_some_and(|one| one.held.is_none())) {
                            self.problem(file, Some(id), Arc::new(LoadError::Held(reason.clone())), kept);
                        } else {
                            choices.push(Choice::Put(prepared.bundle.clone()));
                            results.push(Arc::clone(&prepared.active));
                        }
                        file.prepared(prepared);
                    }
                    Err(error) => {
                        self.problem(file, Some(id), Arc::new(error), kept);
                        file.unprepared();
                    }
                }
            }
            Some(Err(error)) => self.problem(file, Some(id), error, kept),
            Some(Ok(_)) | None => {}
        }
        if let Some(active) = active {
            match self.prepared_again(active) {
                Ok(None) => {
                    choices.push(Choice::Keep);
                    results.push(Arc::clone(active));
                }
                Ok(Some(prepared)) => {
                    choices.push(Choice::Put(prepared.bundle));
                    results.push(prepared.active);
                }
                Err(error) => self.problem(file, Some(id), Arc::new(error), false),
            }
        }
        if !choices.is_empty() {
            self.steps.push(Step { plugin: id.clone(), choices });
            self.choices.push((file.path.clone(), results));
        }
    }

    fn problem(&mut self, file: &PluginFile, id: Option<&PluginId>, error: Arc<LoadError>, kept: bool) {
        let file = file.path.as_deref().map(Path::to_path_buf).unwrap_or_default();
        self.problems.push(LoadProblem { file, plugin: id.cloned(), error, kept });
    }

    /// The plugins that run, and are not in the plan any more.
    pub(super) fn gone(&self) -> Vec<PluginId> {
        let wanted: BTreeSet<&PluginId> = self.steps.iter().map(|step| &step.plugin).collect();
        self.before.keys().filter(|id| !wanted.contains(id)).cloned().collect()
    }

    /// Joins a plugin with its grants, unless that was done and nothing has changed since.
    fn prepared(&self, state: &PluginState, plugin: &Arc<Plugin>) -> Result<Arc<PreparedPlugin>, LoadError> {
        match state {
            PluginState::Prepared(prepared) if self.stands(&prepared.active) => Ok(Arc::clone(prepared)),
            _ => self.prepare(plugin).map(Arc::new),
        }
    }

    /// What runs, joined with its grants of now; `None`: it is as it was.
    fn prepared_again(&self, active: &ActivePlugin) -> Result<Option<PreparedPlugin>, LoadError> {
        if self.stands(active) {
            return Ok(None);
        }
        let prepared = self.prepare(&active.plugin)?;
        let as_it_was = self.is_under_this_policy(active) && active.held == prepared.active.held;
        Ok((!as_it_was).then_some(prepared))
    }

    /// Whether nothing has changed since a plugin was joined with its grants.
    fn stands(&self, active: &ActivePlugin) -> bool {
        let may_be_agreed = active.held.is_some() && matches!(self.why, ReplanReason::Agreed);
        self.is_under_this_policy(active) && !may_be_agreed
    }

    fn is_under_this_policy(&self, active: &ActivePlugin) -> bool {
        Arc::ptr_eq(&active.services, &self.loader.services)
    }

    fn prepare(&self, plugin: &Arc<Plugin>) -> Result<PreparedPlugin, LoadError> {
        let loader = self.loader;
        let mut warnings = Vec::new();
        let (mut bundle, held) = loader.bundle(plugin, |warning| warnings.push(warning))?;
        if let Some(runtime) = &loader.runtime
            && bundle.tools.iter().any(|tool| tool.availability.check.is_some())
        {
            runtime.block_on(bundle.ask());
        }
        let (plugin, services) = (Arc::clone(plugin), Arc::clone(&loader.services));
        Ok(PreparedPlugin { active: Arc::new(ActivePlugin { plugin, services, held, warnings }), bundle })
    }
}

/// The plugins whose results one reduces that is still being compiled. They wait for it, as the operator wants their
/// results reduced and not, for the first seconds, whole.
pub(super) fn awaited<'f>(files: impl Iterator<Item = &'f PluginFile>, policy: &Policy) -> BTreeSet<String> {
    let unread = files.filter(|file| file.state.content().is_none()).filter_map(|file| file.id.as_ref());
    let tools = unread.flat_map(|id| policy.reduces(id)).map(|wish| &wish.tool);
    tools.filter_map(|tool| name::split(tool)).map(|(plugin, _)| plugin.to_owned()).collect()
}

/// Why a plugin is not what it was to be first.
pub(super) fn refusals(placed: &Placed, file: Option<&Path>) -> Vec<LoadProblem> {
    let file: PathBuf = file.map(Path::to_path_buf).unwrap_or_default();
    let problem = |collision: &Collision| LoadProblem {
        file: file.clone(),
        plugin: Some(placed.plugin.clone()),
        error: Arc::new(LoadError::Collision(collision.clone())),
        kept: true,
    };
    // The first says it all: the others are older versions.
    placed.refused.iter().take(1).map(problem).collect()
}
