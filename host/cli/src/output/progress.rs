//! Progress of compiling plugins, which happens once for each component and machine.
//!
//! A terminal shows one line that is updated in place. Elsewhere there is one line at the start and one at the end, and
//! only if compiling takes a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use toolbay::{LoadEvent, LoadListener};

use crate::output::format::{self, count_noun};
use crate::output::{self, SUCCESS, stderr};

/// Shorter compilations are not worth a line that stays.
const NOTICEABLE: Duration = Duration::from_secs(1);
/// The delay before a pipe gets the line that compiling has started.
const PIPE_DELAY: Duration = Duration::from_secs(2);
/// Width of the bar, in characters.
const BAR: usize = 12;

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
pub(crate) fn load_listener() -> LoadListener {
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
                        report_later(&session);
                    }
                }
            }
            LoadEvent::Compiled { plugin, .. } => {
                state.done += 1;
                state.running.retain(|(name, _)| name != plugin.as_str());
            }
        }
        if state.running.is_empty() {
            report_end(&std::mem::take(&mut *state), terminal);
        } else if terminal {
            stderr::write_progress(&output::style_for_stderr(&state.line()));
        }
    })
}

impl CompileSession {
    /// `Compiling 12 plugins [======>     ] 7/12 script (4.6 MB)`.
    fn line(&self) -> String {
        let Self { started, done, .. } = self;
        let filled = (done * BAR).checked_div(*started).unwrap_or(0).min(BAR);
        let arrow = if filled < BAR { ">" } else { "" };
        let bar = format!("{}{arrow}", "=".repeat(filled));
        let current = self.running.first().map(|(name, bytes)| format!(" {name} ({})", format::size(*bytes)));
        let plugins = count_noun(*started, "plugin", "plugins");
        format!(
            "   {SUCCESS}Compiling{SUCCESS:#} {plugins} [{bar:BAR$}] {done}/{started}{}",
            current.unwrap_or_default()
        )
    }
}

fn report_end(session: &CompileSession, terminal: bool) {
    stderr::clear_progress();
    let elapsed = session.start.map(|start| start.elapsed()).unwrap_or_default();
    let plugins = count_noun(session.done, "plugin", "plugins");
    let text = format!("{plugins} in {}", format::time(elapsed));
    if terminal && elapsed >= NOTICEABLE {
        stderr::write_message(&output::style_for_stderr(&format!("    {SUCCESS}Compiled{SUCCESS:#} {text}")));
    } else if !terminal && elapsed >= PIPE_DELAY {
        output::print_note(&format!("compiled {text}"));
    }
}

/// Reports that compiling still runs if it has not ended after a while. Then the thread ends.
fn report_later(session: &Arc<Mutex<CompileSession>>) {
    let session = Arc::clone(session);
    std::thread::spawn(move || {
        std::thread::sleep(PIPE_DELAY);
        let state = session.lock();
        // A later load may have started meanwhile; it has a thread of its own.
        if state.start.is_some_and(|start| start.elapsed() >= PIPE_DELAY) {
            output::print_note(&format!("compiling {}", count_noun(state.started, "plugin", "plugins")));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_counts_what_is_done() {
        let running = vec![("script".to_owned(), 4_600_000)];
        let session = CompileSession { start: None, started: 12, done: 7, running };
        let line = anstream::adapter::strip_str(&session.line()).to_string();
        assert_eq!(line, "   Compiling 12 plugins [=======>    ] 7/12 script (4.6 MB)");
    }
}
