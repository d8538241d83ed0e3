//! What a server says unasked: progress, changes of its list, log lines, questions. Bounded in number, taken in place:
//! no message of a server makes a task or waits in a queue.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use toolbay_core::call::{Audience, CallContext};
use toolbay_core::name::PluginId;
use toolbay_core::outside::Outside;
use toolbay_core::text::one_line;

use super::bounds::{
    FLOOD_WINDOW, MAX_LOG_LINE, MAX_LOG_LINES, MAX_PROGRESS_EVENTS, MAX_QUESTIONS, MAX_UNASKED,
    PROGRESS_PAUSE,
};
use super::elicit::{self, Elicit};
use super::wire::{self, METHOD_NOT_FOUND, Question};

/// Where the unasked messages of one connection go.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) name: PluginId,
    pub(super) outside: Arc<dyn Outside>,
    pub(super) elicit: Option<Arc<dyn Elicit>>,
    /// The list has changed, it was said.
    pub(super) changed: Notify,
    /// Counts what was heard, whatever it was.
    pub(super) heard: AtomicUsize,
    /// Calls that took too long in a row, with nothing heard in between.
    pub(super) overdue: AtomicU32,
    questions: Semaphore,
    calls: Mutex<HashMap<u64, Progress>>,
    flood: Mutex<Window>,
    log: Mutex<Window>,
}

/// More was said than may be.
#[derive(Debug)]
pub(super) struct Flood;

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
}

impl Window {
    fn new() -> Self {
        Self { since: Instant::now(), count: 0 }
    }

    /// Counts one; tells how many there are now.
    fn count(&mut self, long: std::time::Duration) -> u32 {
        if self.since.elapsed() > long {
            *self = Self::new();
        }
        self.count = self.count.saturating_add(1);
        self.count
    }
}

/// The parameters of `notifications/progress`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProgressParams {
    progress_token: u64,
    progress: f64,
    #[serde(default)]
    total: Option<f64>,
    #[serde(default)]
    message: Option<String>,
}

impl Inbox {
    pub(super) fn new(name: PluginId, outside: Arc<dyn Outside>, elicit: Option<Arc<dyn Elicit>>) -> Self {
        Self {
            name,
            outside,
            elicit,
            changed: Notify::new(),
            heard: AtomicUsize::new(0),
            overdue: AtomicU32::new(0),
            questions: Semaphore::new(MAX_QUESTIONS),
            calls: Mutex::default(),
            flood: Mutex::new(Window::new()),
            log: Mutex::new(Window::new()),
        }
    }

    /// What the client can do for a server, as it is declared.
    pub(super) fn capabilities(&self) -> Value {
        if self.elicit.is_some() { json!({"elicitation": {}}) } else { json!({}) }
    }

    /// Passes progress of a request on to a call, until the handle is dropped.
    pub(super) fn follow(self: &Arc<Self>, id: u64, ctx: &Arc<CallContext>) -> Following {
        let progress = Progress { ctx: Arc::clone(ctx), passed: 0, last: None };
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).insert(id, progress);
        Following { inbox: Arc::clone(self), id }
    }

    /// Something was heard that was asked for.
    pub(super) fn hear(&self) {
        self.heard.fetch_add(1, Ordering::AcqRel);
        self.overdue.store(0, Ordering::Release);
    }

    fn count(&self) -> Result<(), Flood> {
        self.hear();
        let count = self.flood.lock().unwrap_or_else(PoisonError::into_inner).count(FLOOD_WINDOW);
        if count > MAX_UNASKED { Err(Flood) } else { Ok(()) }
    }

    /// Takes a notification.
    pub(super) fn tell(&self, method: &str, params: Option<&RawValue>) -> Result<(), Flood> {
        self.count()?;
        match method {
            "notifications/progress" => self.progress(params),
            "notifications/tools/list_changed" => self.changed.notify_one(),
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
        let Some(told) = params.and_then(|p| wire::object::<ProgressParams>(p).ok()) else {
            return;
        };
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Answers a server's request. What it may not ask is answered as the protocol says.
    pub(super) async fn ask(&self, question: &Question) -> Result<Result<Value, (i64, String)>, Flood> {
        self.count()?;
        Ok(match question.method.as_str() {
            "ping" => Ok(json!({})),
            "elicitation/create" if self.elicit.is_some() => match self.questions.try_acquire() {
                Ok(_open) => {
                    let params = question.params.as_deref();
                    Ok(elicit::answer(self.elicit.as_deref(), self.name.as_str(), params).await)
                }
                Err(_) => Ok(json!({"action": "cancel"})),
            },
            method => {
                let method = one_line(method, 100);
                tracing::debug!(server = %self.name, method, "a server asked for what it is not given");
                Err((METHOD_NOT_FOUND, format!("this client does not offer `{method}`")))
            }
        })
    }

    /// Writes a line of a server into the log, as long as there are not too many.
    pub(super) fn log(&self, what: &str, line: &str) {
        let count =
            self.log.lock().unwrap_or_else(PoisonError::into_inner).count(std::time::Duration::from_secs(60));
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

/// A call whose progress is passed on.
#[derive(Debug)]
pub(super) struct Following {
    inbox: Arc<Inbox>,
    id: u64,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.inbox.calls.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
