//! A server that runs as a child process: one JSON message per line over stdin and stdout. Its stderr is logged.
//!
//! Three tasks serve the connection and end with it: one reads, one writes, one logs stderr. Incoming messages are
//! handled in place. Outgoing messages wait in a short queue, so that a server that does not read delays only its own
//! calls.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use toolbay_core::call::server_connector::{ByteReader, ByteWriter, ProcessHandle, ServerProcess};
use toolbay_policy::quantity;

use super::bounds::{
    EXIT_GRACE_PERIOD, MAX_LOG_LINE, MAX_STDERR_TAIL_CHARS, MAX_STDERR_TAIL_LINES, OUTGOING_QUEUE,
};
use super::inbox::{FloodError, Inbox};
use super::link::{LinkError, LinkRequest};
use crate::protocol::bounds::MAX_MESSAGE_BYTES;
use crate::protocol::message::{self, RawRequest, RpcMessage, RpcResult};

/// Bytes per read.
const CHUNK: usize = 64 << 10;
/// Capacity to which the line buffer shrinks after a long line.
const MAX_IDLE_BUFFER: usize = 1 << 20;

/// A connection to a child process.
pub(super) struct StdioLink {
    state: Arc<StdioState>,
    outgoing: mpsc::Sender<Vec<u8>>,
    process: Mutex<Option<Box<dyn ProcessHandle>>>,
    /// Owns the tasks of the connection.
    tasks: Mutex<JoinSet<()>>,
    pub(super) confinement: &'static str,
}

impl std::fmt::Debug for StdioLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StdioLink").field("name", &self.state.inbox.name).finish_non_exhaustive()
    }
}

/// State that the tasks share.
struct StdioState {
    inbox: Arc<Inbox>,
    pending: Mutex<HashMap<u64, oneshot::Sender<RpcResult>>>,
    stderr_tail: Mutex<StderrTail>,
}

impl StdioState {
    /// Closes the connection and fails all pending requests.
    fn end(&self, mut why: String) {
        let words = self.stderr_tail.lock().to_line();
        if !words.is_empty() {
            why.push_str("; last lines of its stderr: ");
            why.push_str(&words);
        }
        self.inbox.closure.close(why);
        self.pending.lock().clear();
    }
}

/// The last lines of a server's stderr, redacted and without control characters.
#[derive(Debug, Default)]
struct StderrTail(VecDeque<String>);

impl StderrTail {
    fn push(&mut self, line: String) {
        if self.0.len() >= MAX_STDERR_TAIL_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line);
    }

    /// Joins the lines, the oldest first.
    fn to_line(&self) -> String {
        let (mut lines, mut room) = (Vec::new(), MAX_STDERR_TAIL_CHARS);
        for line in self.0.iter().rev() {
            let Some(left) = room.checked_sub(line.chars().count()) else { break };
            room = left;
            lines.push(line.as_str());
        }
        lines.reverse();
        lines.join(" | ")
    }
}

impl StdioLink {
    /// Starts the tasks for a child process.
    pub(super) fn new(started: ServerProcess, inbox: Arc<Inbox>) -> Self {
        let ServerProcess { stdin, stdout, stderr, confinement, handle: life } = started;
        let shared = Arc::new(StdioState { inbox, pending: Mutex::default(), stderr_tail: Mutex::default() });
        let (out, queue) = mpsc::channel(OUTGOING_QUEUE);
        let mut tasks = JoinSet::new();
        let (reads, writes, logs) = (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared));
        let answers = out.downgrade();
        tasks.spawn(async move {
            let why = read_messages(stdout, &reads, &answers).await;
            // The last lines on stderr may contain the reason: wait for them.
            tokio::time::sleep(Duration::from_millis(50)).await;
            reads.end(why);
        });
        tasks.spawn(async move {
            let why = write_messages(stdin, queue).await;
            if let Some(why) = why {
                tokio::time::sleep(Duration::from_millis(100)).await;
                writes.end(why);
            }
        });
        tasks.spawn(async move { read_stderr(stderr, &logs).await });
        Self {
            state: shared,
            outgoing: out,
            process: Mutex::new(Some(life)),
            tasks: Mutex::new(tasks),
            confinement,
        }
    }

    async fn send(&self, body: Vec<u8>) -> Result<(), LinkError> {
        let ending = &self.state.inbox.closure;
        tokio::select! {
            biased;
            why = ending.wait_closed() => Err(LinkError::Closed(why)),
            sent = self.outgoing.send(body) => sent.map_err(|_| ending.error()),
        }
    }

    pub(super) async fn notify(&self, method: &str, params: Option<&Value>) -> Result<(), LinkError> {
        self.send(message::encode_notification(method, params)).await
    }

    pub(super) async fn request(&self, ask: LinkRequest<'_>) -> Result<Box<RawValue>, LinkError> {
        let (sender, answer) = oneshot::channel();
        self.state.pending.lock().insert(ask.id, sender);
        self.send(ask.body).await?;
        let ending = &self.state.inbox.closure;
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|_| ending.error())?.map_err(LinkError::Rpc),
            why = ending.wait_closed() => Err(LinkError::Closed(why)),
        }
    }

    /// Forgets a pending request. With `cancelled`, the parameters of a cancellation, notifies the server.
    pub(super) fn cancel(&self, id: u64, cancelled: Option<&Value>) {
        self.state.pending.lock().remove(&id);
        if cancelled.is_some() && !self.state.inbox.closure.is_closed() {
            // If the queue is full, the server does not read, and the notification is dropped.
            drop(self.outgoing.try_send(message::encode_notification("notifications/cancelled", cancelled)));
        }
    }

    /// Closes stdin and waits briefly for the process to exit. Dropping its handle kills it afterwards.
    pub(super) async fn close(&self) -> Option<String> {
        self.tasks.lock().abort_all();
        self.state.end("the host closed the connection".to_owned());
        let mut life = self.process.lock().take()?;
        // A timeout is not an error: dropping `process` kills it.
        tokio::time::timeout(EXIT_GRACE_PERIOD, life.wait()).await.ok()
    }
}

async fn write_messages(mut stdin: ByteWriter, mut queue: mpsc::Receiver<Vec<u8>>) -> Option<String> {
    while let Some(message) = queue.recv().await {
        let written = async {
            stdin.write_all(&message).await?;
            stdin.flush().await
        };
        if let Err(error) = written.await {
            return Some(format!("its stdin is closed: {error}"));
        }
    }
    None
}

/// Reads messages until the connection ends; returns the reason.
async fn read_messages(
    mut stdout: ByteReader,
    shared: &Arc<StdioState>,
    answers: &mpsc::WeakSender<Vec<u8>>,
) -> String {
    let (mut line, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    loop {
        let count = match stdout.read(&mut chunk).await {
            Ok(0) => return "it closed its stdout".to_owned(),
            Ok(count) => count,
            Err(error) => return format!("its stdout cannot be read: {error}"),
        };
        let mut rest = chunk.get(..count).unwrap_or_default();
        while let Some(at) = rest.iter().position(|b| *b == b'\n') {
            let (before, from) = rest.split_at(at);
            rest = from.get(1..).unwrap_or_default();
            if line.len() + before.len() > MAX_MESSAGE_BYTES {
                return line_too_long();
            }
            line.extend_from_slice(before);
            if let Err(flood) = handle_line(&line, shared, answers) {
                return flood.to_string();
            }
            line.clear();
            line.shrink_to(MAX_IDLE_BUFFER);
        }
        if line.len() + rest.len() > MAX_MESSAGE_BYTES {
            return line_too_long();
        }
        line.extend_from_slice(rest);
    }
}

fn line_too_long() -> String {
    format!(
        "it wrote a line of more than {}: the connection was closed",
        quantity::show_bytes(MAX_MESSAGE_BYTES as u64)
    )
}

/// Handles one line.
fn handle_line(
    line: &[u8],
    shared: &Arc<StdioState>,
    answers: &mpsc::WeakSender<Vec<u8>>,
) -> Result<(), FloodError> {
    let inbox = &shared.inbox;
    if line.trim_ascii().is_empty() {
        return inbox.count_unsolicited_bytes(line.len(), 1);
    }
    let Some(messages) = message::parse_messages(line) else {
        inbox.count_unsolicited_bytes(line.len(), 1)?;
        return inbox.record_invalid_message("on stdout", line);
    };
    let mut asked = false;
    for message in messages {
        match message {
            RpcMessage::Response { id, result } => {
                let waiting = id.and_then(|id| shared.pending.lock().remove(&id));
                if waiting.is_some_and(|waiting| waiting.send(result).is_ok()) {
                    inbox.record_activity();
                    asked = true;
                } else {
                    inbox.count_unmatched_response()?;
                }
            }
            RpcMessage::Notification { method, params } => {
                inbox.handle_notification(&method, params.as_deref())?;
            }
            RpcMessage::Request(request) => respond(request, shared, answers)?,
        }
    }
    if asked { Ok(()) } else { inbox.count_unsolicited_bytes(line.len(), 1) }
}

/// Answers a request of the server. A response that needs no user is queued at once. Elicitations run in a task.
/// `MAX_OPEN_ELICITATIONS` bounds these tasks, and they end with the connection.
fn respond(
    request: RawRequest,
    shared: &Arc<StdioState>,
    answers: &mpsc::WeakSender<Vec<u8>>,
) -> Result<(), FloodError> {
    let Some(out) = answers.upgrade() else { return Ok(()) };
    let inbox = Arc::clone(&shared.inbox);
    let mut asked = Box::pin(Arc::clone(&shared.inbox).respond(request));
    match futures_util::FutureExt::now_or_never(&mut asked) {
        Some(answer) => {
            // If the queue is full, the server does not read, and the response is dropped.
            drop(out.try_send(answer?));
        }
        None => drop(tokio::spawn(async move {
            tokio::select! {
                _ = inbox.closure.wait_closed() => {}
                Ok(answer) = asked => drop(out.send(answer).await),
            }
        })),
    }
    Ok(())
}

/// Logs stderr line by line, and keeps the last lines for the reason of a disconnect.
async fn read_stderr(mut stderr: ByteReader, shared: &Arc<StdioState>) {
    let (mut line, mut chunk) = (Vec::new(), vec![0; CHUNK / 4]);
    let most = 16 * MAX_LOG_LINE;
    while let Ok(count) = stderr.read(&mut chunk).await {
        let end = count == 0;
        for part in chunk.get(..count).unwrap_or_default().split_inclusive(|b| *b == b'\n') {
            let room = most.saturating_sub(line.len()).min(part.len());
            line.extend_from_slice(part.get(..room).unwrap_or_default());
            if part.ends_with(b"\n") {
                log_line(&mut line, shared);
            }
        }
        if end {
            log_line(&mut line, shared);
            return;
        }
    }
}

fn log_line(line: &mut Vec<u8>, shared: &Arc<StdioState>) {
    let text = String::from_utf8_lossy(line).trim().to_owned();
    line.clear();
    if text.is_empty() {
        return;
    }
    shared.inbox.log("stderr", &text);
    let clean = toolbay_policy::text::one_line(&shared.inbox.connector.redact(&text), MAX_LOG_LINE);
    shared.stderr_tail.lock().push(clean);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stderr_tail_is_bounded() {
        let mut words = StderrTail::default();
        for n in 0..100 {
            words.push(format!("line {n}"));
        }
        assert_eq!(words.0.len(), MAX_STDERR_TAIL_LINES);
        assert!(
            words.to_line().starts_with("line 90 | ") && words.to_line().ends_with(" | line 99"),
            "{words:?}"
        );
        for n in 0..9 {
            words.push(format!("{n}{}", "x".repeat(MAX_LOG_LINE - 1)));
        }
        assert_eq!(words.to_line(), words.0[9], "only the newest line fits");
    }
}
