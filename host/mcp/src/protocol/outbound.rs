//! Messages to a client: notifications, and requests with their responses.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rmcp::model::RequestId;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::bytes::Bytes;

use super::message::{self, ResponseId, RpcResult};

/// What a message to the client relates to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Destination<'a> {
    /// Progress of a request, obsolete once the request has ended.
    Progress(&'a RequestId),
    /// A request to the client, made while serving one of its requests.
    ServerRequest(&'a RequestId),
    /// The cancellation of such a request.
    Cancellation(&'a RequestId),
    /// The session, not a single request.
    Session,
}

/// The transport of messages to one client: stdio or event streams.
pub(crate) trait MessageSink: Send + Sync {
    /// Sends one line once there is capacity. Returns `false` if the client has disconnected.
    fn send<'a>(&'a self, line: Bytes, to: Destination<'a>) -> BoxFuture<'a, bool>;
}

/// Sends messages to one client. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Outbound(Arc<OutboundState>);

struct OutboundState {
    sink: Arc<dyn MessageSink>,
    next: AtomicU64,
    /// Requests that wait for a response, by id.
    pending: Mutex<HashMap<u64, oneshot::Sender<RpcResult>>>,
}

impl Outbound {
    pub(crate) fn new(sink: Arc<dyn MessageSink>) -> Self {
        Self(Arc::new(OutboundState { sink, next: AtomicU64::new(0), pending: Mutex::default() }))
    }

    /// Sends a notification. Returns `false` if the client has disconnected.
    pub(crate) async fn notify(&self, method: &str, params: Option<&Value>, to: Destination<'_>) -> bool {
        self.0.sink.send(message::encode_notification(method, params).into(), to).await
    }

    /// Sends a request to the client while serving its request `of`. Dropping the future cancels it.
    ///
    /// # Errors
    /// The client disconnected, or answered with an error.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: &Value,
        of: &RequestId,
    ) -> Result<Value, String> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.0.pending.lock().insert(id, sender);
        let mut open = PendingServerRequest { outbound: self.clone(), id, of: Some(of.clone()) };
        let line = message::encode_request(id, method, params).into();
        if !self.0.sink.send(line, Destination::ServerRequest(of)).await {
            open.of = None;
            return Err("the connection has closed".to_owned());
        }
        let answer = answer.await;
        open.of = None;
        let result = answer.map_err(|_| "the connection has closed".to_owned())?;
        let result = result.map_err(|error| error.describe())?;
        serde_json::from_str(result.get()).map_err(|error| error.to_string())
    }

    /// Passes a response of the client to the pending request.
    pub(crate) fn resolve(&self, id: &ResponseId, result: RpcResult) {
        let waiting = id.number().and_then(|id| self.0.pending.lock().remove(&id));
        if waiting.is_none_or(|waiting| waiting.send(result).is_err()) {
            tracing::debug!("a client sent a response that matches no request");
        }
    }
}

/// A request to the client without a response. Cancels the request on drop.
struct PendingServerRequest {
    outbound: Outbound,
    id: u64,
    /// The request being served; `None` once the response arrived or the connection closed.
    of: Option<RequestId>,
}

impl Drop for PendingServerRequest {
    fn drop(&mut self) {
        self.outbound.0.pending.lock().remove(&self.id);
        let (Some(of), Ok(runtime)) = (self.of.take(), tokio::runtime::Handle::try_current()) else { return };
        let (outbound, id) = (self.outbound.clone(), self.id);
        // The task owns itself and sends one message. A failure means that the connection is closed.
        drop(runtime.spawn(async move {
            let params = json!({"requestId": id, "reason": "the call has ended"});
            outbound.notify("notifications/cancelled", Some(&params), Destination::Cancellation(&of)).await
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use serde_json::value::RawValue;

    #[derive(Default)]
    struct RecordingSink(Mutex<Vec<Value>>);

    impl MessageSink for RecordingSink {
        fn send<'a>(&'a self, line: Bytes, _: Destination<'a>) -> BoxFuture<'a, bool> {
            self.0.lock().push(serde_json::from_slice(&line).unwrap());
            Box::pin(std::future::ready(true))
        }
    }

    #[tokio::test]
    async fn a_request_gets_the_response_with_its_id_and_is_cancelled_when_dropped() {
        let recorder = Arc::new(RecordingSink::default());
        let outbound = Outbound::new(Arc::clone(&recorder) as _);
        let (of, params) = (RequestId::Number(9), json!({}));
        let (mut one, mut two) = (
            Box::pin(outbound.request("roots/list", &params, &of)),
            Box::pin(outbound.request("roots/list", &params, &of)),
        );
        assert!((&mut one).now_or_never().is_none() && (&mut two).now_or_never().is_none());
        let answer =
            |id, text: &str| outbound.resolve(&id, Ok(RawValue::from_string(text.to_owned()).unwrap()));
        answer(ResponseId::Other("x".to_owned()), "1");
        answer(ResponseId::Number(7), "2");
        answer(ResponseId::Number(1), "3");
        assert_eq!(two.await.unwrap(), 3);
        drop(one);
        tokio::task::yield_now().await;
        let sent = recorder.0.lock().clone();
        assert_eq!(sent.len(), 3);
        assert_eq!(
            (&sent[2]["method"], &sent[2]["params"]["requestId"]),
            (&json!("notifications/cancelled"), &json!(0))
        );
        assert!(outbound.0.pending.lock().is_empty());
    }
}
