//! One guest entry: sets every limit on a store, runs the guest once and drops the store. Guest code runs nowhere else.
//! The store of a reused instance ([`crate::idle_instances`]) gets every limit again.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use tokio_util::sync::CancellationToken;
use toolbay_core::call::invoke::Failure;
use toolbay_core::call::shared::CallRights;
use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::limits::{CallLimits, Limit, Usage};
use toolbay_policy::name::PluginId;
use wasmtime::{CallHook, Store, Trap, UpdateDeadline};
use wasmtime_wasi::{I32Exit, ResourceTableError};

use crate::cpu_limiter::CpuPermit;
use crate::engine::Engine;
use crate::guest_data::GuestData;
use crate::panic_boundary::{ContainedDrop, ContainedFuture, EnginePanic};
use crate::resource_limiter::GrowthRefusal;
use crate::shortage;
use crate::stdio::OutputSink;

/// Maximum number of characters of a guest's stderr in a fault.
const MAX_REASON_CHARS: usize = 400;
/// Maximum number of lines of a guest's output in the log.
const MAX_LINES: usize = 200;
/// Maximum number of characters per line of a guest's output in the log, and of the cause of a trap: sixteen functions with
/// their places.
const MAX_LINE: usize = 2000;

/// How many handles a guest may have for each host handle that it may open: handles of resources that its parts create
/// for one another. Each costs 16 bytes.
const GUEST_HANDLES_PER_HOST_HANDLE: usize = 40;

/// The engine, limits and cancellation of one guest entry.
pub struct GuestEntry<'a> {
    /// The engine that runs the guest.
    pub engine: &'a Engine,
    /// The plugin, for messages.
    pub plugin: &'a PluginId,
    /// The limits of the entry.
    pub limits: &'a CallLimits,
    /// Ends the entry.
    pub cancel: &'a CancellationToken,
}

/// Ends a guest at its deadline. The epoch callback returns it.
#[derive(Debug, thiserror::Error)]
#[error("deadline")]
struct DeadlinePassed;

/// Ends a guest whose host lost the right to run the call. The hook of host calls returns it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct RightsLost(String);

/// A guest's output is longer than the limit.
#[derive(Debug, thiserror::Error)]
#[error("the output is longer than `host_call_bytes`")]
pub struct ProgramOutputTooLong;

/// A guest broke the contract of an interface of the host. The text says how.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ContractBreach(String);

impl ContractBreach {
    /// The error that ends the guest.
    pub fn error(how: impl Into<String>) -> wasmtime::Error {
        wasmtime::Error::from(Self(how.into()))
    }
}

/// A running guest. When it is dropped before the guest ends, it records the usage in the call.
struct RunningGuest<'a, D: GuestData> {
    store: &'a mut Store<D>,
    limits: &'a CallLimits,
    ended: bool,
}

impl<D: GuestData> RunningGuest<'_, D> {
    fn usage(&self) -> Usage {
        Usage {
            fuel: self.limits.fuel.map(|limit| limit.saturating_sub(self.store.get_fuel().unwrap_or(0))),
            wall_us: u64::try_from(self.store.data().began().elapsed().as_micros()).unwrap_or(u64::MAX),
            peak_memory_bytes: self.store.data().limiter().peak_memory(),
            ..Usage::default()
        }
    }
}

impl<D: GuestData> Drop for RunningGuest<'_, D> {
    fn drop(&mut self) {
        let data = self.store.data();
        data.end();
        if let Some(ctx) = data.call().filter(|_| !self.ended) {
            let Usage { fuel, wall_us, peak_memory_bytes, .. } = self.usage();
            ctx.update_usage(|spent| *spent = Usage { fuel, wall_us, peak_memory_bytes, ..*spent });
        }
    }
}

impl GuestEntry<'_> {
    /// Runs `run` on a fresh store. Returns at the time-out at the latest, whatever the guest does.
    ///
    /// The store is created outside the future, which stays smaller without the data.
    pub fn run<D: GuestData, R>(
        &self,
        data: D,
        run: impl AsyncFnOnce(&mut Store<D>) -> wasmtime::Result<R>,
    ) -> impl Future<Output = (Result<R, Failure>, Usage)> {
        let mut store = ContainedDrop::new(self.store(data));
        async move {
            match store.get_mut() {
                Some(store) => self.run_in(store, run).await,
                None => (Err(Failure::Host("the store of the guest is gone".to_owned())), Usage::default()),
            }
        }
    }

    /// Creates a store without an instance.
    pub fn store<D: GuestData>(&self, data: D) -> Store<D> {
        Store::new(&self.engine.wasmtime, data)
    }

    /// Runs `run` in a given store: a new store, or one whose previous entry succeeded and whose data was replaced. A
    /// store whose entry failed is never entered again.
    pub async fn run_in<D: GuestData, R>(
        &self,
        store: &mut Store<D>,
        run: impl AsyncFnOnce(&mut Store<D>) -> wasmtime::Result<R>,
    ) -> (Result<R, Failure>, Usage) {
        let permit = CpuPermit::new(self.engine.cpu_limiter());
        if let Err(error) = self.set_bounds(store, &permit) {
            tracing::error!(plugin = %self.plugin, %error, "the limits of a call could not be set");
            let text = format!("`{}` could not run: its limits could not be set", self.plugin);
            return (Err(Failure::Host(text)), Usage::default());
        }
        let deadline = store.data().deadline();
        let mut running = RunningGuest { store, limits: self.limits, ended: false };
        let done = {
            // Pinned in place: passing the futures by value would reserve their space twice.
            let guest = pin!(ContainedFuture::new(run(running.store)));
            let guest = pin!(permit.run(guest));
            self.run_until(deadline, guest).await
        };
        running.ended = true;
        let usage = running.usage();
        let data = running.store.data();
        for (stream, sink) in data.stdio_sinks().into_iter().flatten() {
            self.log_output(stream, sink, data);
        }
        let result = match done {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(error))) => Err(self.failure(&error, data)),
            Ok(Err(EnginePanic)) => Err(self.panic_failure()),
            Err(ended) => Err(ended.into()),
        };
        (result, usage)
    }

    /// Runs a guest until its deadline or until the call is cancelled.
    async fn run_until<F: Future>(
        &self,
        deadline: Instant,
        mut guest: Pin<&mut F>,
    ) -> Result<F::Output, Fault> {
        // Most calls finish in the first poll and need neither a timer nor a cancellation listener.
        if let Poll::Ready(done) = futures_util::poll!(guest.as_mut()) {
            return Ok(done);
        }
        tokio::select! {
            biased;
            done = tokio::time::timeout_at(deadline.into(), guest) => done.map_err(|_elapsed| self.deadline_fault()),
            () = self.cancel.cancelled() => Err(Fault::new(FaultKind::Cancelled, "the call was cancelled")),
        }
    }

    /// Sets every limit of an entry.
    fn set_bounds<D: GuestData>(
        &self,
        store: &mut Store<D>,
        permit: &Arc<CpuPermit>,
    ) -> wasmtime::Result<()> {
        store.data_mut().limiter_mut().use_budget(&self.engine.memory);
        store.limiter(|data| data.limiter_mut());
        store.set_max_component_handles(self.limits.handles.saturating_mul(GUEST_HANDLES_PER_HOST_HANDLE));
        store.set_hostcall_fuel(usize::try_from(self.limits.host_call_bytes).unwrap_or(usize::MAX));
        // Fails if the metering of the engine and the limits do not match, and nothing runs.
        if let Some(fuel) = self.limits.fuel {
            store.set_fuel(fuel)?;
        }
        // The rest of the current tick and one whole tick: most calls end within it and never yield.
        store.set_epoch_deadline(2);
        let permit = Arc::clone(permit);
        store.epoch_deadline_callback(move |store| {
            if Instant::now() >= store.data().deadline() {
                return Err(wasmtime::Error::from(DeadlinePassed));
            }
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(Arc::clone(&permit).yield_and_reacquire())))
        });
        if rights(store.data()).is_some() {
            // One place for every host call, those of WASI included.
            store.call_hook(|store, transition| match rights(store.data()) {
                Some(rights) if matches!(transition, CallHook::CallingHost) => {
                    rights.check().map_err(|reason| wasmtime::Error::from(RightsLost(reason)))
                }
                _ => Ok(()),
            });
        }
        Ok(())
    }

    /// The failure of a call that made the engine panic. A guest can reach panics of the engine, so they count for its
    /// circuit breaker like its own traps, unless the host lacks something. The panic hook has logged where it was.
    fn panic_failure(&self) -> Failure {
        tracing::error!(plugin = %self.plugin, "the engine panicked while a plugin ran");
        if let Some(lacked) = shortage::probe() {
            return self.shortage_failure(lacked, None);
        }
        Fault::new(FaultKind::Trap, format!("`{}` trapped: it broke the engine that runs it", self.plugin))
            .into()
    }

    fn deadline_fault(&self) -> Fault {
        self.limit_fault(FaultKind::Deadline, "the time was up", Limit::Timeout)
    }

    fn limit_fault(&self, kind: FaultKind, what: &str, limit: Limit) -> Fault {
        Fault::by_limit(kind, &format!("`{}`: {what}", self.plugin), self.limits.hit(limit, self.plugin))
    }

    /// Maps wasmtime's error to a failure. A shortage of the host is not attributed to the guest, whatever error it
    /// caused.
    fn failure(&self, error: &wasmtime::Error, data: &impl GuestData) -> Failure {
        if let Some(lacked) = shortage::from_error(error) {
            return self.shortage_failure(lacked, Some(error));
        }
        if let Some(refused) = data.limiter().last_refusal().filter(|_| may_follow_refused_memory(error)) {
            return match refused {
                GrowthRefusal::System(lacked) => self.shortage_failure(lacked, Some(error)),
                GrowthRefusal::Budget(bytes) => {
                    let what = format!("not enough memory is left for `{}`", self.plugin);
                    self.engine.memory.exhausted(&what, *bytes).into()
                }
                GrowthRefusal::Limit(limit) => self
                    .limit_fault(FaultKind::OutOfMemory, "the memory it asked for was refused", *limit)
                    .into(),
            };
        }
        let fault = self.fault(error, data);
        match shortage::probe().filter(|_| fault.kind == FaultKind::Trap) {
            Some(lacked) => self.shortage_failure(lacked, None),
            None => fault.into(),
        }
    }

    fn shortage_failure(&self, lacked: &str, error: Option<&wasmtime::Error>) -> Failure {
        let error = error.map(|error| one_line(&format!("{error:#}"), MAX_REASON_CHARS));
        tracing::error!(
            plugin = %self.plugin, lacked, error, "the host has run out of a resource that a call needs"
        );
        let are = if [shortage::MEMORY, shortage::ADDRESS_SPACE].contains(&lacked) { "is" } else { "are" };
        Failure::Host(format!("`{}` could not run: no {lacked} {are} left", self.plugin))
    }

    /// Maps wasmtime's error to the guest's fault.
    fn fault(&self, error: &wasmtime::Error, data: &impl GuestData) -> Fault {
        if error.downcast_ref::<DeadlinePassed>().is_some() {
            return self.deadline_fault();
        }
        if let Some(RightsLost(reason)) = error.downcast_ref() {
            return Fault::new(FaultKind::Cancelled, format!("a host call was refused: {reason}"));
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => {
                return self.limit_fault(FaultKind::OutOfFuel, "the fuel was used up", Limit::Fuel);
            }
            Some(Trap::Interrupt) => return self.deadline_fault(),
            Some(_) | None => {}
        }
        if error.downcast_ref::<wasmtime::PoolConcurrencyLimitError>().is_some() {
            return Fault::new(FaultKind::Busy, "busy: the instance pool is full; try again later");
        }
        if let Some(limit) = limit_of_error(error) {
            let (kind, what) = match limit {
                Limit::HostCallBytes => {
                    (FaultKind::OutputTooLarge, "it passed more data to the host at once than allowed")
                }
                Limit::Handles => (FaultKind::OutOfMemory, "it opened too many handles"),
                _ => (FaultKind::OutOfMemory, "it has too many instances, memories or tables"),
            };
            return self.limit_fault(kind, what, limit);
        }
        let what = match error.downcast_ref::<I32Exit>() {
            Some(exit) => format!("ended itself with exit status {}", exit.0),
            None => {
                // The words of the engine are for the operator: models and clients get those of the specification.
                let cause = one_line(&format!("{error:#}"), MAX_LINE);
                tracing::warn!(target: "toolbay::guest", plugin = %self.plugin, cause, "a guest trapped");
                match error.downcast_ref::<ContractBreach>() {
                    Some(ContractBreach(breach)) => {
                        format!("trapped: {}", one_line(breach, MAX_REASON_CHARS))
                    }
                    None => format!("trapped: {}", trap_words(error.downcast_ref())),
                }
            }
        };
        Fault::new(FaultKind::Trap, format!("`{}` {what}{}", self.plugin, stderr_excerpt(data)))
    }

    fn log_output(&self, stream: &str, sink: &OutputSink, data: &impl GuestData) {
        let (text, dropped) = sink.read();
        // Redacted before it is split into lines, because a secret may contain line breaks.
        let text = data.redacted(&text);
        let plugin = self.plugin;
        for line in text.lines().take(MAX_LINES) {
            tracing::info!(target: "toolbay::guest", %plugin, stream, "{}", one_line(line, MAX_LINE));
        }
        if dropped > 0 {
            tracing::warn!(target: "toolbay::guest", %plugin, stream, dropped, "dropped output beyond `stdio_bytes`");
        }
    }
}

/// The rights that a call can lose while it runs; `None` outside of calls and on a host without shared state.
fn rights(data: &impl GuestData) -> Option<&CallRights> {
    data.call()?.rights()
}

/// The fault of an entry that is not a call. A failure of the host becomes `busy`: a later attempt may succeed, and
/// `busy` is not counted as a fault.
pub fn as_fault(failure: Failure) -> Fault {
    match failure {
        Failure::Fault(fault) => fault,
        Failure::Host(problem) => Fault::new(FaultKind::Busy, problem),
        Failure::Refused(error) => Fault::new(FaultKind::BadOutput, error.message),
    }
}

/// Whether a refused allocation can cause this error. An allocator without memory aborts or returns an invalid address;
/// it does not divide by zero.
fn may_follow_refused_memory(error: &wasmtime::Error) -> bool {
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

/// Why a guest trapped, in the words of the WebAssembly specification.
fn trap_words(trap: Option<&Trap>) -> &'static str {
    match trap {
        Some(Trap::StackOverflow) => "call stack exhausted",
        Some(Trap::MemoryOutOfBounds) => "out of bounds memory access",
        Some(Trap::HeapMisaligned) => "unaligned atomic access",
        Some(Trap::TableOutOfBounds) => "out of bounds table access",
        Some(Trap::IndirectCallToNull) => "call of an uninitialized table element",
        Some(Trap::BadSignature) => "indirect call type mismatch",
        Some(Trap::IntegerOverflow) => "integer overflow",
        Some(Trap::IntegerDivisionByZero) => "integer divide by zero",
        Some(Trap::BadConversionToInteger) => "invalid conversion to integer",
        Some(Trap::UnreachableCodeReached) => "`unreachable` was executed",
        Some(Trap::NullReference) => "null reference",
        Some(Trap::AsyncDeadlock) => "it waits for nothing that can happen",
        Some(_) => "it did what WebAssembly forbids",
        None => "it broke the rules of an interface",
    }
}

/// The limit that an error reports. Wasmtime 48 exports no type for these errors, so their words identify them:
///
/// | limit | in wasmtime |
/// |---|---|
/// | bytes of a host call | `HostcallFuelExhausted`, which is private |
/// | handles of guests | a text (`handle_table.rs`) |
/// | instances, memories, tables | a text (`StoreOpaque::bump_resource_counts`) |
///
/// All other errors have types. If a release of wasmtime changes one of these texts, the fault becomes a trap that names no
/// limit, and the tests of hostile guests fail.
fn limit_of_error(error: &wasmtime::Error) -> Option<Limit> {
    if error.downcast_ref::<ProgramOutputTooLong>().is_some() {
        return Some(Limit::HostCallBytes);
    }
    if matches!(error.downcast_ref::<ResourceTableError>(), Some(ResourceTableError::Full)) {
        return Some(Limit::Handles);
    }
    let cause = error.root_cause().to_string();
    if cause.contains("fuel allocated for hostcalls has been exhausted") {
        return Some(Limit::HostCallBytes);
    }
    if cause.contains("handle limit exceeded") {
        return Some(Limit::Handles);
    }
    if !cause.contains("count too high") {
        return None;
    }
    [("instance", Limit::Instances), ("memory", Limit::Memories), ("table", Limit::Tables)]
        .into_iter()
        .find_map(|(word, limit)| cause.contains(word).then_some(limit))
}

/// The last lines that a guest wrote to stderr: a panic message or the end of a traceback.
fn stderr_excerpt(data: &impl GuestData) -> String {
    let Some([_, (_, stderr)]) = data.stdio_sinks() else { return String::new() };
    let (text, _) = stderr.read();
    let text = data.redacted(&text);
    let tail: Vec<_> =
        text.lines().rev().filter(|l| !l.trim().is_empty() && !l.starts_with("note: ")).take(2).collect();
    let tail: Vec<_> = tail.into_iter().rev().collect();
    if tail.is_empty() {
        String::new()
    } else {
        format!("; its last words: {}", one_line(&tail.join(" "), MAX_REASON_CHARS))
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;

    use super::*;
    use crate::circuit_breaker::CircuitBreaker;
    use crate::engine::{AsyncSupport, EngineKind, Metering, Ticker};
    use crate::resource_limiter::GuestResourceLimiter;
    use toolbay_core::call::CallContext;
    use toolbay_core::pipeline::memory::MemoryBudget;
    use toolbay_policy::limits::HostLimits;

    struct TestData(GuestResourceLimiter, Instant);

    impl GuestData for TestData {
        fn limiter(&self) -> &GuestResourceLimiter {
            &self.0
        }
        fn limiter_mut(&mut self) -> &mut GuestResourceLimiter {
            &mut self.0
        }
        fn began(&self) -> Instant {
            self.1
        }
        fn deadline(&self) -> Instant {
            self.1 + CallLimits::default().timeout
        }
        fn call(&self) -> Option<&CallContext> {
            None
        }
        fn stdio_sinks(&self) -> Option<[(&'static str, &OutputSink); 2]> {
            None
        }
        fn redacted<'t>(&self, text: &'t str) -> Cow<'t, str> {
            text.into()
        }
        fn end(&self) {}
    }

    /// A guest whose call reaches a panic of the engine, here in a function that it imports.
    async fn panic_in_guest(store: &mut Store<TestData>) -> wasmtime::Result<()> {
        let text = "(module (import \"host\" \"panic\" (func $p)) (func (export \"f\") (call $p)))";
        let module = wasmtime::Module::new(store.engine(), wat::parse_str(text).unwrap())?;
        let mut linker = wasmtime::Linker::new(store.engine());
        linker.func_wrap("host", "panic", || -> wasmtime::Result<()> { panic!("the engine panics") })?;
        let instance = linker.instantiate_async(&mut *store, &module).await?;
        let run = instance.get_typed_func::<(), ()>(&mut *store, "f")?;
        run.call_async(&mut *store, ()).await
    }

    #[tokio::test]
    async fn a_panic_of_the_engine_is_a_fault_of_the_guest_and_counts_for_its_breaker() {
        let (host, memory) = (HostLimits::default(), MemoryBudget::new("guest_memory", 1 << 30));
        let kind = EngineKind { metering: Metering::Fuel, async_support: AsyncSupport::Off };
        let engine = Engine::new(&host, &memory, kind, &Ticker::start().unwrap()).unwrap();
        let (plugin, limits) = (PluginId::new("p").unwrap(), Arc::new(CallLimits::default()));
        let cancel = CancellationToken::new();
        let entry = GuestEntry { engine: &engine, plugin: &plugin, limits: &limits, cancel: &cancel };
        let data = || TestData(GuestResourceLimiter::new(&limits), Instant::now());
        let breaker = CircuitBreaker::new("`p__t`".to_owned(), &host);
        for _ in 0..host.breaker_faults {
            let permit = breaker.try_acquire().unwrap();
            let (result, _) = entry.run(data(), async |store| panic_in_guest(store).await).await;
            let Err(Failure::Fault(fault)) = result else { panic!("no fault") };
            assert_eq!(fault.kind, FaultKind::Trap);
            assert!(!fault.message.contains("the engine panics"), "{}", fault.message);
            permit.record(Some(fault.kind));
        }
        assert_eq!(breaker.check().unwrap_err().kind, FaultKind::Suspended);
        let (other, _) = entry.run(data(), async |_| Ok(())).await;
        assert_eq!(other, Ok(()), "it cost its own calls only");
    }
}
