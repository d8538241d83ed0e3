//! What is answered to which request of a client, whatever the transport.

#![expect(deprecated, reason = "older clients speak it: sampling, roots, logging, subscriptions by request")]

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams, CompleteResult,
    CompletionInfo, DiscoverResult, ErrorData, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
    GetTaskParams, GetTaskResult, InitializeRequestParams, InitializeResult, JsonObject, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, Reference, ServerCapabilities, ServerConfig,
    SetLevelRequestMethod, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter,
    TASKS_EXTENSION_ID, Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{Peer, RoleServer, ServerHandler};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolbay_core::call::dialog::{AskKind, Dialog};

use crate::client::Address;
use crate::server::asking::Brought;
use crate::server::calls::{self, Caller};
use crate::server::changes::{self, Promises, Seen, Watched};
use crate::server::convert::{self, Era};
use crate::server::lists::Lists;
use crate::server::outbox::{AnswerSlot, Outbox};
use crate::server::workers::Workers;
use crate::server::{Options, Server};
use crate::server::{handed, outputs, shelf};

mod listing;

/// Open `subscriptions/listen` requests of one connection. One is enough for a client; each costs a task.
const MAX_LISTENERS: usize = 16;

/// One client, seen from its connection.
pub(crate) struct Connection {
    caller: Arc<Caller>,
    listeners: Semaphore,
    announcing: AtomicBool,
    /// The lists that its client has seen.
    seen: Seen,
    promises: Promises,
    watched: Watched,
    /// It lasts for one request: what its client saw before is not known.
    alone: bool,
    closed: CancellationToken,
    /// Its client, once there was a handshake.
    peer: OnceLock<Peer<RoleServer>>,
    /// Where lists of tools go, if the transport writes them.
    lists: Option<Arc<Lists>>,
    /// Who works for it, if not the task that a request has.
    workers: Option<Workers>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("session_id", &self.caller.whose.session_id)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// What is asked is done by `caller`; `closed` fires when the client has gone.
    pub(crate) fn new(caller: Caller, closed: CancellationToken) -> Self {
        Self {
            caller: Arc::new(caller),
            listeners: Semaphore::new(MAX_LISTENERS),
            announcing: AtomicBool::new(false),
            seen: Seen::default(),
            promises: Promises::default(),
            watched: Watched::default(),
            alone: false,
            closed,
            peer: OnceLock::new(),
            lists: None,
            workers: None,
        }
    }

    /// The same over a transport that writes lists of tools itself.
    pub(crate) fn listing(self, lists: Arc<Lists>) -> Self {
        Self { lists: Some(lists), ..self }
    }

    /// The same over a transport with one pipe, of whose answers so many wait.
    pub(crate) fn sending(mut self, outbox: &Arc<Outbox>) -> Self {
        if let Some(caller) = Arc::get_mut(&mut self.caller) {
            caller.outbox = Some(Arc::clone(outbox));
        }
        self
    }

    /// Takes room for an answer of so many bytes, and holds it until the answer is written.
    async fn make_room(&self, context: &RequestContext<RoleServer>, bytes: u64) -> Result<(), ErrorData> {
        let slot = AnswerSlot::of(context, self.caller.outbox.as_ref());
        let room = slot.acquire(bytes).await;
        let room = room.map_err(|full| ErrorData::internal_error(full.message, None))?;
        room.into_iter().for_each(|room| slot.hold(room));
        Ok(())
    }

    /// About how large a resource of a client is, where it can be large.
    async fn resource_bytes(&self, uri: &str) -> u64 {
        let session = &self.caller.whose.session;
        let sizes = match self.server().pipeline().spool() {
            Some(spool) if outputs::is_one(uri) => outputs::list(&**spool, session).await,
            _ if handed::is_one(uri) => self.server().handed().list(session),
            _ => Vec::new(),
        };
        let size = sizes.iter().find(|resource| resource.uri == uri).and_then(|resource| resource.size);
        // In base64.
        size.map_or(0, |size| size.saturating_add(size / 3))
    }

    /// The same for one request of a client that has no session.
    pub(crate) fn of_one_request(self) -> Self {
        Self { alone: true, ..self }
    }

    /// The same, whose calls are worked on there.
    pub(crate) fn working_in(self, workers: Option<Workers>) -> Self {
        Self { workers, ..self }
    }

    /// Its client, once there was a handshake.
    pub(crate) fn peer(&self) -> Option<&Peer<RoleServer>> {
        self.peer.get()
    }

    fn options(&self) -> &Options {
        self.caller.server.options()
    }

    fn server(&self) -> &Server {
        &self.caller.server
    }

    async fn prompt(
        &self,
        mut request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let (era, view) = (era(&context), self.server().view());
        let (offers, prompt) = shelf::prompt(&view, &request.name)?;
        let about = self.caller.about("prompts/get", &request.name, &json!(request.arguments));
        let mut given = shelf::given(request.arguments.take())?;
        let asker = self.caller.asker(&context, era, context.ct.clone());
        if let Some(question) = shelf::question(prompt, &given)
            && self.options().ask
            && asker.offers(AskKind::Elicit)
        {
            let (responses, state) = (request.input_responses.take(), request.request_state.take());
            asker.take(Brought { responses, state }, self.server().seals(), || about.clone())?;
            match asker.of_host(question).await {
                Ok(answer) => shelf::answered(&mut given, &answer)?,
                Err(why) => {
                    let required = asker.required(self.server().seals(), || about, self.options().ask_life);
                    let failed = || ErrorData::invalid_params(why.to_string(), None);
                    let mut required = required.ok_or_else(failed)??;
                    convert::sign(&mut required.meta, era);
                    return Ok(GetPromptResponse::InputRequired(required));
                }
            }
        }
        let mut result = GetPromptResult::new(shelf::messages(offers, prompt, &given)?);
        result.description = Some(prompt.description.clone());
        convert::sign(&mut result.meta, era);
        Ok(result.into())
    }
}

impl ServerHandler for Connection {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_completions()
            .build();
        // Always the same, though plugins come and go while a client is there.
        capabilities.extensions = Some([(TASKS_EXTENSION_ID.to_owned(), JsonObject::new())].into());
        capabilities.logging = self.options().logging.then(JsonObject::new);
        let mut info = ServerConfig::new(capabilities).with_server_info(convert::implementation());
        info.instructions.clone_from(&self.options().instructions);
        info
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let answer = self.negotiate_initialize(&request);
        context.peer.set_peer_info(request);
        self.peer.get_or_init(|| context.peer.clone());
        answer
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
        self.server().listable().await;
        answered(Box::pin(async { self.tools(&context.id, request, era(&context)) })).await
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        // rmcp asks for it to check request headers, which mirror the input schema: the same in both eras.
        self.server().view().get_callable(name).map(|entry| convert::tool(entry, Era::Modern).into_owned())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(workers) = &self.workers else {
            return answered(Box::pin(self.caller.call(request, context))).await;
        };
        let caller = Arc::clone(&self.caller);
        let work = workers.work(async move { caller.call(request, context).await });
        answered(Box::pin(async { work.await.unwrap_or_else(|| Err(calls::lost())) })).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let (tasks, owner) = (self.server().tasks(), self.caller.whose.owner());
        self.make_room(&context, tasks.bytes(&owner, &request.task_id)).await?;
        let mut result = tasks.get(&owner, &request.task_id)?;
        convert::sign(&mut result.meta, era(&context));
        Ok(result)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let owner = self.caller.whose.owner();
        self.server().tasks().update(&owner, &request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.server().tasks().cancel(&self.caller.whose.owner(), &request.task_id)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        // Without a handshake, changes are told to those who listen.
        if context.peer.peer_info().is_none() || self.announcing.swap(true, Ordering::Relaxed) {
            return;
        }
        // What the message takes of the server is free again, though this goes on for as long as the session.
        let peer = context.peer.clone();
        drop(context);
        changes::tell_peer(self.server(), &self.seen, &peer, &self.watched, &self.closed).await;
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        // rmcp cuts it down to what `get_info` declares, says so to the client, and only then calls `listen`.
        let mut accepted = requested.clone();
        if let Some(wanted) = &mut accepted.resource_subscriptions {
            wanted.truncate(changes::MAX_WATCHED);
        }
        let wanted = accepted.resource_subscriptions.as_deref().unwrap_or_default();
        self.promises.make(&self.server().view(), wanted);
        if self.alone {
            self.seen.begin(self.server(), &accepted);
        }
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let Ok(_permit) = self.listeners.try_acquire() else {
            // Nobody looks for it.
            self.promises.keep(&self.server().view(), &[]);
            let text = format!("{MAX_LISTENERS} subscriptions of this connection are open; close one first");
            return Err(ErrorData::invalid_request(text, None));
        };
        let peer = &context.request_context().peer;
        let (server, seen, promises) = (self.server(), &self.seen, &self.promises);
        let telling = changes::tell_subscription(server, seen, promises, context.sink(), peer, &self.closed);
        tokio::select! {
            () = context.cancelled() => {}
            () = telling => {}
        }
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.watched.add(&self.server().view(), request.uri)
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.watched.remove(&request.uri);
        Ok(())
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if !self.options().logging || era(&context) == Era::Modern {
            return Err(ErrorData::method_not_found::<SetLevelRequestMethod>());
        }
        self.caller.hear(request.level);
        Ok(())
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.server().listable().await;
        answered(Box::pin(async { self.prompts(request, era(&context)) })).await
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.server().loaded().await;
        answered(Box::pin(self.prompt(request, context))).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.server().listable().await;
        answered(Box::pin(self.resources(request, era(&context)))).await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let bytes = self.resource_bytes(&request.uri).await;
        self.make_room(&context, bytes).await?;
        answered(Box::pin(self.read(&request.uri, era(&context)))).await.map(Into::into)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.server().listable().await;
        answered(Box::pin(async { self.templates(request, era(&context)) })).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let complete = async {
            match &request.r#ref {
                // What other servers would complete is not asked of them.
                Reference::Resource(one) if Address::is_one(&one.uri) => {
                    Ok(CompleteResult::new(CompletionInfo::default()))
                }
                about => shelf::complete(&self.server().view(), about, &request.argument),
            }
        };
        let mut result = answered(Box::pin(complete)).await?;
        convert::sign(&mut result.meta, era(&context));
        Ok(result)
    }
}

fn era(context: &RequestContext<RoleServer>) -> Era {
    Era::of(context.protocol_version().as_ref())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Makes an answer of a panic: rmcp would leave the request without any, for ever. The work is in a box: else each layer
/// of the library has room for it, and for that of all other requests.
async fn answered<T>(work: BoxFuture<'_, Result<T, ErrorData>>) -> Result<T, ErrorData> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!("a panic while a request was answered");
        Err(ErrorData::internal_error("a panic while the request was answered; see the log", None))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_answered() {
        let answer =
            answered(Box::pin(async { Err::<(), _>(ErrorData::parse_error("as it was", None)) })).await;
        assert_eq!(answer.unwrap_err().message, "as it was");
        let answer = answered::<()>(Box::pin(async { panic!("boom") })).await;
        assert_eq!(answer.unwrap_err().code, rmcp::model::ErrorCode::INTERNAL_ERROR);
    }
}
