//! `toolbay serve`: MCP over stdin and stdout, or over HTTP.

mod audit_forwarder;
mod http;
mod operator_files;
mod operators;
mod probe;
mod replica;
mod service_manager;

use std::pin::pin;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use toolbay::{Filter, HeapTrimmer, Host, Policy, WatchHandle, WatchOptions};
use toolbay_admin::{ServerControl, ServerTransport};
use toolbay_core::registry::event::HostEvent;
use toolbay_mcp::http::ShutdownSignals;
use toolbay_mcp::{Bridge, Options, Server};
use toolbay_telemetry::OtlpExporter;

use crate::output::{CommandStatus, Printer, host_failure};
use crate::report::large_sources::LargeSourceReporter;
use crate::setup::load_report::ReportedWarnings;
use crate::setup::{self, ReportLevel, ServerHost, SetupArgs, services};
use operators::OperatorAccess;
use probe::ReadinessProbe;
use replica::SharedServer;

/// Instructions for the model when most tools are not listed.
const LAZY: &str = "Most tools of this server are not listed. Find them with tool_search, learn their arguments with \
                    tool_describe, call them with tool_call.";

/// The options of `toolbay serve`.
#[derive(Debug)]
pub(crate) struct ServeOptions {
    /// List few tools, and let clients find the others.
    pub(crate) lazy: bool,
    /// The addresses of HTTP; none for stdin and stdout.
    pub(crate) addresses: Vec<String>,
    /// The name among the servers that share state.
    pub(crate) replica: Option<String>,
}

pub(crate) async fn run(
    mut args: SetupArgs,
    options: ServeOptions,
    hangup: Option<Signal>,
) -> Result<CommandStatus> {
    let ServeOptions { lazy, addresses, replica } = options;
    let _heap = HeapTrimmer::start();
    let mut shared = replica::join(&mut args, replica).await?;
    let args = &args;
    // Watch the files before reading them, so that no change is missed. Published ones are applied as they come.
    let mut watched = if shared.is_some() { Vec::new() } else { setup::watch_operator_files(args)? };
    let ServerHost { host, admin, exporter } = setup::server_host(args, |builder| match &shared {
        Some(shared) => shared.provide(builder),
        None => builder,
    })?;
    shared.iter_mut().for_each(|shared| shared.attach(&host));
    let http_handle = http::HttpHandle::new(args.printer);
    // The server answers `initialize` at once. Requests about tools wait until plugins are loaded.
    let loaded = CancellationToken::new();
    let filter = Filter { lazy, ..Filter::for_profile(setup::profile(args, &host.policy())?) };
    let large_sources = Arc::new(LargeSourceReporter::new(filter.clone()));
    // MCP servers start while plugins load. They must not write files that are still to be loaded.
    host.protect_sources(&setup::plugin_folder(args)?);
    let bridge = Arc::new(host.mcp_bridge().with_saved_lists());
    bridge.apply(&host.policy());
    let (probe, _probes) = ReadinessProbe::start(args.printer, &host);
    let server = mcp_server(&host, filter)
        .with_loaded_signal(loaded.clone())
        .with_probe(probe.results())
        .with_bridge(&bridge);
    let server = with_request_state_key(args.printer, server, &host.policy(), shared.is_some())?;
    let reloaded = Arc::new(Notify::new());
    let warnings = Arc::new(ReportedWarnings::default());
    let newest = host.clone();
    let follow =
        Bridge::follow_policy(Arc::downgrade(&bridge), Arc::clone(&reloaded), move || newest.policy());
    // Follows the policy with the bridge until the server ends.
    let follow = AbortOnDropHandle::new(tokio::spawn(follow));
    let policy = Mutex::new(host.policy());
    let reporter = ChangeReporter {
        loaded: loaded.clone(),
        warnings: Arc::clone(&warnings),
        large_sources: Arc::clone(&large_sources),
        args: args.clone(),
        policy,
    };
    follow_events(&server, http_handle.clone(), &host, Arc::clone(&reloaded), reporter);
    let _documents = load_documents(args.printer, host.clone());
    let loading = async {
        // The server is not ready before the first probe.
        let load = setup::load_plugins(args, &host, ReportLevel::Warnings);
        tokio::join!(load, probe.run(&host)).0?;
        setup::record_names(args, &host);
        warnings.report_policy(args, &host);
        reloaded.notify_one();
        if let Some(shared) = &shared {
            shared.ready().await;
        }
        watched.extend(setup::watch_documents(&host));
        loaded.cancel();
        large_sources.report(args.printer, &host);
        let options = WatchOptions { files: watched, ..WatchOptions::default() };
        anyhow::Ok(host.watch(&setup::plugin_folder(args)?, options).await)
    };
    let (shutdown, access, serving) = if addresses.is_empty() {
        let access = OperatorAccess::open(args, &host, ServerTransport::Stdio, admin).await?;
        let shutdown = ShutdownSignals::default();
        let serving = toolbay_mcp::serve_stdio(server, shutdown.clone());
        (shutdown, access, serving.map(|served| served.map_err(host_failure)).left_future())
    } else {
        let listening = http::listen(args.printer, &addresses, &host, server, &http_handle).await?;
        let transport = ServerTransport::Http(listening.endpoints());
        let access = OperatorAccess::open(args, &host, transport, admin).await?;
        listening.announce();
        (listening.shutdown(), access, listening.run().map(Ok).right_future())
    };
    let served = serve(serving, loading, &shutdown, &http_handle, Signals::new(hangup, &access)).await;
    close(follow, &bridge, &host, exporter).await;
    leave(shared).await;
    served?;
    Ok(CommandStatus::Success)
}

/// Loads the documents of the policy beside everything else. The first step is done at once, so that lists know which
/// sources are to come.
fn load_documents(printer: Printer, host: Host) -> Option<AbortOnDropHandle<()>> {
    let mut load = Box::pin(async move {
        services::report(printer, &host.load_openapi().await, ReportLevel::Warnings);
    });
    match load.as_mut().now_or_never() {
        Some(()) => None,
        // The server owns the task. It ends when each document has come or failed.
        None => Some(AbortOnDropHandle::new(tokio::spawn(load))),
    }
}

/// The MCP server for a host, with the texts and limits of its policy.
fn mcp_server(host: &Host, filter: Filter) -> Server {
    let options = Options {
        max_line_bytes: longest_line(host),
        instructions: filter.lazy.then(|| LAZY.to_owned()),
        ..Options::default()
    };
    let server = Server::new(host.registry().clone(), host.pipeline().clone(), filter, options);
    server.set_instructions(host.policy().serve());
    server.set_usage_meta(host.policy().serve());
    server
}

/// Gives the server the key of `requestState` that the policy names.
fn with_request_state_key(
    printer: Printer,
    server: Server,
    policy: &Policy,
    is_shared: bool,
) -> Result<Server> {
    let Some(file) = &policy.serve().request_state_key else {
        if is_shared {
            printer.warning(
                "a client that is asked for input must come back to this server: give all servers one key with \
                 `request_state_key` of [serve]",
            );
        }
        return Ok(server);
    };
    let key = toolbay_mcp::read_request_state_key(file).map_err(anyhow::Error::msg);
    let key = key.with_context(|| format!("[serve] `request_state_key`: `{}`", file.display()))?;
    Ok(server.with_request_state_key(&key))
}

/// Leaves the servers that share state.
async fn leave(shared: Option<SharedServer>) {
    if let Some(shared) = shared {
        shared.leave().await;
    }
}

/// Closes the bridge after its follower, which could start servers, completes the audit, and exports the last spans.
async fn close(follow: AbortOnDropHandle<()>, bridge: &Bridge, host: &Host, exporter: Option<OtlpExporter>) {
    follow.abort();
    // The task was aborted, so its result is an error.
    drop(follow.await);
    bridge.close().await;
    host.pipeline().audit().finish();
    if let Some(exporter) = exporter {
        exporter.shut_down().await;
    }
}

/// Serves while plugins load, and then until the server ends or a signal ends it.
async fn serve(
    serving: impl Future<Output = Result<()>>,
    loading: impl Future<Output = Result<WatchHandle>>,
    shutdown: &ShutdownSignals,
    http_handle: &http::HttpHandle,
    mut signals: Signals,
) -> Result<()> {
    let mut serving = pin!(serving);
    let mut loading = pin!(loading);
    let mut watch: Option<WatchHandle> = None;
    let mut reload = false;
    loop {
        let loaded = watch.is_some();
        tokio::select! {
            ended = &mut serving => return ended,
            started = &mut loading, if !loaded => {
                watch = Some(started?);
                service_manager::notify_ready();
            }
            request = signals.next() => match request {
                SignalRequest::Reload => {
                    http_handle.reload_files();
                    reload = true;
                }
                SignalRequest::End => {
                    service_manager::notify_stopping();
                    // A second signal stops without waiting for calls.
                    let token = if shutdown.drain.is_cancelled() { &shutdown.stop } else { &shutdown.drain };
                    token.cancel();
                }
            }
        }
        // A reload during the load runs after it.
        if let Some(watch) = watch.as_ref().filter(|_| reload) {
            service_manager::notify_reloading();
            watch.reload();
            service_manager::notify_ready();
            reload = false;
        }
    }
}

/// Reports changes to the operator on stderr.
struct ChangeReporter {
    /// Cancelled once the first load has reported its own changes.
    loaded: CancellationToken,
    warnings: Arc<ReportedWarnings>,
    large_sources: Arc<LargeSourceReporter>,
    args: SetupArgs,
    /// The policy of the last report.
    policy: Mutex<Arc<Policy>>,
}

impl ChangeReporter {
    fn report(&self, event: &HostEvent, host: &Host) {
        if !self.loaded.is_cancelled() {
            return;
        }
        let printer = self.args.printer;
        let mut before = self.policy.lock();
        let is_another = !Arc::ptr_eq(&before, &host.policy());
        match event {
            // A new policy replaces every plugin's grants. One line reports that.
            HostEvent::Replaced { diff, .. } if is_another && diff.changes().is_empty() => return,
            HostEvent::PolicyReloaded { .. } => {
                let old = std::mem::replace(&mut *before, host.policy());
                if old.admin() != before.admin() {
                    printer.warning("[admin] applies after a restart");
                }
                if old.telemetry() != before.telemetry() {
                    printer.warning("[telemetry] applies after a restart");
                }
                if old.serve().request_state_key != before.serve().request_state_key {
                    printer.warning("`request_state_key` of [serve] applies after a restart");
                }
            }
            _ => {}
        }
        drop(before);
        report_event(printer, event);
        if matches!(event, HostEvent::Registered { .. } | HostEvent::Replaced { .. }) {
            self.large_sources.report(printer, host);
        }
        if matches!(event, HostEvent::PolicyReloaded { .. }) {
            self.warnings.report_policy(&self.args, host);
        }
    }
}

/// Notifies clients and reports to the operator when something changes.
fn follow_events(
    server: &Server,
    http_handle: http::HttpHandle,
    host: &Host,
    reloaded: Arc<Notify>,
    reporter: ChangeReporter,
) {
    let (reloaded_host, server) = (host.clone(), server.clone());
    host.events().listen(move |event| {
        reporter.report(event, &reloaded_host);
        http_handle.reload_policy(event, &reloaded_host);
        if may_change_lists(event) {
            server.notify_changed();
        }
        if matches!(event, HostEvent::PolicyReloaded { .. }) {
            server.set_instructions(reloaded_host.policy().serve());
            server.set_usage_meta(reloaded_host.policy().serve());
            // A separate task follows the policy, because the emitter may hold locks that it needs.
            reloaded.notify_one();
        }
    });
}

/// Reports one change on stderr.
fn report_event(printer: Printer, event: &HostEvent) {
    match event {
        HostEvent::NotLoaded { file, problem, kept } => {
            printer.warning(&format!("{file}: {problem}{}", kept_clause(*kept)));
        }
        HostEvent::ConsentRequired { reason, kept, .. } => {
            printer.warning(&format!("{reason}{}", kept_clause(*kept)));
        }
        HostEvent::PolicyRefused { problem } => {
            printer.error(&format!("the previous policy stays in force: {problem}"));
        }
        HostEvent::PolicyReloaded { restart } => {
            printer.note("the policy was read again");
            if !restart.is_empty() {
                let keys = restart.join("`, `");
                printer.warning(&format!("`{keys}` of [host] apply after a restart"));
            }
        }
        HostEvent::Registered { source, .. } => printer.note(&format!("{source} was added")),
        HostEvent::Replaced { source, diff, .. } => {
            printer.note(&format!("{source} was replaced"));
            diff.changes().iter().for_each(|change| printer.note(&format!("tool {change}")));
        }
        HostEvent::Unregistered { source, .. } => printer.note(&format!("{source} was removed")),
        _ => {}
    }
}

fn kept_clause(kept: bool) -> &'static str {
    if kept { "; the older version stays loaded" } else { "" }
}

/// Whether an event may change the lists of clients.
fn may_change_lists(event: &HostEvent) -> bool {
    matches!(
        event,
        HostEvent::Registered { .. }
            | HostEvent::Replaced { .. }
            | HostEvent::Unregistered { .. }
            | HostEvent::Enabled { .. }
            | HostEvent::Disabled { .. }
            | HostEvent::Metadata { .. }
            | HostEvent::Availability { .. }
            | HostEvent::PolicyReloaded { .. }
    )
}

/// Room for the largest arguments of any tool with every character escaped, and for the request around them.
fn longest_line(host: &Host) -> usize {
    let largest = host.policy().largest_args_bytes();
    let line = usize::try_from(largest.saturating_mul(4)).unwrap_or(usize::MAX).saturating_add(64 << 10);
    line.max(Options::default().max_line_bytes)
}

/// What a signal or an operator requests from a server.
#[derive(Debug, Clone, Copy)]
enum SignalRequest {
    /// Reload everything: SIGHUP, or through the control socket.
    Reload,
    /// End: SIGINT, SIGTERM.
    End,
}

/// The requests that a server handles beside its protocol.
struct Signals {
    /// SIGINT, SIGTERM, SIGHUP.
    signals: Option<[Signal; 3]>,
    control: ServerControl,
}

impl Signals {
    /// The signals, with the SIGHUPs since the process began, and the reloads that operators ask for.
    fn new(hangup: Option<Signal>, access: &OperatorAccess) -> Self {
        let control = access.control.clone();
        let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
        let (Ok(interrupt), Ok(terminate), Some(hangup)) = (interrupt, terminate, hangup) else {
            tracing::error!("signals cannot be received; the server ends when its input does");
            return Self { signals: None, control };
        };
        Self { signals: Some([interrupt, terminate, hangup]), control }
    }

    /// Waits for the next request.
    async fn next(&mut self) -> SignalRequest {
        let Self { signals, control } = self;
        tokio::select! {
            () = control.reload_requested() => SignalRequest::Reload,
            request = Self::next_signal(signals) => request,
        }
    }

    async fn next_signal(signals: &mut Option<[Signal; 3]>) -> SignalRequest {
        let Some([interrupt, terminate, hangup]) = signals else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => SignalRequest::End,
            _ = terminate.recv() => SignalRequest::End,
            _ = hangup.recv() => SignalRequest::Reload,
        }
    }
}
