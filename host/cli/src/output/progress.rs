//! Progress of long work: of compiling plugins, which happens once for each component and machine, and of calls.
//!
//! A terminal shows one line that is updated in place. Elsewhere compiling has one line at the start and one at the end,
//! and only if it takes a while; a call has none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use toolbay::{LoadEvent, LoadListener};
use toolbay_core::call::{ProgressAudience, ProgressEvent, ProgressSink};
use toolbay_policy::excerpt::one_line;

use crate::output::format::{self, count_noun};
use crate::output::table::cut;
use crate::output::{self, Printer, SUCCESS, stderr};

/// Shorter compilations are not worth a line that stays.
const NOTICEABLE: Duration = Duration::from_secs(1);
/// The delay before a pipe gets the line that compiling has started.
const PIPE_DELAY: Duration = Duration::from_secs(2);
/// Columns of the verb that begins a line.
const VERB: usize = 12;
/// Width of the bar, in characters.
const BAR: usize = 12;
/// Least time between two updates of the line: a tool may report faster than people read.
const UPDATE_INTERVAL: Duration = Duration::from_millis(50);
/// Most characters of a tool's message.
const MAX_MESSAGE: usize = 500;

/// The compilations that belong to one load.
#[derive(Debug, Default)]
struct CompileSession {
    /// When the first one started; `None`: none runs.
    start: Option<Instant>,
    started: usize,
    done: usize,
    /// Those that run, with their sizes.
    running: Vec<(String, u64)>,
}

/// Reports the progress of compiling on stderr.
pub(crate) fn load_listener(printer: Printer) -> LoadListener {
    let session = Arc::new(Mutex::new(CompileSession::default()));
    let terminal = output::stderr_is_terminal();
    Arc::new(move |event| {
        let mut state = session.lock();
        match event {
            LoadEvent::Compiling { plugin, bytes } => {
                state.started += 1;
                state.running.push((plugin.to_string(), bytes));
                if state.start.is_none() {
                    state.start = Some(Instant::now());
                    if !terminal {
                        report_later(printer, &session);
                    }
                }
            }
            LoadEvent::Compiled { plugin, .. } => {
                state.done += 1;
                state.running.retain(|(name, _)| name != plugin.as_str());
            }
        }
        if state.running.is_empty() {
            report_end(printer, &std::mem::take(&mut *state), terminal);
        } else if terminal {
            stderr::write_progress(&output::style_for_stderr(&line("Compiling", &state.text())));
        }
    })
}

impl CompileSession {
    /// `Compiling 12 plugins [======>     ] 7/12 script (4.6 MB)`.
    fn text(&self) -> String {
        let Self { started, done, .. } = self;
        let filled = (done * BAR).checked_div(*started).unwrap_or(0).min(BAR);
        let arrow = if filled < BAR { ">" } else { "" };
        let bar = format!("{}{arrow}", "=".repeat(filled));
        let current = self.running.first().map(|(name, bytes)| format!(" {name} ({})", format::size(*bytes)));
        let plugins = count_noun(*started, "plugin", "plugins");
        format!("{plugins} [{bar:BAR$}] {done}/{started}{}", current.unwrap_or_default())
    }
}

/// What happens, and to what: `     Running 40 % fetch: page 4 of 10`.
fn line(verb: &str, text: &str) -> String {
    format!("{SUCCESS}{verb:>VERB$}{SUCCESS:#} {text}")
}

/// A line that is updated in place, on a terminal.
#[derive(Debug)]
struct ProgressLine {
    /// Columns of the terminal. A longer line could not be cleared.
    width: usize,
    /// When the line was last written.
    updated: Mutex<Option<Instant>>,
}

impl ProgressLine {
    /// `None`: stderr is not a terminal.
    fn new() -> Option<Self> {
        Some(Self { width: output::stderr_width()?, updated: Mutex::new(None) })
    }

    /// Shows a text, unless the line was just updated.
    fn show(&self, verb: &str, text: &str) {
        let mut updated = self.updated.lock();
        if updated.is_none_or(|updated| updated.elapsed() >= UPDATE_INTERVAL) {
            *updated = Some(Instant::now());
            stderr::write_progress(&output::style_for_stderr(&self.fit(verb, text)));
        }
    }

    fn fit(&self, verb: &str, text: &str) -> String {
        // One column for the space, and the last one stays free: a full line may wrap.
        line(verb, &cut(text, self.width.saturating_sub(VERB + 2)))
    }
}

/// Shows the progress of calls on a terminal; `None`: stderr is not a terminal.
pub(crate) fn call_progress() -> Option<Arc<dyn ProgressSink>> {
    Some(Arc::new(CallProgress(ProgressLine::new()?)))
}

/// The line of a call.
#[derive(Debug)]
struct CallProgress(ProgressLine);

impl ProgressSink for CallProgress {
    fn progress(&self, event: ProgressEvent) {
        if event.audience == ProgressAudience::User {
            self.0.show("Running", &call_text(&event));
        }
    }
}

/// `40 % fetch: page 4 of 10`, where the text is the guest's.
fn call_text(event: &ProgressEvent) -> String {
    let percent =
        event.percent.filter(|percent| percent.is_finite()).map(|percent| percent.clamp(0.0, 100.0));
    let percent = percent.map_or_else(String::new, |percent| format!("{percent:.0} % "));
    format!("{percent}{}: {}", event.tool, one_line(&event.message, MAX_MESSAGE))
}

/// The progress of a transfer, on a terminal. Dropping it clears the line.
#[derive(Debug)]
pub(crate) struct TransferProgress {
    name: String,
    size: u64,
    /// `None`: stderr is not a terminal.
    line: Option<ProgressLine>,
}

impl TransferProgress {
    /// The transfer of `size` bytes.
    pub(crate) fn new(name: &str, size: u64) -> Self {
        Self { name: name.to_owned(), size, line: ProgressLine::new() }
    }

    /// Shows that `done` bytes came.
    pub(crate) fn update(&self, done: u64) {
        if let Some(line) = &self.line {
            let sizes = format!("{} of {}", format::size(done), format::size(self.size));
            line.show("Downloading", &format!("{}: {sizes}", self.name));
        }
    }
}

impl Drop for TransferProgress {
    fn drop(&mut self) {
        if self.line.is_some() {
            stderr::clear_progress();
        }
    }
}

fn report_end(printer: Printer, session: &CompileSession, terminal: bool) {
    stderr::clear_progress();
    let elapsed = session.start.map(|start| start.elapsed()).unwrap_or_default();
    let plugins = count_noun(session.done, "plugin", "plugins");
    let text = format!("{plugins} in {}", format::time(elapsed));
    if terminal && elapsed >= NOTICEABLE {
        printer.line(&output::style_for_stderr(&line("Compiled", &text)));
    } else if !terminal && elapsed >= PIPE_DELAY {
        printer.note(&format!("compiled {text}"));
    }
}

/// Reports that compiling still runs if it has not ended after a while. Then the thread ends.
fn report_later(printer: Printer, session: &Arc<Mutex<CompileSession>>) {
    let session = Arc::clone(session);
    let spawned = std::thread::Builder::new().name("toolbay-progress".to_owned()).spawn(move || {
        std::thread::sleep(PIPE_DELAY);
        let state = session.lock();
        // A later load may have started meanwhile; it has a thread of its own.
        if state.start.is_some_and(|start| start.elapsed() >= PIPE_DELAY) {
            printer.note(&format!("compiling {}", count_noun(state.started, "plugin", "plugins")));
        }
    });
    if let Err(error) = spawned {
        // Loading continues without this line.
        tracing::debug!(%error, "no thread reports that compiling still runs");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_call_fits_and_is_clean() {
        let event = |message: &str, percent| ProgressEvent {
            call_id: "1".into(),
            tool: "a__fetch".into(),
            message: message.to_owned(),
            percent,
            audience: ProgressAudience::User,
        };
        let line = |event, width| {
            let line = ProgressLine { width, updated: Mutex::new(None) };
            anstream::adapter::strip_str(&line.fit("Running", &call_text(&event))).to_string()
        };
        assert_eq!(line(event("page 4 of 10", Some(40.0)), 80), "     Running 40 % a__fetch: page 4 of 10");
        assert_eq!(line(event("page 4 of 10", None), 30), "     Running a__fetch: page…");
        let hostile = line(event("a\n\u{1b}[2J\u{202e}b", Some(f32::NAN)), 80);
        assert!(!hostile.contains(['\n', '\u{1b}', '\u{202e}', '%']), "{hostile:?}");
        assert!(line(event(&"x".repeat(5000), Some(1e9)), 60).chars().count() < 60);
    }

    #[test]
    fn the_line_counts_what_is_done() {
        let running = vec![("script".to_owned(), 4_600_000)];
        let session = CompileSession { start: None, started: 12, done: 7, running };
        let line = anstream::adapter::strip_str(&line("Compiling", &session.text())).to_string();
        assert_eq!(line, "   Compiling 12 plugins [=======>    ] 7/12 script (4.6 MB)");
    }
}
