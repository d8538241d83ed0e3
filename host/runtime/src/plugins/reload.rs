//! Reading again what a host was made from: its directories and its policy.

use std::sync::Arc;

use toolbay_core::registry::event::Event;
use toolbay_policy::Policy;

use crate::engine::machine;
use crate::error::HostError;
use crate::host::{Host, gates};
use crate::plugins::directory::{FileReader, Look};
use crate::plugins::installed::{InstalledPlugins, ReplanReason};
use crate::plugins::report::LoadReport;

impl Host {
    /// Reads all loaded directories anew, whatever their files look like, and judges anew what is held. Content
    /// decides: a file with the same bytes changes nothing.
    pub async fn rescan(&self) -> LoadReport {
        self.installed.readmit();
        self.scan(Look::Anew, ReplanReason::Agreed).await.0
    }

    /// Puts another policy in the place of the one before: whole, or not at all. What it changes holds from the next
    /// call on; calls that run end under the one they began with. No code is compiled for it. Keys of `[host]` that
    /// size the host itself hold from the next start on and are named in the report.
    ///
    /// # Errors
    /// When the values of its secrets cannot be searched for. The policy before then stays.
    pub async fn reload_policy(&self, policy: Policy) -> Result<LoadReport, HostError> {
        let first = self.swap_policy(policy).await?;
        self.load_openapi().await;
        Ok(first.then(self.scan(Look::Changed, ReplanReason::Agreed).await.0))
    }

    /// The part of it that holds at once: with the files as they are known. What only the new policy lets in is read
    /// by the next scan.
    pub(crate) async fn swap_policy(&self, policy: Policy) -> Result<LoadReport, HostError> {
        let one_pass = self.passes.lock().await;
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
        let pass =
            self.blocking(|installed| installed.pass(Look::Known, &ReplanReason::Policy(services))).await;
        drop(one_pass);
        self.swap_openapi().await;
        if !restart.is_empty() {
            let keys = restart.join("`, `");
            tracing::warn!("the policy was read again; `{keys}` of [host] hold from the next start on");
        }
        self.events().tell(Event::PolicyReloaded { restart: restart.clone() });
        Ok(LoadReport { restart, ..pass.report })
    }

    /// Looks at all directories, reads what is to be read, and puts what is found in order. Also tells whether
    /// something is still changing. While files are read and compiled, calls go on and the policy can be swapped.
    pub(crate) async fn scan(&self, how: Look, why: ReplanReason) -> (LoadReport, bool) {
        let _one_scan = self.scanning.lock().await;
        let one_pass = self.passes.lock().await;
        let loader = self.installed.loader();
        let pass = self.blocking(move |installed| installed.pass(how, &why)).await;
        drop(one_pass);
        // A first start hands out what is ready; what changes later is one change.
        let first = pass.is_first;
        let (mut report, mut pending) = (pass.report, pass.pending);
        let mut reader = FileReader::new(&loader, pass.tasks);
        self.installed.set_reading(first && !reader.is_done());
        while let Some(mut read) = reader.next().await {
            while !first && let Some(more) = reader.next().await {
                read.extend(more);
            }
            self.installed.set_reading(first && !reader.is_done());
            let (services, at_once) = (Arc::clone(&loader.services), reader.is_at_once());
            let one_pass = self.passes.lock().await;
            let learn = self.blocking(move |installed| installed.learn(read, &services, at_once)).await;
            drop(one_pass);
            report = report.then(learn.0);
            pending |= !learn.1;
        }
        self.blocking(keep_indexes).await;
        self.map_kept(&report).await;
        (report, pending)
    }

    /// Runs a part of a pass off the async threads.
    async fn blocking<T: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&InstalledPlugins) -> T + Send + 'static,
    ) -> T {
        let installed = Arc::clone(&self.installed);
        tokio::task::spawn_blocking(move || work(&installed)).await.unwrap_or_else(|error| {
            tracing::error!(%error, "the plugins could not be put in order; what ran goes on");
            T::default()
        })
    }

    /// The file of a version that goes on is not there to be compiled from: its code is mapped while the cache has it.
    async fn map_kept(&self, report: &LoadReport) {
        for id in report.problems.iter().filter(|problem| problem.kept).filter_map(|one| one.plugin.as_ref())
        {
            let Some(active) = self.installed.snapshot().plugins.get(id).cloned() else { continue };
            let metering = active.metering();
            active.plugin.stay(metering);
            if let Err(error) = active.plugin.code(metering).await {
                tracing::warn!(plugin = %id, %error, "the version that goes on has no code any more");
            }
        }
    }
}

/// Stores what was read, so that the next process need not read it.
fn keep_indexes(installed: &InstalledPlugins) {
    let Some(cache) = installed.shared.engines.cache() else { return };
    for (dir, index) in installed.indexes() {
        if let Err(error) = cache.put_index(&dir, &index) {
            cache.tell_once("what plugin files hold is not stored: each is read at each start", &error);
        }
    }
}
