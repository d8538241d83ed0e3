//! `toolbay serve`: MCP over stdin and stdout, or over HTTP.

mod http;

use std::pin::pin;
use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use toolbay::{Filter, Host, Policy, Watch, WatchOptions, Watched};
use toolbay_core::registry::event::Event;
use toolbay_mcp::http::Ends;
use toolbay_mcp::{Bridge, Options, Server};

use crate::command::args::SetupArgs;
use crate::command::servers;
use crate::command::setup::{self, Purpose, Tell};
use crate::command::told::Told;
use crate::output;
use crate::output::stderr;
use crate::{Verdict, host_failed};

/// What the client may tell the model of a list that has nearly nothing in it.
const LAZY: &str = "Most tools of this server are not listed. Find them with tool_search, learn their arguments with \
                    tool_describe, call them with tool_call.";

pub(crate) async fn run(
    args: &SetupArgs,
    lazy: bool,
    places: &[String],
    hangup: Option<Signal>,
) -> Result<Verdict> {
    stderr::serve();
    // Before they are read: what changes from here on is noticed.
    let mut watched: Vec<Watched> =
        setup::watched_policy(args)?.into_iter().chain([setup::watched_switches(args)?]).collect();
    let host = setup::host(args, Purpose::Run)?;
    let later = http::Later::default();
    // Clients are greeted at once; what they ask of tools waits until they are loaded.
    let loaded = CancellationToken::new();
    let options = Options {
        max_line_bytes: longest_line(&host),
        instructions: lazy.then(|| LAZY.to_owned()),
        ..Options::default()
    };
    let filter = Filter { lazy, ..Filter::of_profile(setup::profile(args, &host.policy())?) };
    // Other servers come while plugins are loaded, and may write nothing that is still to be loaded.
    host.protect_sources(&setup::plugin_place(args)?);
    let bridge = Arc::new(servers::bridge(&host).with_last_known());
    bridge.apply(&host.policy());
    let server = Server::new(host.registry().clone(), host.pipeline().clone(), filter, options)
        .waiting_for(loaded.clone())
        .bridged(&bridge);
    let reloaded = Arc::new(Notify::new());
    let told = Arc::new(Told::default());
    let newest = host.clone();
    let follow = Bridge::follow(Arc::downgrade(&bridge), Arc::clone(&reloaded), move || newest.policy());
    // Follows the policy with the bridge until the server ends.
    let follow = AbortOnDropHandle::new(tokio::spawn(follow));
    let policy = Mutex::new(host.policy());
    let news = News { loaded: loaded.clone(), told: Arc::clone(&told), args: args.clone(), policy };
    listen(&server, later.clone(), &host, Arc::clone(&reloaded), news);
    let loading = async {
        setup::load_told(args, &host, Tell::Warnings, &told).await?;
        reloaded.notify_one();
        watched.extend(setup::watched_documents(&host));
        loaded.cancel();
        let options = WatchOptions { files: watched, ..WatchOptions::default() };
        anyhow::Ok(host.watch(&setup::plugin_place(args)?, options).await)
    };
    if places.is_empty() {
        let ends = Ends::default();
        let serving = toolbay_mcp::serve_stdio(server, ends.clone());
        let served = serve(serving, loading, &ends, &later, hangup).await;
        close(follow, &bridge, &host).await;
        served?.map_err(host_failed)?;
    } else {
        let listening = http::listen(places, &host, server, &later).await?;
        let ends = listening.ends();
        let served = serve(listening.run(), loading, &ends, &later, hangup).await;
        close(follow, &bridge, &host).await;
        served?;
    }
    Ok(Verdict::Good)
}

/// Ends the bridge, once nothing starts servers any more, and completes the audit.
async fn close(follow: AbortOnDropHandle<()>, bridge: &Bridge, host: &Host) {
    follow.abort();
    // That it was ended is what was wanted.
    drop(follow.await);
    bridge.close().await;
    host.pipeline().audit().finish();
}

/// Serves while the plugins are loaded, and then until it ends by itself or by a signal.
async fn serve<T>(
    serving: impl Future<Output = T>,
    loading: impl Future<Output = Result<Watch>>,
    ends: &Ends,
    later: &http::Later,
    hangup: Option<Signal>,
) -> Result<T> {
    let mut serving = pin!(serving);
    let mut loading = pin!(loading);
    let mut signals = Signals::new(hangup);
    let mut watch: Option<Watch> = None;
    let mut reload = false;
    loop {
        let loaded = watch.is_some();
        tokio::select! {
            ended = &mut serving => return Ok(ended),
            made = &mut loading, if !loaded => watch = Some(made?),
            asked = signals.next() => match asked {
                SignalRequest::Reload => {
                    later.reload_files();
                    reload = true;
                }
                SignalRequest::End => {
                    // Whoever says it twice does not want to wait.
                    let end = if ends.drain.is_cancelled() { &ends.stop } else { &ends.drain };
                    end.cancel();
                }
            }
        }
        // What was asked for while plugins were loaded is done afterwards.
        if let Some(watch) = watch.as_ref().filter(|_| reload) {
            watch.reload();
            reload = false;
        }
    }
}

/// What the operator is told of changes, on stderr.
struct News {
    /// What becomes of the first plugins, whoever loads them tells.
    loaded: CancellationToken,
    told: Arc<Told>,
    args: SetupArgs,
    /// The policy whose reading was told last.
    policy: Mutex<Arc<Policy>>,
}

impl News {
    fn tell(&self, event: &Event, host: &Host) {
        if !self.loaded.is_cancelled() {
            return;
        }
        let mut before = self.policy.lock();
        let is_another = !Arc::ptr_eq(&before, &host.policy());
        match event {
            // Every plugin is joined with its grants again when the policy is another: that is told once.
            Event::Replaced { diff, .. } if is_another && diff.changes().is_empty() => return,
            Event::PolicyReloaded { .. } => *before = host.policy(),
            _ => {}
        }
        drop(before);
        tell(event);
        if matches!(event, Event::PolicyReloaded { .. }) {
            self.told.policy(&self.args, host);
        }
    }
}

/// Tells clients and the operator what changes.
fn listen(server: &Server, later: http::Later, host: &Host, reloaded: Arc<Notify>, news: News) {
    let (told, changed) = (host.clone(), server.clone());
    host.events().listen(move |event| {
        news.tell(event, &told);
        later.tell(event, &told);
        if may_change_lists(event) {
            changed.notify_changed();
        }
        if matches!(event, Event::PolicyReloaded { .. }) {
            // One task follows, in its own time: whoever tells may hold what that needs.
            reloaded.notify_one();
        }
    });
}

/// Tells the operator what became of a change, on stderr.
fn tell(event: &Event) {
    match event {
        Event::NotLoaded { file, problem, kept } => {
            output::warn(&format!("{file}: {problem}{}", goes_on(*kept)));
        }
        Event::Held { reason, kept, .. } => output::warn(&format!("{reason}{}", goes_on(*kept))),
        Event::PolicyRefused { problem } => {
            output::complain(&format!("the policy before holds: {problem}"));
        }
        Event::PolicyReloaded { restart } => {
            output::note("the policy was read again");
            if !restart.is_empty() {
                let keys = restart.join("`, `");
                output::warn(&format!("`{keys}` of [host] hold from the next start on"));
            }
        }
        Event::Registered { source, .. } => output::note(&format!("{source} was added")),
        Event::Replaced { source, diff, .. } => {
            output::note(&format!("{source} was replaced"));
            diff.changes().iter().for_each(|change| output::note(&format!("tool {change}")));
        }
        Event::Unregistered { source, .. } => output::note(&format!("{source} was removed")),
        _ => {}
    }
}

fn goes_on(kept: bool) -> &'static str {
    if kept { "; its older version goes on" } else { "" }
}

/// Whether what clients are listed may be another one now.
fn may_change_lists(event: &Event) -> bool {
    matches!(
        event,
        Event::Registered { .. }
            | Event::Replaced { .. }
            | Event::Unregistered { .. }
            | Event::Enabled { .. }
            | Event::Disabled { .. }
            | Event::Metadata { .. }
            | Event::Availability { .. }
            | Event::PolicyReloaded { .. }
    )
}

/// Room for the largest arguments that any tool takes, each character escaped, and the request around them.
fn longest_line(host: &Host) -> usize {
    let largest = host.policy().largest_args_bytes();
    let line = usize::try_from(largest.saturating_mul(4)).unwrap_or(usize::MAX).saturating_add(64 << 10);
    line.max(Options::default().max_line_bytes)
}

/// What a signal asks a server for.
#[derive(Debug, Clone, Copy)]
enum SignalRequest {
    /// To read everything anew: SIGHUP.
    Reload,
    /// To end: SIGINT, SIGTERM.
    End,
}

/// The signals that mean something to a server.
struct Signals(Option<[Signal; 3]>);

impl Signals {
    /// With the SIGHUPs that came since the process began.
    fn new(hangup: Option<Signal>) -> Self {
        let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
        let (Ok(interrupt), Ok(terminate), Some(hangup)) = (interrupt, terminate, hangup) else {
            tracing::error!("signals cannot be received; the server ends when its input does");
            return Self(None);
        };
        Self(Some([interrupt, terminate, hangup]))
    }

    /// Waits for the next one.
    async fn next(&mut self) -> SignalRequest {
        let Some([interrupt, terminate, hangup]) = &mut self.0 else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => SignalRequest::End,
            _ = terminate.recv() => SignalRequest::End,
            _ = hangup.recv() => SignalRequest::Reload,
        }
    }
}
