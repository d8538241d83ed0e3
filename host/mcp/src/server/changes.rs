//! Telling clients what has changed: lists of tools, prompts and resources, and single resources they wait for.
//!
//! A client hears that a list changed once it has seen that list, and only while it differs from what the client saw: some
//! clients end when they are told of a list that they never asked for. So each connection notes the lists that it answers
//! ([`Seen`]), as numbers. A request without a session cannot know what its client saw before; its subscription counts
//! from the moment in which it was accepted.

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::Hasher;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{ErrorData, RequestId, SubscriptionFilter};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use toolbay_core::registry::view::View;

use crate::protocol::outbound::{Destination, Outbound};
use crate::server::Server;
use crate::server::convert;
use crate::server::prompts_and_resources;

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
        Kind::Prompts => numbered(prompts_and_resources::prompts(view).values()),
        Kind::Resources => numbered(server.resources(view).values()),
        Kind::Templates => numbered(server.templates(view).values()),
    }
}

/// What is at an address, as a number.
fn contents(view: &View, uri: &str) -> u64 {
    numbered(prompts_and_resources::read(view, uri).and_then(Result::ok).iter())
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
    /// Notes that the client is given a list. `since` was taken before the list was made: what changed meanwhile was
    /// compared with an older look.
    pub(crate) fn note(&self, kind: Kind, number: u64, since: &watch::Receiver<u64>) {
        if let Some(look) = self.looks.lock().get_mut(kind as usize) {
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
        let looks = *seen.looks.lock();
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
pub(crate) struct ResourceSubscriptions(Mutex<BTreeMap<String, u64>>);

impl ResourceSubscriptions {
    /// Waits for these, as they are now.
    fn new(view: &View, addresses: &[String]) -> Self {
        let watched = addresses.iter().take(MAX_WATCHED).map(|uri| (uri.clone(), contents(view, uri)));
        Self(Mutex::new(watched.collect()))
    }

    /// Waits for one more.
    pub(crate) fn add(&self, view: &View, uri: String) -> Result<(), ErrorData> {
        let mut watched = self.0.lock();
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
        self.0.lock().remove(uri);
    }

    /// Those that are others now. From here on the client knows of them.
    fn changes(&self, view: &View) -> Vec<Change> {
        let mut watched = self.0.lock();
        let other = watched.iter_mut().filter_map(|(uri, then)| {
            let now = contents(view, uri);
            (std::mem::replace(then, now) != now).then(|| Change::Resource(uri.clone()))
        });
        other.collect()
    }
}

impl Change {
    /// Sends the notification, of the subscription that wants it, if one does; returns `false` when the client is gone.
    async fn notify(self, outbound: &Outbound, subscription: Option<&RequestId>) -> bool {
        let (method, uri) = match self {
            Self::Tools => ("notifications/tools/list_changed", None),
            Self::Prompts => ("notifications/prompts/list_changed", None),
            Self::Resources => ("notifications/resources/list_changed", None),
            Self::Resource(uri) => ("notifications/resources/updated", Some(uri)),
        };
        let mut params = json!({});
        if let Some(params) = params.as_object_mut() {
            params.extend(uri.map(|uri| ("uri".to_owned(), uri.into())));
            params.extend(subscription.map(|id| ("_meta".to_owned(), json!({ SUBSCRIPTION: id }))));
        }
        let params = params.as_object().is_some_and(|params| !params.is_empty()).then_some(&params);
        outbound.notify(method, params, Destination::Session).await
    }
}

/// Under which key a notification says to which subscription it belongs.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Tells a client with a handshake what has changed, until it has gone.
pub(crate) async fn notify_session(
    server: &Server,
    seen: &Seen,
    outbound: &Outbound,
    watched: &ResourceSubscriptions,
    closed: &CancellationToken,
) {
    tokio::select! {
        () = closed.cancelled() => {}
        () = announce(server, seen, watched, |change| change.notify(outbound, None)) => {}
    }
}

/// Serves one `subscriptions/listen` until its client has gone: says what it will hear of, and tells it that.
///
/// A client acts on what it was told at once: what changes from then on must not be lost. So everything is looked at
/// before.
pub(crate) async fn notify_subscription(
    server: &Server,
    seen: &Seen,
    outbound: &Outbound,
    id: &RequestId,
    accepted: &SubscriptionFilter,
) {
    let addresses = accepted.resource_subscriptions.as_deref().unwrap_or_default();
    let watched = ResourceSubscriptions::new(&server.view(), addresses);
    let params = json!({"notifications": accepted, "_meta": {SUBSCRIPTION: id}});
    let method = "notifications/subscriptions/acknowledged";
    if !outbound.notify(method, Some(&params), Destination::Session).await {
        return;
    }
    let is_wanted = |change: &Change| match change {
        Change::Tools => accepted.tools_list_changed == Some(true),
        Change::Prompts => accepted.prompts_list_changed == Some(true),
        Change::Resources => accepted.resources_list_changed == Some(true),
        Change::Resource(_) => true,
    };
    let tell = |change: Change| async move { !is_wanted(&change) || change.notify(outbound, Some(id)).await };
    announce(server, seen, &watched, tell).await;
}

/// Waits for changes and tells them, until `tell` says that the client has gone.
async fn announce<F: Future<Output = bool>>(
    server: &Server,
    seen: &Seen,
    watched: &ResourceSubscriptions,
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
        if !changed.await {
            return;
        }
        if !server.is_loaded() {
            // What the last plugin brings is not waited for.
            drop(tokio::time::timeout(LOADING_PAUSE, server.loaded()).await);
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
        fn new(server: &'a Server, seen: &'a Seen, watched: &'a ResourceSubscriptions) -> Self {
            let told = Arc::new(Mutex::new(Vec::new()));
            let heard = Arc::clone(&told);
            let tell = move |change| {
                heard.lock().push(change);
                std::future::ready(true)
            };
            Self { told, work: Box::pin(announce(server, seen, watched, tell)) }
        }

        /// What it tells before it waits again.
        async fn tells(&mut self) -> Vec<Change> {
            assert!(futures_util::poll!(&mut self.work).is_pending());
            std::mem::take(&mut *self.told.lock())
        }
    }

    #[tokio::test]
    async fn a_client_hears_of_lists_that_it_saw_and_that_are_others_now() {
        let (server, registry) = server();
        let (seen, watched) = (Seen::default(), ResourceSubscriptions::default());
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
        let (seen, watched) = (Seen::default(), ResourceSubscriptions::default());
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
        let (seen, watched) = (Seen::default(), ResourceSubscriptions::default());
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
