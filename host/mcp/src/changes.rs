//! Telling clients what has changed: lists of tools, prompts and resources, and single resources they wait for.

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::Hasher;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{ErrorData, ResourceUpdatedNotificationParam};
use rmcp::service::SubscriptionSink;
use rmcp::{Peer, RoleServer};
use tokio_util::sync::CancellationToken;
use toolbay_core::view::View;

use crate::convert::{self, Era};
use crate::server::Server;
use crate::shelf;

/// How often a connection that waits for changes looks whether its client is still there.
const PEER_CHECK: Duration = Duration::from_secs(60);
/// Single resources that one client waits for.
pub const MAX_WATCHED: usize = 64;
/// Longest address that a client may wait for, in bytes.
const MAX_ADDRESS: usize = 2048;

/// What there is, as numbers: something else is another number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listing {
    tools: u64,
    prompts: u64,
    resources: u64,
    watched: BTreeMap<String, u64>,
}

impl Listing {
    fn of(view: &View, watched: &BTreeMap<String, u64>) -> Self {
        let tools = view.definitions().map(|entry| convert::tool(entry, Era::Modern));
        let resources =
            (numbered(shelf::resources(view).values()), numbered(shelf::templates(view).values()));
        let watched = watched.keys().map(|uri| (uri.clone(), contents(view, uri)));
        Self {
            tools: numbered(tools),
            prompts: numbered(shelf::prompts(view).values()),
            resources: numbered([resources.0, resources.1].iter()),
            watched: watched.collect(),
        }
    }

    fn changes(&self, before: &Self) -> Vec<Change> {
        let mut found = Vec::new();
        let differ = [
            (self.tools != before.tools, Change::Tools),
            (self.prompts != before.prompts, Change::Prompts),
            (self.resources != before.resources, Change::Resources),
        ];
        found.extend(differ.into_iter().filter(|(differs, _)| *differs).map(|(_, change)| change));
        let other =
            self.watched.iter().filter(|(uri, now)| before.watched.get(*uri).is_some_and(|it| it != *now));
        found.extend(other.map(|(uri, _)| Change::Resource(uri.clone())));
        found
    }
}

/// What is at an address, as a number.
fn contents(view: &View, uri: &str) -> u64 {
    numbered(shelf::read(view, uri).and_then(Result::ok).iter())
}

/// What is no JSON is listed as nothing, and hashed as nothing.
fn numbered<T: serde::Serialize>(things: impl Iterator<Item = T>) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    for thing in things {
        hasher.write(&serde_json::to_vec(&thing).unwrap_or_default());
        hasher.write_u8(0xff);
    }
    hasher.finish()
}

/// Something that is another one now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources or that of templates.
    Resources,
    /// What is at this address.
    Resource(String),
}

/// The resources that a client of before 2026-07-28 waits for, each with what was there when it began to.
#[derive(Debug, Default)]
pub(crate) struct Watched(Mutex<BTreeMap<String, u64>>);

impl Watched {
    /// Waits for one more.
    pub(crate) fn add(&self, view: &View, uri: String) -> Result<(), ErrorData> {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if uri.len() > MAX_ADDRESS || (watched.len() >= MAX_WATCHED && !watched.contains_key(&uri)) {
            let text = format!("at most {MAX_WATCHED} resources can be waited for; give one up first");
            return Err(ErrorData::invalid_request(text, None));
        }
        let now = contents(view, &uri);
        watched.insert(uri, now);
        Ok(())
    }

    /// Waits for one less.
    pub(crate) fn remove(&self, uri: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uri);
    }

    fn all(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Tells a client with a handshake what has changed, until it has gone.
pub(crate) async fn tell_peer(
    server: &Server,
    peer: &Peer<RoleServer>,
    watched: &Watched,
    closed: &CancellationToken,
) {
    let tell = |change: Change| async move {
        match change {
            Change::Tools => peer.notify_tool_list_changed().await.is_ok(),
            Change::Prompts => peer.notify_prompt_list_changed().await.is_ok(),
            Change::Resources => peer.notify_resource_list_changed().await.is_ok(),
            Change::Resource(uri) => {
                peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await.is_ok()
            }
        }
    };
    announce(server, closed, || watched.all(), || peer.is_transport_closed(), tell).await;
}

/// Tells a subscription what it wants to hear of, until it or its client has gone.
pub(crate) async fn tell_subscription(
    server: &Server,
    sink: &SubscriptionSink,
    peer: &Peer<RoleServer>,
    closed: &CancellationToken,
) {
    let accepted = sink.accepted();
    let (tools, prompts, resources) = (
        accepted.tools_list_changed == Some(true),
        accepted.prompts_list_changed == Some(true),
        accepted.resources_list_changed == Some(true),
    );
    let view = server.view();
    let wanted = accepted.resource_subscriptions.iter().flatten().take(MAX_WATCHED);
    let watched: BTreeMap<String, u64> = wanted.map(|uri| (uri.clone(), contents(&view, uri))).collect();
    drop(view);
    let tell = |change: Change| async move {
        match change {
            Change::Tools => !tools || sink.notify_tool_list_changed().await.is_ok(),
            Change::Prompts => !prompts || sink.notify_prompt_list_changed().await.is_ok(),
            Change::Resources => !resources || sink.notify_resource_list_changed().await.is_ok(),
            Change::Resource(uri) => sink.notify_resource_updated(uri).await.is_ok(),
        }
    };
    announce(server, closed, || watched.clone(), || peer.is_transport_closed(), tell).await;
}

/// Waits for changes and tells them, until the client has gone or `tell` fails.
async fn announce<F: Future<Output = bool>>(
    server: &Server,
    closed: &CancellationToken,
    watched: impl Fn() -> BTreeMap<String, u64>,
    gone: impl Fn() -> bool,
    tell: impl Fn(Change) -> F,
) {
    // What a client is listed first waits for the plugins, too: that they came is no change.
    tokio::select! {
        () = closed.cancelled() => return,
        () = server.loaded() => {}
    }
    let mut changes = server.changes();
    let mut listed = Listing::of(&server.view(), &BTreeMap::new());
    loop {
        tokio::select! {
            () = closed.cancelled() => return,
            () = tokio::time::sleep(PEER_CHECK) => {
                if gone() {
                    return;
                }
            }
            change = changes.changed() => {
                if change.is_err() {
                    return;
                }
                let watched = watched();
                let now = Listing::of(&server.view(), &watched);
                let mut before = std::mem::replace(&mut listed, now);
                for (uri, then) in watched {
                    before.watched.entry(uri).or_insert(then);
                }
                for change in listed.changes(&before) {
                    if !tell(change).await {
                        return;
                    }
                }
            }
        }
    }
}
