//! Telling clients what has changed: lists of tools, prompts and resources, and single resources they wait for.
//!
//! A client hears that a list changed once it has seen that list, and only while it differs from what the client saw: some
//! clients end when they are told of a list that they never asked for. So each connection notes the lists that it answers
//! ([`Seen`]), as numbers. A request without a session cannot know what its client saw before; its subscription counts
//! from the moment in which it was accepted.

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::Hasher;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{ErrorData, ResourceUpdatedNotificationParam, SubscriptionFilter};
use rmcp::service::SubscriptionSink;
use rmcp::{Peer, RoleServer};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use toolbay_core::registry::view::View;

use crate::server::Server;
use crate::server::convert;
use crate::server::shelf;

/// How often a connection that waits for changes looks whether its client is still there.
const PEER_CHECK: Duration = Duration::from_secs(60);
/// The least time between two looks while plugins are being loaded: each of them changes the list.
const LOADING_PAUSE: Duration = Duration::from_secs(1);
/// Single resources that one client waits for.
pub const MAX_WATCHED: usize = 64;
/// Longest address that a client may wait for, in bytes.
const MAX_ADDRESS: usize = 2048;

/// A list that clients ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

/// All of them, in the order of their places.
const KINDS: [Kind; 4] = [Kind::Tools, Kind::Prompts, Kind::Resources, Kind::Templates];

/// A list as a number: another list is another number.
pub(crate) fn number(server: &Server, view: &View, kind: Kind) -> u64 {
    match kind {
        Kind::Tools => {
            let mut hasher = std::hash::DefaultHasher::new();
            view.definitions().for_each(|entry| hasher.write_u64(convert::number(entry)));
            hasher.finish()
        }
        Kind::Prompts => numbered(shelf::prompts(view).values()),
        Kind::Resources => numbered(server.resources(view).values()),
        Kind::Templates => numbered(server.templates(view).values()),
    }
}

/// What is at an address, as a number.
fn contents(view: &View, uri: &str) -> u64 {
    numbered(shelf::read(view, uri).and_then(Result::ok).iter())
}

/// What is no JSON is listed as nothing, and hashed as nothing.
pub(crate) fn numbered<T: serde::Serialize>(things: impl Iterator<Item = T>) -> u64 {
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

/// One list as a client saw it last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    /// How often it asked.
    count: u64,
    number: u64,
}

/// The lists that the client of a connection has seen; none of a kind that it never asked for.
#[derive(Debug)]
pub(crate) struct Seen {
    looks: Mutex<[Option<Look>; KINDS.len()]>,
    /// Tells whoever announces changes to compare again.
    stale: watch::Sender<()>,
}

impl Default for Seen {
    fn default() -> Self {
        Self { looks: Mutex::default(), stale: watch::Sender::new(()) }
    }
}

impl Seen {
    fn looks(&self) -> MutexGuard<'_, [Option<Look>; KINDS.len()]> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the client is given a list. `since` was taken before the list was made: what changed meanwhile was
    /// compared with an older look.
    pub(crate) fn note(&self, kind: Kind, number: u64, since: &watch::Receiver<u64>) {
        if let Some(look) = self.looks().get_mut(kind as usize) {
            let count = look.map_or(0, |look| look.count) + 1;
            *look = Some(Look { count, number });
        }
        if since.has_changed().unwrap_or_default() {
            self.stale.send_replace(());
        }
    }

    /// Notes the lists that a subscription wants to hear of, as they are now.
    pub(crate) fn begin(&self, server: &Server, wanted: &SubscriptionFilter) {
        let since = server.changes();
        let view = server.view();
        let resources = wanted.resources_list_changed == Some(true);
        for (kind, wanted) in [
            (Kind::Tools, wanted.tools_list_changed == Some(true)),
            (Kind::Prompts, wanted.prompts_list_changed == Some(true)),
            (Kind::Resources, resources),
            (Kind::Templates, resources),
        ] {
            if wanted {
                self.note(kind, number(server, &view, kind), &since);
            }
        }
    }
}

/// What was told of each list: to whom saw that look of it, that it is this number now.
#[derive(Debug, Default)]
struct Told([Option<(Look, u64)>; KINDS.len()]);

impl Told {
    /// The lists that are not as the client saw them, and of which it was not told.
    fn changes(&mut self, server: &Server, view: &View, seen: &Seen) -> Vec<Change> {
        let looks = *seen.looks();
        let mut changes = Vec::new();
        for ((kind, look), told) in KINDS.into_iter().zip(looks).zip(&mut self.0) {
            let Some(look) = look else { continue };
            let now = number(server, view, kind);
            if now == look.number {
                *told = None;
                continue;
            }
            if told.replace((look, now)) == Some((look, now)) {
                continue;
            }
            let change = match kind {
                Kind::Tools => Change::Tools,
                Kind::Prompts => Change::Prompts,
                Kind::Resources | Kind::Templates => Change::Resources,
            };
            if !changes.contains(&change) {
                changes.push(change);
            }
        }
        changes
    }
}

/// The resources that a client waits for, each with what it knows of it.
#[derive(Debug, Default)]
pub(crate) struct Watched(Mutex<BTreeMap<String, u64>>);

impl Watched {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for one more.
    pub(crate) fn add(&self, view: &View, uri: String) -> Result<(), ErrorData> {
        let mut watched = self.all();
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
        self.all().remove(uri);
    }

    /// Those that are others now. From here on the client knows of them.
    fn changes(&self, view: &View) -> Vec<Change> {
        let mut watched = self.all();
        let other = watched.iter_mut().filter_map(|(uri, then)| {
            let now = contents(view, uri);
            (std::mem::replace(then, now) != now).then(|| Change::Resource(uri.clone()))
        });
        other.collect()
    }
}

/// What was at the addresses that subscriptions of a connection wait for when they were accepted: those for which nobody
/// looks yet. A client acts on what it is told at once, before the task that looks has begun.
#[derive(Debug, Default)]
pub(crate) struct Promises(Mutex<Promised>);

#[derive(Debug, Default)]
struct Promised {
    count: usize,
    /// The oldest of each: what has changed since may be told to one who knows it, but is kept from none.
    then: BTreeMap<String, u64>,
}

impl Promises {
    /// A client will be told that it hears of changes of these.
    pub(crate) fn make(&self, view: &View, addresses: &[String]) {
        let mut promised = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        promised.count = promised.count.saturating_add(1);
        for uri in addresses {
            promised.then.entry(uri.clone()).or_insert_with(|| contents(view, uri));
        }
    }

    /// From now on somebody looks for them.
    pub(crate) fn keep(&self, view: &View, addresses: &[String]) -> Watched {
        let mut promised = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        promised.count = promised.count.saturating_sub(1);
        let then = |uri: &String| promised.then.get(uri).copied().unwrap_or_else(|| contents(view, uri));
        let watched = addresses.iter().map(|uri| (uri.clone(), then(uri))).collect();
        if promised.count == 0 {
            promised.then.clear();
        }
        Watched(Mutex::new(watched))
    }
}

/// Tells a client with a handshake what has changed, until it has gone.
pub(crate) async fn tell_peer(
    server: &Server,
    seen: &Seen,
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
        () = announce(server, seen, watched, || peer.is_transport_closed(), tell) => {}
    }
}

/// Tells a subscription what it wants to hear of, until it or its client has gone.
pub(crate) async fn tell_subscription(
    server: &Server,
    seen: &Seen,
    promises: &Promises,
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
    let wanted = accepted.resource_subscriptions.as_deref().unwrap_or_default();
    let watched = promises.keep(&server.view(), wanted.get(..MAX_WATCHED).unwrap_or(wanted));
    tokio::select! {
        () = closed.cancelled() => {}
        () = announce(server, seen, &watched, || peer.is_transport_closed(), tell) => {}
    }
}

/// Waits for changes and tells them, until the client has gone or `tell` fails.
async fn announce<F: Future<Output = bool>>(
    server: &Server,
    seen: &Seen,
    watched: &Watched,
    gone: impl Fn() -> bool,
    tell: impl Fn(Change) -> F,
) {
    // Before the first look: what changes from here on is looked at again.
    let (mut changes, mut stale) = (server.changes(), seen.stale.subscribe());
    let mut told = Told::default();
    loop {
        let view = server.view();
        let mut all = told.changes(server, &view, seen);
        all.extend(watched.changes(&view));
        drop(view);
        for change in all {
            if !tell(change).await {
                return;
            }
        }
        let changed = async {
            tokio::select! {
                changed = changes.changed() => changed.is_ok(),
                changed = stale.changed() => changed.is_ok(),
            }
        };
        match tokio::time::timeout(PEER_CHECK, changed).await {
            Ok(true) if !server.is_loaded() => {
                // What the last plugin brings is not waited for.
                drop(tokio::time::timeout(LOADING_PAUSE, server.loaded()).await);
            }
            Ok(true) => {}
            Err(_) if !gone() => {}
            Ok(false) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use toolbay_core::audit::LogAudit;
    use toolbay_core::pipeline::Pipeline;
    use toolbay_core::registry::native;
    use toolbay_core::registry::view::Filter;
    use toolbay_core::registry::{Bundle, Registry};
    use toolbay_core::tool::content::ToolOutput;

    use super::*;
    use crate::server::Options;

    fn server() -> (Server, Arc<Registry>) {
        let registry = Arc::new(Registry::default());
        let pipeline = Pipeline::new(Arc::new(LogAudit));
        let server = Server::new(Arc::clone(&registry), pipeline, Filter::default(), Options::default());
        (server, registry)
    }

    /// From now on there are these tools.
    fn put(server: &Server, registry: &Registry, names: &[&str]) {
        let tool = |name: &&str| {
            let run = native::tool(*name).description("A tool.");
            run.run(|_, _| async { Ok(ToolOutput::text("")) }).unwrap()
        };
        let tools: Vec<_> = names.iter().map(tool).collect();
        let label = tools[0].def.source.label();
        registry.replace_source(&label, Bundle { tools, reducers: vec![] });
        server.notify_changed();
    }

    /// What a client sees that lists now.
    fn look(server: &Server, seen: &Seen, kind: Kind) {
        let since = server.changes();
        seen.note(kind, number(server, &server.view(), kind), &since);
    }

    /// Somebody who announces what changes, one step at a time.
    struct Announcer<'a> {
        told: Arc<Mutex<Vec<Change>>>,
        work: futures_util::future::BoxFuture<'a, ()>,
    }

    impl<'a> Announcer<'a> {
        fn new(server: &'a Server, seen: &'a Seen, watched: &'a Watched) -> Self {
            let told = Arc::new(Mutex::new(Vec::new()));
            let heard = Arc::clone(&told);
            let tell = move |change| {
                heard.lock().unwrap().push(change);
                std::future::ready(true)
            };
            Self { told, work: Box::pin(announce(server, seen, watched, || false, tell)) }
        }

        /// What it tells before it waits again.
        async fn tells(&mut self) -> Vec<Change> {
            assert!(futures_util::poll!(&mut self.work).is_pending());
            std::mem::take(&mut *self.told.lock().unwrap())
        }
    }

    #[tokio::test]
    async fn a_client_hears_of_lists_that_it_saw_and_that_are_others_now() {
        let (server, registry) = server();
        let (seen, watched) = (Seen::default(), Watched::default());
        let mut announcer = Announcer::new(&server, &seen, &watched);
        put(&server, &registry, &["a"]);
        assert_eq!(announcer.tells().await, [], "it never listed");
        look(&server, &seen, Kind::Prompts);
        put(&server, &registry, &["a", "b"]);
        assert_eq!(announcer.tells().await, [], "it never listed tools");
        look(&server, &seen, Kind::Tools);
        server.notify_changed();
        assert_eq!(announcer.tells().await, [], "it is as it saw it");
        put(&server, &registry, &["a", "b", "c"]);
        assert_eq!(announcer.tells().await, [Change::Tools]);
        server.notify_changed();
        assert_eq!(announcer.tells().await, [], "it was told");
        put(&server, &registry, &["a", "b"]);
        assert_eq!(announcer.tells().await, [], "it is again as it saw it");
        put(&server, &registry, &["a", "b", "c"]);
        assert_eq!(announcer.tells().await, [Change::Tools]);
        // A look is a look, also at the list of before.
        put(&server, &registry, &["a", "b"]);
        look(&server, &seen, Kind::Tools);
        put(&server, &registry, &["a", "b", "c"]);
        assert_eq!(announcer.tells().await, [Change::Tools]);
    }

    #[tokio::test]
    async fn what_changes_while_a_list_is_answered_is_told() {
        let (server, registry) = server();
        let (seen, watched) = (Seen::default(), Watched::default());
        let mut announcer = Announcer::new(&server, &seen, &watched);
        assert_eq!(announcer.tells().await, []);
        let since = server.changes();
        let old = number(&server, &server.view(), Kind::Tools);
        put(&server, &registry, &["a"]);
        assert_eq!(announcer.tells().await, [], "nothing was answered yet");
        seen.note(Kind::Tools, old, &since);
        assert_eq!(announcer.tells().await, [Change::Tools]);
        // Nobody has looked when the list changes: whoever begins to look compares first.
        look(&server, &seen, Kind::Tools);
        put(&server, &registry, &["a", "b"]);
        assert_eq!(Announcer::new(&server, &seen, &watched).tells().await, [Change::Tools]);
    }

    #[tokio::test]
    async fn a_subscription_without_a_session_counts_from_its_beginning() {
        let (server, registry) = server();
        let (seen, watched) = (Seen::default(), Watched::default());
        put(&server, &registry, &["a"]);
        let mut wanted = SubscriptionFilter::default();
        wanted.tools_list_changed = Some(true);
        seen.begin(&server, &wanted);
        let mut announcer = Announcer::new(&server, &seen, &watched);
        assert_eq!(announcer.tells().await, []);
        put(&server, &registry, &["a", "b"]);
        assert_eq!(announcer.tells().await, [Change::Tools]);
    }
}
