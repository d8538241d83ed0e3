//! Builds a host from the options of the command line and the policy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Error, Result, anyhow};
use toolbay::core::audit::observer::{AuditObserver, ObservedAudit};
use toolbay::core::call::trace::Tracer;
use toolbay::policy::capability::path_rule;
use toolbay::policy::capability::protected_paths::Protection;
use toolbay::{Host, HostBuilder, Policy, StopOrder};
use toolbay_admin::AdminState;
use toolbay_state::user_dirs::user_dir;
use toolbay_telemetry::{ExportBuffer, Metrics, OtlpEndpoint, OtlpExporter};

use super::args::SetupArgs;
use super::audit::audit;
use super::locked::LockPaths;
use super::paths::{audit_file, consents, current_dir, state_dir, stop_order, switches};
use super::policy_file::policy;
use crate::output::{host_failure, progress};
use crate::process_limits;

/// What a command uses the host for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostPurpose {
    /// Inspects plugins. The audit and the consents stay unchanged.
    Inspect,
    /// Runs plugins.
    Run,
}

/// Builds the host without plugins.
pub(crate) fn host(args: &SetupArgs, purpose: HostPurpose) -> Result<Host> {
    host_for(args, policy(args)?, purpose)
}

/// Builds the host under a given policy.
pub(crate) fn host_for(args: &SetupArgs, policy: Policy, purpose: HostPurpose) -> Result<Host> {
    build(args, builder(args, policy, purpose)?)
}

/// The host of a server, and what observes it.
pub(crate) struct ServerHost {
    pub(crate) host: Host,
    /// With an admin listener.
    pub(crate) admin: Option<AdminState>,
    /// With a table `[telemetry]`.
    pub(crate) exporter: Option<OtlpExporter>,
}

/// Builds the host of a server, with the metrics and traces of its policy, and what `provide` adds. Requires a tokio
/// runtime.
pub(crate) fn server_host(
    args: &SetupArgs,
    provide: impl FnOnce(HostBuilder) -> HostBuilder,
) -> Result<ServerHost> {
    process_limits::check_server().map_err(host_failure)?;
    let policy = policy(args)?;
    let metrics = policy.admin().map(|_| Arc::new(Metrics::new()));
    let admin = metrics
        .clone()
        .map(|metrics| AdminState::new(toolbay_telemetry::CONTENT_TYPE, move |host| metrics.to_text(host)));
    let endpoint = policy.telemetry().map(|telemetry| {
        OtlpEndpoint::new(telemetry, |name| std::env::var(name).ok())
            .map_err(|problem| host_failure(anyhow!("[telemetry] {problem}")))
    });
    let endpoint = endpoint.transpose()?;
    let tracer = policy.telemetry().map(Tracer::new);
    let buffer = tracer.as_ref().map(|_| Arc::new(ExportBuffer::new(metrics.as_deref())));
    let mut builder = builder(args, policy, HostPurpose::Run)?;
    let mut observers: Vec<Arc<dyn AuditObserver>> = metrics.iter().map(|one| Arc::clone(one) as _).collect();
    observers.extend(admin.as_ref().map(AdminState::observer));
    observers.extend(buffer.clone().map(|buffer| buffer as _));
    if !observers.is_empty() {
        builder = builder.wrap_audit(|audit| Arc::new(ObservedAudit::new(audit, observers)));
    }
    if let Some(admin) = &admin {
        builder = builder.approver(admin.approver());
    }
    if let Some(tracer) = tracer {
        builder = builder.tracer(tracer);
    }
    let host = build(args, provide(builder))?;
    metrics.iter().for_each(|metrics| metrics.count_reloads(&host));
    let exporter =
        endpoint.zip(buffer).map(|(endpoint, buffer)| OtlpExporter::start(buffer, endpoint, host.clone()));
    Ok(ServerHost { host, admin, exporter })
}

fn build(args: &SetupArgs, builder: HostBuilder) -> Result<Host> {
    let host = builder.build().map_err(host_failure)?;
    apply_stop_order(&host, stop_order(args)?.load().map_err(Error::msg)?);
    Ok(host)
}

pub(crate) fn apply_stop_order(host: &Host, order: Option<StopOrder>) {
    let running = host.pipeline().running();
    match order {
        Some(order) => drop(running.stop(&order.reason)),
        None => drop(running.resume()),
    }
}

/// The settings of the host under a given policy.
pub(crate) fn builder(args: &SetupArgs, policy: Policy, purpose: HostPurpose) -> Result<HostBuilder> {
    if purpose == HostPurpose::Run {
        process_limits::check_host().map_err(host_failure)?;
    }
    let (kept, audit_policy) = (credential_files(&policy), policy.audit().clone());
    let mut builder = Host::builder(policy).on_load(progress::load_listener(args.printer)).with_workers();
    if args.no_cache {
        builder = builder.no_cache();
    } else if let Some(dir) = &args.cache_dir {
        builder = builder.cache_dir(dir);
    }
    for file in kept {
        builder = builder.protect_path(file, Protection::ReadAndWrite);
    }
    let state = state_dir(args)?;
    builder = builder.switches(switches(args)?.load().map_err(Error::msg)?);
    builder = match purpose {
        HostPurpose::Inspect => builder.consents(Arc::new(consents(args)?.read_only())),
        HostPurpose::Run => builder.state_dir(&state).state_wait(args.state_wait),
    };
    if args.decisions_dir.is_some() {
        // They are published, and change for all replicas at once.
        builder = builder.consents(Arc::new(consents(args)?.read_only()));
    }
    builder = builder.credentials_dir(state.join("credentials"));
    builder = protect_host_paths(builder, args)?;
    if purpose == HostPurpose::Run
        && let Some(sink) = audit(args, &audit_policy)?
    {
        builder = builder.audit(sink);
    }
    Ok(builder)
}

/// The files with the credentials of HTTP clients. A plugin that reads or writes them could connect as a client.
fn credential_files(policy: &Policy) -> Vec<PathBuf> {
    let keys = policy.serve().oauth.as_ref().map(|oauth| PathBuf::from(&oauth.jwks));
    let of_operators = policy.admin().map(|admin| admin.tokens.clone());
    let of_clients = policy.serve().tokens.iter().chain(&policy.serve().request_state_key).cloned();
    of_clients.chain(of_operators).chain(keys.filter(|file| file.is_absolute())).collect()
}

/// Protects the host's own paths from plugins, including paths that do not exist yet: the next start would load a
/// policy or plugin that a plugin wrote. Opens the protected paths that the command line allows.
fn protect_host_paths(mut builder: HostBuilder, args: &SetupArgs) -> Result<HostBuilder> {
    let working_dir = current_dir()?;
    let absolute =
        |path: &Path| path_rule::normalize(&working_dir.join(path)).unwrap_or_else(|| working_dir.join(path));
    let user_dirs = [("XDG_CONFIG_HOME", ".config"), ("XDG_DATA_HOME", ".local/share")];
    let own = user_dirs.iter().filter_map(|(variable, below_home)| user_dir(variable, below_home));
    let given = [&args.config, &args.plugins].into_iter().flatten().map(|path| absolute(path));
    let lock = LockPaths::find(args).ok().map(|paths| absolute(&paths.lock));
    for path in own.chain(given).chain(lock) {
        builder = builder.protect_path(path, Protection::WriteOnly);
    }
    for path in [absolute(&state_dir(args)?), absolute(&audit_file(args)?)] {
        builder = builder.protect_path(path, Protection::ReadAndWrite);
    }
    Ok(args
        .allow_protected_path
        .iter()
        .fold(builder, |builder, path| builder.allow_protected_path(absolute(path))))
}
