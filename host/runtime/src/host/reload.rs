//! Reloads the directories and the policy of a host.

use std::sync::Arc;

use toolbay_core::audit::edits::describe_edits;
use toolbay_core::audit::{ActionRecord, MAX_REASON};
use toolbay_core::registry::event::HostEvent;
use toolbay_policy::Policy;
use toolbay_sandbox::host_memory;

use crate::error::HostError;
use crate::features::FEATURES;
use crate::host::{Host, call_policy};
use crate::plugins::directory::{FileReader, ScanMode};
use crate::plugins::installed::{InstalledPlugins, ReplanReason};
use crate::plugins::report::LoadReport;

impl Host {
    /// Reads all files of all loaded directories again, even if they look unchanged, and reconsiders held plugins. Only
    /// content matters: a file with the same bytes changes nothing.
    pub async fn rescan(&self) -> LoadReport {
        self.installed.restore_unloaded();
        self.scan(ScanMode::Full, ReplanReason::ConsentsChanged).await.0
    }

    /// Replaces the policy, as a whole or not at all. It applies from the next call on; running calls finish under the
    /// previous one. No code is compiled. Keys of `[host]` that size the host itself apply after a restart, and the
    /// report names them.
    ///
    /// # Errors
    /// This program lacks a part that the policy names, or the redactor cannot be built from the secrets. The previous
    /// policy stays.
    pub async fn reload_policy(&self, policy: Policy) -> Result<LoadReport, HostError> {
        let first = self.swap_policy(policy).await?;
        // A document that hangs delays no plugin.
        let documents = self.openapi.load_all(&self.installed);
        let ((), scanned) =
            tokio::join!(documents, self.scan(ScanMode::Changed, ReplanReason::ConsentsChanged));
        Ok(first.merge(scanned.0))
    }

    /// The first part of [`Host::reload_policy`], which takes effect at once: with the files and documents as they are known.
    /// The next [`Host::rescan`] reads files that only the new policy admits.
    ///
    /// # Errors
    /// As [`Host::reload_policy`].
    pub async fn swap_policy(&self, policy: Policy) -> Result<LoadReport, HostError> {
        policy.check_features(FEATURES).map_err(HostError::Policy)?;
        let one_pass = self.passes.lock().await;
        let before = self.installed.services();
        let restart = host_memory::with_default_budgets(policy.host())
            .fixed_differences(self.installed.shared.concurrency.limits());
        let audit_before = before.policy.audit().clone();
        let edits = describe_edits(&before.policy.section_texts(), &policy.section_texts());
        let services = tokio::task::spawn_blocking(move || before.with_policy(Arc::new(policy))).await;
        let services =
            services.map_err(|e| HostError::Secrets(e.to_string()))?.map_err(HostError::Secrets)?;
        let services = Arc::new(services);
        self.installed.shared.folders.protect_secret_files(&services.policy);
        // Before any call can see a new secret. The old ones are still redacted.
        self.pipeline().replace_redactor(services.redactor.clone());
        self.pipeline().set_call_policy(call_policy(&services.policy));
        if let Some(edits) = edits {
            self.pipeline().audit().record_action(ActionRecord {
                action: "policy",
                subject: None,
                reason: Some(edits.chars().take(MAX_REASON).collect()),
                by: "file".to_owned(),
            });
        }
        if *services.policy.audit() != audit_before {
            self.pipeline().audit().apply_policy(services.policy.audit());
        }
        let pass = self
            .run_pass(|installed| installed.pass(ScanMode::ListOnly, &ReplanReason::PolicyChanged(services)))
            .await;
        drop(one_pass);
        self.openapi.apply_policy(&self.installed).await;
        if !restart.is_empty() {
            let keys = restart.join("`, `");
            tracing::warn!("the policy was read again; `{keys}` of [host] apply after a restart");
        }
        self.events().emit(HostEvent::PolicyReloaded { restart: restart.clone() });
        Ok(LoadReport { restart, ..pass.report })
    }

    /// Scans all directories, reads files and registers their plugins. Also returns whether a file is still changing.
    /// Calls continue meanwhile, and the policy can be replaced.
    pub(crate) async fn scan(&self, mode: ScanMode, why: ReplanReason) -> (LoadReport, bool) {
        let _one_scan = self.scanning.lock().await;
        let one_pass = self.passes.lock().await;
        let loader = self.installed.loader();
        let pass = self.run_pass(move |installed| installed.pass(mode, &why)).await;
        drop(one_pass);
        // The first scan registers plugins as soon as they are ready. Later scans are applied as one change.
        let first = pass.is_first;
        let (mut report, mut pending) = (pass.report, pass.pending);
        let mut reader = FileReader::new(&loader, pass.tasks);
        self.installed.set_initial_scan(first && !reader.is_done());
        while let Some(mut read) = reader.next().await {
            while !first && let Some(more) = reader.next().await {
                read.extend(more);
            }
            self.installed.set_initial_scan(first && !reader.is_done());
            let (services, immediate) = (Arc::clone(&loader.services), reader.is_immediate());
            let one_pass = self.passes.lock().await;
            let applied =
                self.run_pass(move |installed| installed.apply_reads(read, &services, immediate)).await;
            drop(one_pass);
            report = report.merge(applied.0);
            pending |= !applied.1;
        }
        self.run_pass(store_indexes).await;
        self.load_kept_code(&report).await;
        (report, pending)
    }

    /// Runs a part of a pass on a blocking thread.
    async fn run_pass<T: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&InstalledPlugins) -> T + Send + 'static,
    ) -> T {
        let installed = Arc::clone(&self.installed);
        tokio::task::spawn_blocking(move || work(&installed)).await.unwrap_or_else(|error| {
            tracing::error!(%error, "the plugins could not be updated; the previous ones stay loaded");
            T::default()
        })
    }

    /// Loads the code of older versions while the cache still has it, because their files have changed and cannot be
    /// compiled again.
    async fn load_kept_code(&self, report: &LoadReport) {
        for id in report.problems.iter().filter(|problem| problem.kept).filter_map(|one| one.plugin.as_ref())
        {
            let Some(active) = self.installed.snapshot().plugins.get(id).cloned() else { continue };
            let metering = active.metering();
            active.plugin.pin_code(metering);
            if let Err(error) = active.plugin.code(metering).await {
                tracing::warn!(plugin = %id, %error, "the code of the older version is gone");
            }
        }
    }
}

/// Stores the indexes, so that the next process need not read unchanged files.
fn store_indexes(installed: &InstalledPlugins) {
    let Some(cache) = installed.shared.engines.cache() else { return };
    for (dir, index) in installed.take_indexes() {
        if let Err(error) = index.store(cache, &dir) {
            cache.warn_once(
                "the index of plugin files could not be cached: each start reads every file",
                &error,
            );
        }
    }
}
