//! Reading again what a host was made from: its directories and its policy.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use toolbay_core::registry::event::Event;
use toolbay_policy::Policy;

use crate::engine::machine;
use crate::error::{HostError, LoadError};
use crate::host::{Host, gates};
use crate::plugins::cache::Index;
use crate::plugins::directory::{Directory, Found, Look, Reading};
use crate::plugins::installed::{Slot, Why};
use crate::plugins::loader::Loader;
use crate::plugins::report::LoadReport;

impl Host {
    /// Reads all loaded directories anew, whatever their files look like, and judges anew what is held. Content
    /// decides: a file with the same bytes changes nothing.
    pub async fn rescan(&self) -> LoadReport {
        self.installed.forget_taken_out();
        self.scan(Look::Anew, Why::Agreed).await.0
    }

    /// Puts another policy in the place of the one before: whole, or not at all. What it changes holds from the next
    /// call on; calls that run end under the one they began with. No code is compiled for it. Keys of `[host]` that
    /// size the host itself hold from the next start on and are named in the report.
    ///
    /// # Errors
    /// When the values of its secrets can not be searched for. The policy before then stays.
    pub async fn reload_policy(&self, policy: Policy) -> Result<LoadReport, HostError> {
        let first = self.swap_policy(policy).await?;
        self.load_openapi().await;
        Ok(first.then(self.scan(Look::Changed, Why::Agreed).await.0))
    }

    /// The part of it that holds at once: with the files as they are known. What only the new policy lets in is read
    /// by the next scan.
    pub(crate) async fn swap_policy(&self, policy: Policy) -> Result<LoadReport, HostError> {
        let mut directories = self.directories.lock().await;
        let before = self.installed.services();
        let restart =
            machine::settled(policy.host()).fixed_differences(self.installed.shared.admission.limits());
        let audit_before = before.policy.audit().clone();
        let services = tokio::task::spawn_blocking(move || before.under(Arc::new(policy))).await;
        let services =
            services.map_err(|e| HostError::Secrets(e.to_string()))?.map_err(HostError::Secrets)?;
        let services = Arc::new(services);
        self.installed.shared.folders.keep_secrets(&services.policy);
        // Before any call can see a new value; old ones are still known.
        self.pipeline().replace_redactor(services.redactor.clone());
        self.pipeline().set_gates(gates(&services.policy));
        if *services.policy.audit() != audit_before {
            self.pipeline().audit().follow(services.policy.audit());
        }
        let loader = self.installed.loader_under(Arc::clone(&services));
        for directory in directories.iter_mut() {
            directory.forget_pins();
            if let Err(error) = directory.look(&loader, Look::Known).await {
                gone(directory, &error);
            }
        }
        let report = self.order(&directories, Why::Policy(services)).await;
        drop(directories);
        self.swap_openapi().await;
        if !restart.is_empty() {
            let keys = restart.join("`, `");
            tracing::warn!("the policy was read again; `{keys}` of [host] hold from the next start on");
        }
        self.events().tell(Event::PolicyReloaded { restart: restart.clone() });
        Ok(LoadReport { restart, ..report })
    }

    /// Looks at all directories, reads what is to be read, and puts what is found in order. Also tells whether
    /// something is still changing. While files are read and compiled, calls go on and the policy can be swapped.
    pub(crate) async fn scan(&self, how: Look, why: Why) -> (LoadReport, bool) {
        let _one_scan = self.scanning.lock().await;
        let mut directories = self.directories.lock().await;
        let loader = self.installed.loader();
        // A first start hands out what is ready; what changes later is one change.
        let first = directories.iter().all(Directory::is_new);
        let (mut pending, mut changed, mut tasks) = (false, why.judges(), Vec::new());
        for directory in directories.iter_mut() {
            match directory.look(&loader, how).await {
                Ok(looked) => {
                    pending |= looked.pending;
                    changed |= looked.changed;
                    tasks.extend(looked.tasks.into_iter().map(|task| (directory.path.clone(), task)));
                }
                Err(error) => changed |= gone(directory, &error),
            }
        }
        let mut report = self.current();
        if changed {
            report = self.order(&directories, why).await;
        }
        drop(directories);
        let mut reading = Reading::new(&loader, tasks);
        self.installed.set_reading(first && !reading.is_done());
        while let Some(mut found) = reading.next().await {
            while !first && let Some(more) = reading.next().await {
                found.extend(more);
            }
            self.installed.set_reading(first && !reading.is_done());
            let (learned, stood_still) = self.learn(&loader, found, reading.is_at_once()).await;
            report = report.then(learned);
            pending |= !stood_still;
        }
        self.keep_indexes().await;
        self.map_kept(&report).await;
        (report, pending)
    }

    /// Puts what was read under a loader's policy in order; also tells whether all of it stood still meanwhile. What was
    /// read `at_once` needs no look at what came and went in that time.
    async fn learn(&self, loader: &Loader, found: Vec<Found>, at_once: bool) -> (LoadReport, bool) {
        let mut read: BTreeMap<PathBuf, Vec<_>> = BTreeMap::new();
        for (path, key, known) in found {
            read.entry(path).or_default().push((key, known));
        }
        let mut directories = self.directories.lock().await;
        let now = self.installed.loader();
        let same_policy = Arc::ptr_eq(&now.services, &loader.services);
        let mut stood_still = true;
        for directory in directories.iter_mut() {
            let Some(read) = read.remove(&directory.path) else { continue };
            stood_still &= directory.learn(read, same_policy);
            if !(at_once && same_policy)
                && let Err(error) = directory.look(&now, Look::Known).await
            {
                gone(directory, &error);
            }
        }
        (self.order(&directories, Why::Found).await, stood_still)
    }

    /// Stores what was read, so that the next process need not read it.
    async fn keep_indexes(&self) {
        let mut directories = self.directories.lock().await;
        let index = |one: &mut Directory| Some((one.path.clone(), one.index()?));
        let indexes: Vec<(PathBuf, Index)> = directories.iter_mut().filter_map(index).collect();
        drop(directories);
        let cache = self.installed.shared.engines.cache().filter(|_| !indexes.is_empty());
        let Some(cache) = cache.cloned() else { return };
        let keep = move || {
            for (dir, index) in &indexes {
                if let Err(error) = cache.put_index(dir, index) {
                    cache.tell_once(
                        "what plugin files hold is not stored: each is read at each start",
                        &error,
                    );
                }
            }
        };
        if let Err(error) = tokio::task::spawn_blocking(keep).await {
            tracing::error!(%error, "what plugin files hold was not stored");
        }
    }

    /// What runs now, as a report of a pass that changed nothing.
    fn current(&self) -> LoadReport {
        let loaded = self.installed.loaded();
        LoadReport {
            loaded: loaded.order.clone(),
            problems: loaded.problems.clone(),
            ..LoadReport::default()
        }
    }

    /// Makes what runs of what the directories hold.
    pub(crate) async fn order(&self, directories: &[Directory], why: Why) -> LoadReport {
        let found = directories.iter().map(|one| (one.path.clone(), one.slots.clone())).collect();
        let installed = Arc::clone(&self.installed);
        let ordered = tokio::task::spawn_blocking(move || installed.place(found, &why)).await;
        ordered.unwrap_or_else(|error| {
            tracing::error!(%error, "the plugins could not be put in order; what ran goes on");
            LoadReport::default()
        })
    }

    /// The file of a version that goes on is not there to be compiled from: its code is mapped while the cache has it.
    async fn map_kept(&self, report: &LoadReport) {
        for id in report.problems.iter().filter(|problem| problem.kept).filter_map(|one| one.plugin.as_ref())
        {
            let Some(running) = self.installed.loaded().plugins.get(id).cloned() else { continue };
            let metering = running.metering();
            running.plugin.stay(metering);
            if let Err(error) = running.plugin.code(metering).await {
                tracing::warn!(plugin = %id, %error, "the version that goes on has no code any more");
            }
        }
    }
}

/// A directory that can not be read gives what it gave before, and says so. Returns whether it had not said so yet.
fn gone(directory: &mut Directory, error: &HostError) -> bool {
    let absent = matches!(error, HostError::Directory { error, .. } if error.kind() == ErrorKind::NotFound);
    if absent && directory.slots.is_empty() {
        // It is not there yet, and nothing is lost.
        return false;
    }
    let note = LoadError::DirectoryGone(error.to_string()).to_string();
    let is_note = |slot: &Slot| matches!(&slot.id, Err(e) if matches!(**e, LoadError::DirectoryGone(_)));
    if directory.slots.iter().any(|slot| is_note(slot) && matches!(&slot.id, Err(e) if e.to_string() == note))
    {
        return false;
    }
    directory.slots.retain(|slot| !is_note(slot));
    let error = Arc::new(LoadError::DirectoryGone(error.to_string()));
    let file = Some(directory.path.as_path().into());
    directory.slots.push(Slot { file, id: Err(error), outcome: None });
    true
}
