//! What is answered to which request, whatever the transport.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, ConstString, DiscoverResult, ErrorData, ListPromptsRequestMethod,
    ListPromptsResult, ListResourceTemplatesRequestMethod, ListResourceTemplatesResult,
    ListResourcesRequestMethod, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ProgressToken, ReadResourceRequestMethod, ReadResourceRequestParams,
    ReadResourceResponse, ResourcesCapability, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{Peer, RoleServer, ServerHandler};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use toolbay_core::call::{DEFAULT_BUDGET_CHARS, Identity, Progress, ToolCall, TurnContext};
use toolbay_core::discovery;
use toolbay_core::pipeline::{Delivered, Pipeline};
use toolbay_core::registry::Registry;
use toolbay_core::session::Session;
use toolbay_core::view::{Filter, View};

use crate::convert::{self, Era};
use crate::outputs;
use crate::progress::{self, Meter};
use crate::trace;

/// How long a cancelled call may take to end by itself, so that it is still recorded, before it is dropped.
/// Shorter than the two seconds rmcp waits for answers when it is stopped.
const CANCEL_GRACE: Duration = Duration::from_secs(1);
/// Open `subscriptions/listen` requests of one connection. One is enough for a client; each costs a task.
const MAX_LISTENERS: usize = 16;
/// How often a connection that waits for changes looks whether its client is still there.
const PEER_CHECK: Duration = Duration::from_secs(60);
/// Starts a cursor; the name of the last tool of the page follows.
const CURSOR: &str = "after:";

/// How the server presents itself, and its bounds.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the client may tell the model about this server.
    pub instructions: Option<String>,
    /// Calls of one connection that may run at once; one more is answered `busy`.
    pub max_in_flight: usize,
    /// Tools in one page of `tools/list`.
    pub page_size: usize,
    /// Longest line that is read, in bytes; a longer one is answered with an error. Must leave room for the largest
    /// arguments that the policy allows (`args_bytes`), escapes included.
    pub max_line_bytes: usize,
    /// Characters of text that one result may have.
    pub budget_chars: usize,
    /// How long a client of 2026-07-28 may keep the list of tools without asking again.
    pub list_ttl: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            instructions: None,
            // Four times what the host runs at once by default: enough to keep it busy, few enough to hold in memory.
            max_in_flight: 256,
            // Far above what clients take (40 to 128 tools); all of an ordinary registry fit into one page.
            page_size: 500,
            // Four times the default of `args_bytes`.
            max_line_bytes: 16 << 20,
            budget_chars: DEFAULT_BUDGET_CHARS,
            // Changes are announced; this is for clients that do not listen.
            list_ttl: Duration::from_secs(60),
        }
    }
}

/// Toolbay as an MCP server. Cheap to clone; serves any number of connections at once.
#[derive(Debug, Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    registry: Arc<Registry>,
    pipeline: Pipeline,
    filter: Arc<Filter>,
    options: Options,
    changes: watch::Sender<u64>,
    /// Fires when the tools are there.
    loaded: CancellationToken,
}

impl Server {
    /// A server for what `filter` lets through of `registry`.
    #[must_use]
    pub fn new(registry: Arc<Registry>, pipeline: Pipeline, filter: Filter, options: Options) -> Self {
        let (changes, loaded) = (watch::Sender::new(0), CancellationToken::new());
        loaded.cancel();
        let filter = Arc::new(filter);
        Self { shared: Arc::new(Shared { registry, pipeline, filter, options, changes, loaded }) }
    }

    /// The same, but what is asked of tools waits until `loaded` fires: clients are greeted while plugins are loaded.
    #[must_use]
    pub fn waiting_for(self, loaded: CancellationToken) -> Self {
        let Shared { registry, pipeline, filter, options, changes, .. } = &*self.shared;
        let shared = Shared {
            registry: Arc::clone(registry),
            pipeline: pipeline.clone(),
            filter: Arc::clone(filter),
            options: options.clone(),
            changes: changes.clone(),
            loaded,
        };
        Self { shared: Arc::new(shared) }
    }

    /// The same under a profile of the policy; `None`: it has none of this name, or this server is bound to another.
    pub(crate) fn under(&self, profile: Option<&str>) -> Option<Self> {
        let Some(name) = profile else { return Some(self.clone()) };
        let Shared { registry, pipeline, filter, options, changes, loaded } = &*self.shared;
        let profile = Arc::clone(registry.current().profile(name)?);
        if filter.profile.as_ref().is_some_and(|own| **own.name() != *name) {
            return None;
        }
        let shared = Shared {
            registry: Arc::clone(registry),
            pipeline: pipeline.clone(),
            filter: Arc::new(Filter { profile: Some(profile), ..Filter::clone(filter) }),
            options: options.clone(),
            changes: changes.clone(),
            loaded: loaded.clone(),
        };
        Some(Self { shared: Arc::new(shared) })
    }

    /// Whether the tools are there.
    pub(crate) fn is_loaded(&self) -> bool {
        self.shared.loaded.is_cancelled()
    }

    /// Tells the clients that the list of tools has changed: those whose list it is. Call it after the registry may
    /// have changed; changes in quick succession are told once, and what does not show in a list is not told.
    pub fn notify_changed(&self) {
        self.shared.changes.send_modify(|count| *count += 1);
    }

    /// The options it was made with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// What one connection needs; `closed` fires when the client has gone.
    pub(crate) fn connection(&self, closed: CancellationToken) -> Connection {
        self.connection_of(Whose::of_session(None), closed)
    }

    /// The same, for what is known of the client.
    pub(crate) fn connection_of(&self, whose: Whose, closed: CancellationToken) -> Connection {
        let most = self.shared.options.max_in_flight.min(Semaphore::MAX_PERMITS);
        Connection {
            server: self.clone(),
            whose,
            calls: Semaphore::new(most),
            listeners: Semaphore::new(MAX_LISTENERS),
            announcing: AtomicBool::new(false),
            closed,
        }
    }

    fn view(&self) -> View {
        discovery::offer(View::new(self.shared.registry.current(), Arc::clone(&self.shared.filter)))
    }
}

/// Whom a connection belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Whose {
    /// A name that no other session has.
    pub(crate) session_id: String,
    /// Who it is, if they said.
    pub(crate) agent_id: Option<String>,
    /// What they may come back to.
    pub(crate) session: Arc<Session>,
}

impl Whose {
    /// A session that begins now.
    pub(crate) fn of_session(agent_id: Option<String>) -> Self {
        Self { session_id: session_id(), agent_id, session: Arc::new(Session::fresh()) }
    }
}

/// A name for a session that no other has, in this process or the next. It is a key, not a secret.
fn session_id() -> String {
    let random = || std::hash::RandomState::new().build_hasher().finish();
    format!("mcp-{:016x}{:016x}", random(), random())
}

/// One client, seen from its connection.
pub(crate) struct Connection {
    server: Server,
    whose: Whose,
    calls: Semaphore,
    listeners: Semaphore,
    announcing: AtomicBool,
    closed: CancellationToken,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("session_id", &self.whose.session_id).finish_non_exhaustive()
    }
}

impl Connection {
    fn options(&self) -> &Options {
        self.server.options()
    }

    /// Waits until the tools are there. Whoever gives up waiting drops the request.
    async fn loaded(&self) {
        self.server.shared.loaded.cancelled().await;
    }

    fn page(&self, request: Option<PaginatedRequestParams>, era: Era) -> Result<ListToolsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let after = cursor.as_deref().map(read_cursor).transpose()?;
        let view = self.server.view();
        let mut rest = view
            .definitions()
            .skip_while(|entry| after.is_some_and(|after| entry.def.name.as_str() <= after))
            .peekable();
        let tools: Vec<Tool> = rest
            .by_ref()
            .take(self.options().page_size.max(1))
            .map(|entry| convert::tool(entry, era))
            .collect();
        let next = rest.peek().and(tools.last()).map(|last| format!("{CURSOR}{}", last.name));
        let mut page = ListToolsResult::with_all_items(tools);
        page.next_cursor = next;
        if era == Era::Modern {
            page.ttl_ms = Some(millis(self.options().list_ttl));
            // What is listed depends on who asks.
            page.cache_scope = Some(CacheScope::Private);
        }
        convert::sign(&mut page.meta, era);
        Ok(page)
    }

    async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let era = era(&context);
        self.loaded().await;
        let mut result = match self.calls.try_acquire() {
            Ok(_permit) => self.run(request, &context, era).await?,
            Err(_) => {
                tracing::warn!(most = self.options().max_in_flight, "a call was refused: too many in flight");
                convert::busy(self.options().max_in_flight)
            }
        };
        convert::sign(&mut result.meta, era);
        Ok(result)
    }

    async fn run(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        era: Era,
    ) -> Result<CallToolResult, ErrorData> {
        // rmcp has parsed the arguments; the pipeline wants text, for the guest gets text.
        let args = match &request.arguments {
            Some(arguments) => serde_json::to_string(arguments)
                .map_err(|error| ErrorData::internal_error(error.to_string(), None))?,
            None => String::new(),
        };
        let (sink, events) = context
            .meta
            .get_progress_token()
            .map(|token| {
                let (sink, events) = progress::channel();
                (sink, (token, events))
            })
            .unzip();
        let turn = TurnContext {
            attachments: None,
            budget_chars: self.options().budget_chars,
            cancel: context.ct.clone(),
            dry_run: false,
            progress: sink,
            identity: Identity {
                session_id: Some(self.whose.session_id.clone()),
                platform: Some("mcp".to_owned()),
                agent_id: self.whose.agent_id.clone(),
                traceparent: trace::of_request(context),
                ..Identity::default()
            },
            session: Arc::clone(&self.whose.session),
        };
        let view = self.server.view();
        let call = ToolCall::new(context.id.to_string(), request.name.as_ref(), args);
        let ended = CancellationToken::new();
        let run = async {
            let delivered = self.deliver(&view, call, turn, &context.ct).await;
            ended.cancel();
            delivered
        };
        let (delivered, ()) = tokio::join!(run, forward(events, &context.peer, &ended));
        let entry = view.get(&request.name);
        delivered.map_or_else(
            || Ok(convert::abandoned()),
            |delivered| {
                let links = convert::knows_links(context.protocol_version().as_ref());
                convert::answer(delivered, entry.map(AsRef::as_ref), era, links)
            },
        )
    }

    /// Runs one call to its end, which is soon after it was cancelled.
    async fn deliver(
        &self,
        view: &View,
        call: ToolCall,
        turn: TurnContext,
        cancelled: &CancellationToken,
    ) -> Option<Delivered> {
        let overdue = async {
            cancelled.cancelled().await;
            tokio::time::sleep(CANCEL_GRACE).await;
        };
        tokio::select! {
            biased;
            mut delivered = self.server.shared.pipeline.call_all(view, vec![call], turn) => delivered.pop(),
            () = overdue => {
                tracing::warn!("a cancelled call did not end by itself and was dropped");
                None
            }
        }
    }

    /// What the list of tools is now, as a number: another list is another number.
    fn listing(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        for entry in self.server.view().definitions() {
            // A tool that is no JSON is listed as nothing, and hashed as nothing.
            hasher.write(&serde_json::to_vec(&convert::tool(entry, Era::Modern)).unwrap_or_default());
        }
        hasher.finish()
    }

    /// Waits for changes of the list and tells them by `tell`, until the client has gone or `tell` fails.
    async fn announce<F: Future<Output = bool>>(&self, gone: impl Fn() -> bool, tell: impl Fn() -> F) {
        let mut changes = self.server.shared.changes.subscribe();
        let mut listed = self.listing();
        loop {
            tokio::select! {
                () = self.closed.cancelled() => return,
                () = tokio::time::sleep(PEER_CHECK) => {
                    if gone() {
                        return;
                    }
                }
                change = changes.changed() => {
                    if change.is_err() {
                        return;
                    }
                    let before = std::mem::replace(&mut listed, self.listing());
                    if before != listed && !tell().await {
                        return;
                    }
                }
            }
        }
    }
}

impl ServerHandler for Connection {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        capabilities.resources = self.server.shared.pipeline.spool().map(|_| ResourcesCapability::default());
        let mut info = ServerConfig::new(capabilities).with_server_info(convert::implementation());
        info.instructions.clone_from(&self.options().instructions);
        info
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let versions = self.supported_protocol_versions().into_owned();
        let mut result = DiscoverResult::from_server_info(versions, self.get_info());
        result.ttl_ms = millis(self.options().list_ttl);
        Ok(result)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.loaded().await;
        answered(async { self.page(request, era(&context)) }).await
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        // rmcp asks for it to check request headers, which mirror the input schema: the same in both eras.
        self.server.view().find(name).ok().map(|entry| convert::tool(entry, Era::Modern))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        answered(self.call(request, context)).await.map(Into::into)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        // Without a handshake, changes are told to those who listen.
        if context.peer.peer_info().is_none() || self.announcing.swap(true, Ordering::Relaxed) {
            return;
        }
        let peer = &context.peer;
        let tell = || async { peer.notify_tool_list_changed().await.is_ok() };
        self.announce(|| peer.is_transport_closed(), tell).await;
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        // rmcp cuts it down to what `get_info` declares.
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let Ok(_permit) = self.listeners.try_acquire() else {
            let text = format!("{MAX_LISTENERS} subscriptions of this connection are open; close one first");
            return Err(ErrorData::invalid_request(text, None));
        };
        let sink = context.sink();
        let wanted = context.accepted().tools_list_changed == Some(true);
        let tell = || async { !wanted || sink.notify_tool_list_changed().await.is_ok() };
        let peer = &context.request_context().peer;
        tokio::select! {
            () = context.cancelled() => {}
            () = self.announce(|| peer.is_transport_closed(), tell) => {}
        }
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        undeclared::<ListPromptsRequestMethod, _>(&context)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let Some(spool) = self.server.shared.pipeline.spool() else {
            return undeclared::<ListResourcesRequestMethod, _>(&context);
        };
        let mut list = answered(async { Ok(outputs::list(&**spool, &self.whose.session).await) }).await?;
        let era = era(&context);
        if era == Era::Modern {
            // A call may add to it at any time.
            list.ttl_ms = Some(0);
            list.cache_scope = Some(CacheScope::Private);
        }
        convert::sign(&mut list.meta, era);
        Ok(list)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let Some(spool) = self.server.shared.pipeline.spool() else {
            return Err(ErrorData::method_not_found::<ReadResourceRequestMethod>());
        };
        let mut result = answered(outputs::read(&**spool, &self.whose.session, &request.uri)).await?;
        let era = era(&context);
        if era == Era::Modern {
            // The same id is the same text, but it may be gone.
            result.ttl_ms = Some(millis(self.options().list_ttl));
            result.cache_scope = Some(CacheScope::Private);
        }
        convert::sign(&mut result.meta, era);
        Ok(result.into())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        undeclared::<ListResourceTemplatesRequestMethod, _>(&context)
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }
}

/// The answer to a list of things this server does not have. 2026-07-28 wants an error where a capability was not
/// declared; among older clients are some that ask all the same and take an error for a broken server.
fn undeclared<M: ConstString, T: Default>(context: &RequestContext<RoleServer>) -> Result<T, ErrorData> {
    match era(context) {
        Era::Legacy => Ok(T::default()),
        Era::Modern => Err(ErrorData::method_not_found::<M>()),
    }
}

fn era(context: &RequestContext<RoleServer>) -> Era {
    Era::of(context.protocol_version().as_ref())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Makes an answer of a panic: rmcp would leave the request without any, for ever.
async fn answered<T>(work: impl Future<Output = Result<T, ErrorData>>) -> Result<T, ErrorData> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!("a panic while a request was answered");
        Err(ErrorData::internal_error("a panic while the request was answered; see the log", None))
    })
}

/// The name behind which the next page starts. It need not exist any more: a list may change between pages.
fn read_cursor(cursor: &str) -> Result<&str, ErrorData> {
    let legal = |name: &&str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    cursor
        .strip_prefix(CURSOR)
        .filter(legal)
        .ok_or_else(|| ErrorData::invalid_params("`cursor` is not one this server gave out", None))
}

/// Sends progress on until the call has ended and what it said before is sent.
async fn forward(
    events: Option<(ProgressToken, mpsc::Receiver<Progress>)>,
    peer: &Peer<RoleServer>,
    ended: &CancellationToken,
) {
    let Some((token, mut events)) = events else { return };
    let mut meter = Meter::default();
    loop {
        let event = tokio::select! {
            biased;
            event = events.recv() => event,
            () = ended.cancelled(), if !ended.is_cancelled() => {
                events.close();
                continue;
            }
        };
        let Some(event) = event else { return };
        let (progress, total) = meter.next(event.percent);
        let mut notification =
            ProgressNotificationParam::new(token.clone(), progress).with_message(event.message);
        notification.total = total;
        if peer.notify_progress(notification).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_answered() {
        let answer = answered(async { Err::<(), _>(ErrorData::parse_error("as it was", None)) }).await;
        assert_eq!(answer.unwrap_err().message, "as it was");
        let answer = answered::<()>(async { panic!("boom") }).await;
        assert_eq!(answer.unwrap_err().code, rmcp::model::ErrorCode::INTERNAL_ERROR);
    }
}
