//! `toolbay serve`: MCP over stdin and stdout.

use std::sync::{Arc, Weak};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use toolbay::{Filter, Host, Watch, WatchOptions, Watched};
use toolbay_core::event::Event;
use toolbay_mcp::{Bridge, Options, Server};

use crate::args::SetupArgs;
use crate::output;
use crate::setup::{self, Purpose, Tell};
use crate::{Stop, Verdict, servers};

/// What the client may tell the model of a list that has nearly nothing in it.
const LAZY: &str = "Most tools of this server are not listed. Find them with tool_search, learn their arguments with \
                    tool_describe, call them with tool_call.";

pub(crate) async fn run(args: &SetupArgs, lazy: bool) -> Result<Verdict, Stop> {
    // Before they are read: what changes from here on is noticed.
    let mut watched: Vec<Watched> =
        setup::watched_policy(args)?.into_iter().chain([setup::watched_switches(args)?]).collect();
    let host = setup::loaded(args, Tell::Warnings, Purpose::Run).await?;
    watched.extend(setup::watched_documents(&host));
    let server = Server::new(
        host.registry().clone(),
        host.pipeline().clone(),
        Filter { lazy, ..Filter::of_profile(setup::profile(args, &host)?) },
        Options {
            max_line_bytes: longest_line(&host),
            instructions: lazy.then(|| LAZY.to_owned()),
            ..Options::default()
        },
    );
    let bridge = Arc::new(servers::bridge(&host));
    bridge.apply(&host.policy());
    let (changed, follows) =
        (server.clone(), Follows { host: host.clone(), bridge: Arc::downgrade(&bridge) });
    host.events().listen(move |event| {
        tell(event);
        if may_change_lists(event) {
            changed.notify_changed();
        }
        if matches!(event, Event::PolicyReloaded { .. }) {
            follows.policy();
        }
    });
    let options = WatchOptions { files: watched, ..WatchOptions::default() };
    let watch = host.watch(&setup::plugin_place(args)?, options).await;
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    tokio::spawn(async move {
        wait_for_signal(&watch).await;
        stop.cancel();
    });
    let served = toolbay_mcp::serve_stdio(server, cancel).await.map_err(Stop::Host);
    bridge.close().await;
    served?;
    Ok(Verdict::Good)
}

/// What the bridge does when the policy is read again.
struct Follows {
    host: Host,
    bridge: Weak<Bridge>,
}

impl Follows {
    /// Starts, ends and begins anew what changed; in a task, since whoever tells may hold what that needs.
    fn policy(&self) {
        let (host, bridge) = (self.host.clone(), Weak::clone(&self.bridge));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if let Some(bridge) = bridge.upgrade() {
                bridge.apply(&host.policy());
            }
        });
    }
}

/// Tells the operator what became of a change, on stderr.
fn tell(event: &Event) {
    match event {
        Event::NotLoaded { file, problem, kept } => {
            output::complain(&format!("{file}: {problem}{}", goes_on(*kept)));
        }
        Event::Held { reason, kept, .. } => output::complain(&format!("{reason}{}", goes_on(*kept))),
        Event::PolicyRefused { problem } => {
            output::complain(&format!("the policy before holds: {problem}"));
        }
        Event::PolicyReloaded { restart } => {
            output::note("the policy was read again");
            if !restart.is_empty() {
                let keys = restart.join("`, `");
                output::complain(&format!("`{keys}` of [host] hold from the next start on"));
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
    let catalog = host.registry().snapshot();
    let largest = catalog.tools().map(|entry| entry.args_bytes).max().unwrap_or(0);
    let line = usize::try_from(largest.saturating_mul(4)).unwrap_or(usize::MAX).saturating_add(64 << 10);
    line.max(Options::default().max_line_bytes)
}

/// Waits for a signal that ends the server. SIGHUP reads everything anew.
async fn wait_for_signal(watch: &Watch) {
    let signals =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), signal(SignalKind::hangup()));
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) = signals else {
        tracing::error!("signals can not be waited for; the server ends when its input does");
        return std::future::pending().await;
    };
    loop {
        tokio::select! {
            _ = interrupt.recv() => return,
            _ = terminate.recv() => return,
            _ = hangup.recv() => watch.reload(),
        }
    }
}
