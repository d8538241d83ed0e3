//! The operator's actions on a running server. Each one is recorded in the audit.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use toolbay::{FileStopOrder, Host};
use toolbay_core::approval::{ApprovalReply, Approver};
use toolbay_core::audit::observer::AuditObserver;
use toolbay_core::audit::{ActionRecord, MAX_REASON, cut};
use toolbay_core::call::shared::SharedStatus;
use toolbay_core::pipeline::running::RunningCall;
use toolbay_policy::excerpt::one_line;

use crate::files::{GrantError, HeldPlugin, OperatorFiles};
use crate::history::CallHistory;
use crate::questions::{Question, Questions};

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
    /// What it knows about the state that it shares with other replicas; absent if it shares none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedStatus>,
}

/// What a server with an admin listener collects for it. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct AdminState {
    pub(crate) metrics_type: &'static str,
    pub(crate) metrics: Arc<dyn Fn(&Host) -> String + Send + Sync>,
    pub(crate) history: Arc<CallHistory>,
    pub(crate) questions: Questions,
}

impl fmt::Debug for AdminState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminState")
    }
}

impl AdminState {
    /// Collects calls and questions from now on. `metrics` writes the metrics of a host, which have the media type
    /// `metrics_type`.
    #[must_use]
    pub fn new(
        metrics_type: &'static str,
        metrics: impl Fn(&Host) -> String + Send + Sync + 'static,
    ) -> Self {
        let (history, questions) = (Arc::default(), Questions::default());
        Self { metrics_type, metrics: Arc::new(metrics), history, questions }
    }

    /// What observes the audit of the host.
    #[must_use]
    pub fn observer(&self) -> Arc<dyn AuditObserver> {
        Arc::clone(&self.history) as _
    }

    /// What asks operators.
    #[must_use]
    pub fn approver(&self) -> Arc<dyn Approver> {
        Arc::new(self.questions.clone())
    }
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
    files: Arc<dyn OperatorFiles>,
    admin: Option<AdminState>,
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
        files: Arc<dyn OperatorFiles>,
        admin: Option<AdminState>,
    ) -> Self {
        let state =
            ControlState { host, stop_order, transport, since: now(), files, admin, reload: Notify::new() };
        Self { state: Arc::new(state) }
    }

    pub(crate) fn host(&self) -> &Host {
        &self.state.host
    }

    pub(crate) fn admin(&self) -> Option<&AdminState> {
        self.state.admin.as_ref()
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
            shared: host.pipeline().shared_status(),
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

    /// Disables a tool with a reason, or enables it without one. Blocks.
    ///
    /// # Errors
    /// The tool is unknown, or the switches cannot be stored.
    pub(crate) fn switch_tool(&self, tool: &str, disabled: Option<&str>, by: &str) -> Result<(), String> {
        self.state.files.switch_tool(tool, disabled)?;
        self.record(if disabled.is_some() { "disable" } else { "enable" }, Some(tool), disabled, by);
        Ok(())
    }

    /// Whether the server has a tool of this name.
    pub(crate) fn has_tool(&self, tool: &str) -> bool {
        self.state.host.registry().snapshot().get(tool).is_some()
    }

    /// The questions that wait for an operator.
    pub(crate) fn questions(&self) -> Vec<Question> {
        self.state.admin.as_ref().map(|admin| admin.questions.list()).unwrap_or_default()
    }

    /// Answers a question and returns it; `None` if it does not wait any more.
    pub(crate) fn answer(&self, number: u64, allow: bool, why: Option<&str>, by: &str) -> Option<Question> {
        let reply = match allow {
            true => ApprovalReply::Yes,
            false => ApprovalReply::No(why.map(|why| one_line(why, MAX_REASON))),
        };
        let question = self.state.admin.as_ref()?.questions.answer(number, reply)?;
        let subject = format!("{} {}", question.tool, question.call_id);
        self.record(if allow { "approve" } else { "refuse" }, Some(&subject), why, by);
        Some(question)
    }

    /// The number of questions and plugins that wait for an operator.
    pub(crate) fn count_waiting(&self) -> usize {
        self.questions().len() + self.state.files.count_held_plugins()
    }

    /// The plugins that wait for consent.
    ///
    /// # Errors
    /// The files of the server cannot be read.
    pub(crate) async fn held_plugins(&self) -> Result<Vec<HeldPlugin>, String> {
        self.state.files.held_plugins().await
    }

    /// Grants a held plugin. The audit records the grant itself, with its author.
    ///
    /// # Errors
    /// Another version is held now, or the files cannot be written.
    pub(crate) async fn grant(&self, plugin: &str, digest: &str, by: &str) -> Result<(), GrantError> {
        self.state.files.grant(plugin, digest, by).await?;
        self.state.reload.notify_one();
        Ok(())
    }

    /// Waits until an operator asks for a reload.
    pub async fn reload_requested(&self) {
        self.state.reload.notified().await;
    }

    /// Records an action.
    pub(crate) fn record(&self, action: &'static str, subject: Option<&str>, reason: Option<&str>, by: &str) {
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
