//! One guest entry: a fresh store, every bound set, one run, the store dropped. The only place where guest code runs.

use std::time::Instant;

use tokio_util::sync::CancellationToken;
use toolbay_core::fault::{Fault, FaultKind};
use toolbay_core::limits::{Limit, Limits, Usage};
use toolbay_core::name::PluginId;
use toolbay_core::text::one_line;
use wasmtime::{Store, Trap, UpdateDeadline};
use wasmtime_wasi::{I32Exit, ResourceTableError};

use crate::engine::Engine;
use crate::state::GuestState;
use crate::stdio::Sink;

/// Most characters of a guest's last words in a fault.
const LAST_WORDS: usize = 400;
/// Most lines of a guest's output in the log.
const MAX_LINES: usize = 200;
/// Longest line of a guest's output in the log, in characters.
const MAX_LINE: usize = 2000;

/// What an entry runs under.
pub(crate) struct Bounds<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) plugin: &'a PluginId,
    pub(crate) limits: &'a Limits,
    pub(crate) cancel: &'a CancellationToken,
}

/// Ends a guest whose time is up; put into the guest by the epoch callback.
#[derive(Debug, thiserror::Error)]
#[error("deadline")]
struct DeadlinePassed;

impl Bounds<'_> {
    /// Runs `run` on a fresh store. Whatever the guest does, this comes back within the time-out.
    pub(crate) async fn enter<R>(
        &self,
        state: GuestState,
        run: impl AsyncFnOnce(&mut Store<GuestState>) -> wasmtime::Result<R>,
    ) -> (Result<R, Fault>, Usage) {
        let start = Instant::now();
        let mut store = match self.store(state) {
            Ok(store) => store,
            Err(error) => return (Err(Fault::new(FaultKind::Trap, error.to_string())), Usage::default()),
        };
        let done = tokio::select! {
            biased;
            done = tokio::time::timeout(self.limits.timeout, run(&mut store)) => done,
            () = self.cancel.cancelled() => {
                let cancelled = Fault::new(FaultKind::Cancelled, "the call was cancelled");
                return (Err(cancelled), self.usage(&store, start));
            }
        };
        let usage = self.usage(&store, start);
        let state = store.data();
        self.log_output("stdout", &state.stdout);
        self.log_output("stderr", &state.stderr);
        let result = match done {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.fault(&error, state)),
            Err(_elapsed) => Err(self.deadline()),
        };
        (result, usage)
    }

    fn store(&self, state: GuestState) -> wasmtime::Result<Store<GuestState>> {
        let mut store = Store::new(&self.engine.wasmtime, state);
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(usize::try_from(self.limits.host_call_bytes).unwrap_or(usize::MAX));
        store.set_fuel(self.limits.fuel)?;
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|store| {
            if Instant::now() >= store.data().deadline {
                return Err(wasmtime::Error::from(DeadlinePassed));
            }
            Ok(UpdateDeadline::Yield(1))
        });
        Ok(store)
    }

    fn usage(&self, store: &Store<GuestState>, start: Instant) -> Usage {
        Usage {
            fuel: self.limits.fuel.saturating_sub(store.get_fuel().unwrap_or(0)),
            wall_us: u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
            peak_memory_bytes: store.data().limiter.peak_memory(),
            ..Usage::default()
        }
    }

    fn deadline(&self) -> Fault {
        self.by(FaultKind::Deadline, "the time was up", Limit::Timeout)
    }

    fn by(&self, kind: FaultKind, what: &str, limit: Limit) -> Fault {
        Fault::by_limit(kind, &format!("`{}`: {what}", self.plugin), self.limits.hit(limit, self.plugin))
    }

    /// Tells what ended a guest. The limits come first: a guest that was refused memory dies of something else.
    fn fault(&self, error: &wasmtime::Error, state: &GuestState) -> Fault {
        if error.downcast_ref::<DeadlinePassed>().is_some() {
            return self.deadline();
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => {
                return self.by(FaultKind::OutOfFuel, "the fuel was used up", Limit::Fuel);
            }
            Some(Trap::Interrupt) => return self.deadline(),
            _ => {}
        }
        if let Some(limit) = state.limiter.refused() {
            return self.by(FaultKind::OutOfMemory, "the memory it asked for was refused", limit);
        }
        if matches!(error.downcast_ref::<ResourceTableError>(), Some(ResourceTableError::Full)) {
            return self.by(FaultKind::OutOfMemory, "it opened too many handles", Limit::Handles);
        }
        if error.downcast_ref::<wasmtime::PoolConcurrencyLimitError>().is_some() {
            return Fault::new(FaultKind::Busy, "busy: the instance pool is full; try again later");
        }
        let cause = error.root_cause().to_string();
        // wasmtime keeps this error's type to itself.
        if cause.contains("fuel allocated for hostcalls has been exhausted") {
            return self.by(
                FaultKind::OutputTooLarge,
                "more data than may cross at once from it to the host",
                Limit::HostCallBytes,
            );
        }
        if cause.contains("handle limit exceeded") {
            return self.by(FaultKind::OutOfMemory, "it opened too many handles", Limit::Handles);
        }
        if let Some(limit) = count_limit(&cause) {
            return self.by(FaultKind::OutOfMemory, "it has too many parts", limit);
        }
        let what = match error.downcast_ref::<I32Exit>() {
            Some(exit) => format!("ended itself with exit status {}", exit.0),
            None => format!("trapped: {}", one_line(&cause, LAST_WORDS)),
        };
        Fault::new(FaultKind::Trap, format!("`{}` {what}{}", self.plugin, last_words(&state.stderr)))
    }

    fn log_output(&self, stream: &str, sink: &Sink) {
        let (text, dropped) = sink.read();
        let plugin = self.plugin;
        for line in text.lines().take(MAX_LINES) {
            tracing::info!(target: "toolbay::guest", %plugin, stream, "{}", one_line(line, MAX_LINE));
        }
        if dropped > 0 {
            tracing::warn!(target: "toolbay::guest", %plugin, stream, dropped, "more output than `stdio_bytes` keeps");
        }
    }
}

/// The limit behind wasmtime's refusal to make one more of something.
fn count_limit(cause: &str) -> Option<Limit> {
    if !cause.contains("count too high") {
        return None;
    }
    [("instance", Limit::Instances), ("memory", Limit::Memories), ("table", Limit::Tables)]
        .into_iter()
        .find_map(|(word, limit)| cause.contains(word).then_some(limit))
}

/// The last line a guest wrote to stderr: a panic's message, a traceback's end.
fn last_words(stderr: &Sink) -> String {
    let (text, _) = stderr.read();
    let tail: Vec<_> =
        text.lines().rev().filter(|l| !l.trim().is_empty() && !l.starts_with("note: ")).take(2).collect();
    let tail: Vec<_> = tail.into_iter().rev().collect();
    if tail.is_empty() {
        String::new()
    } else {
        format!("; its last words: {}", one_line(&tail.join(" "), LAST_WORDS))
    }
}
