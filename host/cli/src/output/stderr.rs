//! What this process says on stderr: a bounded queue, and the one thread that writes it.
//!
//! A pipe that nobody reads and a terminal that is stopped block every write to them. Therefore nothing else in this
//! process writes to stderr: messages, the log, panics and the errors of the command line are put into the queue, which
//! never blocks. Lines for which there is no room are dropped and counted, and the count is written once there is room.
//!
//! A command waits after each message until it is written, so that stdout and stderr keep their order on a terminal; a
//! server ([`serve`]) waits for nothing. Both waits end when nothing could be written for [`PATIENCE`].

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex, MutexGuard};
use toolbay_core::audit::timestamp;
use tracing_subscriber::fmt::MakeWriter;

/// Most bytes that wait: a second of a flood, and little beside what the host holds anyway.
const MAX_BYTES: usize = 1 << 20;
/// Most bytes that the log may fill. The rest is kept for messages: a flood of log lines does not hide them.
const MAX_LOG_BYTES: usize = MAX_BYTES / 4 * 3;
/// How long a wait goes on while nothing can be written.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a wait goes on at most, however slowly stderr is read.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// When a write that would block is tried again.
const RETRY: Duration = Duration::from_millis(20);
/// How long nothing is written after a write failed.
const PAUSE: Duration = Duration::from_secs(1);

static STDERR: OnceLock<Arc<StderrQueue>> = OnceLock::new();
static SERVING: AtomicBool = AtomicBool::new(false);

fn queue() -> &'static StderrQueue {
    // Not through the standard library's handle: its lock would be held for as long as a write blocks.
    STDERR
        .get_or_init(|| StderrQueue::start(|bytes| Ok(rustix::io::write(std::io::stderr().as_fd(), bytes)?)))
}

/// From now on messages carry the time, and nothing waits until they are written.
pub(crate) fn serve() {
    SERVING.store(true, Ordering::Relaxed);
}

/// Writes a message, a line or several.
pub(crate) fn message(text: &str) {
    if SERVING.load(Ordering::Relaxed) {
        queue().push(format!("{} {text}\n", now()).as_bytes(), MAX_BYTES);
    } else {
        prompt(&format!("{text}\n"));
    }
}

/// Writes a text as it is and waits until it is written.
pub(crate) fn prompt(text: &str) {
    queue().push(text.as_bytes(), MAX_BYTES);
    queue().flush();
}

/// Where the log goes.
pub(crate) fn log_writer() -> impl for<'a> MakeWriter<'a> + Send + Sync + 'static {
    || LogWriter
}

/// Has panics written through the queue, with a backtrace if the environment asks for one.
pub(crate) fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let mut text = format!("thread `{}` {panic}\n", thread.name().unwrap_or("unnamed"));
        let trace = std::backtrace::Backtrace::capture();
        if trace.status() == std::backtrace::BacktraceStatus::Captured {
            text = format!("{text}{trace}\n");
        }
        queue().push(text.as_bytes(), MAX_BYTES);
    }));
}

/// Writes what still waits when it is dropped: make it first, so that it is dropped last.
#[derive(Debug)]
pub(crate) struct FlushGuard;

impl Drop for FlushGuard {
    fn drop(&mut self) {
        // What was never used has no thread, and needs none now.
        if let Some(queue) = STDERR.get() {
            queue.flush();
        }
    }
}

fn now() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    timestamp::rfc3339(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// One line of the log: the subscriber formats it whole and writes it once.
#[derive(Debug)]
struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        queue().push(line, MAX_LOG_BYTES);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lines on their way out.
#[derive(Debug, Default)]
struct StderrQueue {
    state: Mutex<QueueState>,
    /// Something was queued.
    queued: Condvar,
    /// Something was written.
    written: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Whole lines, one after the other.
    waiting: Vec<u8>,
    /// Lines that were dropped and not reported yet.
    dropped: u64,
    /// Bytes that were ever taken in, and of these the ones that are dealt with.
    bytes_queued: u64,
    bytes_done: u64,
    /// What was written when a wait ended in vain: as long as it stays the same, no other wait begins.
    stalled_at: Option<u64>,
    /// Nobody will ever read: nothing is queued any more.
    closed: bool,
}

impl StderrQueue {
    /// A queue with a thread that writes it.
    fn start(write: impl FnMut(&[u8]) -> io::Result<usize> + Send + 'static) -> Arc<Self> {
        let queue = Arc::new(Self::default());
        let writer = Arc::clone(&queue);
        // Ends with the process. Nothing else in the process writes to stderr.
        let begun = std::thread::Builder::new().name("toolbay-stderr".to_owned()).spawn(move || {
            let mut write = write;
            while let Some((lines, reported)) = writer.next() {
                let lost = writer.write_all(&lines, &mut write);
                writer.lock().settle(reported, lost);
            }
        });
        if begun.is_err() {
            // A process that can start no thread serves nobody; its exit code tells.
            queue.lock().closed = true;
        }
        queue
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }

    /// Queues a line if at most so many bytes wait then. An empty queue takes a line of any length.
    fn push(&self, line: &[u8], room: usize) {
        let mut state = self.lock();
        if state.closed {
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

    /// All that waits, and how many dropped lines its last line reports; `None` once the queue is closed.
    fn next(&self) -> Option<(Vec<u8>, u64)> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let dropped = state.dropped;
            if dropped > 0 {
                let line = format!("{} toolbay: {dropped} lines were dropped: stderr was full\n", now());
                state.queue(line.as_bytes());
            }
            if !state.waiting.is_empty() {
                return Some((std::mem::take(&mut state.waiting), dropped));
            }
            self.queued.wait(&mut state);
        }
    }

    /// Writes lines, however long it takes; returns how many could not be written.
    fn write_all(&self, mut lines: &[u8], write: &mut impl FnMut(&[u8]) -> io::Result<usize>) -> u64 {
        let mut lost = 0;
        while !lines.is_empty() {
            let done = match write(lines) {
                Ok(written @ 1..) => written,
                // As a parent may have set it; the other end may read later.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(RETRY);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::BrokenPipe || is_no_file(&error) => {
                    self.lock().closed = true;
                    self.written.notify_all();
                    return lost;
                }
                // A file on a full disk, for instance.
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

    /// Waits until what is queued now is written, as long as something moves.
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
    /// Takes note of lines that were written: the last one reported dropped ones, unless some were lost on the way.
    fn settle(&mut self, reported: u64, lost: u64) {
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

/// Whether the process was started without stderr.
fn is_no_file(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::BADF.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A queue whose writes wait for a word each, and what they wrote.
    fn gated() -> (Arc<StderrQueue>, Sender<()>, Receiver<Vec<u8>>) {
        let (open, gate) = channel::<()>();
        let (tell, told) = channel();
        let queue = StderrQueue::start(move |bytes| {
            gate.recv().map_err(|_| io::Error::from(ErrorKind::BrokenPipe))?;
            tell.send(bytes.to_vec()).ok();
            Ok(bytes.len())
        });
        (queue, open, told)
    }

    #[test]
    fn nobody_waits_for_a_reader_and_what_is_dropped_is_counted() {
        let (queue, open, told) = gated();
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
            text.extend(told.recv().unwrap());
        }
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("first\n") && text.contains("\na message\n"), "a message has room");
        let kept = text.lines().filter(|line| line.starts_with('x')).count();
        let report = text.lines().last().unwrap();
        assert!(report.contains(&format!(" toolbay: {} lines were dropped", 4096 - kept)), "{kept} {report}");
    }

    #[test]
    fn a_flush_waits_for_a_reader_and_not_for_none() {
        let (queue, open, told) = gated();
        queue.push(b"a\n", MAX_BYTES);
        let begun = Instant::now();
        queue.flush();
        assert!(begun.elapsed() >= PATIENCE);
        // What stands still is not waited for again.
        queue.push(b"b\n", MAX_BYTES);
        queue.flush();
        (0..2).for_each(|_| open.send(()).unwrap());
        assert_eq!(told.recv().unwrap(), b"a\n");
        assert_eq!(told.recv().unwrap(), b"b\n");
        queue.push(b"c\n", MAX_BYTES);
        let reader = std::thread::spawn(move || {
            open.send(()).unwrap();
            told.recv().unwrap()
        });
        queue.flush();
        assert_eq!(reader.join().unwrap(), b"c\n");
    }

    #[test]
    fn what_can_not_be_written_is_counted_and_a_closed_end_ends_it() {
        let (tell, told) = channel();
        let mut left = [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::StorageFull].into_iter();
        let queue = StderrQueue::start(move |bytes| match left.next() {
            Some(kind) => Err(kind.into()),
            None => {
                tell.send(String::from_utf8(bytes.to_vec()).unwrap()).unwrap();
                Ok(bytes.len())
            }
        });
        queue.push(b"lost\nlost\n", MAX_BYTES);
        assert!(told.recv().unwrap().contains("2 lines were dropped"));
        let (queue, open, _told) = gated();
        drop(open);
        queue.push(b"a\n", MAX_BYTES);
        queue.flush();
        assert!(queue.lock().closed);
        queue.push(b"b\n", MAX_BYTES);
        assert!(queue.lock().waiting.is_empty());
    }
}
