//! One pass over all slots: what each plugin can come to, the best first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolbay_core::registry::{Choice, Collision, Placed, Step};
use toolbay_policy::name::PluginId;

use super::{Found, Loaded, Ready, Running, Slot, Why};
use crate::error::LoadError;
use crate::plugins::loader::Loader;
use crate::plugins::plugin::Plugin;
use crate::plugins::report::LoadProblem;

/// A file, and what each of its choices would be.
type Way = (Option<Arc<Path>>, Vec<Arc<Running>>);

/// One pass over all slots, before it is swapped in.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// For each step.
    pub(super) ways: Vec<Way>,
    pub(super) problems: Vec<LoadProblem>,
    pub(super) waiting: BTreeMap<PluginId, Arc<Ready>>,
}

impl Plan {
    pub(super) fn of(found: &Found, before: &Loaded, loader: &Loader, why: &Why) -> Self {
        let mut plan = Self::default();
        let mut taken: BTreeSet<&PluginId> = BTreeSet::new();
        let awaited = found.awaited(&loader.services.policy);
        let slots = found.directories.iter().flat_map(|(_, slots)| slots);
        for slot in found.single.iter().chain(slots) {
            let id = match &slot.id {
                Ok(id) => id,
                Err(error) => {
                    plan.problem(slot, None, Arc::clone(error), false);
                    continue;
                }
            };
            if !taken.insert(id) {
                plan.problem(slot, None, Arc::new(LoadError::DuplicateId(id.clone())), false);
                continue;
            }
            let out = found.taken_out.get(id);
            let is_out = |plugin: &Arc<Plugin>| out.is_some_and(|out| Arc::ptr_eq(out, plugin));
            if out.is_some() && !matches!(&slot.outcome, Some(Ok(plugin)) if !is_out(plugin)) {
                continue;
            }
            let running = before.plugins.get(id).filter(|one| !is_out(&one.plugin));
            if running.is_none() && awaited.contains(id.as_str()) {
                continue;
            }
            plan.slot(slot, id, running, found, loader, why);
        }
        plan
    }

    /// What a slot can come to, the best first.
    fn slot(
        &mut self,
        slot: &Slot,
        id: &PluginId,
        running: Option<&Arc<Running>>,
        found: &Found,
        loader: &Loader,
        why: &Why,
    ) {
        let (mut choices, mut ways) = (Vec::new(), Vec::new());
        let kept = running.is_some();
        match &slot.outcome {
            Some(Ok(plugin)) if !running.is_some_and(|one| Arc::ptr_eq(&one.plugin, plugin)) => {
                match ready(plugin, found.waiting.get(id), loader, why) {
                    Ok(ready) => {
                        let held = ready.running.held.as_ref();
                        self.waiting.insert(id.clone(), Arc::clone(&ready));
                        // Its older version goes on, unless that is held as well.
                        if let Some(reason) = held.filter(|_| running.is_some_and(|one| one.held.is_none())) {
                            self.problem(slot, Some(id), Arc::new(LoadError::Held(reason.clone())), kept);
                        } else {
                            choices.push(Choice::Put(ready.bundle.clone()));
                            ways.push(Arc::clone(&ready.running));
                        }
                    }
                    Err(error) => self.problem(slot, Some(id), Arc::new(error), kept),
                }
            }
            Some(Err(error)) => self.problem(slot, Some(id), Arc::clone(error), kept),
            Some(Ok(_)) | None => {}
        }
        if let Some(running) = running {
            match again(running, loader, why) {
                Ok(None) => {
                    choices.push(Choice::Keep);
                    ways.push(Arc::clone(running));
                }
                Ok(Some(ready)) => {
                    choices.push(Choice::Put(ready.bundle));
                    ways.push(ready.running);
                }
                Err(error) => self.problem(slot, Some(id), Arc::new(error), false),
            }
        }
        if !choices.is_empty() {
            self.steps.push(Step { plugin: id.clone(), choices });
            self.ways.push((slot.file.clone(), ways));
        }
    }

    fn problem(&mut self, slot: &Slot, id: Option<&PluginId>, error: Arc<LoadError>, kept: bool) {
        let file = slot.file.as_deref().map(Path::to_path_buf).unwrap_or_default();
        self.problems.push(LoadProblem { file, plugin: id.cloned(), error, kept });
    }
}

/// Joins a plugin with what it may, unless that was done and nothing has changed since.
fn ready(
    plugin: &Arc<Plugin>,
    waiting: Option<&Arc<Ready>>,
    loader: &Loader,
    why: &Why,
) -> Result<Arc<Ready>, LoadError> {
    if let Some(waiting) = waiting
        && Arc::ptr_eq(&waiting.running.plugin, plugin)
        && Arc::ptr_eq(&waiting.running.services, &loader.services)
        && !(waiting.running.held.is_some() && matches!(why, Why::Agreed))
    {
        return Ok(Arc::clone(waiting));
    }
    join(plugin, loader).map(Arc::new)
}

/// What runs, joined with what it may now; `None`: it is as it was.
fn again(running: &Running, loader: &Loader, why: &Why) -> Result<Option<Ready>, LoadError> {
    let held = running.held.is_some();
    if Arc::ptr_eq(&running.services, &loader.services) && !(held && matches!(why, Why::Agreed)) {
        return Ok(None);
    }
    let ready = join(&running.plugin, loader)?;
    let as_it_was = Arc::ptr_eq(&running.services, &loader.services) && running.held == ready.running.held;
    Ok((!as_it_was).then_some(ready))
}

fn join(plugin: &Arc<Plugin>, loader: &Loader) -> Result<Ready, LoadError> {
    let mut warnings = Vec::new();
    let (mut bundle, held) = loader.bundle(plugin, |warning| warnings.push(warning))?;
    if let Some(runtime) = &loader.runtime
        && bundle.tools.iter().any(|tool| tool.check.is_some())
    {
        runtime.block_on(bundle.ask());
    }
    let running =
        Running { plugin: Arc::clone(plugin), services: Arc::clone(&loader.services), held, warnings };
    Ok(Ready { running: Arc::new(running), bundle })
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
