//! Output on stderr: a bounded queue and the one thread that writes it.
//!
//! A pipe without a reader and a stopped terminal block every write. Therefore nothing else in this process writes to
//! stderr: messages, the log, panics and errors go through the queue, which never blocks. When the queue is full, lines
//! are dropped and counted. The count is written once there is room.
//!
//! A command waits until each message is written, so that stdout and stderr keep their order on a terminal. A server
//! ([`write_message`]) does not wait. A wait ends when nothing was written for [`PATIENCE`].

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use crate::output::LogFormat;
use crate::output::format::now;

/// Most bytes in the queue: a second of heavy logging, and little compared with the host's other memory.
const MAX_BYTES: usize = 1 << 20;
/// Most bytes for the log. The rest is reserved for messages, so that a flood of log lines does not hide them.
const MAX_LOG_BYTES: usize = MAX_BYTES / 4 * 3;
/// How long a wait lasts while nothing can be written.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a wait lasts at most, however slowly stderr is read.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The pause before a write that would block is tried again.
const RETRY: Duration = Duration::from_millis(20);
/// The pause after a failed write.
const PAUSE: Duration = Duration::from_secs(1);

static STDERR: OnceLock<Arc<StderrQueue>> = OnceLock::new();
/// Moves to the start of the line and clears it.
const CLEAR_LINE: &str = "\r\x1b[K";

fn queue() -> &'static StderrQueue {
    // The lock of the standard library's handle would be held while a write blocks.
    STDERR
        .get_or_init(|| StderrQueue::start(|bytes| Ok(rustix::io::write(std::io::stderr().as_fd(), bytes)?)))
}

/// Starts the thread that writes, before others take what the limit on threads leaves.
pub(crate) fn start() {
    queue();
}

/// A message as a JSON line with the keys of the log's lines. `kind` is `error`, `warning`, or another.
pub(super) fn json_line(kind: &str, text: &str) -> String {
    let level = match kind {
        "error" => "ERROR",
        "warning" => "WARN",
        _ => "INFO",
    };
    json!({ "timestamp": now(), "level": level, "message": text, "target": "toolbay" }).to_string()
}

/// Writes a message of one or more lines. A server adds the time, unless the message has it, and does not wait until it is
/// written.
pub(super) fn write_message(text: &str, format: LogFormat, is_server: bool) {
    let time = match format {
        LogFormat::Text if is_server => format!("{} ", now()),
        LogFormat::Text | LogFormat::Json => String::new(),
    };
    queue().push_message(&format!("{time}{text}\n"), format);
    if !is_server {
        queue().flush();
    }
}

/// Shows a line of progress on the terminal, in place of the one before.
pub(crate) fn write_progress(line: &str) {
    queue().push(format!("{CLEAR_LINE}{line}").as_bytes(), MAX_BYTES);
    queue().lock().has_progress = true;
}

/// Removes the line of progress.
pub(crate) fn clear_progress() {
    if std::mem::take(&mut queue().lock().has_progress) {
        write_prompt(CLEAR_LINE);
    }
}

/// Writes a text as it is and waits until it is written.
pub(crate) fn write_prompt(text: &str) {
    queue().push(text.as_bytes(), MAX_BYTES);
    queue().flush();
}

/// The writer of the log.
pub(crate) fn log_writer(format: LogFormat) -> impl for<'a> MakeWriter<'a> + Send + Sync + 'static {
    move || LogWriter(format)
}

/// Writes panics through the queue, with a backtrace if the environment asks for one. The log reports those of the key-value
/// store.
pub(super) fn report_panics(format: LogFormat) {
    std::panic::set_hook(Box::new(move |panic| {
        if toolbay::is_store_panic() {
            return;
        }
        let thread = std::thread::current();
        let mut text = format!("thread `{}` {panic}", thread.name().unwrap_or("unnamed"));
        let trace = std::backtrace::Backtrace::capture();
        if trace.status() == std::backtrace::BacktraceStatus::Captured {
            text = format!("{text}\n{trace}");
        }
        let line = match format {
            LogFormat::Json => json_line("error", &text),
            LogFormat::Text => text,
        };
        queue().push(format!("{line}\n").as_bytes(), MAX_BYTES);
    }));
}

/// Writes the queue when dropped. Create it first, so that it is dropped last.
#[derive(Debug)]
pub(crate) struct FlushGuard;

impl Drop for FlushGuard {
    fn drop(&mut self) {
        // Workers and completions have no queue.
        if let Some(queue) = STDERR.get() {
            queue.flush();
        }
    }
}

/// Writes one line of the log: the subscriber formats a line completely and writes it once.
#[derive(Debug)]
struct LogWriter(LogFormat);

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        queue().lock().format = self.0;
        queue().push(line, MAX_LOG_BYTES);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The queue of lines to write.
#[derive(Debug, Default)]
struct StderrQueue {
    state: Mutex<QueueState>,
    /// Signals that a line was queued.
    queued: Condvar,
    /// Signals that bytes were written.
    written: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Whole lines, one after the other.
    waiting: Vec<u8>,
    /// Whether the last line of the terminal shows progress.
    has_progress: bool,
    /// Lines that were dropped and not reported yet.
    dropped: u64,
    /// The form of the last line, which the report has, too.
    format: LogFormat,
    /// All bytes that were ever queued, and those that were written or lost.
    bytes_queued: u64,
    bytes_done: u64,
    /// The value of `bytes_done` when a wait timed out. While it stays the same, no other wait starts.
    stalled_at: Option<u64>,
    /// stderr is closed: no more lines are queued.
    closed: bool,
    /// The thread did not start, so lines are written at once. The process ends soon, because nothing works without threads.
    has_no_thread: bool,
}

impl StderrQueue {
    /// Creates a queue with a thread that writes it.
    fn start(write: impl FnMut(&[u8]) -> io::Result<usize> + Send + 'static) -> Arc<Self> {
        let queue = Arc::new(Self::default());
        let writer = Arc::clone(&queue);
        // Ends with the process. Nothing else in the process writes to stderr.
        let spawned = std::thread::Builder::new().name("toolbay-stderr".to_owned()).spawn(move || {
            let mut write = write;
            while let Some((lines, reported)) = writer.next() {
                let lost = writer.write_all(&lines, &mut write);
                writer.lock().record_written(reported, lost);
            }
        });
        queue.lock().has_no_thread = spawned.is_err();
        queue
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }

    /// Queues a message in place of a line of progress.
    fn push_message(&self, message: &str, format: LogFormat) {
        let mut state = self.lock();
        state.format = format;
        let clear = if std::mem::take(&mut state.has_progress) { CLEAR_LINE } else { "" };
        drop(state);
        self.push(format!("{clear}{message}").as_bytes(), MAX_BYTES);
    }

    /// Queues a line if at most `room` bytes wait afterwards. An empty queue takes a line of any length.
    fn push(&self, line: &[u8], room: usize) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        if state.has_no_thread {
            rustix::io::write(std::io::stderr().as_fd(), line).ok();
            return;
        }
        if !state.waiting.is_empty() && state.waiting.len().saturating_add(line.len()) > room {
            state.dropped = state.dropped.saturating_add(1);
            return;
        }
        state.queue(line);
        drop(state);
        self.queued.notify_one();
    }

    /// Waits for lines. Returns them and the number of dropped lines that the last one reports; `None`: the queue is
    /// closed.
    fn next(&self) -> Option<(Vec<u8>, u64)> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let dropped = state.dropped;
            if dropped > 0 {
                let text = format!("{dropped} lines were dropped: stderr was full");
                let line = match state.format {
                    LogFormat::Json => json_line("warning", &text),
                    LogFormat::Text => format!("{} toolbay: {text}", now()),
                };
                state.queue(format!("{line}\n").as_bytes());
            }
            if !state.waiting.is_empty() {
                return Some((std::mem::take(&mut state.waiting), dropped));
            }
            self.queued.wait(&mut state);
        }
    }

    /// Writes lines, however long it takes. Returns the number of lost lines.
    fn write_all(&self, mut lines: &[u8], write: &mut impl FnMut(&[u8]) -> io::Result<usize>) -> u64 {
        let mut lost = 0;
        while !lines.is_empty() {
            let done = match write(lines) {
                Ok(written @ 1..) => written,
                // A parent process may have set stderr to non-blocking. The reader may read later.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(RETRY);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::BrokenPipe || is_closed_descriptor(&error) => {
                    self.lock().closed = true;
                    self.written.notify_all();
                    return lost;
                }
                // For example a file on a full disk.
                Ok(0) | Err(_) => {
                    lost = lines.iter().fold(0, |lost, byte| lost + u64::from(*byte == b'\n'));
                    std::thread::sleep(PAUSE);
                    lines.len()
                }
            };
            lines = lines.get(done..).unwrap_or_default();
            let mut state = self.lock();
            state.bytes_done = state.bytes_done.saturating_add(u64::try_from(done).unwrap_or(u64::MAX));
            drop(state);
            self.written.notify_all();
        }
        lost
    }

    /// Waits until the lines queued now are written, as long as writing makes progress.
    fn flush(&self) {
        let mut state = self.lock();
        let (target, end) = (state.bytes_queued, Instant::now() + LONGEST_WAIT);
        while state.bytes_done < target
            && !state.closed
            && state.stalled_at != Some(state.bytes_done)
            && Instant::now() < end
        {
            let before = state.bytes_done;
            let timeout = self.written.wait_for(&mut state, PATIENCE);
            if timeout.timed_out() && state.bytes_done == before {
                state.stalled_at = Some(before);
            }
        }
    }
}

impl QueueState {
    /// Updates the count of dropped lines after a write whose last line reported `reported` of them.
    fn record_written(&mut self, reported: u64, lost: u64) {
        let report = u64::from(reported > 0);
        self.dropped = match lost {
            0 => self.dropped.saturating_sub(reported),
            lost => self.dropped.saturating_add(lost.saturating_sub(report)),
        };
    }

    fn queue(&mut self, line: &[u8]) {
        self.waiting.extend_from_slice(line);
        self.bytes_queued = self.bytes_queued.saturating_add(u64::try_from(line.len()).unwrap_or(u64::MAX));
    }
}

/// Whether the process started without stderr.
fn is_closed_descriptor(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::BADF.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A queue whose writes wait for a message each, and what they wrote.
    fn gated() -> (Arc<StderrQueue>, Sender<()>, Receiver<Vec<u8>>) {
        let (open, gate) = channel::<()>();
        let (written, received) = channel();
        let queue = StderrQueue::start(move |bytes| {
            gate.recv().map_err(|_| io::Error::from(ErrorKind::BrokenPipe))?;
            written.send(bytes.to_vec()).ok();
            Ok(bytes.len())
        });
        (queue, open, received)
    }

    #[test]
    fn a_full_queue_drops_lines_and_counts_them() {
        let (queue, open, received) = gated();
        let line = [b'x'; 1023].iter().chain(b"\n").copied().collect::<Vec<u8>>();
        queue.push(b"first\n", MAX_BYTES);
        // The writer holds the first line, so that all drops are in the second batch.
        while !queue.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        // Far more than there is room for, while nothing can be written.
        for _ in 0..4096 {
            queue.push(&line, MAX_LOG_BYTES);
        }
        assert!(queue.lock().waiting.len() <= MAX_LOG_BYTES);
        queue.push(b"a message\n", MAX_BYTES);
        let mut text = Vec::new();
        while !text.ends_with(b"stderr was full\n") {
            open.send(()).unwrap();
            text.extend(received.recv().unwrap());
        }
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("first\n") && text.contains("\na message\n"), "a message has room");
        let kept = text.lines().filter(|line| line.starts_with('x')).count();
        let report = text.lines().last().unwrap();
        assert!(report.contains(&format!(" toolbay: {} lines were dropped", 4096 - kept)), "{kept} {report}");
    }

    #[test]
    fn a_flush_waits_for_a_slow_reader_and_gives_up_without_one() {
        let (queue, open, received) = gated();
        queue.push(b"a\n", MAX_BYTES);
        let start = Instant::now();
        queue.flush();
        assert!(start.elapsed() >= PATIENCE);
        // A reader that stands still is not waited for again.
        queue.push(b"b\n", MAX_BYTES);
        queue.flush();
        (0..2).for_each(|_| open.send(()).unwrap());
        assert_eq!(received.recv().unwrap(), b"a\n");
        assert_eq!(received.recv().unwrap(), b"b\n");
        queue.push(b"c\n", MAX_BYTES);
        let reader = std::thread::spawn(move || {
            open.send(()).unwrap();
            received.recv().unwrap()
        });
        queue.flush();
        assert_eq!(reader.join().unwrap(), b"c\n");
    }

    #[test]
    fn failed_writes_are_counted_and_a_closed_stderr_closes_the_queue() {
        let (written, received) = channel();
        let mut left = [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::StorageFull].into_iter();
        let queue = StderrQueue::start(move |bytes| match left.next() {
            Some(kind) => Err(kind.into()),
            None => {
                written.send(String::from_utf8(bytes.to_vec()).unwrap()).unwrap();
                Ok(bytes.len())
            }
        });
        queue.push(b"lost\nlost\n", MAX_BYTES);
        assert!(received.recv().unwrap().contains("2 lines were dropped"));
        let (queue, open, _received) = gated();
        drop(open);
        queue.push(b"a\n", MAX_BYTES);
        queue.flush();
        assert!(queue.lock().closed);
        queue.push(b"b\n", MAX_BYTES);
        assert!(queue.lock().waiting.is_empty());
    }
}
