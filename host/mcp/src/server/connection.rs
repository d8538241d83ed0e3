//! One client and the handler of each of its requests. Knows no transport.

#![expect(deprecated, reason = "older clients speak it: logging")]

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rmcp::model::{
    CancelTaskParams, ClientCapabilities, CompleteRequestParams, CompletionInfo, DiscoverResult, EmptyObject,
    ErrorCode, ErrorData, GetPromptRequestParams, GetTaskParams, InitializeResult, JsonObject,
    ProtocolVersion, ReadResourceRequestParams, Reference, ServerCapabilities, ServerConfig,
    SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, SubscriptionsListenRequestParams,
    SubscriptionsListenResult, TASKS_EXTENSION_ID, TaskAckResult, UnsubscribeRequestParams, UpdateTaskParams,
};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolbay_core::call::dialog::{AskKind, Dialog};

use crate::client::Address;
use crate::protocol::event_stream::Reply;
use crate::protocol::incoming::Request;
use crate::protocol::lifecycle::{Era, Lifecycle, Terms};
use crate::protocol::message::RpcResult;
use crate::protocol::outbound::{MessageSink, Outbound};
use crate::server::calls::ClientContext;
use crate::server::changes::{self, Kind, ResourceSubscriptions, Seen};
use crate::server::client_dialog::RetryInput;
use crate::server::outbox::OutboxPermit;
use crate::server::request::{AdmittedRequest, Answer, RequestContext, RequestOrigin};
use crate::server::{Options, Server};
use crate::server::{convert, outputs, prompts_and_resources, session_attachments};

mod listing;

/// Open `subscriptions/listen` requests of one connection. One is enough for a client; each costs a task.
const MAX_LISTENERS: usize = 16;

/// One client, seen from its connection.
pub(crate) struct McpConnection {
    client: Arc<ClientContext>,
    outbound: Outbound,
    lifecycle: Mutex<Lifecycle>,
    listeners: Semaphore,
    announcing: AtomicBool,
    /// The lists that its client has seen.
    seen: Seen,
    watched: ResourceSubscriptions,
    /// Whether the connection lasts for one request. The server then does not know which lists the client has seen.
    is_of_one_request: bool,
    closed: CancellationToken,
}

impl fmt::Debug for McpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpConnection")
            .field("session_id", &self.client.owner.session_id)
            .finish_non_exhaustive()
    }
}

impl McpConnection {
    /// A connection of `client`. Messages to the client go to `sink`; `closed` fires when the client has gone.
    pub(crate) fn new(client: ClientContext, sink: Arc<dyn MessageSink>, closed: CancellationToken) -> Self {
        Self {
            client: Arc::new(client),
            outbound: Outbound::new(sink),
            lifecycle: Mutex::default(),
            listeners: Semaphore::new(MAX_LISTENERS),
            announcing: AtomicBool::new(false),
            seen: Seen::default(),
            watched: ResourceSubscriptions::default(),
            is_of_one_request: false,
            closed,
        }
    }

    /// The same for one request of a client that has no session.
    pub(crate) fn of_one_request(self) -> Self {
        Self { is_of_one_request: true, ..self }
    }

    fn options(&self) -> &Options {
        &self.client.server.options
    }

    fn server(&self) -> &Server {
        &self.client.server
    }

    /// Takes a request in, which `cancel` ends. Call it in the order in which requests came.
    pub(crate) fn admit(
        &self,
        mut request: Request,
        origin: RequestOrigin,
        cancel: CancellationToken,
    ) -> AdmittedRequest {
        let terms = match request.is_handshake() {
            true => request.params().map(|params| self.lifecycle.lock().initialize(params)),
            false => self.lifecycle.lock().admit(&request.method, &request.meta),
        };
        let (terms, refused) = match terms {
            Ok(terms) => (terms, None),
            Err(error) => (Terms::default(), Some(error)),
        };
        let context = RequestContext {
            id: request.id.clone(),
            era: Era::of(terms.version.as_ref()),
            version: terms.version,
            capabilities: terms.capabilities,
            has_session: terms.has_session,
            meta: std::mem::take(&mut request.meta),
            cancel,
            outbound: self.outbound.clone(),
            origin,
        };
        AdmittedRequest { request: refused.map_or(Ok(request), Err), context }
    }

    /// Answers a request. So is a panic: without an answer the client would wait for ever.
    pub(crate) async fn answer(self: Arc<Self>, admitted: AdmittedRequest) -> Reply {
        let AdmittedRequest { request, context } = admitted;
        let (id, outbox, era) = (context.id.clone(), Arc::clone(&context.origin.outbox), context.era);
        let outcome = match request {
            Ok(request) => answered(Box::pin(self.handle(request, context))).await,
            Err(error) => Err(error),
        };
        let outcome = outcome.map_err(|mut error| {
            // Legacy clients expect the code of its own.
            if era == Era::Modern && error.code == ErrorCode::RESOURCE_NOT_FOUND {
                error.code = ErrorCode::INVALID_PARAMS;
            }
            error
        });
        Answer::reply(outcome, &id, &outbox)
    }

    /// Takes a notification of the client in, but for `notifications/cancelled`, which is its transport's.
    pub(crate) fn notice(self: &Arc<Self>, method: &str) {
        // Without a handshake, changes are told to those who listen.
        if method != "notifications/initialized"
            || !self.lifecycle.lock().is_handshake()
            || self.announcing.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let connection = Arc::clone(self);
        tokio::spawn(async move {
            let Self { seen, outbound, watched, closed, .. } = &*connection;
            changes::notify_session(connection.server(), seen, outbound, watched, closed).await;
        });
    }

    /// Hands a response of the client to the request that waits for it.
    pub(crate) fn resolve(&self, id: Option<u64>, result: RpcResult) {
        self.outbound.resolve(id, result);
    }

    async fn handle(&self, request: Request, context: RequestContext) -> Result<Answer, ErrorData> {
        if request.method == "tools/call" {
            return self.client.call(request, context).await;
        }
        let RequestContext { era, has_session, .. } = context;
        let id = &context.id;
        Ok(match request.method.as_str() {
            "initialize" if has_session => Answer::new(id, &self.initialize(&context), None),
            "server/discover" => Answer::new(id, &self.discover(), None),
            "ping" if has_session => Answer::new(id, &EmptyObject {}, None),
            "tools/list" => self.list(Kind::Tools, request.params()?, &context).await?,
            "prompts/list" => self.list(Kind::Prompts, request.params()?, &context).await?,
            "resources/list" => self.list(Kind::Resources, request.params()?, &context).await?,
            "resources/templates/list" => self.list(Kind::Templates, request.params()?, &context).await?,
            "prompts/get" => self.get_prompt(request.params()?, &context).await?,
            "resources/read" => {
                let ReadResourceRequestParams { uri, .. } = request.params()?;
                let room = self.make_room(&context, self.resource_bytes(&uri).await).await?;
                let contents = BTreeMap::from([("contents", self.read(&uri).await?)]);
                // The same address of a kept text is the same text, but it may be gone.
                context.complete(contents, Some(self.caching()), Some(room))
            }
            "resources/subscribe" if has_session => {
                let SubscribeRequestParams { uri, .. } = request.params()?;
                self.watched.add(&self.server().view(), uri)?;
                Answer::new(id, &EmptyObject {}, None)
            }
            "resources/unsubscribe" if has_session => {
                let UnsubscribeRequestParams { uri, .. } = request.params()?;
                self.watched.remove(&uri);
                Answer::new(id, &EmptyObject {}, None)
            }
            "subscriptions/listen" if !has_session => {
                let SubscriptionsListenRequestParams { notifications, .. } = request.params()?;
                Answer::new(id, &self.listen(&notifications, &context).await?, None)
            }
            "completion/complete" => {
                let completion = self.complete(&request.params()?)?;
                context.complete(BTreeMap::from([("completion", completion)]), None, None)
            }
            "logging/setLevel" if self.options().logging && era == Era::Legacy => {
                let SetLevelRequestParams { level, .. } = request.params()?;
                self.client.set_log_level(level);
                Answer::new(id, &EmptyObject {}, None)
            }
            "tasks/get" | "tasks/update" | "tasks/cancel" => self.task(&request, &context).await?,
            method => return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None)),
        })
    }

    /// Reserves room for an answer of `bytes`.
    async fn make_room(&self, context: &RequestContext, bytes: u64) -> Result<OutboxPermit, ErrorData> {
        let room = context.origin.outbox.acquire(bytes).await;
        room.map_err(|full| ErrorData::internal_error(full.message, None))
    }

    /// About how large a resource of a client is, where it can be large.
    async fn resource_bytes(&self, uri: &str) -> u64 {
        let session = &self.client.owner.session;
        let sizes = match self.server().pipeline.spool() {
            Some(spool) if outputs::is_one(uri) => outputs::list(&**spool, session).await,
            _ if session_attachments::is_one(uri) => self.server().attachments.list(session),
            _ => Vec::new(),
        };
        let size = sizes.iter().find(|resource| resource.uri == uri).and_then(|resource| resource.size);
        // In base64.
        size.map_or(0, |size| size.saturating_add(size / 3))
    }

    fn info(&self) -> ServerConfig {
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

    fn initialize(&self, context: &RequestContext) -> InitializeResult {
        let mut info = self.info();
        info.protocol_version = context.version.clone().unwrap_or(ProtocolVersion::LATEST_WITH_INITIALIZE);
        info
    }

    fn discover(&self) -> DiscoverResult {
        let mut result =
            DiscoverResult::from_server_info(ProtocolVersion::KNOWN_VERSIONS.to_vec(), self.info());
        result.ttl_ms = millis(self.options().list_ttl);
        result
    }

    async fn get_prompt(
        &self,
        mut request: GetPromptRequestParams,
        context: &RequestContext,
    ) -> Result<Answer, ErrorData> {
        self.server().loaded().await;
        let view = self.server().view();
        let (offers, prompt) = prompts_and_resources::prompt(&view, &request.name)?;
        let about = self.client.about("prompts/get", &request.name, &json!(request.arguments));
        let mut given = prompts_and_resources::given(request.arguments.take())?;
        let dialog = self.client.dialog(context, context.cancel.clone());
        if let Some(question) = prompts_and_resources::question(prompt, &given)
            && self.options().ask
            && dialog.offers(AskKind::Elicit)
        {
            let (responses, state) = (request.input_responses.take(), request.request_state.take());
            dialog.take(RetryInput { responses, state }, &self.server().state_signer, || about.clone())?;
            match dialog.of_host(question).await {
                Ok(answer) => prompts_and_resources::answered(&mut given, &answer)?,
                Err(why) => {
                    let (signer, life) = (&self.server().state_signer, self.options().ask_life);
                    let failed = || ErrorData::invalid_params(why.to_string(), None);
                    let required = dialog.required(signer, || about, life).ok_or_else(failed)??;
                    return Ok(Answer::new(&context.id, &required, None));
                }
            }
        }
        let messages = prompts_and_resources::messages(offers, prompt, &given)?;
        let result = json!({"description": prompt.description, "messages": messages});
        Ok(context.complete(result, None, None))
    }

    async fn listen(
        &self,
        wanted: &SubscriptionFilter,
        context: &RequestContext,
    ) -> Result<SubscriptionsListenResult, ErrorData> {
        let Ok(_permit) = self.listeners.try_acquire() else {
            let text = format!("{MAX_LISTENERS} subscriptions of this connection are open; close one first");
            return Err(ErrorData::invalid_request(text, None));
        };
        let mut accepted = wanted.intersection(wanted);
        if let Some(addresses) = &mut accepted.resource_subscriptions {
            addresses.truncate(changes::MAX_WATCHED);
        }
        if self.is_of_one_request {
            self.seen.begin(self.server(), &accepted);
        }
        let (server, seen, id) = (self.server(), &self.seen, &context.id);
        tokio::select! {
            () = context.cancel.cancelled() => {}
            () = self.closed.cancelled() => {}
            () = changes::notify_subscription(server, seen, &self.outbound, id, &accepted) => {}
        }
        let mut result = SubscriptionsListenResult::complete(id.clone());
        result.meta.set_server_info(convert::implementation());
        Ok(result)
    }

    fn complete(&self, request: &CompleteRequestParams) -> Result<CompletionInfo, ErrorData> {
        match &request.r#ref {
            // What other servers would complete is not asked of them.
            Reference::Resource(one) if Address::is_one(&one.uri) => Ok(CompletionInfo::default()),
            about => prompts_and_resources::complete(&self.server().view(), about, &request.argument),
        }
    }

    /// Answers what is asked about a task, by clients that know tasks.
    async fn task(&self, request: &Request, context: &RequestContext) -> Result<Answer, ErrorData> {
        if !context.capabilities.supports_tasks() {
            let wanted = ClientCapabilities::builder().enable_tasks().build();
            return Err(ErrorData::missing_required_client_capability(wanted));
        }
        let (tasks, owner) = (&self.server().tasks, &self.client.owner.session_id);
        match request.method.as_str() {
            "tasks/get" => {
                let GetTaskParams { task_id, .. } = request.params()?;
                let room = self.make_room(context, tasks.bytes(owner, &task_id)).await?;
                return Ok(context.complete(tasks.get(owner, &task_id)?, None, Some(room)));
            }
            "tasks/update" => {
                let UpdateTaskParams { task_id, input_responses, .. } = request.params()?;
                tasks.update(owner, &task_id, input_responses)?;
            }
            _ => {
                let CancelTaskParams { task_id, .. } = request.params()?;
                tasks.cancel(owner, &task_id)?;
            }
        }
        Ok(Answer::new(&context.id, &TaskAckResult::new(), None))
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Turns a panic into an error. The work is boxed to keep the futures of all requests small.
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
