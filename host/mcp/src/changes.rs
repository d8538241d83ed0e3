//! Telling clients what has changed: lists of tools, prompts and resources, and single resources they wait for.

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::Hasher;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rmcp::model::{ErrorData, ResourceUpdatedNotificationParam};
use rmcp::service::SubscriptionSink;
use rmcp::{Peer, RoleServer};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use toolbay_core::registry::Catalog;
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

    /// What is another one now; all of it, if nobody knows what there was.
    fn changes(&self, before: Option<&Self>) -> Vec<Change> {
        let differs = |of: fn(&Self) -> u64| before.is_none_or(|before| of(before) != of(self));
        let lists = [
            (differs(|it| it.tools), Change::Tools),
            (differs(|it| it.prompts), Change::Prompts),
            (differs(|it| it.resources), Change::Resources),
        ];
        let lists = lists.into_iter().filter(|(differs, _)| *differs).map(|(_, change)| change);
        let other = self.watched.iter().filter(|(uri, now)| {
            before.is_none_or(|before| before.watched.get(*uri).is_some_and(|then| then != *now))
        });
        lists.chain(other.map(|(uri, _)| Change::Resource(uri.clone()))).collect()
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

/// What there was when a client was told that it hears of changes.
#[derive(Debug, Clone)]
pub(crate) struct Since {
    /// Not held: a client that says no more would keep plugins that have been replaced.
    catalog: Weak<Catalog>,
    changes: watch::Receiver<u64>,
}

impl Since {
    fn now(server: &Server) -> Self {
        // In this order: what changes in between is heard of, at worst twice.
        let changes = server.changes();
        Self { catalog: Arc::downgrade(&server.catalog()), changes }
    }

    /// The same once the plugins are there. What a client is listed first waits for them, too: that they came is no
    /// change.
    async fn loaded(self, server: &Server) -> Self {
        if server.is_loaded() {
            return self;
        }
        server.loaded().await;
        Self::now(server)
    }

    /// What was seen then; `None`: it has changed, and what it was is gone.
    fn view(&self, server: &Server) -> Option<View> {
        self.catalog.upgrade().map(|catalog| server.view_on(catalog))
    }
}

/// Since when the clients of a connection are to hear of changes: those that were told so and for whom nobody looks
/// yet. A client acts on what it is told at once, before the task that looks has begun.
#[derive(Debug, Default)]
pub(crate) struct Promises(Mutex<Promised>);

#[derive(Debug, Default)]
struct Promised {
    count: usize,
    /// The oldest: what has changed since may be told to one who knows it, but is kept from none.
    since: Option<Since>,
}

impl Promises {
    /// A client will be told that it hears of changes.
    pub(crate) fn make(&self, server: &Server) {
        let mut promised = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        promised.count = promised.count.saturating_add(1);
        promised.since.get_or_insert_with(|| Since::now(server));
    }

    /// From now on somebody looks for it.
    pub(crate) fn keep(&self, server: &Server) -> Since {
        let mut promised = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        promised.count = promised.count.saturating_sub(1);
        let since = if promised.count == 0 { promised.since.take() } else { promised.since.clone() };
        since.unwrap_or_else(|| Since::now(server))
    }
}

/// Tells a client with a handshake what has changed, until it has gone.
pub(crate) async fn tell_peer(
    server: &Server,
    since: Since,
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
    tokio::select! {
        () = closed.cancelled() => {}
        () = async {
            let since = since.loaded(server).await;
            announce(server, since, || watched.all(), || peer.is_transport_closed(), tell).await;
        } => {}
    }
}

/// Tells a subscription what it wants to hear of, until it or its client has gone.
pub(crate) async fn tell_subscription(
    server: &Server,
    since: Since,
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
    let tell = |change: Change| async move {
        match change {
            Change::Tools => !tools || sink.notify_tool_list_changed().await.is_ok(),
            Change::Prompts => !prompts || sink.notify_prompt_list_changed().await.is_ok(),
            Change::Resources => !resources || sink.notify_resource_list_changed().await.is_ok(),
            Change::Resource(uri) => sink.notify_resource_updated(uri).await.is_ok(),
        }
    };
    tokio::select! {
        () = closed.cancelled() => {}
        () = async {
            let since = since.loaded(server).await;
            let view = since.view(server).unwrap_or_else(|| server.view());
            let wanted = accepted.resource_subscriptions.iter().flatten().take(MAX_WATCHED);
            let watched: BTreeMap<String, u64> =
                wanted.map(|uri| (uri.clone(), contents(&view, uri))).collect();
            drop(view);
            announce(server, since, || watched.clone(), || peer.is_transport_closed(), tell).await;
        } => {}
    }
}

/// Waits for changes and tells them, until the client has gone or `tell` fails.
async fn announce<F: Future<Output = bool>>(
    server: &Server,
    since: Since,
    watched: impl Fn() -> BTreeMap<String, u64>,
    gone: impl Fn() -> bool,
    tell: impl Fn(Change) -> F,
) {
    let mut listed = since.view(server).map(|view| Listing::of(&view, &BTreeMap::new()));
    let mut changes = since.changes;
    loop {
        tokio::select! {
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
                if let Some(listed) = &mut listed {
                    for (uri, then) in watched {
                        listed.watched.entry(uri).or_insert(then);
                    }
                }
                for change in now.changes(listed.as_ref()) {
                    if !tell(change).await {
                        return;
                    }
                }
                listed = Some(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use toolbay_core::audit::LogAudit;
    use toolbay_core::content::ToolOutput;
    use toolbay_core::native;
    use toolbay_core::pipeline::Pipeline;
    use toolbay_core::registry::Registry;
    use toolbay_core::view::Filter;

    use super::*;
    use crate::server::Options;

    fn server() -> (Server, Arc<Registry>) {
        let registry = Arc::new(Registry::default());
        let pipeline = Pipeline::new(Arc::new(LogAudit));
        let server = Server::new(Arc::clone(&registry), pipeline, Filter::default(), Options::default());
        (server, registry)
    }

    fn add(server: &Server, registry: &Registry, name: &str) {
        registry
            .register(
                native::tool(name)
                    .description("A tool.")
                    .run(|_, _| async { Ok(ToolOutput::text("")) })
                    .unwrap(),
            )
            .unwrap();
        server.notify_changed();
    }

    /// What is told at once of what has changed since then.
    async fn told(server: &Server, since: Since) -> Vec<Change> {
        let told = Mutex::new(Vec::new());
        let tell = |change| {
            told.lock().unwrap().push(change);
            async { true }
        };
        let waits = announce(server, since, BTreeMap::new, || false, tell);
        // Its first poll tells what there is to tell; it never ends by itself.
        assert!(tokio::time::timeout(Duration::ZERO, waits).await.is_err());
        told.into_inner().unwrap()
    }

    #[tokio::test]
    async fn what_changes_before_anybody_looks_is_told() {
        let (server, registry) = server();
        let (promises, then) = (Promises::default(), registry.current());
        promises.make(&server);
        add(&server, &registry, "early");
        promises.make(&server);
        let first = promises.keep(&server);
        assert_eq!(told(&server, first.clone()).await, [Change::Tools]);
        // Of two that are open nobody knows which one begins first: the oldest counts for both.
        assert_eq!(told(&server, promises.keep(&server)).await, [Change::Tools]);
        // None is open: from now on.
        assert_eq!(told(&server, promises.keep(&server)).await, []);
        // What there was is gone: it is not kept for a client that never begins, which hears of all lists instead.
        drop(then);
        assert_eq!(told(&server, first).await, [Change::Tools, Change::Prompts, Change::Resources]);
    }
}
