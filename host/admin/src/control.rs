//! The operator's actions on a running server. Each one is recorded in the audit.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use toolbay::{FileStopOrder, Host};
use toolbay_core::audit::{ActionRecord, MAX_REASON, cut};
use toolbay_core::pipeline::running::RunningCall;
use toolbay_policy::text::one_line;
use toolbay_telemetry::Metrics;

/// How clients reach a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerTransport {
    /// One client, over stdin and stdout.
    Stdio,
    /// Over HTTP, at these addresses.
    Http(Vec<String>),
}

/// A running server as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// The process id.
    pub pid: u32,
    /// The version of Toolbay.
    pub version: String,
    /// The start time (RFC 3339).
    pub since: String,
    /// How clients reach it.
    pub transport: ServerTransport,
    /// The number of tools.
    pub tools: usize,
    /// The number of calls in progress.
    pub running: usize,
    /// The reason why all calls are stopped; absent if they are not.
    pub stopped: Option<String>,
}

/// The state behind the control API. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct ServerControl {
    state: Arc<ControlState>,
}

struct ControlState {
    host: Host,
    stop_order: FileStopOrder,
    transport: ServerTransport,
    since: String,
    metrics: Option<Arc<Metrics>>,
    /// Notified when an operator asks for a reload.
    reload: Notify,
}

impl fmt::Debug for ServerControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerControl").field("transport", &self.state.transport).finish_non_exhaustive()
    }
}

impl ServerControl {
    /// Controls a host. An order to stop all calls is stored in `stop_order`.
    #[must_use]
    pub fn new(
        host: Host,
        stop_order: FileStopOrder,
        transport: ServerTransport,
        metrics: Option<Arc<Metrics>>,
    ) -> Self {
        let state =
            ControlState { host, stop_order, transport, since: now(), metrics, reload: Notify::new() };
        Self { state: Arc::new(state) }
    }

    pub(crate) fn host(&self) -> &Host {
        &self.state.host
    }

    pub(crate) fn metrics(&self) -> Option<&Metrics> {
        self.state.metrics.as_deref()
    }

    /// Describes the server.
    #[must_use]
    pub fn info(&self) -> ServerInfo {
        let ControlState { host, transport, since, .. } = &*self.state;
        let running = host.pipeline().running();
        ServerInfo {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since: since.clone(),
            transport: transport.clone(),
            tools: host.registry().snapshot().tools().count(),
            running: running.count(),
            stopped: running.stopped().map(|reason| reason.to_string()),
        }
    }

    /// The calls in progress, the oldest first.
    #[must_use]
    pub fn calls(&self) -> Vec<RunningCall> {
        self.state.host.pipeline().running().list()
    }

    /// Cancels a call, with all calls of its batch. Returns the call; `None` if it has ended.
    #[must_use]
    pub fn cancel(&self, number: u64, by: &str) -> Option<RunningCall> {
        let call = self.state.host.pipeline().running().cancel(number)?;
        self.record("cancel", Some(&format!("{} {}", call.tool, call.call_id)), None, by);
        Some(call)
    }

    /// Cancels all calls and refuses new ones, also after a restart. Returns the number of cancelled calls. Blocks.
    ///
    /// # Errors
    /// The order cannot be stored. Calls are stopped all the same, until the server ends.
    pub fn stop(&self, reason: &str, by: &str) -> Result<usize, String> {
        let stored = self.state.stop_order.stop(reason, now());
        let reason =
            stored.as_ref().map_or_else(|_| one_line(reason, MAX_REASON), |order| order.reason.clone());
        let cancelled = self.state.host.pipeline().running().stop(&reason);
        self.record("stop", None, Some(&reason), by);
        stored.map(|_| cancelled)
    }

    /// Allows calls again. Returns whether they were stopped. Blocks.
    ///
    /// # Errors
    /// The order cannot be removed. Calls stay stopped.
    pub fn resume(&self, by: &str) -> Result<bool, String> {
        let was_stored = self.state.stop_order.resume()?;
        let was_stopped = self.state.host.pipeline().running().resume() || was_stored;
        if was_stopped {
            self.record("resume", None, None, by);
        }
        Ok(was_stopped)
    }

    /// Asks the server to read its policy, plugins and state files again. Returns at once.
    pub fn reload(&self, by: &str) {
        self.record("reload", None, None, by);
        self.state.reload.notify_one();
    }

    /// Waits until an operator asks for a reload.
    pub async fn reload_requested(&self) {
        self.state.reload.notified().await;
    }

    fn record(&self, action: &'static str, subject: Option<&str>, reason: Option<&str>, by: &str) {
        self.state.host.pipeline().audit().record_action(ActionRecord {
            action,
            subject: subject.map(cut),
            reason: reason.map(|reason| reason.chars().take(MAX_REASON).collect()),
            by: cut(by),
        });
    }
}

fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}
