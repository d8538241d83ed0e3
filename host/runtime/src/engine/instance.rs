//! One guest entry: a fresh store, every bound set, one run, the store dropped. The only place where guest code runs. The
//! store of an instance that is used again ([`crate::engine::warm`]) has every bound set anew.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use tokio_util::sync::CancellationToken;
use toolbay_core::call::fault::{Fault, FaultKind};
use toolbay_core::call::invoke::Failure;
use toolbay_policy::limits::{Limit, Limits, Usage};
use toolbay_policy::name::PluginId;
use toolbay_policy::text::one_line;
use wasmtime::{Store, Trap, UpdateDeadline};
use wasmtime_wasi::{I32Exit, ResourceTableError};

use crate::engine::Engine;
use crate::engine::limiter::Refused;
use crate::engine::shortage;
use crate::engine::state::{GuestState, TooMuch};
use crate::engine::stdio::Sink;
use crate::engine::turn::Turn;

/// Most characters of a guest's last words in a fault.
const LAST_WORDS: usize = 400;
/// Most lines of a guest's output in the log.
const MAX_LINES: usize = 200;
/// Longest line of a guest's output in the log, in characters.
const MAX_LINE: usize = 2000;

/// For each handle of the host that a guest may have open, so many of its own: of resources that its parts make for one
/// another, which cost sixteen bytes each.
const OWN_HANDLES: usize = 40;

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

/// A guest that runs. Whoever drops it before it has ended is told by the call what it had used.
struct Running<'a> {
    store: &'a mut Store<GuestState>,
    limits: &'a Limits,
    ended: bool,
}

impl Running<'_> {
    fn usage(&self) -> Usage {
        Usage {
            fuel: self.limits.fuel.map(|most| most.saturating_sub(self.store.get_fuel().unwrap_or(0))),
            wall_us: u64::try_from(self.store.data().began.elapsed().as_micros()).unwrap_or(u64::MAX),
            peak_memory_bytes: self.store.data().limiter.peak_memory(),
            ..Usage::default()
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let capabilities = &self.store.data().capabilities;
        if capabilities.log.dropped > 0 {
            let (plugin, dropped) = (&capabilities.who.plugin, capabilities.log.dropped);
            tracing::warn!(target: "toolbay::guest", %plugin, dropped, "more lines than `log_lines` and `log_rate` allow");
        }
        if let Some(ctx) = capabilities.who.ctx.as_ref().filter(|_| !self.ended) {
            let Usage { fuel, wall_us, peak_memory_bytes, .. } = self.usage();
            ctx.spend(|spent| *spent = Usage { fuel, wall_us, peak_memory_bytes, ..*spent });
        }
    }
}

impl Bounds<'_> {
    /// Runs `run` on a fresh store. Whatever the guest does, this comes back within the time-out.
    ///
    /// The store is made before the future is: it has no room for the state, and none of those around it.
    pub(crate) fn enter<R>(
        &self,
        state: GuestState,
        run: impl AsyncFnOnce(&mut Store<GuestState>) -> wasmtime::Result<R>,
    ) -> impl Future<Output = (Result<R, Failure>, Usage)> {
        let mut store = self.store(state);
        async move { self.enter_store(&mut store, run).await }
    }

    /// A store without an instance.
    pub(crate) fn store(&self, state: GuestState) -> Store<GuestState> {
        Store::new(&self.engine.wasmtime, state)
    }

    /// The same in a store of the caller's: a new one, or one in which an entry has ended well and whose state is a new one.
    /// One in which an entry has not ended well is never entered again.
    pub(crate) async fn enter_store<R>(
        &self,
        store: &mut Store<GuestState>,
        run: impl AsyncFnOnce(&mut Store<GuestState>) -> wasmtime::Result<R>,
    ) -> (Result<R, Failure>, Usage) {
        let turn = Turn::new(self.engine.turns());
        if let Err(error) = self.bound(store, &turn) {
            return (Err(Failure::Host(error.to_string())), Usage::default());
        }
        let deadline = store.data().deadline;
        let mut running = Running { store, limits: self.limits, ended: false };
        let done = {
            // Where they stand they stay: handed over, each would have its room twice.
            let guest = pin!(run(running.store));
            let guest = pin!(turn.run(guest));
            self.until(deadline, guest).await
        };
        running.ended = true;
        let usage = running.usage();
        let state = running.store.data();
        for (stream, sink) in state.output().into_iter().flatten() {
            self.log_output(stream, sink, state);
        }
        let result = match done {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.failure(&error, state)),
            Err(ended) => Err(ended.into()),
        };
        (result, usage)
    }

    /// Runs a guest until its time is up or the call is cancelled.
    async fn until<F: Future>(&self, deadline: Instant, mut guest: Pin<&mut F>) -> Result<F::Output, Fault> {
        // Most calls end before they wait for anything: they need no timer, and nobody to listen for them.
        if let Poll::Ready(done) = futures_util::poll!(guest.as_mut()) {
            return Ok(done);
        }
        tokio::select! {
            biased;
            done = tokio::time::timeout_at(deadline.into(), guest) => done.map_err(|_elapsed| self.deadline()),
            () = self.cancel.cancelled() => Err(Fault::new(FaultKind::Cancelled, "the call was cancelled")),
        }
    }

    /// Sets every bound of an entry.
    fn bound(&self, store: &mut Store<GuestState>, turn: &Arc<Turn>) -> wasmtime::Result<()> {
        store.data_mut().limiter.draw_on(&self.engine.memory);
        store.limiter(|state| &mut state.limiter);
        store.set_max_component_handles(self.limits.handles.saturating_mul(OWN_HANDLES));
        store.set_hostcall_fuel(usize::try_from(self.limits.host_call_bytes).unwrap_or(usize::MAX));
        // Where limits and engine do not fit, nothing runs: there is no fuel to be set, or none is there.
        if let Some(fuel) = self.limits.fuel {
            store.set_fuel(fuel)?;
        }
        // A whole slice, and what was left of the one in which it begins: most calls end in it and never give way.
        store.set_epoch_deadline(2);
        let turn = Arc::clone(turn);
        store.epoch_deadline_callback(move |store| {
            if Instant::now() >= store.data().deadline {
                return Err(wasmtime::Error::from(DeadlinePassed));
            }
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(Arc::clone(&turn).rest())))
        });
        Ok(())
    }

    fn deadline(&self) -> Fault {
        self.by(FaultKind::Deadline, "the time was up", Limit::Timeout)
    }

    fn by(&self, kind: FaultKind, what: &str, limit: Limit) -> Fault {
        Fault::by_limit(kind, &format!("`{}`: {what}", self.plugin), self.limits.hit(limit, self.plugin))
    }

    /// Says what ended a guest. What the host lacked is not the guest's fault, whatever the guest died of.
    fn failure(&self, error: &wasmtime::Error, state: &GuestState) -> Failure {
        if let Some(lacked) = shortage::of_error(error) {
            return self.host_lacks(&lacked);
        }
        if let Some(refused) = state.limiter.refused().filter(|_| may_be_for_want_of_memory(error)) {
            return match refused {
                Refused::System(reason) => self.host_lacks(reason),
                Refused::Budget(bytes) => {
                    let what = format!("the memory that `{}` asked for is not left", self.plugin);
                    self.engine.memory.exhausted(&what, *bytes).into()
                }
                Refused::Limit(limit) => {
                    self.by(FaultKind::OutOfMemory, "the memory it asked for was refused", *limit).into()
                }
            };
        }
        let fault = self.fault(error, state);
        match shortage::now().filter(|_| fault.kind == FaultKind::Trap) {
            Some(lacks) => self.host_lacks(&format!("no {lacks} are left")),
            None => fault.into(),
        }
    }

    fn host_lacks(&self, what: &str) -> Failure {
        tracing::error!(plugin = %self.plugin, what, "the host lacks what a call needs");
        Failure::Host(format!("`{}` could not run: {}", self.plugin, one_line(what, LAST_WORDS)))
    }

    /// Says what a guest did that ended it.
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
        if matches!(error.downcast_ref::<ResourceTableError>(), Some(ResourceTableError::Full)) {
            return self.by(FaultKind::OutOfMemory, "it opened too many handles", Limit::Handles);
        }
        if error.downcast_ref::<wasmtime::PoolConcurrencyLimitError>().is_some() {
            return Fault::new(FaultKind::Busy, "busy: the instance pool is full; try again later");
        }
        let cause = error.root_cause().to_string();
        // wasmtime keeps the other error's type to itself.
        if error.downcast_ref::<TooMuch>().is_some()
            || cause.contains("fuel allocated for hostcalls has been exhausted")
        {
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
        Fault::new(FaultKind::Trap, format!("`{}` {what}{}", self.plugin, last_words(state)))
    }

    fn log_output(&self, stream: &str, sink: &Sink, state: &GuestState) {
        let (text, dropped) = sink.read();
        // Before it is cut into lines: a value may have several.
        let text = state.capabilities.redacted(&text);
        let plugin = self.plugin;
        for line in text.lines().take(MAX_LINES) {
            tracing::info!(target: "toolbay::guest", %plugin, stream, "{}", one_line(line, MAX_LINE));
        }
        if dropped > 0 {
            tracing::warn!(target: "toolbay::guest", %plugin, stream, dropped, "more output than `stdio_bytes` keeps");
        }
    }
}

/// The fault of an entry that is no call. The host's own failures are `busy` there: to ask again later may help, and no one
/// counts them.
pub(crate) fn as_fault(failure: Failure) -> Fault {
    match failure {
        Failure::Fault(fault) => fault,
        Failure::Host(problem) => Fault::new(FaultKind::Busy, problem),
        Failure::Refused(error) => Fault::new(FaultKind::BadOutput, error.message),
    }
}

/// Whether a guest that was refused memory may end like this because of it. An allocator that gets none aborts, or
/// hands out an address that is none; nobody divides by zero for want of memory.
fn may_be_for_want_of_memory(error: &wasmtime::Error) -> bool {
    match error.downcast_ref::<Trap>() {
        None => true,
        Some(trap) => matches!(
            trap,
            Trap::UnreachableCodeReached
                | Trap::MemoryOutOfBounds
                | Trap::HeapMisaligned
                | Trap::TableOutOfBounds
        ),
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
fn last_words(state: &GuestState) -> String {
    let Some([_, (_, stderr)]) = state.output() else { return String::new() };
    let (text, _) = stderr.read();
    let text = state.capabilities.redacted(&text);
    let tail: Vec<_> =
        text.lines().rev().filter(|l| !l.trim().is_empty() && !l.starts_with("note: ")).take(2).collect();
    let tail: Vec<_> = tail.into_iter().rev().collect();
    if tail.is_empty() {
        String::new()
    } else {
        format!("; its last words: {}", one_line(&tail.join(" "), LAST_WORDS))
    }
}
