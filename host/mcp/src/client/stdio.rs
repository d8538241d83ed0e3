//! A server that runs as a child process: one JSON message per line over stdin and stdout. Its stderr is logged.
//!
//! Three tasks serve the connection and end with it: one reads, one writes, one logs stderr. Incoming messages are
//! handled in place. Outgoing messages wait in a short queue, so that a server that does not read delays only its own
//! calls.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use toolbay_core::call::compute::INLINE_STEPS;
use toolbay_core::call::server_connector::{ByteReader, ByteWriter, ProcessHandle, ServerProcess};
use toolbay_policy::quantity;

use super::bounds::{
    ANSWER_GRACE_PERIOD, EXIT_GRACE_PERIOD, MAX_LOG_LINE, MAX_STDERR_TAIL_CHARS, MAX_STDERR_TAIL_LINES,
    OUTGOING_QUEUE,
};
use super::inbox::{FloodError, Inbox};
use super::link_request::{LinkError, LinkRequest};
use crate::protocol::bounds::MAX_MESSAGE_BYTES;
use crate::protocol::message::{self, RawRequest, ResponseId, RpcMessage};
use crate::protocol::repair::RepairedResponse;
use crate::protocol::unreadable::{self, MultilineText, UnreadableResponse};

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

/// The answer to a request, or why it cannot be read.
type RequestAnswer = Result<Box<RawValue>, LinkError>;

/// State that the tasks share.
struct StdioState {
    inbox: Arc<Inbox>,
    pending: Mutex<HashMap<u64, oneshot::Sender<RequestAnswer>>>,
    /// The highest id of a request so far.
    last_id: AtomicU64,
    /// Whether any request was answered.
    was_answered: AtomicBool,
    /// Whether a notification was sent since the last answer. Some servers refuse notifications, with an error that has no
    /// id.
    has_notified: AtomicBool,
    stderr_tail: Mutex<StderrTail>,
}

impl StdioState {
    /// Passes an answer to its request. Returns `false` if no request waits for it.
    fn resolve(&self, id: &ResponseId, answer: RequestAnswer) -> bool {
        let waiting = id.number().and_then(|id| self.pending.lock().remove(&id));
        let is_answer = waiting.is_some_and(|waiting| waiting.send(answer).is_ok());
        if is_answer {
            self.inbox.record_activity();
            self.was_answered.store(true, Ordering::Relaxed);
            self.has_notified.store(false, Ordering::Relaxed);
        }
        is_answer
    }

    /// The request that an error without an id means: the single open one, unless a notification was sent after the last
    /// answer.
    fn request_without_id(&self) -> Option<u64> {
        let pending = self.pending.lock();
        let mut open = pending.keys();
        let only = open.next().filter(|_| open.next().is_none());
        only.copied().filter(|_| !self.has_notified.load(Ordering::Relaxed))
    }

    /// Counts a response that matches no request. A server whose first answer has an id that no request ever had cannot
    /// be understood, so the only open request fails.
    fn handle_stray_response(&self, id: &ResponseId) -> Result<(), FloodError> {
        let last = self.last_id.load(Ordering::Relaxed);
        if id.number().is_none_or(|number| number == 0 || number > last) {
            self.inbox.record_unknown_id(id);
            let mut pending = self.pending.lock();
            if !self.was_answered.load(Ordering::Relaxed) && pending.len() == 1 {
                for (expected, waiting) in pending.drain() {
                    let what =
                        format!("it answered with id {id}, which matches no request, instead of {expected}");
                    // The request may have been cancelled meanwhile.
                    drop(waiting.send(Err(LinkError::InvalidResponse(what.into()))));
                }
            }
        }
        self.inbox.count_unmatched_response()
    }

    /// Closes the connection and fails all pending requests.
    fn end(&self, mut why: String) {
        let stderr = self.stderr_tail.lock().to_line();
        if !stderr.is_empty() {
            why.push_str("; last lines of its stderr: ");
            why.push_str(&stderr);
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
        let shared = Arc::new(StdioState {
            inbox,
            pending: Mutex::default(),
            last_id: AtomicU64::new(0),
            was_answered: AtomicBool::new(false),
            has_notified: AtomicBool::new(false),
            stderr_tail: Mutex::default(),
        });
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
        self.state.has_notified.store(true, Ordering::Relaxed);
        self.send(message::encode_notification(method, params)).await
    }

    pub(super) async fn request(&self, ask: LinkRequest<'_>) -> Result<Box<RawValue>, LinkError> {
        let (sender, answer) = oneshot::channel();
        self.state.last_id.fetch_max(ask.id, Ordering::Relaxed);
        self.state.pending.lock().insert(ask.id, sender);
        self.send(ask.body).await?;
        let ending = &self.state.inbox.closure;
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|_| ending.error())?,
            why = ending.wait_closed() => Err(LinkError::Closed(why)),
        }
    }

    /// Forgets a pending request. With `cancelled`, the parameters of a cancellation, notifies the server.
    pub(super) fn cancel(&self, id: u64, cancelled: Option<&Value>) {
        self.state.pending.lock().remove(&id);
        if cancelled.is_some() && !self.state.inbox.closure.is_closed() {
            self.state.has_notified.store(true, Ordering::Relaxed);
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
    let mut handler = LineHandler {
        shared,
        answers,
        multiline: MultilineText::default(),
        doubts: BTreeMap::new(),
        unended_until: None,
    };
    loop {
        let read = match handler.deadline() {
            None => stdout.read(&mut chunk).await,
            Some(deadline) => match tokio::time::timeout_at(deadline, stdout.read(&mut chunk)).await {
                Ok(read) => read,
                Err(_) => match run_in_place(line.len(), || handler.handle_silence(&mut line)) {
                    Ok(()) => continue,
                    Err(why) => return why,
                },
            },
        };
        let count = match read {
            Ok(0) => {
                // The last line may have no end.
                let last = run_in_place(line.len(), || handler.handle_line(&line));
                return last.err().unwrap_or_else(|| "it closed its stdout".to_owned());
            }
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
            if let Err(why) = run_in_place(line.len(), || handler.handle_line(&line)) {
                return why;
            }
            line.clear();
            line.shrink_to(MAX_IDLE_BUFFER);
        }
        if line.len() + rest.len() > MAX_MESSAGE_BYTES {
            return line_too_long();
        }
        line.extend_from_slice(rest);
        handler.unended_until = (!line.is_empty()).then(|| Instant::now() + ANSWER_GRACE_PERIOD);
    }
}

/// Runs work on a text of this length. If the text is long and the runtime has several threads, the other tasks of this
/// worker continue on another one. For spawned tasks only: others can be part of a `LocalSet`, where this is not possible.
fn run_in_place<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let is_long = bytes as u64 > INLINE_STEPS;
    match is_long && Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

fn line_too_long() -> String {
    format!(
        "it wrote a line of more than {}: the connection was closed",
        quantity::show_bytes(MAX_MESSAGE_BYTES as u64)
    )
}

/// Handles the lines of one server.
struct LineHandler<'a> {
    shared: &'a Arc<StdioState>,
    answers: &'a mpsc::WeakSender<Vec<u8>>,
    /// Lines that may be parts of one message.
    multiline: MultilineText,
    /// Requests that seem to have failed, until when their answer may still follow, and the failure.
    doubts: BTreeMap<u64, (Instant, LinkError)>,
    /// How long to wait for the end of the current line before it is looked at.
    unended_until: Option<Instant>,
}

impl LineHandler<'_> {
    /// Handles one line. An error is the reason to end the connection.
    fn handle_line(&mut self, line: &[u8]) -> Result<(), String> {
        let handled = match message::parse_messages(line) {
            Some(messages) => {
                self.multiline.clear();
                self.handle_messages(line, messages)
            }
            None if line.trim_ascii().is_empty() => self.shared.inbox.count_unsolicited_bytes(line.len(), 1),
            None => match (unreadable::framing_problem(line), message::parse_leading_messages(line)) {
                (Some(problem), _) if !self.shared.was_answered.load(Ordering::Relaxed) => {
                    return Err(problem.to_owned());
                }
                (_, Some((messages, rest))) => {
                    self.multiline.clear();
                    let first = line.get(..line.len() - rest.len()).unwrap_or_default();
                    self.handle_messages(first, messages).map_err(|flood| flood.to_string())?;
                    return self.handle_line(rest);
                }
                (_, None) => self.handle_invalid_line(line),
            },
        };
        handled.map_err(|flood| flood.to_string())
    }

    /// When to stop waiting for the rest of what has arrived.
    fn deadline(&self) -> Option<Instant> {
        self.doubts.values().map(|(until, _)| *until).chain(self.unended_until).min()
    }

    /// Handles that the server wrote nothing more in time. Fails the requests whose answer cannot be read, and reads a
    /// message without the end of its line.
    fn handle_silence(&mut self, line: &mut Vec<u8>) -> Result<(), String> {
        let now = Instant::now();
        for (id, (_, failure)) in self.doubts.extract_if(.., |_, (until, _)| *until <= now) {
            // Its answer may have followed.
            self.shared.resolve(&ResponseId::Number(id), Err(failure));
        }
        if self.unended_until.is_none_or(|until| until > now) {
            return Ok(());
        }
        self.unended_until = None;
        let leading = message::parse_leading_messages(line);
        if leading.is_some_and(|(_, rest)| rest.trim_ascii().is_empty()) {
            self.handle_line(line)?;
            line.clear();
        } else if let Some(problem) = unreadable::framing_problem(line)
            && !self.shared.was_answered.load(Ordering::Relaxed)
        {
            return Err(problem.to_owned());
        } else {
            self.shared.inbox.note_line(line);
        }
        Ok(())
    }

    fn handle_messages(&mut self, line: &[u8], messages: Vec<RpcMessage>) -> Result<(), FloodError> {
        let shared = self.shared;
        let inbox = &shared.inbox;
        let mut asked = false;
        for message in messages {
            match message {
                RpcMessage::Response { id, result: Err(error) }
                    if id.is_absent()
                        && let Some(only) = shared.request_without_id() =>
                {
                    self.doubt(only, LinkError::Rpc(error));
                    asked = true;
                }
                RpcMessage::Response { id, result } => {
                    if shared.resolve(&id, result.map_err(LinkError::from)) {
                        asked = true;
                    } else {
                        shared.handle_stray_response(&id)?;
                    }
                }
                RpcMessage::Notification { method, params } => {
                    inbox.handle_notification(&method, params.as_deref())?;
                }
                RpcMessage::Request(request) => respond(request, shared, self.answers)?,
            }
        }
        if asked { Ok(()) } else { inbox.count_unsolicited_bytes(line.len(), 1) }
    }

    /// Fails a request soon, unless its answer follows.
    fn doubt(&mut self, id: u64, failure: LinkError) {
        self.doubts.entry(id).or_insert((Instant::now() + ANSWER_GRACE_PERIOD, failure));
    }

    /// Handles a line that is not a message. If it is an answer that can be repaired, it is one nevertheless. If it
    /// completes an unreadable response, its request fails. If it may be a part of one, its request fails unless its
    /// answer follows.
    fn handle_invalid_line(&mut self, line: &[u8]) -> Result<(), FloodError> {
        let inbox = &self.shared.inbox;
        if let Some(RepairedResponse { id, result, repair }) = RepairedResponse::find(line) {
            self.multiline.clear();
            inbox.record_repair(id, &repair);
            return self
                .handle_messages(line, vec![RpcMessage::Response { id: ResponseId::Number(id), result }]);
        }
        inbox.count_unsolicited_bytes(line.len(), 1)?;
        let whole = self.multiline.push(line);
        if let Some(UnreadableResponse { id, problem }) = whole.as_deref().and_then(UnreadableResponse::find)
        {
            let what = format!("its answer cannot be read: {problem}");
            if !self.shared.resolve(&id, Err(LinkError::InvalidResponse(what.into()))) {
                self.shared.handle_stray_response(&id)?;
            }
        } else if let Some(found) = UnreadableResponse::find_anywhere(line)
            .or_else(|| UnreadableResponse::find_anywhere(self.multiline.unended()))
            && let Some(id) = found.id.number()
        {
            let pending = self.shared.pending.lock();
            let (is_open, is_alone) = (pending.contains_key(&id), pending.len() == 1);
            drop(pending);
            if is_open {
                // The text around the answer may belong to another request.
                let problem = if is_alone { found.problem } else { unreadable::describe_kind(line) };
                let what = format!("its answer cannot be read: {problem}");
                self.doubt(id, LinkError::InvalidResponse(what.into()));
            }
        }
        inbox.record_invalid_message("on stdout", line)
    }
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
    let clean = toolbay_policy::excerpt::one_line(&shared.inbox.connector.redact(&text), MAX_LOG_LINE);
    shared.stderr_tail.lock().push(clean);
}

#[cfg(test)]
#[path = "stdio_tests.rs"]
pub(super) mod tests;
