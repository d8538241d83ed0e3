//! State that servers share: `--shared`.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use tempfile::TempDir;
use toolbay_policy::Policy;
use toolbay_policy::name::PluginId;
use toolbay_shared::nats::{
    AuditLimits, Connection, ConnectionError, Credentials, Durability, EntriesLimits, OutputLimits,
    SharedAddress, StoragePlan,
};
use toolbay_shared::publication::{NewEpoch, Publication, PublicationError, PublishedEpoch};

use super::SetupArgs;
use super::seen_epochs::{self, SeenEpochs};
use super::shared_audit;
use super::shared_folder::SharedFolder;
use crate::output::{CommandError, Printer, host_failure};

/// The plugins that may store entries.
pub(crate) fn storing_plugins(policy: &Policy) -> impl Iterator<Item = &PluginId> {
    policy.plugins().map(|(plugin, _)| plugin).filter(|plugin| policy.grants_kv(plugin))
}

/// The address on the command line.
pub(crate) fn address(args: &SetupArgs) -> Result<SharedAddress> {
    let Some(text) = &args.shared.shared else {
        return Err(anyhow!("name the shared state: `--shared nats://HOST:PORT`"));
    };
    SharedAddress::parse(text).map_err(|error| anyhow!("--shared: {error}"))
}

/// Connects to the shared state under a name that the tools of NATS show.
pub(crate) async fn connect(args: &SetupArgs, name: &str) -> Result<Connection> {
    let shared = &args.shared;
    let certificate = shared.shared_cert.clone().zip(shared.shared_key.clone());
    let credentials = Credentials {
        credentials: shared.shared_credentials.clone(),
        nkey: shared.shared_nkey.clone(),
        authorities: shared.shared_ca.clone(),
        certificate,
    };
    Connection::open(address(args)?, &credentials, name).await.map_err(connection_error)
}

/// A missing publication is a mistake of the operator; other failures are those of the host.
pub(crate) fn connection_error(error: ConnectionError) -> anyhow::Error {
    match error {
        ConnectionError::Unpublished { .. } | ConnectionError::File { .. } => anyhow!(error),
        _ => host_failure(error),
    }
}

pub(crate) fn publication_error(error: PublicationError) -> anyhow::Error {
    match error {
        PublicationError::Conflict => CommandError::new("conflict", error.to_string()).into(),
        _ => host_failure(error),
    }
}

/// How the policy wants the store to keep what it acknowledged.
pub(crate) fn durability(policy: &Policy) -> Durability {
    Durability { replicas: policy.shared().replicas }
}

/// What the policy stores besides the buckets.
pub(crate) fn storage_plan(policy: &Policy) -> StoragePlan {
    let of_plugin = |plugin: &PluginId| {
        let limits = policy.limits(plugin, None);
        (plugin.clone(), EntriesLimits { keys: limits.kv_keys, bytes: limits.kv_bytes })
    };
    let (host, audit) = (policy.host(), policy.audit());
    StoragePlan {
        entries: storing_plugins(policy).map(of_plugin).collect(),
        outputs: OutputLimits { bytes: host.saved_output_bytes, age: host.saved_output_age },
        audit: AuditLimits { bytes: audit.bytes, age: audit.age },
    }
}

/// The settings of the store that endanger a promise.
pub(crate) async fn warnings(connection: &Connection, policy: &Policy) -> Result<Vec<String>> {
    connection.check(&storage_plan(policy), durability(policy)).await.map_err(connection_error)
}

/// What is published now.
pub(crate) async fn current(publication: &Publication) -> Result<PublishedEpoch> {
    let current = publication.current().await.map_err(publication_error)?;
    current.ok_or_else(|| anyhow!("nothing is published: run `toolbay shared publish` first"))
}

/// What a command does with the shared state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SharedUse {
    /// The command opens the shared state on its own, or does not need it.
    Own,
    /// The command reads the published files.
    Read,
    /// The command changes the published files.
    Edit,
    /// The command reads the audit of all replicas.
    Audit,
    /// The command works on this machine only.
    Never,
}

/// The published files that a command edits.
#[derive(Debug)]
pub(crate) struct PulledEpoch {
    publication: Publication,
    current: PublishedEpoch,
    folder: SharedFolder,
    seen: SeenEpochs,
}

/// Takes the published files for a command that uses them into a folder of their own, which goes with the returned
/// value, and lets its arguments name them. `None`: it uses those of this machine.
pub(crate) async fn pull(args: &mut SetupArgs, shared_use: SharedUse) -> Result<Option<TempDir>> {
    if args.shared.shared.is_none() {
        return Ok(None);
    }
    let is_edit = match shared_use {
        SharedUse::Own => return Ok(None),
        SharedUse::Audit => {
            let temporary = tempfile::tempdir().map_err(host_failure)?;
            let file = temporary.path().join("audit.jsonl");
            shared_audit::download(&connect(args, "operator").await?, &file).await?;
            args.audit = Some(file);
            return Ok(Some(temporary));
        }
        SharedUse::Read => false,
        SharedUse::Edit => true,
        SharedUse::Never => {
            return Err(anyhow!("--shared: this command works on the files of this machine only"));
        }
    };
    let connection = connect(args, "operator").await?;
    let publication = Publication::open(&connection).await.map_err(connection_error)?;
    let current = current(&publication).await?;
    let temporary = tempfile::tempdir().map_err(host_failure)?;
    let folder = SharedFolder::new(temporary.path());
    folder.write(&current.bundle, &publication).await?;
    folder.name_in(args);
    if is_edit {
        let seen = SeenEpochs::new(args, connection.address())?;
        args.pulled = Some(Arc::new(PulledEpoch { publication, current, folder, seen }));
    }
    Ok(Some(temporary))
}

impl PulledEpoch {
    /// Publishes what the command changed.
    ///
    /// # Errors
    /// Somebody else published meanwhile, or the store does not take it. Nothing was changed.
    pub(crate) async fn publish(&self, printer: Printer) -> Result<()> {
        let Self { publication, current, folder, seen } = self;
        let bundle = folder.read()?.with_plugins(current.bundle.plugins().clone()).map_err(host_failure)?;
        if bundle == current.bundle {
            return Ok(());
        }
        let published = publication.publish(Some(current), &bundle, seen.highest()).await;
        let NewEpoch { epoch, gap } = published.map_err(publication_error)?;
        seen.record(epoch.number);
        seen_epochs::report_gap(printer, gap);
        printer.note(&format!("published as epoch {}", epoch.number));
        Ok(())
    }
}
