//! The connection of one client, with the handlers of all requests, independent of the transport.

#![expect(deprecated, reason = "legacy clients use logging")]

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
    CompleteRequestParams, CompletionInfo, DiscoverResult, EmptyObject, ErrorCode, ErrorData,
    GetPromptRequestParams, JsonObject, ProtocolVersion, ReadResourceRequestParams, Reference,
    ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter,
    SubscriptionsListenRequestParams, SubscriptionsListenResult, TASKS_EXTENSION_ID,
    UnsubscribeRequestParams,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolbay_core::call::dialog::{Dialog, DialogRequestKind};
use toolbay_policy::excerpt::one_line;

use crate::client::ResourceAddress;
use crate::protocol::bounds::MAX_SHOWN_NAME;
use crate::protocol::event_stream::EncodedResponse;
use crate::protocol::incoming::ClientRequest;
use crate::protocol::legacy_tasks;
use crate::protocol::lifecycle::{Era, Lifecycle, RequestTerms};
use crate::protocol::message::{ResponseId, RpcResult};
use crate::protocol::outbound::{MessageSink, Outbound};
use crate::protocol::uri::is_same_uri;
use crate::server::calls::ClientContext;
use crate::server::changes::{self, ChangeBaseline, ResourceSubscriptions, ServedList};
use crate::server::client_dialog::RetryInput;
use crate::server::outbox::OutboxPermit;
use crate::server::request::{EncodedResult, RequestContext, RequestInContext, RequestOrigin};
use crate::server::{Options, Server};
use crate::server::{convert, outputs, prompts_and_resources, session_attachments};

mod listing;
mod tasks;

/// Open `subscriptions/listen` requests of one connection. A client needs one, and each costs a task.
const MAX_LISTENERS: usize = 16;

/// The connection of one client.
pub(crate) struct McpConnection {
    client: Arc<ClientContext>,
    outbound: Outbound,
    lifecycle: Mutex<Lifecycle>,
    listeners: Semaphore,
    is_announcing: AtomicBool,
    /// The lists that the client has seen.
    baseline: ChangeBaseline,
    subscriptions: ResourceSubscriptions,
    /// Whether the connection serves a single request. The server then does not know which lists the client has seen.
    is_single_request: bool,
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
    /// Creates the connection of `client`. Messages go to `sink`; `closed` fires when the client disconnects.
    pub(crate) fn new(client: ClientContext, sink: Arc<dyn MessageSink>, closed: CancellationToken) -> Self {
        Self {
            client: Arc::new(client),
            outbound: Outbound::new(sink),
            lifecycle: Mutex::default(),
            listeners: Semaphore::new(MAX_LISTENERS),
            is_announcing: AtomicBool::new(false),
            baseline: ChangeBaseline::default(),
            subscriptions: ResourceSubscriptions::default(),
            is_single_request: false,
            closed,
        }
    }

    /// Restricts the connection to a single request of a client without a session.
    pub(crate) fn for_single_request(self) -> Self {
        Self { is_single_request: true, ..self }
    }

    fn options(&self) -> &Options {
        &self.client.server.options
    }

    fn server(&self) -> &Server {
        &self.client.server
    }

    /// Creates the context of a request, which `cancel` ends. Must be called in the order of arrival.
    pub(crate) fn add_context(
        &self,
        mut request: ClientRequest,
        origin: RequestOrigin,
        cancel: CancellationToken,
    ) -> RequestInContext {
        let terms = match request.is_handshake() {
            true => request.params().map(|params| self.lifecycle.lock().initialize(params)),
            false => self.lifecycle.lock().request_terms(&request.method, &request.meta),
        };
        let (terms, refused) = match terms {
            Ok(terms) => (terms, None),
            Err(error) => (RequestTerms::default(), Some(error)),
        };
        let context = RequestContext {
            id: request.id.clone(),
            era: Era::from_version(terms.version.as_ref()),
            version: terms.version,
            capabilities: terms.capabilities,
            client: terms.client,
            has_session: terms.has_session,
            meta: std::mem::take(&mut request.meta),
            cancel,
            outbound: self.outbound.clone(),
            origin,
        };
        RequestInContext { request: refused.map_or(Ok(request), Err), context }
    }

    /// Answers a request. A panic is answered with an error, since the client would wait forever otherwise.
    pub(crate) async fn answer(self: Arc<Self>, request: RequestInContext) -> EncodedResponse {
        let RequestInContext { request, context } = request;
        let (id, outbox, era) = (context.id.clone(), Arc::clone(&context.origin.outbox), context.era);
        let outcome = match request {
            Ok(request) => catch_panic(Box::pin(self.handle(request, context))).await,
            Err(error) => Err(error),
        };
        let outcome = outcome.map_err(|mut error| {
            // Only legacy revisions define a separate error code.
            if era == Era::Modern && error.code == ErrorCode::RESOURCE_NOT_FOUND {
                error.code = ErrorCode::INVALID_PARAMS;
            }
            error
        });
        EncodedResult::into_response(outcome, &id, &outbox)
    }

    /// Handles a notification, except `notifications/cancelled`, which the transport handles.
    pub(crate) fn handle_notification(self: &Arc<Self>, method: &str) {
        // Without a handshake, only subscriptions are notified of changes.
        if method != "notifications/initialized"
            || !self.lifecycle.lock().is_handshake()
            || self.is_announcing.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let connection = Arc::clone(self);
        // Ends when the connection is closed.
        tokio::spawn(async move {
            let Self { baseline, outbound, subscriptions, closed, .. } = &*connection;
            changes::announce_to_session(connection.server(), baseline, outbound, subscriptions, closed)
                .await;
        });
    }

    /// Passes a response of the client to the pending request.
    pub(crate) fn resolve(&self, id: &ResponseId, result: RpcResult) {
        self.outbound.resolve(id, result);
    }

    async fn handle(
        &self,
        request: ClientRequest,
        context: RequestContext,
    ) -> Result<EncodedResult, ErrorData> {
        if request.method == "tools/call" {
            return self.client.call(request, context).await;
        }
        let RequestContext { era, has_session, .. } = context;
        let id = &context.id;
        Ok(match request.method.as_str() {
            "initialize" if has_session => EncodedResult::new(id, &self.initialize(&context).await, None),
            "server/discover" => EncodedResult::new(id, &self.discover().await, None),
            "ping" if has_session => EncodedResult::new(id, &EmptyObject {}, None),
            "tools/list" => self.list_page(ServedList::Tools, request.params()?, &context).await?,
            "prompts/list" => self.list_page(ServedList::Prompts, request.params()?, &context).await?,
            "resources/list" => self.list_page(ServedList::Resources, request.params()?, &context).await?,
            "resources/templates/list" => {
                self.list_page(ServedList::Templates, request.params()?, &context).await?
            }
            "prompts/get" => self.get_prompt(request.params()?, &context).await?,
            "resources/read" => {
                let ReadResourceRequestParams { uri, .. } = request.params()?;
                let room = self.reserve_outbox(&context, self.resource_bytes(&uri).await).await?;
                let contents = BTreeMap::from([("contents", self.read_resource(&uri).await?)]);
                // The text of a saved output never changes, but it may be removed.
                context.complete_response(contents, Some(self.cache_hints()), Some(room))
            }
            "resources/subscribe" if has_session => {
                let SubscribeRequestParams { uri, .. } = request.params()?;
                self.server().wait_loaded().await;
                self.subscriptions.add(&self.server().view(), uri)?;
                EncodedResult::new(id, &EmptyObject {}, None)
            }
            "resources/unsubscribe" if has_session => {
                let UnsubscribeRequestParams { uri, .. } = request.params()?;
                self.subscriptions.remove(&uri);
                EncodedResult::new(id, &EmptyObject {}, None)
            }
            "subscriptions/listen" if !has_session => {
                let SubscriptionsListenRequestParams { notifications, .. } = request.params()?;
                EncodedResult::new(id, &self.serve_subscription(&notifications, &context).await?, None)
            }
            "completion/complete" => {
                let completion = self.complete_argument(&request.params()?)?;
                context.complete_response(BTreeMap::from([("completion", completion)]), None, None)
            }
            "logging/setLevel" if self.options().logging && era == Era::Legacy => {
                let SetLevelRequestParams { level, .. } = request.params()?;
                self.client.set_log_level(level);
                EncodedResult::new(id, &EmptyObject {}, None)
            }
            method if method.starts_with("tasks/") => self.handle_task_request(&request, &context).await?,
            method => return Err(unknown_method(method)),
        })
    }

    /// Reserves space in the outbox for a response of `bytes`.
    async fn reserve_outbox(&self, context: &RequestContext, bytes: u64) -> Result<OutboxPermit, ErrorData> {
        let room = context.origin.outbox.acquire(bytes).await;
        room.map_err(|full| ErrorData::internal_error(full.message, None))
    }

    /// Approximate size of a resource of the session, in bytes; 0 for other resources.
    async fn resource_bytes(&self, uri: &str) -> u64 {
        let session = &self.client.owner.session;
        let sizes = match self.server().pipeline.output_store() {
            Some(store) if outputs::is_output_uri(uri) => outputs::list_resources(&**store, session).await,
            _ if session_attachments::is_attachment_uri(uri) => {
                session_attachments::list_resources(&**self.server().attachment_store(session), session).await
            }
            _ => Vec::new(),
        };
        let found = sizes.iter().find(|resource| is_same_uri(&resource.uri, uri));
        let size = found.and_then(|resource| resource.size);
        // Base64 adds a third.
        size.map_or(0, |size| size.saturating_add(size / 3))
    }

    async fn server_config(&self) -> ServerConfig {
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
        capabilities.logging = self.options().logging.then(JsonObject::new);
        let mut info = ServerConfig::new(capabilities).with_server_info(convert::implementation());
        info.instructions = self.server().instructions().await;
        info
    }

    async fn initialize(&self, context: &RequestContext) -> Value {
        let mut info = self.server_config().await;
        info.protocol_version = context.version.clone().unwrap_or(ProtocolVersion::LATEST_WITH_INITIALIZE);
        let declares_tasks = legacy_tasks::are_supported(Some(&info.protocol_version));
        // Capabilities and text always serialize.
        let mut result = serde_json::to_value(info).unwrap_or_default();
        if declares_tasks {
            legacy_tasks::declare(&mut result);
        }
        result
    }

    async fn discover(&self) -> DiscoverResult {
        let mut config = self.server_config().await;
        // Only this era has the extension (SEP-2663). Declared even without slow tools, since plugins may be loaded later.
        config.capabilities.extensions = Some([(TASKS_EXTENSION_ID.to_owned(), JsonObject::new())].into());
        let mut result = DiscoverResult::from_server_info(ProtocolVersion::KNOWN_VERSIONS.to_vec(), config);
        let ttl = if self.server().has_all_descriptions() { listing::LIST_TTL } else { Duration::ZERO };
        result.ttl_ms = convert::to_millis(ttl);
        result
    }

    async fn get_prompt(
        &self,
        mut request: GetPromptRequestParams,
        context: &RequestContext,
    ) -> Result<EncodedResult, ErrorData> {
        self.server().wait_loaded().await;
        let view = self.server().view();
        let (source, prompt) = prompts_and_resources::find_prompt(&view, &request.name)?;
        let about = self.client.state_context("prompts/get", &request.name, &json!(request.arguments));
        let mut given = prompts_and_resources::parse_arguments(request.arguments.take())?;
        let dialog = self.client.dialog(context, context.cancel.clone());
        if let Some(question) = prompts_and_resources::missing_arguments_request(prompt, &given)
            && self.options().ask
            && dialog.supports(DialogRequestKind::Elicit)
        {
            let (responses, state) = (request.input_responses.take(), request.request_state.take());
            dialog.accept_input(RetryInput { responses, state }, &self.server().state_signer, || {
                about.clone()
            })?;
            match dialog.ask_as_host(question).await {
                Ok(answer) => prompts_and_resources::merge_answers(&mut given, &answer)?,
                Err(why) => {
                    let (signer, life) = (&self.server().state_signer, self.options().ask_timeout);
                    let failed = || ErrorData::invalid_params(why.to_string(), None);
                    let required =
                        dialog.take_required_input(signer, || about, life).ok_or_else(failed)??;
                    return Ok(EncodedResult::new(&context.id, &required, None));
                }
            }
        }
        let messages = prompts_and_resources::fill_messages(source, prompt, &given)?;
        let result = json!({"description": prompt.description, "messages": messages});
        Ok(context.complete_response(result, None, None))
    }

    async fn serve_subscription(
        &self,
        wanted: &SubscriptionFilter,
        context: &RequestContext,
    ) -> Result<SubscriptionsListenResult, ErrorData> {
        let Ok(_permit) = self.listeners.try_acquire() else {
            let text =
                format!("this connection already has {MAX_LISTENERS} open subscriptions; close one first");
            return Err(ErrorData::invalid_request(text, None));
        };
        let mut accepted = wanted.intersection(wanted);
        if let Some(addresses) = &mut accepted.resource_subscriptions {
            // The acknowledgement names what is accepted.
            self.server().wait_loaded().await;
            let view = self.server().view();
            addresses.retain(|uri| changes::is_announced(&view, uri));
            addresses.truncate(changes::MAX_RESOURCE_SUBSCRIPTIONS);
        }
        if self.is_single_request {
            self.baseline.record_subscribed(self.server(), &accepted);
        }
        let (server, baseline, id) = (self.server(), &self.baseline, &context.id);
        tokio::select! {
            () = context.cancel.cancelled() => {}
            () = self.closed.cancelled() => {}
            () = changes::announce_to_subscription(server, baseline, &self.outbound, id, &accepted) => {}
        }
        let mut result = SubscriptionsListenResult::complete(id.clone());
        result.meta.set_server_info(convert::implementation());
        Ok(result)
    }

    fn complete_argument(&self, request: &CompleteRequestParams) -> Result<CompletionInfo, ErrorData> {
        match &request.r#ref {
            // Completions of other servers are not forwarded.
            Reference::Resource(one) if ResourceAddress::has_bridge_prefix(&one.uri) => {
                Ok(CompletionInfo::default())
            }
            about => {
                prompts_and_resources::complete_argument(&self.server().view(), about, &request.argument)
            }
        }
    }
}

fn unknown_method(method: &str) -> ErrorData {
    let shown =
        if method.is_empty() { "`method` is empty".to_owned() } else { one_line(method, MAX_SHOWN_NAME) };
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("Unknown method: {shown}"), None)
}

/// Converts a panic into an error. Boxed to keep the futures of all requests small.
async fn catch_panic<T>(work: BoxFuture<'_, Result<T, ErrorData>>) -> Result<T, ErrorData> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!("a request handler panicked");
        Err(ErrorData::internal_error("the request handler panicked; see the log", None))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_method_is_named_within_a_bound() {
        for (method, expect) in [
            ("no/such", "Unknown method: no/such"),
            ("a\n\u{1b}[31m", "Unknown method: a\\n\\u{1b}[31m"),
            ("", "Unknown method: `method` is empty"),
        ] {
            let error = unknown_method(method);
            assert_eq!((error.code, &*error.message), (ErrorCode::METHOD_NOT_FOUND, expect));
        }
        let long = unknown_method(&"m".repeat(900_000)).message;
        assert!(long.ends_with("mm…") && long.chars().count() < MAX_SHOWN_NAME + 20, "{long}");
    }

    #[tokio::test]
    async fn a_panic_is_answered() {
        let answer =
            catch_panic(Box::pin(async { Err::<(), _>(ErrorData::parse_error("unchanged", None)) })).await;
        assert_eq!(answer.unwrap_err().message, "unchanged");
        let answer = catch_panic::<()>(Box::pin(async { panic!("boom") })).await;
        assert_eq!(answer.unwrap_err().code, rmcp::model::ErrorCode::INTERNAL_ERROR);
    }
}
