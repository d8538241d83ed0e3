//! Notifies clients of changes to the lists of tools, prompts and resources, and to single resources.
//!
//! A client is notified of a changed list only if it has requested that list, and only while the list differs from the
//! version the client saw. Some clients exit on a notification about a list that they never requested. Each connection
//! therefore records fingerprints of the lists it returned ([`ChangeBaseline`]). A modern subscription compares with what
//! it last announced, since requests without a session do not show what their client has seen; it counts from the moment
//! it was accepted.

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
use crate::protocol::uri::is_same_uri;
use crate::server::Server;
use crate::server::convert;
use crate::server::prompts_and_resources;

/// Shortest time between two checks while plugins are loading, since each plugin changes the list.
const LOADING_INTERVAL: Duration = Duration::from_secs(1);
/// Most single resources that one client may subscribe to.
pub const MAX_RESOURCE_SUBSCRIPTIONS: usize = 64;
/// Longest URI of a subscription, in bytes.
const MAX_SUBSCRIBED_URI: usize = 2048;

/// A list that clients can request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServedList {
    Tools,
    Prompts,
    Resources,
    Templates,
}

/// All lists, in the order of their discriminants.
const ALL_LISTS: [ServedList; 4] =
    [ServedList::Tools, ServedList::Prompts, ServedList::Resources, ServedList::Templates];

/// Fingerprint of a list, to detect changes.
pub(crate) fn list_fingerprint(server: &Server, view: &View, kind: ServedList) -> u64 {
    match kind {
        ServedList::Tools => {
            let (mut hasher, usage_meta) = (std::hash::DefaultHasher::new(), server.shows_usage_meta());
            view.definitions()
                .for_each(|entry| hasher.write_u64(convert::tool_fingerprint(entry, usage_meta)));
            hasher.finish()
        }
        ServedList::Prompts => convert::fingerprint_items(prompts_and_resources::list_prompts(view).values()),
        ServedList::Resources => convert::fingerprint_items(server.resources(view).values()),
        ServedList::Templates => convert::fingerprint_items(server.templates(view).values()),
    }
}

/// Whether changes of a resource are announced: those of plugins and the embedder. The content of saved outputs and
/// attachments never changes, and changes of other servers' resources are not known.
pub(crate) fn is_announced(view: &View, uri: &str) -> bool {
    uri.len() <= MAX_SUBSCRIBED_URI && prompts_and_resources::read_resource(view, uri).is_some()
}

/// Fingerprint of the content of a resource.
fn resource_fingerprint(view: &View, uri: &str) -> u64 {
    convert::fingerprint_items(prompts_and_resources::read_resource(view, uri).and_then(Result::ok).iter())
}

/// A change to announce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerChange {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources, or that of resource templates.
    Resources,
    /// The content of the resource with this URI.
    Resource(String),
}

/// A list as a client last saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ListVersion {
    /// How often the client has requested the list.
    count: u64,
    fingerprint: u64,
}

/// The lists that the client of a connection has seen. `None` for a list that it never requested.
#[derive(Debug)]
pub(crate) struct ChangeBaseline {
    versions: Mutex<[Option<ListVersion>; ALL_LISTS.len()]>,
    /// Notifies the announcer to compare again.
    stale: watch::Sender<()>,
}

impl Default for ChangeBaseline {
    fn default() -> Self {
        Self { versions: Mutex::default(), stale: watch::Sender::new(()) }
    }
}

impl ChangeBaseline {
    /// Records that the client gets a list. `since` must have been created before the list: changes in between were
    /// compared with an older version.
    pub(crate) fn record(&self, kind: ServedList, fingerprint: u64, since: &watch::Receiver<u64>) {
        if let Some(version) = self.versions.lock().get_mut(kind as usize) {
            let count = version.map_or(0, |version| version.count) + 1;
            *version = Some(ListVersion { count, fingerprint });
        }
        if since.has_changed().unwrap_or_default() {
            self.stale.send_replace(());
        }
    }

    /// Records the current versions of all lists that a subscription includes.
    pub(crate) fn record_subscribed(&self, server: &Server, wanted: &SubscriptionFilter) {
        let since = server.subscribe_changes();
        let view = server.view();
        let resources = wanted.resources_list_changed == Some(true);
        for (kind, wanted) in [
            (ServedList::Tools, wanted.tools_list_changed == Some(true)),
            (ServedList::Prompts, wanted.prompts_list_changed == Some(true)),
            (ServedList::Resources, resources),
            (ServedList::Templates, resources),
        ] {
            if wanted {
                self.record(kind, list_fingerprint(server, &view, kind), &since);
            }
        }
    }
}

/// What the client of an announcer knows of a changed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientKnowledge {
    /// What it requested in its session: a list that is back to that version needs no announcement.
    RequestedList,
    /// What was announced last.
    LastAnnouncement,
}

/// The announced changes of each list: the version that the client saw, and the fingerprint that was announced.
#[derive(Debug)]
struct AnnouncedLists {
    knowledge: ClientKnowledge,
    announced: [Option<(ListVersion, u64)>; ALL_LISTS.len()],
}

impl AnnouncedLists {
    fn new(knowledge: ClientKnowledge) -> Self {
        Self { knowledge, announced: [None; ALL_LISTS.len()] }
    }

    /// Returns the changes that were not announced yet, and marks them as announced.
    fn take_changes(&mut self, server: &Server, view: &View, baseline: &ChangeBaseline) -> Vec<ServerChange> {
        let versions = *baseline.versions.lock();
        let mut changes = Vec::new();
        for ((kind, version), announced) in ALL_LISTS.into_iter().zip(versions).zip(&mut self.announced) {
            let Some(version) = version else { continue };
            let now = list_fingerprint(server, view, kind);
            let is_known = match (self.knowledge, *announced) {
                (ClientKnowledge::LastAnnouncement, Some((of, last))) if of == version => now == last,
                (ClientKnowledge::LastAnnouncement | ClientKnowledge::RequestedList, _) => {
                    now == version.fingerprint
                }
            };
            if is_known {
                if self.knowledge == ClientKnowledge::RequestedList {
                    *announced = None;
                }
                continue;
            }
            if announced.replace((version, now)) == Some((version, now)) {
                continue;
            }
            let change = match kind {
                ServedList::Tools => ServerChange::Tools,
                ServedList::Prompts => ServerChange::Prompts,
                ServedList::Resources | ServedList::Templates => ServerChange::Resources,
            };
            if !changes.contains(&change) {
                changes.push(change);
            }
        }
        changes
    }
}

/// The subscribed resources of a client, each with the fingerprint of the content it knows.
#[derive(Debug, Default)]
pub(crate) struct ResourceSubscriptions(Mutex<BTreeMap<String, u64>>);

impl ResourceSubscriptions {
    /// Subscribes to these resources, with their current content as the baseline.
    fn new(view: &View, addresses: &[String]) -> Self {
        let subscriptions = addresses
            .iter()
            .take(MAX_RESOURCE_SUBSCRIPTIONS)
            .map(|uri| (uri.clone(), resource_fingerprint(view, uri)));
        Self(Mutex::new(subscriptions.collect()))
    }

    /// Subscribes to a resource.
    ///
    /// # Errors
    /// Changes of the resource are not announced, or the client has too many subscriptions.
    pub(crate) fn add(&self, view: &View, uri: String) -> Result<(), ErrorData> {
        if !is_announced(view, &uri) {
            let text = "changes of this resource are not announced: `uri` names no resource, one of another server, or one \
                        whose content never changes";
            return Err(ErrorData::invalid_request(text, None));
        }
        let mut subscriptions = self.0.lock();
        if subscriptions.len() >= MAX_RESOURCE_SUBSCRIPTIONS && !subscriptions.contains_key(&uri) {
            let text = format!(
                "at most {MAX_RESOURCE_SUBSCRIPTIONS} resource subscriptions are allowed; unsubscribe from one first"
            );
            return Err(ErrorData::invalid_request(text, None));
        }
        let now = resource_fingerprint(view, &uri);
        subscriptions.insert(uri, now);
        Ok(())
    }

    /// Unsubscribes from a resource, in any percent-encoding of its URI.
    pub(crate) fn remove(&self, uri: &str) {
        let mut subscriptions = self.0.lock();
        if subscriptions.remove(uri).is_none() {
            subscriptions.retain(|other, _| !is_same_uri(other, uri));
        }
    }

    /// Returns the changed resources, and makes their current content the new baseline.
    fn take_changes(&self, view: &View) -> Vec<ServerChange> {
        let mut subscriptions = self.0.lock();
        let other = subscriptions.iter_mut().filter_map(|(uri, last_fingerprint)| {
            let now = resource_fingerprint(view, uri);
            (std::mem::replace(last_fingerprint, now) != now).then(|| ServerChange::Resource(uri.clone()))
        });
        other.collect()
    }
}

impl ServerChange {
    /// Sends the notification, with the id of its subscription if there is one. Returns `false` if the client has
    /// disconnected.
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
            params.extend(subscription.map(|id| ("_meta".to_owned(), json!({ SUBSCRIPTION_ID_KEY: id }))));
        }
        let params = params.as_object().is_some_and(|params| !params.is_empty()).then_some(&params);
        outbound.notify(method, params, Destination::Session).await
    }
}

/// Metadata key for the id of the subscription.
const SUBSCRIPTION_ID_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// Announces changes to a legacy client until it disconnects.
pub(crate) async fn announce_to_session(
    server: &Server,
    baseline: &ChangeBaseline,
    outbound: &Outbound,
    subscriptions: &ResourceSubscriptions,
    closed: &CancellationToken,
) {
    tokio::select! {
        () = closed.cancelled() => {}
        () = announce_changes(server, baseline, ClientKnowledge::RequestedList, subscriptions, |change| {
            change.notify(outbound, None)
        }) => {}
    }
}

/// Serves one `subscriptions/listen`: acknowledges it, and announces changes until the client disconnects.
///
/// A client may act on the acknowledgement at once, and no change after it may be lost. The baselines are therefore
/// taken before.
pub(crate) async fn announce_to_subscription(
    server: &Server,
    baseline: &ChangeBaseline,
    outbound: &Outbound,
    id: &RequestId,
    accepted: &SubscriptionFilter,
) {
    let addresses = accepted.resource_subscriptions.as_deref().unwrap_or_default();
    let subscriptions = ResourceSubscriptions::new(&server.view(), addresses);
    let params = json!({"notifications": accepted, "_meta": {SUBSCRIPTION_ID_KEY: id}});
    let method = "notifications/subscriptions/acknowledged";
    if !outbound.notify(method, Some(&params), Destination::Session).await {
        return;
    }
    let is_wanted = |change: &ServerChange| match change {
        ServerChange::Tools => accepted.tools_list_changed == Some(true),
        ServerChange::Prompts => accepted.prompts_list_changed == Some(true),
        ServerChange::Resources => accepted.resources_list_changed == Some(true),
        ServerChange::Resource(_) => true,
    };
    let notify =
        |change: ServerChange| async move { !is_wanted(&change) || change.notify(outbound, Some(id)).await };
    announce_changes(server, baseline, ClientKnowledge::LastAnnouncement, &subscriptions, notify).await;
}

/// Waits for changes and passes them to `notify`, until it returns `false`.
async fn announce_changes<F: Future<Output = bool>>(
    server: &Server,
    baseline: &ChangeBaseline,
    knowledge: ClientKnowledge,
    subscriptions: &ResourceSubscriptions,
    notify: impl Fn(ServerChange) -> F,
) {
    // Subscribed before the first comparison, so that no change is missed.
    let (mut changes, mut stale) = (server.subscribe_changes(), baseline.stale.subscribe());
    let mut announced = AnnouncedLists::new(knowledge);
    loop {
        let view = server.view();
        let mut all = announced.take_changes(server, &view, baseline);
        all.extend(subscriptions.take_changes(&view));
        drop(view);
        for change in all {
            if !notify(change).await {
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
            // Batches the changes of several plugins; the last one ends the wait early.
            drop(tokio::time::timeout(LOADING_INTERVAL, server.wait_loaded()).await);
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
    use toolbay_core::registry::{Bundle, Registry, ToolEntry};
    use toolbay_core::tool::content::ToolOutput;
    use toolbay_core::tool::prompts_and_resources::{PromptsAndResources, PromptsAndResourcesDocument};

    use super::*;
    use crate::server::Options;

    fn server() -> (Server, Arc<Registry>) {
        let registry = Arc::new(Registry::default());
        let pipeline = Pipeline::new(Arc::new(LogAudit));
        let server = Server::new(Arc::clone(&registry), pipeline, Filter::default(), Options::default());
        (server, registry)
    }

    /// Replaces all tools.
    fn set_tools(server: &Server, registry: &Registry, names: &[&str]) {
        let tool = |name: &&str| {
            let run = native::tool(*name).description("A tool.");
            run.run(|_, _| async { Ok(ToolOutput::text("")) }).unwrap()
        };
        let tools: Vec<_> = names.iter().map(tool).collect();
        let label = tools[0].def.source.label();
        registry.replace_source(&label, Bundle { tools, reducers: vec![] });
        server.notify_changed();
    }

    /// Records the list as a client sees it now.
    fn record_list(server: &Server, baseline: &ChangeBaseline, kind: ServedList) {
        let since = server.subscribe_changes();
        baseline.record(kind, list_fingerprint(server, &server.view(), kind), &since);
    }

    /// Runs `announce_changes` step by step.
    struct Announcer<'a> {
        announced: Arc<Mutex<Vec<ServerChange>>>,
        work: futures_util::future::BoxFuture<'a, ()>,
    }

    impl<'a> Announcer<'a> {
        fn new(
            server: &'a Server,
            baseline: &'a ChangeBaseline,
            subscriptions: &'a ResourceSubscriptions,
        ) -> Self {
            Self::with(server, baseline, ClientKnowledge::RequestedList, subscriptions)
        }

        fn with(
            server: &'a Server,
            baseline: &'a ChangeBaseline,
            knowledge: ClientKnowledge,
            subscriptions: &'a ResourceSubscriptions,
        ) -> Self {
            let announced = Arc::new(Mutex::new(Vec::new()));
            let sink = Arc::clone(&announced);
            let notify = move |change| {
                sink.lock().push(change);
                std::future::ready(true)
            };
            Self {
                announced,
                work: Box::pin(announce_changes(server, baseline, knowledge, subscriptions, notify)),
            }
        }

        /// The changes announced until the next wait.
        async fn take_announced(&mut self) -> Vec<ServerChange> {
            assert!(futures_util::poll!(&mut self.work).is_pending());
            std::mem::take(&mut *self.announced.lock())
        }
    }

    #[tokio::test]
    async fn a_client_is_notified_of_changes_to_the_lists_it_saw() {
        let (server, registry) = server();
        let (baseline, subscriptions) = (ChangeBaseline::default(), ResourceSubscriptions::default());
        let mut announcer = Announcer::new(&server, &baseline, &subscriptions);
        set_tools(&server, &registry, &["a"]);
        assert_eq!(announcer.take_announced().await, [], "the client never requested a list");
        record_list(&server, &baseline, ServedList::Prompts);
        set_tools(&server, &registry, &["a", "b"]);
        assert_eq!(announcer.take_announced().await, [], "the client never requested the list of tools");
        record_list(&server, &baseline, ServedList::Tools);
        server.notify_changed();
        assert_eq!(announcer.take_announced().await, [], "the list is unchanged");
        set_tools(&server, &registry, &["a", "b", "c"]);
        assert_eq!(announcer.take_announced().await, [ServerChange::Tools]);
        server.notify_changed();
        assert_eq!(announcer.take_announced().await, [], "the change was already announced");
        set_tools(&server, &registry, &["a", "b"]);
        assert_eq!(
            announcer.take_announced().await,
            [],
            "the list is back to the version that the client saw"
        );
        set_tools(&server, &registry, &["a", "b", "c"]);
        assert_eq!(announcer.take_announced().await, [ServerChange::Tools]);
        // A new request resets the baseline, even to an earlier version of the list.
        set_tools(&server, &registry, &["a", "b"]);
        record_list(&server, &baseline, ServedList::Tools);
        set_tools(&server, &registry, &["a", "b", "c"]);
        assert_eq!(announcer.take_announced().await, [ServerChange::Tools]);
    }

    #[tokio::test]
    async fn changes_during_a_list_request_are_announced() {
        let (server, registry) = server();
        let (baseline, subscriptions) = (ChangeBaseline::default(), ResourceSubscriptions::default());
        let mut announcer = Announcer::new(&server, &baseline, &subscriptions);
        assert_eq!(announcer.take_announced().await, []);
        let since = server.subscribe_changes();
        let old = list_fingerprint(&server, &server.view(), ServedList::Tools);
        set_tools(&server, &registry, &["a"]);
        assert_eq!(announcer.take_announced().await, [], "no list was returned yet");
        baseline.record(ServedList::Tools, old, &since);
        assert_eq!(announcer.take_announced().await, [ServerChange::Tools]);
        // A new announcer compares before it waits, so a change before its start is found.
        record_list(&server, &baseline, ServedList::Tools);
        set_tools(&server, &registry, &["a", "b"]);
        assert_eq!(
            Announcer::new(&server, &baseline, &subscriptions).take_announced().await,
            [ServerChange::Tools]
        );
    }

    #[tokio::test]
    async fn a_subscription_without_a_session_counts_from_its_beginning() {
        let (server, registry) = server();
        let (baseline, subscriptions) = (ChangeBaseline::default(), ResourceSubscriptions::default());
        set_tools(&server, &registry, &["a"]);
        let mut wanted = SubscriptionFilter::default();
        wanted.tools_list_changed = Some(true);
        baseline.record_subscribed(&server, &wanted);
        let mut announcer =
            Announcer::with(&server, &baseline, ClientKnowledge::LastAnnouncement, &subscriptions);
        assert_eq!(announcer.take_announced().await, []);
        set_tools(&server, &registry, &["a", "b"]);
        assert_eq!(announcer.take_announced().await, [ServerChange::Tools]);
        server.notify_changed();
        assert_eq!(announcer.take_announced().await, [], "it was announced");
        // The client may have read the list in between, with a request that this subscription knows nothing of.
        set_tools(&server, &registry, &["a"]);
        assert_eq!(announcer.take_announced().await, [ServerChange::Tools], "a change back is a change");
        set_tools(&server, &registry, &["a", "b"]);
        assert_eq!(announcer.take_announced().await, [ServerChange::Tools]);
    }

    /// Clients may encode an address, and use another form to unsubscribe.
    #[test]
    fn an_address_is_the_same_in_any_percent_encoding() {
        let (server, registry) = server();
        let document = json!({"version": 1, "resources": [{"path": "a-b", "name": "A", "text": "a"}],
            "templates": [{"path": "u/{id}.{kind}", "name": "U", "text": "{{id}} {{kind}}"}]});
        let document = PromptsAndResourcesDocument::parse(&document.to_string()).unwrap();
        let offered = |base| Arc::new(PromptsAndResources::from_native(&document, base).unwrap());
        let tool = |name, base| {
            let tool =
                native::tool(name).description("A tool.").run(|_, _| async { Ok(ToolOutput::text("")) });
            ToolEntry { prompts_and_resources: Some(offered(base)), ..tool.unwrap() }
        };
        let tools = vec![tool("a", "toolbay://plugin/p/"), tool("b", "test://")];
        registry.register(Bundle { tools, reducers: vec![] }).unwrap();
        let view = server.view();
        let read = |uri: &str| {
            let read = prompts_and_resources::read_resource(&view, uri)?.unwrap();
            let read = serde_json::to_value(read).unwrap();
            assert_eq!(read["uri"], uri, "the client's own form");
            Some(read["text"].as_str().unwrap().to_owned())
        };
        for (uri, expect) in [
            ("toolbay://plugin/p/a-b", Some("a")),
            ("toolbay://plugin/p/%61%2db", Some("a")),
            ("toolbay://plugin/%70/u/%c3%a4.x", Some("ä x")),
            ("toolbay://plugin/p/u/ä.x", Some("ä x")),
            ("toolbay://plugin/p/u/a%2Eb.x", Some("a.b x")),
            ("toolbay://plugin/p%2Fa-b", None),
            ("test://a-b", Some("a")),
            ("test://a%2Db", None),
        ] {
            assert_eq!(read(uri).as_deref(), expect, "{uri}");
        }
        let subscriptions = ResourceSubscriptions::default();
        subscriptions.add(&view, "toolbay://plugin/p/a%2Db".to_owned()).unwrap();
        subscriptions.remove("toolbay://plugin/p/a");
        assert_eq!(subscriptions.0.lock().len(), 1);
        subscriptions.remove("toolbay://plugin/p/a-b");
        assert!(subscriptions.0.lock().is_empty());
    }

    /// Prompts and resources are announced as tools are, also when one is removed and comes back.
    #[tokio::test]
    async fn a_removal_after_an_addition_is_announced() {
        let (server, registry) = server();
        let (baseline, subscriptions) = (ChangeBaseline::default(), ResourceSubscriptions::default());
        let mut wanted = SubscriptionFilter::default();
        (wanted.prompts_list_changed, wanted.resources_list_changed) = (Some(true), Some(true));
        baseline.record_subscribed(&server, &wanted);
        let mut announcer =
            Announcer::with(&server, &baseline, ClientKnowledge::LastAnnouncement, &subscriptions);
        assert_eq!(announcer.take_announced().await, []);
        let says = json!([{"role": "user", "content": {"type": "text", "text": "Hello."}}]);
        let document = json!({"version": 1, "prompts": [{"name": "p", "description": "P.", "messages": says}],
            "resources": [{"path": "a", "name": "A", "text": "a"}]});
        let document = PromptsAndResourcesDocument::parse(&document.to_string()).unwrap();
        let offered = Arc::new(PromptsAndResources::from_native(&document, "test://").unwrap());
        let tool = native::tool("a").description("A tool.").run(|_, _| async { Ok(ToolOutput::text("")) });
        let tool = ToolEntry { prompts_and_resources: Some(offered), ..tool.unwrap() };
        let label = tool.def.source.label();
        for tools in [vec![tool.clone()], vec![], vec![tool]] {
            registry.replace_source(&label, Bundle { tools, reducers: vec![] });
            server.notify_changed();
            let announced = announcer.take_announced().await;
            assert_eq!(announced, [ServerChange::Prompts, ServerChange::Resources]);
        }
    }
}
