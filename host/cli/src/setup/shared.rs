//! State that servers share: `--shared`.

use anyhow::{Result, anyhow};
use toolbay_policy::Policy;
use toolbay_policy::name::PluginId;
use toolbay_shared::nats::{
    AuditLimits, Connection, ConnectionError, Credentials, Durability, EntriesLimits, OutputLimits,
    SharedAddress, StoragePlan,
};
use toolbay_shared::publication::{Publication, PublicationError, PublishedEpoch};

use super::args::SetupArgs;
use crate::output::{CommandError, host_failure};

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
