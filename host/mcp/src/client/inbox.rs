//! What a server says unasked: progress, changes of its list, log lines, questions. Bounded in number, taken in place:
//! no message of a server makes a task or waits in a queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use toolbay_core::call::outside::Outside;
use toolbay_core::call::{Audience, CallContext};
use toolbay_policy::name::PluginId;
use toolbay_policy::text::one_line;

use super::bounds::{
    FLOOD_WINDOW, HUNG_AFTER, LINE_WEIGHT, MAX_GARBAGE, MAX_HELD, MAX_LOG_LINE, MAX_LOG_LINES,
    MAX_PROGRESS_EVENTS, MAX_QUESTIONS, MAX_STRAY, MAX_UNASKED, MAX_UNASKED_BYTES, PROGRESS_PAUSE,
};
use super::elicit::{self, Elicit};
use super::link::Ending;
use crate::protocol::message::{self, METHOD_NOT_FOUND, RawRequest, RpcError};

/// Where the unasked messages of one connection go.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) name: PluginId,
    pub(super) outside: Arc<dyn Outside>,
    pub(super) elicit: Option<Arc<dyn Elicit>>,
    /// The list has changed, it was said.
    pub(super) changed: Notify,
    /// It does not answer any more. Of this connection alone: the next one begins without guilt.
    pub(super) hung: Notify,
    /// Calls that took too long in a row, with nothing heard in between.
    overdue: AtomicU32,
    /// The end of the connection.
    pub(super) ending: Ending,
    questions: Semaphore,
    calls: Mutex<HashMap<u64, Progress>>,
    held: AtomicUsize,
    said: Mutex<Unasked>,
}

/// How much was said that nobody asked for.
#[derive(Debug, Default)]
struct Unasked {
    garbage: usize,
    stray: usize,
    flood: Window,
    log: Window,
}

/// More was said than may be: the connection is to be closed. Says what there was too much of.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}, and was ended")]
pub(super) struct Flood(String);

/// A call that wants to know how it goes.
#[derive(Debug)]
struct Progress {
    ctx: Arc<CallContext>,
    passed: u32,
    last: Option<Instant>,
}

/// A count that begins anew after a while.
#[derive(Debug)]
struct Window {
    since: Instant,
    count: u32,
    bytes: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { since: Instant::now(), count: 0, bytes: 0 }
    }
}

impl Window {
    /// Counts so many and so many bytes; tells how much there is now.
    fn count(&mut self, long: std::time::Duration, count: u32, bytes: usize) -> (u32, usize) {
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
struct ProgressParams {
    progress_token: u64,
    progress: f64,
    total: Option<f64>,
    message: Option<String>,
}

impl Inbox {
    pub(super) fn new(name: PluginId, outside: Arc<dyn Outside>, elicit: Option<Arc<dyn Elicit>>) -> Self {
        Self {
            name,
            outside,
            elicit,
            changed: Notify::new(),
            hung: Notify::new(),
            overdue: AtomicU32::new(0),
            ending: Ending::default(),
            questions: Semaphore::new(MAX_QUESTIONS),
            calls: Mutex::default(),
            held: AtomicUsize::new(0),
            said: Mutex::default(),
        }
    }

    /// What the client can do for a server, as it is declared.
    pub(super) fn capabilities(&self) -> Value {
        if self.elicit.is_some() { json!({"elicitation": {}}) } else { json!({}) }
    }

    /// Passes progress of a request on to a call, until the handle is dropped.
    pub(super) fn follow(self: &Arc<Self>, id: u64, ctx: &Arc<CallContext>) -> Following {
        let progress = Progress { ctx: Arc::clone(ctx), passed: 0, last: None };
        self.calls.lock().insert(id, progress);
        Following { inbox: Arc::clone(self), id }
    }

    /// Counts what is held of a response, until it is dropped.
    pub(super) fn holds(&self) -> Held<'_> {
        Held { inbox: self, bytes: 0 }
    }

    /// Something was heard that was asked for.
    pub(super) fn hear(&self) {
        self.overdue.store(0, Ordering::Release);
    }

    /// A call took too long. Several of them in a row, and the connection counts as hung.
    pub(super) fn late(&self) {
        if self.overdue.fetch_add(1, Ordering::AcqRel) + 1 >= HUNG_AFTER {
            self.hung.notify_one();
        }
    }

    fn count(&self, count: u32, bytes: usize) -> Result<(), Flood> {
        let (count, bytes) = self.said.lock().flood.count(FLOOD_WINDOW, count, bytes);
        if count > MAX_UNASKED {
            return Err(Flood("it sends more notifications than may be".to_owned()));
        }
        if bytes > MAX_UNASKED_BYTES {
            return Err(Flood("it sends more bytes unasked than may be".to_owned()));
        }
        Ok(())
    }

    /// Counts bytes that were sent unasked, and lines, of which the shortest are work, too.
    pub(super) fn weigh(&self, bytes: usize, lines: usize) -> Result<(), Flood> {
        self.count(0, bytes.saturating_add(lines.saturating_mul(LINE_WEIGHT)))
    }

    /// Counts an answer to nothing that was asked.
    pub(super) fn stray(&self) -> Result<(), Flood> {
        let mut said = self.said.lock();
        said.stray = said.stray.saturating_add(1);
        if said.stray > MAX_STRAY {
            return Err(Flood(format!("it answered {MAX_STRAY} times what nobody asked")));
        }
        Ok(())
    }

    /// Counts a line, or an event, that is no message; `what` says how it came.
    pub(super) fn garbage(&self, what: &str, text: &[u8]) -> Result<(), Flood> {
        let head = text.get(..text.len().min(16 * MAX_LOG_LINE)).unwrap_or_default();
        self.log(&format!("wrote no message {what}"), &String::from_utf8_lossy(head));
        let mut said = self.said.lock();
        said.garbage = said.garbage.saturating_add(1);
        if said.garbage > MAX_GARBAGE {
            return Err(Flood(format!("it wrote {MAX_GARBAGE} lines {what} that are no messages")));
        }
        Ok(())
    }

    /// Takes a notification.
    pub(super) fn tell(&self, method: &str, params: Option<&RawValue>) -> Result<(), Flood> {
        self.hear();
        self.count(1, 0)?;
        match method {
            "notifications/progress" => self.progress(params),
            // What changed before the subscription held was not told.
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

    fn progress(&self, params: Option<&RawValue>) {
        let Some(told) = params.and_then(|p| message::object::<ProgressParams>(p).ok()) else {
            return;
        };
        let mut calls = self.calls.lock();
        let Some(call) = calls.get_mut(&told.progress_token) else { return };
        let soon = call.last.is_some_and(|last| last.elapsed() < PROGRESS_PAUSE);
        if call.passed >= MAX_PROGRESS_EVENTS || soon {
            return;
        }
        call.passed += 1;
        call.last = Some(Instant::now());
        let ctx = Arc::clone(&call.ctx);
        drop(calls);
        let percent = told.total.filter(|total| *total > 0.0).map(|total| told.progress / total * 100.0);
        #[expect(clippy::cast_possible_truncation, reason = "from 0 to 100, once it is clamped")]
        let percent =
            percent.filter(|percent| percent.is_finite()).map(|percent| percent.clamp(0.0, 100.0) as f32);
        ctx.progress(told.message.as_deref().unwrap_or_default(), percent, Audience::User);
    }

    /// The response to a server's request. What it may not ask is answered as the protocol says.
    pub(super) async fn respond(self: Arc<Self>, request: RawRequest) -> Result<Vec<u8>, Flood> {
        let result = self.result(&request).await?;
        Ok(message::response(Some(&request.id), result.as_ref()))
    }

    async fn result(&self, question: &RawRequest) -> Result<Result<Value, RpcError>, Flood> {
        self.hear();
        self.count(1, 0)?;
        Ok(match question.method.as_str() {
            "ping" => Ok(json!({})),
            "elicitation/create" if self.elicit.is_some() => match self.questions.try_acquire() {
                Ok(_open) => {
                    let params = question.params.as_deref();
                    let (of, outside) = (self.elicit.as_deref(), &*self.outside);
                    Ok(elicit::answer(of, outside, self.name.as_str(), params).await)
                }
                Err(_) => Ok(json!({"action": "cancel"})),
            },
            method => {
                let method = one_line(method, 100);
                tracing::debug!(server = %self.name, method, "a server asked for what it is not given");
                let message = format!("this client does not offer `{method}`");
                Err(RpcError { code: METHOD_NOT_FOUND, message, data: None })
            }
        })
    }

    /// Writes a line of a server into the log, as long as there are not too many.
    pub(super) fn log(&self, what: &str, line: &str) {
        let minute = std::time::Duration::from_secs(60);
        let (count, _) = self.said.lock().log.count(minute, 1, 0);
        match count.cmp(&MAX_LOG_LINES) {
            std::cmp::Ordering::Less => {
                // A line may have megabytes; what is kept of it ends far before this cut.
                let head = line.get(..line.floor_char_boundary(16 * MAX_LOG_LINE)).unwrap_or_default();
                let line = one_line(&self.outside.redacted(head), MAX_LOG_LINE);
                tracing::info!(target: "toolbay::mcp_server", server = %self.name, "{what}: {line}");
            }
            std::cmp::Ordering::Equal => {
                tracing::info!(target: "toolbay::mcp_server", server = %self.name, "says too much: the rest of this minute is left out");
            }
            std::cmp::Ordering::Greater => {}
        }
    }
}

/// What is held of one response while it is read.
#[derive(Debug)]
pub(super) struct Held<'a> {
    inbox: &'a Inbox,
    bytes: usize,
}

/// All responses that are being read are more than may be held.
#[derive(Debug)]
pub(super) struct Full;

impl Held<'_> {
    /// So much is held now.
    pub(super) fn resize(&mut self, bytes: usize) -> Result<(), Full> {
        let held = &self.inbox.held;
        if bytes < self.bytes {
            held.fetch_sub(self.bytes - bytes, Ordering::AcqRel);
            self.bytes = bytes;
            return Ok(());
        }
        let more = bytes - self.bytes;
        let room = |held: usize| held.checked_add(more).filter(|held| *held <= MAX_HELD);
        held.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).map_err(|_| Full)?;
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.inbox.held.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// A call whose progress is passed on.
#[derive(Debug)]
pub(super) struct Following {
    inbox: Arc<Inbox>,
    id: u64,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.inbox.calls.lock().remove(&self.id);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::borrow::Cow;
    use toolbay_core::call::invoke::BoxFuture;
    use toolbay_core::call::outside::{OutsideError, Request, Response, Started};
    use toolbay_policy::mcp_server::{Child, Endpoint};

    /// Leads nowhere, and knows one secret.
    #[derive(Debug)]
    pub(in super::super) struct Nowhere;

    impl Outside for Nowhere {
        fn start<'a>(
            &'a self,
            _: &'a PluginId,
            _: &'a Child,
        ) -> BoxFuture<'a, Result<Started, OutsideError>> {
            Box::pin(async { Err(OutsideError::Failed("nowhere".to_owned())) })
        }

        fn send<'a>(
            &'a self,
            _: &'a PluginId,
            _: &'a Endpoint,
            _: Request,
        ) -> BoxFuture<'a, Result<Response, OutsideError>> {
            Box::pin(async { Err(OutsideError::Failed("nowhere".to_owned())) })
        }

        fn handed(&self, _: &Child) -> u64 {
            0
        }

        fn recall<'a>(&'a self, _: &'a PluginId, _: usize) -> BoxFuture<'a, Option<Vec<u8>>> {
            Box::pin(async { None })
        }

        fn remember<'a>(&'a self, _: &'a PluginId, _: Vec<u8>) -> BoxFuture<'a, ()> {
            Box::pin(async {})
        }

        fn redacted<'t>(&self, text: &'t str) -> Cow<'t, str> {
            if text.contains("canary-secret") {
                Cow::Owned(text.replace("canary-secret", "[secret T]"))
            } else {
                Cow::Borrowed(text)
            }
        }
    }

    pub(in super::super) fn inbox() -> Inbox {
        Inbox::new(PluginId::new("s").unwrap(), Arc::new(Nowhere), None)
    }

    #[tokio::test]
    async fn whatever_comes_unasked_is_counted() {
        let inbox = inbox();
        let refused = (0..=MAX_STRAY).map(|_| inbox.stray()).filter_map(Result::err).count();
        assert_eq!(refused, 1, "answers to nothing");
        let refused = (0..=MAX_GARBAGE).filter_map(|_| inbox.garbage("in a stream", b"la la").err()).count();
        assert_eq!(refused, 1, "what is no message");
        let parts = (0..100).take_while(|_| inbox.weigh(1 << 20, 0).is_ok()).count();
        assert_eq!(parts, 64, "bytes, whatever they are");
        let tell = |_| super::tests::inbox().tell("notifications/x", None).is_ok();
        assert!((0..100).all(tell));
    }

    #[test]
    fn responses_share_what_may_be_held() {
        let inbox = inbox();
        let (mut one, mut other) = (inbox.holds(), inbox.holds());
        assert!(one.resize(MAX_HELD / 2).is_ok() && other.resize(MAX_HELD / 2).is_ok());
        assert!(other.resize(MAX_HELD / 2 + 1).is_err());
        assert!(one.resize(10).is_ok() && other.resize(MAX_HELD / 2 + 1).is_ok());
        drop((one, other));
        assert!(inbox.holds().resize(MAX_HELD).is_ok(), "all is given back");
    }

    #[test]
    fn a_connection_that_hangs_is_told_of_and_not_the_next_one() {
        let (one, next) = (inbox(), inbox());
        for _ in 0..HUNG_AFTER {
            one.late();
        }
        let told = |inbox: &Inbox| {
            futures_util::FutureExt::now_or_never(std::pin::pin!(inbox.hung.notified())).is_some()
        };
        assert!(told(&one) && !told(&next));
        one.hear();
        for n in 0..10 {
            one.late();
            if n % 2 == 0 {
                one.hear();
            }
        }
        assert!(!told(&one), "it answers now and then");
    }
}
