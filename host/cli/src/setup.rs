//! Builds a host with its plugins from the options of the command line.

pub(crate) mod approval;
pub(crate) mod args;
pub(crate) mod known_plugins;
pub(crate) mod load_report;
pub(crate) mod locked;
pub(crate) mod named_path;
pub(crate) mod names;
mod policy_file;
pub(crate) mod running_servers;
pub(crate) mod seen_epochs;
pub(crate) mod servers;
pub(crate) mod services;
pub(crate) mod shared;
mod shared_audit;
pub(crate) mod shared_folder;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Error, Result, anyhow, bail};
use toolbay::core::audit::AuditSink;
use toolbay::core::audit::observer::{AuditObserver, ObservedAudit};
use toolbay::core::call::trace::Tracer;
use toolbay::core::registry::ToolEntry;
use toolbay::policy::Profile;
use toolbay::policy::audit_policy::AuditPolicy;
use toolbay::policy::capability::path_rule;
use toolbay::policy::capability::protected_paths::Protection;
use toolbay::{
    FileAudit, FileConsents, FileStopOrder, FileSwitches, HeldUpdates, Host, HostBuilder, HostError,
    PluginId, PluginInfo, Policy, Retention, StopOrder, WatchedFile,
};
use toolbay_admin::AdminState;
use toolbay_telemetry::{ExportBuffer, Metrics, OtlpEndpoint, OtlpExporter};

use crate::output::{self, CommandError, LogFormat, host_failure, progress, stderr};
use crate::process_limits;
pub(crate) use args::SetupArgs;
use load_report::ReportedWarnings;
use locked::LockPaths;
use named_path::path_failure;
use policy_file::default_policy;
pub(crate) use policy_file::{PolicyFile, credential_findings, plugin_names, policy};

/// Starts logging on stderr. stdout may carry a protocol.
pub(crate) fn start_log(args: &SetupArgs) -> Result<()> {
    let filter = &args.log;
    let filter = tracing_subscriber::EnvFilter::builder()
        .parse(filter)
        .map_err(|e| anyhow!("--log `{filter}`: {e}"))?;
    args.printer.report_panics();
    let writer = stderr::log_writer(args.log_format);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    let started = match args.log_format {
        LogFormat::Text => log.with_ansi(output::stderr_is_terminal()).try_init(),
        LogFormat::Json => {
            log.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init()
        }
    };
    started.map_err(|e| host_failure(anyhow!(e)))
}

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
    if let Some(dir) = cache_dir(args) {
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
    let places =
        [("XDG_CONFIG_HOME", ".config"), ("XDG_DATA_HOME", ".local/share"), ("XDG_CACHE_HOME", ".cache")];
    let own = places.iter().filter_map(|(variable, below_home)| user_dir(variable, below_home));
    let given = [&args.config, &args.plugins].into_iter().flatten().map(|path| absolute(path));
    let lock = LockPaths::find(args).ok().map(|paths| absolute(&paths.lock));
    for place in own.chain(given).chain(lock) {
        builder = builder.protect_path(place, Protection::WriteOnly);
    }
    for place in [absolute(&state_dir(args)?), absolute(&audit_file(args)?)] {
        builder = builder.protect_path(place, Protection::ReadAndWrite);
    }
    Ok(args
        .allow_protected_path
        .iter()
        .fold(builder, |builder, path| builder.allow_protected_path(absolute(path))))
}

/// A host with the plugin that a command names, by a file or by an id in the plugin directory; or why it has none.
pub(crate) async fn load_plugin(
    args: &SetupArgs,
    policy: Policy,
    plugin: &str,
) -> Result<Result<(Host, PluginInfo), String>> {
    let (file, host) = (Path::new(plugin), host_for(args, policy, HostPurpose::Inspect)?);
    if !file.is_file() && !plugin.ends_with(".wasm") {
        load(args, &host, ReportLevel::Warnings).await?;
        let info = host.plugin(plugin).ok_or("no plugin has this id, and there is no such file");
        return Ok(info.map(|info| (host, info)).map_err(str::to_owned));
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let id = match PluginId::new(&stem) {
        Ok(id) => id,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if let Err(error) = host.load_file(id.clone(), file).await {
        return Ok(Err(error.to_string()));
    }
    let info =
        host.plugin(id.as_str()).ok_or_else(|| host_failure(anyhow!("`{plugin}` was loaded and is gone")))?;
    Ok(Ok((host, info)))
}

/// As [`load_plugin`], with an error that names the plugin.
pub(crate) async fn require_plugin(
    args: &SetupArgs,
    policy: Policy,
    plugin: &str,
) -> Result<(Host, PluginInfo)> {
    let found = load_plugin(args, policy, plugin).await?;
    found.map_err(|problem| {
        let error = CommandError::new("unknown_plugin", format!("`{plugin}`: {problem}"));
        error.with_help("`toolbay list --all` shows the installed plugins").into()
    })
}

/// The tools of a plugin.
pub(crate) fn tools(host: &Host, plugin: &PluginId) -> Vec<Arc<ToolEntry>> {
    let catalog = host.registry().snapshot();
    catalog.tools().filter(|e| e.def.source.plugin() == Some(plugin)).cloned().collect()
}

/// The directory of compiled code; `None`: nothing is cached.
pub(crate) fn cache_dir(args: &SetupArgs) -> Option<PathBuf> {
    if args.no_cache {
        return None;
    }
    args.cache_dir.clone().or_else(|| user_dir("XDG_CACHE_HOME", ".cache"))
}

/// The state directory.
pub(crate) fn state_dir(args: &SetupArgs) -> Result<PathBuf> {
    let found = args.state_dir.clone().or_else(|| user_dir("XDG_STATE_HOME", ".local/state"));
    found.context("no state directory: give one with --state-dir DIR")
}

/// The folder of the operator's decisions.
fn decisions_dir(args: &SetupArgs) -> Result<PathBuf> {
    args.decisions_dir.clone().map_or_else(|| state_dir(args), Ok)
}

/// The stored switches of disabled tools.
pub(crate) fn switches(args: &SetupArgs) -> Result<FileSwitches> {
    Ok(FileSwitches::new(decisions_dir(args)?).with_wait(args.state_wait))
}

/// The stored order to stop all calls.
pub(crate) fn stop_order(args: &SetupArgs) -> Result<FileStopOrder> {
    Ok(FileStopOrder::new(decisions_dir(args)?).with_wait(args.state_wait))
}

/// The stored consents.
pub(crate) fn consents(args: &SetupArgs) -> Result<FileConsents> {
    Ok(FileConsents::new(decisions_dir(args)?).with_wait(args.state_wait))
}

/// The updates of a lock that wait for the operator.
pub(crate) fn held_updates(args: &SetupArgs, lock: &Path) -> Result<HeldUpdates> {
    Ok(HeldUpdates::new(state_dir(args)?, lock).with_wait(args.state_wait))
}

/// The file of the audit.
pub(crate) fn audit_file(args: &SetupArgs) -> Result<PathBuf> {
    match &args.audit {
        Some(file) => Ok(file.clone()),
        None => Ok(FileAudit::path_in(&state_dir(args)?)),
    }
}

/// The audit; `None` with `--no-audit`.
pub(crate) fn audit(args: &SetupArgs, policy: &AuditPolicy) -> Result<Option<Arc<dyn AuditSink>>> {
    if args.no_audit && policy.required {
        bail!("--no-audit: the policy says `[audit] required = true`, so every call is recorded");
    }
    if args.no_audit {
        return Ok(None);
    }
    let retention = Retention::from(policy);
    let sink = match &args.audit {
        Some(file) => FileAudit::with_retention(file, retention),
        None => FileAudit::in_state_dir(&state_dir(args)?, retention),
    };
    let file = audit_file(args)?;
    let sink = sink.map_err(|error| {
        let why = format!("the audit `{}` cannot be opened: {error}", file.display());
        CommandError::new("unusable_path", why).with_help(
            "give another place with --audit FILE or --state-dir DIR, or keep none with --no-audit",
        )
    });
    Ok(Some(Arc::new(sink?)))
}

/// The audit for a decision of the operator. A decision that must be recorded and cannot be is refused.
pub(crate) fn audit_for_decision(args: &SetupArgs) -> Result<Option<Arc<dyn AuditSink>>> {
    audit_under(args, policy(args)?.audit())
}

/// As [`audit_for_decision`], under a policy that is not written yet.
pub(crate) fn audit_under(args: &SetupArgs, policy: &AuditPolicy) -> Result<Option<Arc<dyn AuditSink>>> {
    let sink = audit(args, policy)?;
    let problem = sink.as_ref().and_then(|sink| sink.health()).and_then(|health| health.problem);
    match problem {
        Some(problem) if policy.required => Err(host_failure(anyhow!(
            "nothing was changed: the policy says `[audit] required = true`, and the audit cannot be written ({problem})"
        ))),
        _ => Ok(sink),
    }
}

/// The profile of the command line.
pub(crate) fn profile(args: &SetupArgs, policy: &Policy) -> Result<Option<Arc<Profile>>> {
    let Some(name) = &args.profile else { return Ok(None) };
    if let Some(profile) = policy.profile(name) {
        return Ok(Some(Arc::clone(profile)));
    }
    let known: Vec<String> = policy.profile_names().map(|name| format!("`{name}`")).collect();
    let has = if known.is_empty() { "no profile".to_owned() } else { known.join(", ") };
    let error = CommandError::unknown("unknown_profile", "profile", name, policy.profile_names());
    Err(error.with_help(format!("the policy has {has}")).into())
}

/// How much of a load is reported on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportLevel {
    /// Nothing: the command reports it in its own output.
    Quiet,
    /// Files that are not loaded.
    Problems,
    /// Files that are not loaded, and warnings.
    Warnings,
}

/// Builds the host and loads the services of the policy and the plugin directory.
pub(crate) async fn load_host(args: &SetupArgs, tell: ReportLevel, purpose: HostPurpose) -> Result<Host> {
    let host = host(args, purpose)?;
    load(args, &host, tell).await?;
    Ok(host)
}

/// Records the names of a host that has all its plugins and services, for completions.
pub(crate) fn record_names(args: &SetupArgs, host: &Host) {
    if let (Some(cache), Ok(dir)) = (cache_dir(args), plugin_folder(args)) {
        names::record(&cache, &dir, host);
    }
}

/// Loads the services of the policy and the plugin directory into a host.
pub(crate) async fn load(args: &SetupArgs, host: &Host, tell: ReportLevel) -> Result<()> {
    let (services, plugins) =
        tokio::join!(services::wait_for(args, host, |_| true), load_plugins(args, host, tell));
    plugins?;
    record_names(args, host);
    services::report(args.printer, &services, tell);
    if tell == ReportLevel::Warnings {
        ReportedWarnings::default().report_policy(args, host);
    }
    Ok(())
}

/// Loads the plugin directory and the lock.
pub(crate) async fn load_plugins(args: &SetupArgs, host: &Host, tell: ReportLevel) -> Result<()> {
    profile(args, &host.policy())?;
    // Without a place for the lock, there is none.
    let lock = LockPaths::find(args).ok();
    let has_lock = lock.as_ref().is_some_and(|paths| paths.lock.exists());
    let others = host.policy().openapi_services().next().is_some() || has_lock;
    let mut reports = Vec::new();
    if let Some(dir) = plugin_dir(args, others)? {
        reports.push(host.load_dir(&dir).await.map_err(directory_failure)?);
    }
    // After the directory, whose plugins take precedence.
    if let Some(lock) = &lock {
        reports.push(locked::load(lock, host).await?);
    }
    for report in reports {
        if tell != ReportLevel::Quiet {
            load_report::report_problems(args.printer, &report.problems);
        }
        if tell == ReportLevel::Warnings {
            load_report::report_warnings(
                args.printer,
                report.warnings.iter().map(|one| (one.plugin.as_str(), one.message.as_str())),
            );
        }
    }
    Ok(())
}

fn directory_failure(error: HostError) -> Error {
    match error {
        HostError::Directory { path, error } => {
            let text = format!("the plugin directory `{}` cannot be read", path.display());
            path_failure(Error::from(error).context(text))
        }
        other => host_failure(other),
    }
}

/// The user's data directory of this program.
pub(crate) fn data_dir() -> Option<PathBuf> {
    user_dir("XDG_DATA_HOME", ".local/share")
}

/// The plugin directory, which may not exist.
pub(crate) fn plugin_folder(args: &SetupArgs) -> Result<PathBuf> {
    let default = || data_dir().map(|dir| dir.join("plugins"));
    let place = args.plugins.clone().or_else(default);
    place.context("no plugin directory: give one with --plugins DIR")
}

/// Watches the files that operators change.
pub(crate) fn watch_operator_files(args: &SetupArgs) -> Result<Vec<WatchedFile>> {
    let mut watched = vec![watch_switches(args)?, watch_stop_order(args)?];
    watched.extend(watch_policy(args)?);
    Ok(watched)
}

/// Watches the policy file; `None`: there is no path for one.
fn watch_policy(args: &SetupArgs) -> Result<Option<WatchedFile>> {
    let working_dir = current_dir()?;
    let file = args.config.as_ref().map(|file| working_dir.join(file)).or_else(default_policy);
    let args = args.clone();
    let read = move || policy(&args).map_err(|error| format!("{error:#}"));
    Ok(file.map(|file| WatchedFile::policy(file, read)))
}

/// Watches the stored switches.
fn watch_switches(args: &SetupArgs) -> Result<WatchedFile> {
    let (printer, switches) = (args.printer, switches(args)?);
    Ok(WatchedFile::file(switches.file(), move |host| match switches.load() {
        Ok(switches) => host.registry().set_switches(&switches),
        Err(problem) => printer.error(&format!("the disabled tools stay as before: {problem}")),
    }))
}

/// Watches the stored order to stop all calls.
fn watch_stop_order(args: &SetupArgs) -> Result<WatchedFile> {
    let (printer, order) = (args.printer, stop_order(args)?);
    Ok(WatchedFile::file(order.file(), move |host| match order.load() {
        Ok(order) => apply_stop_order(host, order),
        Err(problem) => {
            printer.error(&format!("the order to stop all calls stays as before: {problem}"));
        }
    }))
}

/// Watches the service documents that are files.
pub(crate) fn watch_documents(host: &Host) -> Vec<WatchedFile> {
    let policy = host.policy();
    policy.openapi_services().filter_map(|service| service.file()).map(WatchedFile::document).collect()
}

/// The plugin directory; `None` if it is the default one and does not exist. `others`: tools of services exist without
/// it.
fn plugin_dir(args: &SetupArgs, others: bool) -> Result<Option<PathBuf>> {
    let dir = plugin_folder(args)?;
    if args.plugins.is_some() || dir.exists() {
        return Ok(Some(dir));
    }
    if others {
        return Ok(None);
    }
    let shown = dir.display();
    args.printer.note(&format!(
        "there are no plugins; put `.wasm` files into `{shown}`, or name a directory with `--plugins`"
    ));
    Ok(None)
}

pub(crate) fn current_dir() -> Result<PathBuf> {
    std::env::current_dir().context("the current directory is gone").map_err(host_failure)
}

/// `toolbay` in one of the user's directories. A relative value is ignored (XDG base directory specification).
fn user_dir(variable: &str, below_home: &str) -> Option<PathBuf> {
    let given = std::env::var_os(variable).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let base = given.or_else(|| Some(std::env::home_dir()?.join(below_home)))?;
    Some(base.join("toolbay"))
}

/// The user who runs the command, for the audit.
pub(crate) fn operator() -> String {
    let name = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
    let uid = rustix::process::getuid().as_raw();
    toolbay_policy::excerpt::one_line(format!("{name} (uid {uid})").trim(), 100)
}
