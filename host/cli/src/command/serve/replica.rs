//! A server as one of several that share state: takes the published epochs, and follows them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use toolbay::{Host, HostBuilder};
use toolbay_core::session::output_store::OutputQuota;
use toolbay_policy::shared::SharedPolicy;
use toolbay_shared::bundle::Bundle;
use toolbay_shared::protocol::epoch::Epoch;
use toolbay_shared::publication::Publication;
use toolbay_shared::replica::{ContactObserver, Replica, ReplicaSettings};
use toolbay_shared::storage::NatsOutputStore;

use super::audit_forwarder::AuditForwarder;
use crate::output::{Printer, host_failure};
use crate::setup::shared_folder::SharedFolder;
use crate::setup::{self, SetupArgs, shared};

/// The folder of the published files, in the state directory.
const FOLDER: &str = "shared";
/// The pause before plugins that were not complete are fetched again.
const PAUSE: Duration = Duration::from_secs(5);

/// A server that shares state.
pub(super) struct SharedServer {
    replica: Replica,
    outputs: NatsOutputStore,
    /// `None` with `--no-audit`.
    audit: Option<AuditForwarder>,
    /// Until the host exists, newer epochs wait.
    waiting: Option<OwnedMutexGuard<Option<Host>>>,
    /// Ends with the server.
    _plugins: AbortOnDropHandle<()>,
}

/// Joins the servers that share the state of the command line, and lets the arguments name the published files. `None`: this
/// server is on its own.
pub(super) async fn join(args: &mut SetupArgs, name: Option<String>) -> Result<Option<SharedServer>> {
    if args.shared.shared.is_none() {
        return Ok(None);
    }
    let name = name.map_or_else(machine_name, Ok)?;
    let connection = shared::connect(args, &name).await?;
    let publication = Publication::open(&connection).await.map_err(shared::connection_error)?;
    let published = shared::current(&publication).await?;
    let folder = SharedFolder::new(setup::state_dir(args)?.join(FOLDER));
    // An older epoch than that of the disk is an old copy of the store: its policy is not taken, and calls are refused.
    if folder.epoch().is_none_or(|known| known.number <= published.epoch.number) {
        folder.write(&published.bundle, &publication).await?;
        folder.set_epoch(&published.epoch)?;
    }
    folder.name_in(args);
    args.epoch = folder.epoch().map(|epoch| epoch.number);
    let policy = setup::policy(args)?;
    let settings = ReplicaSettings {
        name,
        stale_after: policy.shared().stale_after,
        queue_timeout: policy.shared().queue_wait,
        approval_life: policy.serve().limits.session_idle,
    };
    for warning in shared::warnings(&connection, &policy).await? {
        args.printer.warning(&warning);
    }
    let host = Arc::new(Mutex::new(None));
    let waiting = Arc::clone(&host).lock_owned().await;
    let (bundles, newest) = watch::channel(None);
    let follow = follow_plugins(args.printer, folder.clone(), publication.clone(), Arc::clone(&host), newest);
    let of_audit = folder.clone();
    let observer = EpochFollower { args: args.clone(), folder, publication, host, bundles };
    let replica = Replica::start(connection, settings, Arc::new(observer)).await;
    let replica = replica.map_err(shared::connection_error)?;
    let outputs = replica.output_store(OutputQuota::from(policy.host())).await;
    let outputs = outputs.map_err(shared::connection_error)?;
    let audit = match args.no_audit {
        true => None,
        false => {
            let stream = replica.audit_stream().await.map_err(shared::connection_error)?;
            let audit = AuditForwarder::start(args.printer, stream, setup::audit_file(args)?, of_audit);
            Some(audit.context("no thread reads the audit").map_err(host_failure)?)
        }
    };
    // Ends with the server.
    let plugins = AbortOnDropHandle::new(tokio::spawn(follow));
    Ok(Some(SharedServer { replica, outputs, audit, waiting: Some(waiting), _plugins: plugins }))
}

impl SharedServer {
    /// Gives the ports to a host.
    pub(super) fn provide(&self, builder: HostBuilder) -> HostBuilder {
        builder
            .shared_state(self.replica.shared_state())
            .kv(Arc::new(self.replica.kv_store()))
            .output_store(Arc::new(self.outputs.clone()))
    }

    /// Applies newer epochs to the host from now on.
    pub(super) fn attach(&mut self, host: &Host) {
        if let Some(mut waiting) = self.waiting.take() {
            *waiting = Some(host.clone());
        }
    }

    /// Waits until calls are accepted.
    pub(super) async fn ready(&self) {
        self.replica.ready().await;
    }

    /// Gives back what the server borrowed, and tells the others that it ends.
    pub(super) async fn leave(self) {
        if let Some(audit) = self.audit {
            audit.close().await;
        }
        self.replica.shut_down().await;
    }
}

fn machine_name() -> Result<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    (!name.is_empty()).then_some(name).context("this machine has no name: give one with `--replica NAME`")
}

/// Applies the published epochs.
#[derive(Debug)]
struct EpochFollower {
    args: SetupArgs,
    folder: SharedFolder,
    publication: Publication,
    host: Arc<Mutex<Option<Host>>>,
    bundles: watch::Sender<Option<Bundle>>,
}

impl EpochFollower {
    /// Applies the policy and the decisions, which must hold at once. Plugins follow when they are there.
    async fn apply_epoch(&self, epoch: Epoch, superseded: CancellationToken) -> Result<()> {
        let bundle = tokio::select! {
            biased;
            () = superseded.cancelled() => bail!("a newer epoch replaced it"),
            bundle = self.publication.bundle(&epoch.digest) => bundle?,
        };
        let host = self.host.lock().await;
        let host = host.as_ref().context("the server has no host")?;
        let policy = self.folder.write_policy(&self.args, &bundle)?.with_epoch(Some(epoch.number));
        let switches = setup::switches(&self.args)?.load().map_err(anyhow::Error::msg)?;
        let order = setup::stop_order(&self.args)?.load().map_err(anyhow::Error::msg)?;
        host.registry().set_switches(&switches);
        setup::apply_stop_order(host, order);
        let in_force = host.policy();
        let restart =
            SharedPolicy { rerun_idempotent: policy.shared().rerun_idempotent, ..*in_force.shared() };
        if *policy.shared() != restart {
            self.args.printer.warning("[shared] applies after a restart");
        }
        host.swap_policy(policy).await.map_err(host_failure)?;
        self.folder.set_epoch(&epoch)?;
        self.args.printer.note(&format!("epoch {} applies", epoch.number));
        self.bundles.send_replace(Some(bundle));
        Ok(())
    }
}

impl ContactObserver for EpochFollower {
    fn persisted_epoch(&self) -> Option<Epoch> {
        self.folder.epoch()
    }

    fn apply(&self, epoch: Epoch, superseded: CancellationToken) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { self.apply_epoch(epoch, superseded).await.map_err(|error| format!("{error:#}")) })
    }

    fn lost(&self) {
        // A host that is not there yet has no calls.
        if let Ok(host) = self.host.try_lock()
            && let Some(host) = &*host
        {
            host.pipeline().running().cancel_all();
        }
    }
}

/// Fetches the plugins of the newest epoch, and loads them.
async fn follow_plugins(
    printer: Printer,
    folder: SharedFolder,
    publication: Publication,
    host: Arc<Mutex<Option<Host>>>,
    mut newest: watch::Receiver<Option<Bundle>>,
) {
    while newest.changed().await.is_ok() {
        let Some(bundle) = newest.borrow_and_update().clone() else { continue };
        let Some(host) = host.lock().await.clone() else { continue };
        while let Err(error) = folder.write_plugins(&bundle, &publication).await {
            printer.error(&format!("the published plugins are not complete: {error:#}"));
            tokio::time::sleep(PAUSE).await;
            if newest.has_changed().unwrap_or(true) {
                break;
            }
        }
        // A document that hangs delays no plugin.
        tokio::join!(host.load_openapi(), host.rescan());
    }
}
