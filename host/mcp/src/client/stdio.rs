//! A server that is a program: one JSON message a line, over its stdin and stdout; its stderr is its log.
//!
//! Three tasks drive it and end with it: one reads, one writes, one takes the log. What is read is taken in place; what
//! is written waits in a short queue, so that a server that does not read holds up its own calls and nothing else.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use toolbay_core::call::outside::{Input, Life, Output, Started};
use toolbay_policy::quantity;

use super::bounds::{END_GRACE, MAX_LAST_LINES, MAX_LAST_WORDS, MAX_LOG_LINE, OUTBOX};
use super::inbox::{Flood, Inbox};
use super::link::{Ask, LinkError};
use crate::protocol::bounds::MAX_MESSAGE;
use crate::protocol::message::{self, Message, RawRequest, RpcResult};

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;
/// A buffer for a line is given back when it has grown beyond this.
const KEPT_BUFFER: usize = 1 << 20;

/// A server's program, connected.
pub(super) struct Pipe {
    shared: Arc<Shared>,
    out: mpsc::Sender<Vec<u8>>,
    life: Mutex<Option<Box<dyn Life>>>,
    /// Ends the tasks that drive it.
    tasks: Mutex<JoinSet<()>>,
    pub(super) confinement: &'static str,
}

impl std::fmt::Debug for Pipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipe").field("name", &self.shared.inbox.name).finish_non_exhaustive()
    }
}

/// What the tasks share.
struct Shared {
    inbox: Arc<Inbox>,
    pending: Mutex<HashMap<u64, oneshot::Sender<RpcResult>>>,
    last_words: Mutex<LastWords>,
}

impl Shared {
    /// The connection is over.
    fn end(&self, mut why: String) {
        let words = self.last_words.lock().told();
        if !words.is_empty() {
            why.push_str("; its last words: ");
            why.push_str(&words);
        }
        self.inbox.ending.end(why);
        self.pending.lock().clear();
    }
}

/// The last lines of a server's stderr, without values of secrets and of what a terminal obeys.
#[derive(Debug, Default)]
struct LastWords(VecDeque<String>);

impl LastWords {
    fn take(&mut self, line: String) {
        if self.0.len() >= MAX_LAST_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line);
    }

    /// As one line, the oldest first.
    fn told(&self) -> String {
        let (mut lines, mut room) = (Vec::new(), MAX_LAST_WORDS);
        for line in self.0.iter().rev() {
            let Some(left) = room.checked_sub(line.chars().count()) else { break };
            room = left;
            lines.push(line.as_str());
        }
        lines.reverse();
        lines.join(" | ")
    }
}

impl Pipe {
    /// Drives a program that was started.
    pub(super) fn new(started: Started, inbox: Arc<Inbox>) -> Self {
        let Started { stdin, stdout, stderr, confinement, life } = started;
        let shared = Arc::new(Shared { inbox, pending: Mutex::default(), last_words: Mutex::default() });
        let (out, queue) = mpsc::channel(OUTBOX);
        let mut tasks = JoinSet::new();
        let (reads, writes, logs) = (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared));
        let answers = out.downgrade();
        tasks.spawn(async move {
            let why = read(stdout, &reads, &answers).await;
            // What it says at the end on stderr may be the reason: a moment for it.
            tokio::time::sleep(Duration::from_millis(50)).await;
            reads.end(why);
        });
        tasks.spawn(async move {
            let why = write(stdin, queue).await;
            if let Some(why) = why {
                tokio::time::sleep(Duration::from_millis(100)).await;
                writes.end(why);
            }
        });
        tasks.spawn(async move { log(stderr, &logs).await });
        Self { shared, out, life: Mutex::new(Some(life)), tasks: Mutex::new(tasks), confinement }
    }

    async fn send(&self, body: Vec<u8>) -> Result<(), LinkError> {
        let ending = &self.shared.inbox.ending;
        tokio::select! {
            biased;
            why = ending.over() => Err(LinkError::Closed(why)),
            sent = self.out.send(body) => sent.map_err(|_| ending.error()),
        }
    }

    pub(super) async fn tell(&self, method: &str, params: Option<&Value>) -> Result<(), LinkError> {
        self.send(message::notification(method, params)).await
    }

    pub(super) async fn ask(&self, ask: Ask<'_>) -> Result<Box<RawValue>, LinkError> {
        let (sender, answer) = oneshot::channel();
        self.shared.pending.lock().insert(ask.id, sender);
        self.send(ask.body).await?;
        let ending = &self.shared.inbox.ending;
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|_| ending.error())?.map_err(LinkError::Rpc),
            why = ending.over() => Err(LinkError::Closed(why)),
        }
    }

    /// Nobody waits for an answer any more; where that is to be `told`, the server hears of it.
    pub(super) fn forget(&self, id: u64, told: Option<&Value>) {
        self.shared.pending.lock().remove(&id);
        if told.is_some() && !self.shared.inbox.ending.is_over() {
            // A queue that is full is one of a server that does not read.
            drop(self.out.try_send(message::notification("notifications/cancelled", told)));
        }
    }

    /// Closes stdin, gives the program a moment to end by itself, and kills what is left.
    pub(super) async fn close(&self) -> Option<String> {
        self.tasks.lock().abort_all();
        self.shared.end("the host ended it".to_owned());
        let mut life = self.life.lock().take()?;
        // That it does not end in time is what killing is for.
        tokio::time::timeout(END_GRACE, life.ended()).await.ok()
    }
}

async fn write(mut stdin: Output, mut queue: mpsc::Receiver<Vec<u8>>) -> Option<String> {
    while let Some(message) = queue.recv().await {
        let written = async {
            stdin.write_all(&message).await?;
            stdin.flush().await
        };
        if let Err(error) = written.await {
            return Some(format!("it takes no more input: {error}"));
        }
    }
    None
}

/// Reads messages to the end; returns why it is the end.
async fn read(mut stdout: Input, shared: &Arc<Shared>, answers: &mpsc::WeakSender<Vec<u8>>) -> String {
    let (mut line, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    loop {
        let count = match stdout.read(&mut chunk).await {
            Ok(0) => return "it closed its output".to_owned(),
            Ok(count) => count,
            Err(error) => return format!("its output cannot be read: {error}"),
        };
        let mut rest = chunk.get(..count).unwrap_or_default();
        while let Some(at) = rest.iter().position(|b| *b == b'\n') {
            let (before, from) = rest.split_at(at);
            rest = from.get(1..).unwrap_or_default();
            if line.len() + before.len() > MAX_MESSAGE {
                return too_long();
            }
            line.extend_from_slice(before);
            if let Err(flood) = take(&line, shared, answers) {
                return flood.to_string();
            }
            line.clear();
            line.shrink_to(KEPT_BUFFER);
        }
        if line.len() + rest.len() > MAX_MESSAGE {
            return too_long();
        }
        line.extend_from_slice(rest);
    }
}

fn too_long() -> String {
    format!("it wrote a line of more than {}, and was ended", quantity::show_bytes(MAX_MESSAGE as u64))
}

/// Takes one line.
fn take(line: &[u8], shared: &Arc<Shared>, answers: &mpsc::WeakSender<Vec<u8>>) -> Result<(), Flood> {
    let inbox = &shared.inbox;
    if line.trim_ascii().is_empty() {
        return inbox.weigh(line.len(), 1);
    }
    let Some(messages) = message::read(line) else {
        inbox.weigh(line.len(), 1)?;
        return inbox.garbage("on stdout", line);
    };
    let mut asked = false;
    for message in messages {
        match message {
            Message::Response { id, result } => {
                let waiting = id.and_then(|id| shared.pending.lock().remove(&id));
                if waiting.is_some_and(|waiting| waiting.send(result).is_ok()) {
                    inbox.hear();
                    asked = true;
                } else {
                    inbox.stray()?;
                }
            }
            Message::Notification { method, params } => inbox.tell(&method, params.as_deref())?,
            Message::Request(request) => answer(request, shared, answers)?,
        }
    }
    if asked { Ok(()) } else { inbox.weigh(line.len(), 1) }
}

/// Answers a server's request: at once where that is a word, in a task of its own where a person is asked. There are no
/// more such tasks than questions may be open.
fn answer(
    request: RawRequest,
    shared: &Arc<Shared>,
    answers: &mpsc::WeakSender<Vec<u8>>,
) -> Result<(), Flood> {
    let Some(out) = answers.upgrade() else { return Ok(()) };
    let inbox = Arc::clone(&shared.inbox);
    let mut asked = Box::pin(Arc::clone(&shared.inbox).respond(request));
    match futures_util::FutureExt::now_or_never(&mut asked) {
        Some(answer) => {
            // A server that asks and does not read gets no answer.
            drop(out.try_send(answer?));
        }
        None => drop(tokio::spawn(async move {
            tokio::select! {
                _ = inbox.ending.over() => {}
                Ok(answer) = asked => drop(out.send(answer).await),
            }
        })),
    }
    Ok(())
}

/// Takes the log, line by line; the last ones are kept for whoever asks why it ended.
async fn log(mut stderr: Input, shared: &Arc<Shared>) {
    let (mut line, mut chunk) = (Vec::new(), vec![0; CHUNK / 4]);
    let most = 16 * MAX_LOG_LINE;
    while let Ok(count) = stderr.read(&mut chunk).await {
        let end = count == 0;
        for part in chunk.get(..count).unwrap_or_default().split_inclusive(|b| *b == b'\n') {
            let room = most.saturating_sub(line.len()).min(part.len());
            line.extend_from_slice(part.get(..room).unwrap_or_default());
            if part.ends_with(b"\n") {
                say(&mut line, shared);
            }
        }
        if end {
            say(&mut line, shared);
            return;
        }
    }
}

fn say(line: &mut Vec<u8>, shared: &Arc<Shared>) {
    let text = String::from_utf8_lossy(line).trim().to_owned();
    line.clear();
    if text.is_empty() {
        return;
    }
    shared.inbox.log("stderr", &text);
    let clean = toolbay_policy::text::one_line(&shared.inbox.outside.redacted(&text), MAX_LOG_LINE);
    shared.last_words.lock().take(clean);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_no_more() {
        let mut words = LastWords::default();
        for n in 0..100 {
            words.take(format!("line {n}"));
        }
        assert_eq!(words.0.len(), MAX_LAST_LINES);
        assert!(words.told().starts_with("line 90 | ") && words.told().ends_with(" | line 99"), "{words:?}");
        for n in 0..9 {
            words.take(format!("{n}{}", "x".repeat(MAX_LOG_LINE - 1)));
        }
        assert_eq!(words.told(), words.0[9], "the newest one");
    }
}
