//! Handles unsolicited messages of a server: progress, list changes, log messages and requests. Their number is
//! bounded. They are handled in place: a message never enters a queue, and only an elicitation needs a task.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use toolbay_core::call::server_connector::ServerConnector;
use toolbay_core::call::{CallContext, ProgressAudience};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::name::PluginId;
use toolbay_policy::quantity;

use super::bounds::{
    FLOOD_WINDOW, HUNG_AFTER, MAX_INVALID_MESSAGES, MAX_LOG_LINE, MAX_LOG_LINES, MAX_NOTED_ID,
    MAX_NOTED_LINE, MAX_OPEN_ELICITATIONS, MAX_RESPONSE_BUFFER_BYTES, MAX_UNMATCHED_RESPONSES,
    MAX_UNSOLICITED_BYTES, MAX_UNSOLICITED_MESSAGES, MIN_LINE_COST, MIN_PROGRESS_INTERVAL,
};
use super::elicit::{self, ElicitationHandler};
use super::link_request::LinkClosure;
use super::unusable_output::{OpenRequests, UnusableOutput};
use crate::protocol::bounds::MAX_UNREDACTED_CHARS;
use crate::protocol::message::{self, METHOD_NOT_FOUND, RawRequest, ResponseId, RpcError};
use crate::protocol::progress::{ProgressQueue, ProgressUpdate};
use crate::protocol::repair::Repair;
use crate::protocol::unreadable;

/// Receives the unsolicited messages of one connection.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) name: PluginId,
    pub(super) connector: Arc<dyn ServerConnector>,
    pub(super) elicitation_handler: Option<Arc<dyn ElicitationHandler>>,
    /// Notified when the server reports a changed list.
    pub(super) changed: Notify,
    /// Notified when the server counts as hung. Each connection starts with its own count.
    pub(super) hung: Notify,
    /// Consecutive calls that timed out, with no message in between.
    timeouts: AtomicU32,
    /// Whether the connection is closed.
    pub(super) closure: LinkClosure,
    elicitation_permits: Semaphore,
    /// The newest progress of the calls whose clients want it.
    calls: Mutex<HashMap<u64, Arc<ProgressQueue>>>,
    response_buffer_bytes: AtomicUsize,
    unsolicited: Mutex<UnsolicitedCounters>,
    /// The open requests, and what came that is no message.
    pub(super) requests: OpenRequests,
    /// Whether an answer was repaired, which is logged once.
    has_repaired: AtomicBool,
}

/// Counters of unsolicited messages.
#[derive(Debug, Default)]
struct UnsolicitedCounters {
    invalid_messages: usize,
    unmatched_responses: usize,
    flood: RateWindow,
    log: RateWindow,
}

/// The server exceeded a limit on unsolicited messages, so that the connection must be closed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}: the connection was closed")]
pub(super) struct FloodError(String);

/// A counter that restarts after a time window.
#[derive(Debug)]
struct RateWindow {
    since: Instant,
    count: u32,
    bytes: usize,
}

impl Default for RateWindow {
    fn default() -> Self {
        Self { since: Instant::now(), count: 0, bytes: 0 }
    }
}

impl RateWindow {
    /// Adds to the counters and returns the totals of the current window.
    fn add(&mut self, long: std::time::Duration, count: u32, bytes: usize) -> (u32, usize) {
        if self.since.elapsed() > long {
            *self = Self::default();
        }
        self.count = self.count.saturating_add(count);
        self.bytes = self.bytes.saturating_add(bytes);
        (self.count, self.bytes)
    }
}

/// The parameters of `notifications/progress`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProgressParams<'a> {
    #[serde(borrow)]
    progress_token: &'a RawValue,
    progress: f64,
    total: Option<f64>,
    message: Option<String>,
}

impl Inbox {
    pub(super) fn new(
        name: PluginId,
        connector: Arc<dyn ServerConnector>,
        elicit: Option<Arc<dyn ElicitationHandler>>,
    ) -> Self {
        Self {
            name,
            connector,
            elicitation_handler: elicit,
            changed: Notify::new(),
            hung: Notify::new(),
            timeouts: AtomicU32::new(0),
            closure: LinkClosure::default(),
            elicitation_permits: Semaphore::new(MAX_OPEN_ELICITATIONS),
            calls: Mutex::default(),
            response_buffer_bytes: AtomicUsize::new(0),
            unsolicited: Mutex::default(),
            requests: OpenRequests::default(),
            has_repaired: AtomicBool::new(false),
        }
    }

    /// The client capabilities to declare.
    pub(super) fn capabilities(&self) -> Value {
        if self.elicitation_handler.is_some() { json!({"elicitation": {}}) } else { json!({}) }
    }

    /// Collects progress of a request for a call until the subscription is dropped.
    pub(super) fn subscribe_progress(
        self: &Arc<Self>,
        id: u64,
        ctx: &Arc<CallContext>,
    ) -> ProgressSubscription {
        let progress = ProgressQueue::with_capacity(1);
        self.calls.lock().insert(id, Arc::clone(&progress));
        ProgressSubscription { inbox: Arc::clone(self), id, progress, ctx: Arc::clone(ctx) }
    }

    /// Tracks the buffered bytes of one response.
    pub(super) fn track_response_buffer(&self) -> ResponseBufferUsage<'_> {
        ResponseBufferUsage { inbox: self, bytes: 0 }
    }

    /// Records that the server is alive.
    pub(super) fn record_activity(&self) {
        self.timeouts.store(0, Ordering::Release);
    }

    /// Records a call that timed out. After several in a row, the connection counts as hung.
    pub(super) fn record_timeout(&self) {
        if self.timeouts.fetch_add(1, Ordering::AcqRel) + 1 >= HUNG_AFTER {
            self.hung.notify_one();
        }
    }

    fn count_unsolicited(&self, count: u32, bytes: usize) -> Result<(), FloodError> {
        let (count, bytes) = self.unsolicited.lock().flood.add(FLOOD_WINDOW, count, bytes);
        if count > MAX_UNSOLICITED_MESSAGES {
            return Err(FloodError(format!(
                "it sent more than {MAX_UNSOLICITED_MESSAGES} unsolicited messages within {} s",
                FLOOD_WINDOW.as_secs()
            )));
        }
        if bytes > MAX_UNSOLICITED_BYTES {
            let most = quantity::show_bytes(MAX_UNSOLICITED_BYTES as u64);
            return Err(FloodError(format!(
                "it sent more than {most} of unsolicited messages within {} s",
                FLOOD_WINDOW.as_secs()
            )));
        }
        Ok(())
    }

    /// Counts unsolicited bytes and lines.
    pub(super) fn count_unsolicited_bytes(&self, bytes: usize, lines: usize) -> Result<(), FloodError> {
        self.count_unsolicited(0, bytes.saturating_add(lines.saturating_mul(MIN_LINE_COST)))
    }

    /// Counts a response without a pending request.
    pub(super) fn count_unmatched_response(&self) -> Result<(), FloodError> {
        let mut counters = self.unsolicited.lock();
        counters.unmatched_responses = counters.unmatched_responses.saturating_add(1);
        if counters.unmatched_responses > MAX_UNMATCHED_RESPONSES {
            return Err(FloodError(format!(
                "it sent more than {MAX_UNMATCHED_RESPONSES} responses that match no request"
            )));
        }
        Ok(())
    }

    /// Records the id of a response that no request of this client ever had.
    pub(super) fn record_unknown_id(&self, id: &ResponseId) {
        let id = one_line(&self.connector.redact(&id.to_string()), MAX_NOTED_ID);
        self.requests.note(&UnusableOutput::UnknownId(id), |_| false);
    }

    /// Notes that the answer to a request was not valid JSON and was repaired. The first one is logged.
    pub(super) fn record_repair(&self, id: u64, repair: &Repair) {
        self.requests.note_repair(id, repair);
        if !self.has_repaired.swap(true, Ordering::Relaxed) {
            tracing::warn!(server = %self.name, "an answer of a server is not valid JSON: {repair}; further ones are not logged");
        }
    }

    /// Notes a line or an event that is not a message.
    pub(super) fn note_line(&self, text: &[u8]) {
        let head = text.get(..text.len().min(16 * MAX_NOTED_LINE)).unwrap_or_default();
        let shown = one_line(&self.connector.redact(&String::from_utf8_lossy(head)), MAX_NOTED_LINE);
        self.requests.note(&UnusableOutput::Line(shown), |id| unreadable::has_other_id(text, id));
    }

    /// Counts a line or an event that is not a message. `what` names the channel.
    pub(super) fn record_invalid_message(&self, what: &str, text: &[u8]) -> Result<(), FloodError> {
        let head = text.get(..text.len().min(16 * MAX_LOG_LINE)).unwrap_or_default();
        self.log(&format!("wrote an invalid message {what}"), &String::from_utf8_lossy(head));
        self.note_line(text);
        let mut counters = self.unsolicited.lock();
        counters.invalid_messages = counters.invalid_messages.saturating_add(1);
        if counters.invalid_messages > MAX_INVALID_MESSAGES {
            return Err(FloodError(format!(
                "it wrote more than {MAX_INVALID_MESSAGES} invalid messages {what}"
            )));
        }
        Ok(())
    }

    /// Handles a notification.
    pub(super) fn handle_notification(
        &self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<(), FloodError> {
        self.record_activity();
        self.count_unsolicited(1, 0)?;
        match method {
            "notifications/progress" => self.collect_progress(params),
            // Changes before the subscription was acknowledged were missed: read the lists again.
            "notifications/tools/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/subscriptions/acknowledged" => {
                self.changed.notify_one();
            }
            "notifications/message" => {
                if let Some(params) = params {
                    self.log("says", params.get());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn collect_progress(&self, params: Option<&RawValue>) {
        let Some(progress) = params.and_then(|p| message::parse_object::<ProgressParams<'_>>(p).ok()) else {
            return;
        };
        let token = ResponseId::from_text(progress.progress_token.get()).number();
        let call = token.and_then(|id| self.calls.lock().get(&id).cloned());
        let Some(call) = call else { return };
        let percent =
            progress.total.filter(|total| *total > 0.0).map(|total| progress.progress / total * 100.0);
        #[expect(clippy::cast_possible_truncation, reason = "from 0 to 100, once it is clamped")]
        let percent =
            percent.filter(|percent| percent.is_finite()).map(|percent| percent.clamp(0.0, 100.0) as f32);
        let message = progress.message.unwrap_or_default().chars().take(MAX_UNREDACTED_CHARS).collect();
        call.push(ProgressUpdate { message, percent });
    }

    /// Answers a request of the server.
    pub(super) async fn respond(self: Arc<Self>, request: RawRequest) -> Result<Vec<u8>, FloodError> {
        let result = self.handle_request(&request).await?;
        Ok(message::encode_response(Some(&request.id), result.as_ref()))
    }

    async fn handle_request(&self, question: &RawRequest) -> Result<Result<Value, RpcError>, FloodError> {
        self.record_activity();
        self.count_unsolicited(1, 0)?;
        Ok(match question.method.as_str() {
            "ping" => Ok(json!({})),
            "elicitation/create" if self.elicitation_handler.is_some() => {
                match self.elicitation_permits.try_acquire() {
                    Ok(_open) => {
                        let params = question.params.as_deref();
                        let (of, connector) = (self.elicitation_handler.as_deref(), &*self.connector);
                        Ok(elicit::run_elicitation(of, connector, self.name.as_str(), params).await)
                    }
                    Err(_) => Ok(json!({"action": "cancel"})),
                }
            }
            method => {
                let method = one_line(method, 100);
                tracing::debug!(server = %self.name, method, "a server sent an unsupported request");
                let message = format!("this client does not offer `{method}`");
                Err(RpcError { code: METHOD_NOT_FOUND, message, data: None })
            }
        })
    }

    /// Logs a line of a server, up to a limit per minute.
    pub(super) fn log(&self, what: &str, line: &str) {
        let minute = std::time::Duration::from_secs(60);
        let (count, _) = self.unsolicited.lock().log.add(minute, 1, 0);
        match count.cmp(&MAX_LOG_LINES) {
            std::cmp::Ordering::Less => {
                // A line may have megabytes. Cut it before redaction, well above the final length.
                let head = line.get(..line.floor_char_boundary(16 * MAX_LOG_LINE)).unwrap_or_default();
                let line = one_line(&self.connector.redact(head), MAX_LOG_LINE);
                tracing::info!(target: "toolbay::mcp_server", server = %self.name, "{what}: {line}");
            }
            std::cmp::Ordering::Equal => {
                tracing::info!(target: "toolbay::mcp_server", server = %self.name, "wrote more than {MAX_LOG_LINES} lines within a minute: the rest of the minute is left out");
            }
            std::cmp::Ordering::Greater => {}
        }
    }
}

/// The buffered bytes of one response while it is read.
#[derive(Debug)]
pub(super) struct ResponseBufferUsage<'a> {
    inbox: &'a Inbox,
    bytes: usize,
}

/// The responses being read exceed the limit on buffered bytes.
#[derive(Debug)]
pub(super) struct BufferLimitError;

impl ResponseBufferUsage<'_> {
    /// Sets the number of buffered bytes.
    pub(super) fn resize(&mut self, bytes: usize) -> Result<(), BufferLimitError> {
        let held = &self.inbox.response_buffer_bytes;
        if bytes < self.bytes {
            held.fetch_sub(self.bytes - bytes, Ordering::AcqRel);
            self.bytes = bytes;
            return Ok(());
        }
        let more = bytes - self.bytes;
        let room = |held: usize| held.checked_add(more).filter(|held| *held <= MAX_RESPONSE_BUFFER_BYTES);
        held.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).map_err(|_| BufferLimitError)?;
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for ResponseBufferUsage<'_> {
    fn drop(&mut self) {
        self.inbox.response_buffer_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Receives the progress of a request until dropped.
#[derive(Debug)]
pub(super) struct ProgressSubscription {
    inbox: Arc<Inbox>,
    id: u64,
    progress: Arc<ProgressQueue>,
    ctx: Arc<CallContext>,
}

impl ProgressSubscription {
    /// Forwards progress to the call, at most once in [`MIN_PROGRESS_INTERVAL`]. Never returns.
    pub(super) async fn forward(&self) -> Infallible {
        loop {
            self.progress.wait().await;
            self.flush();
            tokio::time::sleep(MIN_PROGRESS_INTERVAL).await;
        }
    }

    /// Forwards the pending progress, before the result of the call.
    pub(super) fn flush(&self) {
        if let Some(ProgressUpdate { message, percent }) = self.progress.pop() {
            self.ctx.progress(&message, percent, ProgressAudience::User);
        }
    }
}

impl Drop for ProgressSubscription {
    fn drop(&mut self) {
        self.inbox.calls.lock().remove(&self.id);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::borrow::Cow;
    use std::path::Path;
    use toolbay_core::call::invoke::BoxFuture;
    use toolbay_core::call::server_connector::{
        ConnectorError, ConnectorRequest, ConnectorResponse, OAuthRequest, ServerProcess,
    };
    use toolbay_policy::capability::protected_paths::ProtectedPaths;
    use toolbay_policy::mcp_server::{HttpServerConfig, StdioServerConfig};

    /// Connects to nothing, and redacts one secret.
    #[derive(Debug)]
    pub(in super::super) struct NullConnector;

    impl ServerConnector for NullConnector {
        fn start<'a>(
            &'a self,
            _: &'a PluginId,
            _: &'a StdioServerConfig,
        ) -> BoxFuture<'a, Result<ServerProcess, ConnectorError>> {
            Box::pin(async { Err(ConnectorError::Failed("nowhere".into())) })
        }

        fn send<'a>(
            &'a self,
            _: &'a PluginId,
            _: &'a HttpServerConfig,
            _: ConnectorRequest,
        ) -> BoxFuture<'a, Result<ConnectorResponse, ConnectorError>> {
            Box::pin(async { Err(ConnectorError::Failed("nowhere".into())) })
        }

        fn send_oauth<'a>(
            &'a self,
            _: &'a PluginId,
            _: &'a HttpServerConfig,
            _: OAuthRequest,
        ) -> BoxFuture<'a, Result<ConnectorResponse, ConnectorError>> {
            Box::pin(async { Err(ConnectorError::Failed("nowhere".into())) })
        }

        fn secrets_fingerprint(&self, _: &StdioServerConfig) -> u64 {
            0
        }

        fn is_protected_path(&self, path: &Path, writing: bool) -> bool {
            ProtectedPaths::system_defaults(Some(Path::new("/home/me")))
                .protected_ancestor(path, writing)
                .is_some()
        }

        fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
            if text.contains("canary-secret") {
                Cow::Owned(text.replace("canary-secret", "[secret T]"))
            } else {
                Cow::Borrowed(text)
            }
        }
    }

    pub(in super::super) fn inbox() -> Inbox {
        Inbox::new(PluginId::new("s").unwrap(), Arc::new(NullConnector), None)
    }

    #[tokio::test]
    async fn unsolicited_messages_are_counted() {
        let inbox = inbox();
        let refused = (0..=MAX_UNMATCHED_RESPONSES)
            .map(|_| inbox.count_unmatched_response())
            .filter_map(Result::err)
            .count();
        assert_eq!(refused, 1, "unmatched responses");
        let refused = (0..=MAX_INVALID_MESSAGES)
            .filter_map(|_| inbox.record_invalid_message("in a stream", b"la la").err())
            .count();
        assert_eq!(refused, 1, "invalid messages");
        let parts = (0..100).take_while(|_| inbox.count_unsolicited_bytes(1 << 20, 0).is_ok()).count();
        assert_eq!(parts, 64, "bytes of any content");
        let tell = |_| super::tests::inbox().handle_notification("notifications/x", None).is_ok();
        assert!((0..100).all(tell));
    }

    #[test]
    fn responses_share_one_buffer_limit() {
        let inbox = inbox();
        let (mut one, mut other) = (inbox.track_response_buffer(), inbox.track_response_buffer());
        assert!(
            one.resize(MAX_RESPONSE_BUFFER_BYTES / 2).is_ok()
                && other.resize(MAX_RESPONSE_BUFFER_BYTES / 2).is_ok()
        );
        assert!(other.resize(MAX_RESPONSE_BUFFER_BYTES / 2 + 1).is_err());
        assert!(one.resize(10).is_ok() && other.resize(MAX_RESPONSE_BUFFER_BYTES / 2 + 1).is_ok());
        drop((one, other));
        assert!(
            inbox.track_response_buffer().resize(MAX_RESPONSE_BUFFER_BYTES).is_ok(),
            "dropping a response releases its bytes"
        );
    }

    #[test]
    fn a_hung_connection_is_reported_and_the_next_one_is_not() {
        let (one, next) = (inbox(), inbox());
        for _ in 0..HUNG_AFTER {
            one.record_timeout();
        }
        let told = |inbox: &Inbox| {
            futures_util::FutureExt::now_or_never(std::pin::pin!(inbox.hung.notified())).is_some()
        };
        assert!(told(&one) && !told(&next));
        one.record_activity();
        for n in 0..10 {
            one.record_timeout();
            if n % 2 == 0 {
                one.record_activity();
            }
        }
        assert!(!told(&one), "a server that answers in between is not hung");
    }
}
