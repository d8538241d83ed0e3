//! The way to the client: notifications, and requests of ours with their answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rmcp::model::RequestId;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::bytes::Bytes;

use super::message::{self, RpcResult};

/// What a message to the client belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Destination<'a> {
    /// How far a request is: of interest only while the request is not answered.
    Progress(&'a RequestId),
    /// A question that was asked for a request.
    Question(&'a RequestId),
    /// That such a question needs no answer any more.
    Withdrawal(&'a RequestId),
    /// No request.
    Session,
}

/// Where messages to one client go: a pipe, or streams of events.
pub(crate) trait MessageSink: Send + Sync {
    /// Sends one line as soon as there is room for it; returns `false` when the client is gone.
    fn send<'a>(&'a self, line: Bytes, to: Destination<'a>) -> BoxFuture<'a, bool>;
}

/// The way to one client. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Outbound(Arc<Client>);

struct Client {
    sink: Arc<dyn MessageSink>,
    next: AtomicU64,
    /// The requests that wait for an answer, by id.
    pending: Mutex<HashMap<u64, oneshot::Sender<RpcResult>>>,
}

impl Outbound {
    pub(crate) fn new(sink: Arc<dyn MessageSink>) -> Self {
        Self(Arc::new(Client { sink, next: AtomicU64::new(0), pending: Mutex::default() }))
    }

    /// Sends a notification; returns `false` when the client is gone.
    pub(crate) async fn notify(&self, method: &str, params: Option<&Value>, to: Destination<'_>) -> bool {
        self.0.sink.send(message::notification(method, params).into(), to).await
    }

    /// Asks the client something for one of its requests. Dropping the future withdraws the question.
    ///
    /// # Errors
    /// There is no answer, or it is an error; says which.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: &Value,
        of: &RequestId,
    ) -> Result<Value, String> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.0.pending.lock().insert(id, sender);
        let mut open = OpenQuestion { outbound: self.clone(), id, of: Some(of.clone()) };
        let line = message::request(id, method, params).into();
        if !self.0.sink.send(line, Destination::Question(of)).await {
            open.of = None;
            return Err("the connection has closed".to_owned());
        }
        let answer = answer.await;
        open.of = None;
        let result = answer.map_err(|_| "the connection has closed".to_owned())?;
        let result = result.map_err(|error| error.shown())?;
        serde_json::from_str(result.get()).map_err(|error| error.to_string())
    }

    /// Hands a response of the client to the request that waits for it.
    pub(crate) fn resolve(&self, id: Option<u64>, result: RpcResult) {
        let waiting = id.and_then(|id| self.0.pending.lock().remove(&id));
        if waiting.is_none_or(|waiting| waiting.send(result).is_err()) {
            tracing::debug!("a client answered what nobody asked");
        }
    }
}

/// A question that is not answered yet.
struct OpenQuestion {
    outbound: Outbound,
    id: u64,
    /// The request for which it was asked, while an answer is waited for.
    of: Option<RequestId>,
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        self.outbound.0.pending.lock().remove(&self.id);
        let (Some(of), Ok(runtime)) = (self.of.take(), tokio::runtime::Handle::try_current()) else { return };
        let (outbound, id) = (self.outbound.clone(), self.id);
        // One message, on a connection that may be closed: whether it arrives is nobody's concern.
        drop(runtime.spawn(async move {
            let params = json!({"requestId": id, "reason": "the call has ended"});
            outbound.notify("notifications/cancelled", Some(&params), Destination::Withdrawal(&of)).await
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use serde_json::value::RawValue;

    #[derive(Default)]
    struct Recorder(Mutex<Vec<Value>>);

    impl MessageSink for Recorder {
        fn send<'a>(&'a self, line: Bytes, _: Destination<'a>) -> BoxFuture<'a, bool> {
            self.0.lock().push(serde_json::from_slice(&line).unwrap());
            Box::pin(std::future::ready(true))
        }
    }

    #[tokio::test]
    async fn a_question_has_the_answer_of_its_id_and_is_withdrawn_when_nobody_waits() {
        let recorder = Arc::new(Recorder::default());
        let outbound = Outbound::new(Arc::clone(&recorder) as _);
        let (of, params) = (RequestId::Number(9), json!({}));
        let (mut one, mut two) = (
            Box::pin(outbound.request("roots/list", &params, &of)),
            Box::pin(outbound.request("roots/list", &params, &of)),
        );
        assert!((&mut one).now_or_never().is_none() && (&mut two).now_or_never().is_none());
        outbound.resolve(None, Ok(RawValue::from_string("1".to_owned()).unwrap()));
        outbound.resolve(Some(7), Ok(RawValue::from_string("2".to_owned()).unwrap()));
        outbound.resolve(Some(1), Ok(RawValue::from_string("3".to_owned()).unwrap()));
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
