//! The memory of results: reserved before a call runs, corrected to the actual size of the result, and held until the
//! result is delivered.
//!
//! A call reserves the expected size of its result. If the budget is used up while other calls run, the call waits for
//! them to release memory that they do not need. If only finished results hold the memory, the call fails with `busy`
//! and does not run. A result is counted before it is processed, and refused if it does not fit, whatever size was
//! expected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use toolbay_policy::limits::{DEFAULT_RESULT_BYTES, HostLimits, LimitSetting};

use crate::call::CallContext;
use crate::call::invoke::Failure;
use crate::pipeline::memory::{MemoryBudget, MemoryReservation};
use crate::registry::view::ToolEntry;
use crate::tool::ToolSource;
use crate::tool::content::{ContentBlock, ErrorDetails, ToolOutput};
use crate::tool::fault::{Fault, FaultKind};

/// Bytes that every call reserves: more than most results have.
const BASE_RESERVATION: u64 = 32 << 10;
/// A call reserves at most one part in this many of the budget before it runs, so that a tool with a large limit does
/// not block all other calls.
const LARGEST_SHARE: u64 = 4;
/// The budget if the limits set none, since the pipeline does not know the memory of the machine.
const DEFAULT_BUDGET: u64 = 128 << 20;
/// Bytes that a content block takes in addition to its texts and data.
const BLOCK_OVERHEAD: u64 = 128;

/// The memory of a host's results. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct ResultMemory {
    budget: MemoryBudget,
    /// Results that wait for memory.
    pending: MemoryBudget,
    /// The number of calls with a reservation that is not settled yet. They will release the memory that they do not
    /// need.
    running: Arc<AtomicU32>,
    patience: Duration,
    /// Bytes of results that one client may leave unread.
    outbox: u64,
}

/// The memory of one result, reserved before its call runs.
#[derive(Debug)]
struct ResultReservation {
    reservation: MemoryReservation,
    /// Dropped when the result is settled. The drop wakes waiting calls.
    _running: RunningCallGuard,
}

#[derive(Debug)]
struct RunningCallGuard {
    count: Arc<AtomicU32>,
    budget: MemoryBudget,
}

impl Drop for RunningCallGuard {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
        self.budget.wake();
    }
}

impl ResultMemory {
    pub(crate) fn new(limits: &HostLimits) -> Self {
        let bytes = limits.result_memory.unwrap_or(DEFAULT_BUDGET);
        Self {
            budget: MemoryBudget::new("result_memory", bytes),
            pending: MemoryBudget::new("result_memory", bytes),
            running: Arc::default(),
            patience: limits.queue_timeout,
            outbox: limits.outbox_bytes,
        }
    }

    pub(crate) fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    pub(crate) fn outbox_limits(&self) -> (u64, Duration) {
        (self.outbox, self.patience)
    }

    fn try_reserve(&self, bytes: u64) -> Option<ResultReservation> {
        let reservation = self.budget.reserve(bytes)?;
        self.running.fetch_add(1, Ordering::AcqRel);
        let running = RunningCallGuard { count: Arc::clone(&self.running), budget: self.budget.clone() };
        Some(ResultReservation { reservation, _running: running })
    }

    /// Reserves `bytes`, waiting while calls run. It does not wait for undelivered results.
    async fn reserve_when_free(
        &self,
        bytes: u64,
        cancel: &CancellationToken,
    ) -> Result<ResultReservation, Fault> {
        let full = || self.budget.exhausted("the memory for results is used up", bytes);
        let attempt = || match self.try_reserve(bytes) {
            Some(reserved) => Some(Ok(reserved)),
            None => (self.running.load(Ordering::Acquire) == 0).then(|| Err(full())),
        };
        let waits = tokio::time::timeout(self.patience, self.budget.wait_until(attempt));
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Fault::new(FaultKind::Cancelled, "the call was cancelled before it ran")),
            done = waits => done.unwrap_or_else(|_| Err(full())),
        }
    }
}

/// The memory that one call holds for its result.
#[derive(Debug, Default)]
pub(crate) struct CallMemory(Option<ResultReservation>);

impl CallMemory {
    /// Reserves memory for the expected result of the tool.
    pub(crate) async fn reserve(
        &mut self,
        results: &ResultMemory,
        entry: &ToolEntry,
        ctx: &CallContext,
        is_nested: bool,
    ) -> Result<(), Fault> {
        // A calling tool takes its results at once, and their size is bounded.
        let more = if is_nested { 0 } else { entry.expected_total_bytes() };
        let bytes = BASE_RESERVATION.saturating_add(more).min(results.budget.limit() / LARGEST_SHARE);
        self.0 = match results.try_reserve(bytes) {
            Some(reserved) => Some(reserved),
            // Boxed to keep the future of calls that do not wait small.
            None => Some(Box::pin(results.reserve_when_free(bytes, ctx.cancel())).await?),
        };
        Ok(())
    }

    /// Counts a result. Refuses a result that exceeds the memory that is left.
    pub(crate) async fn count(
        &mut self,
        results: &ResultMemory,
        entry: &ToolEntry,
        answer: &Result<ToolOutput, Failure>,
    ) -> Result<(), Fault> {
        let bytes = match answer {
            Ok(output) => {
                let non_text = non_text_bytes(output);
                let text = text_bytes(output);
                // A text that will be cut is copied into the output store.
                let text = if text > DEFAULT_RESULT_BYTES { text.saturating_mul(2) } else { text };
                let total = non_text.saturating_add(text);
                entry.record_result_size(non_text, total);
                total
            }
            Err(failure) => failure_bytes(failure),
        };
        if self.try_hold(results, bytes) {
            return Ok(());
        }
        // Boxed to keep the future of results that do not wait small.
        Box::pin(self.hold_when_free(results, bytes)).await
    }

    /// Corrects the reservation to the size of the shaped result, and releases the spare capacity of cut texts.
    pub(crate) fn settle(self, result: &mut Result<ToolOutput, Failure>) -> Option<MemoryReservation> {
        if let Ok(output) = result {
            shrink(&mut output.value);
            output.content.iter_mut().filter_map(ContentBlock::text_mut).for_each(shrink);
        }
        let mut memory = self.0?;
        let bytes = bytes_of(result);
        if !memory.reservation.resize(bytes) {
            tracing::debug!(bytes, "a result became larger than its memory reservation");
        }
        Some(memory.reservation)
    }

    fn try_hold(&mut self, results: &ResultMemory, bytes: u64) -> bool {
        match &mut self.0 {
            Some(memory) => memory.reservation.resize(bytes),
            None => {
                self.0 = results.try_reserve(bytes);
                self.0.is_some()
            }
        }
    }

    /// Waits for memory with a finished result. The results that wait may take as many bytes as the budget has.
    async fn hold_when_free(&mut self, results: &ResultMemory, bytes: u64) -> Result<(), Fault> {
        let what = "the tool has run, but the memory for results is used up";
        let exhausted = || results.budget.exhausted(what, bytes);
        let _waits = results.pending.reserve(bytes).ok_or_else(exhausted)?;
        let hold = results.budget.wait_until(|| self.try_hold(results, bytes).then_some(()));
        tokio::time::timeout(results.patience, hold).await.map_err(|_| exhausted())
    }
}

/// Releases the capacity of a text that was cut.
fn shrink(text: &mut String) {
    if text.capacity() / 2 > text.len() {
        text.shrink_to_fit();
    }
}

/// Bytes of a result with all its parts.
pub(crate) fn bytes_of(result: &Result<ToolOutput, Failure>) -> u64 {
    match result {
        Ok(output) => non_text_bytes(output).saturating_add(text_bytes(output)),
        Err(failure) => failure_bytes(failure),
    }
}

fn failure_bytes(failure: &Failure) -> u64 {
    let bytes = match failure {
        Failure::Refused(error) => {
            let text = error.message.len() + error.subject.as_ref().map_or(0, String::len);
            let Some(details) = &error.details else { return text as u64 };
            let ErrorDetails { structured, content } = &**details;
            let json = structured.as_ref().map_or(0, |raw| raw.get().len());
            let blocks = content.iter().map(|block| block.text_bytes() as u64 + data_bytes(block));
            return blocks.fold((text + json) as u64, u64::saturating_add);
        }
        Failure::Fault(fault) => fault.message.len(),
        Failure::Host(message) => message.len(),
    };
    bytes as u64
}

/// Bytes of the texts of a result, including those of blocks. These texts are cut to the character budget.
fn text_bytes(output: &ToolOutput) -> u64 {
    output.content.iter().fold(output.value.len() as u64, |sum, block| sum + block.text_bytes() as u64)
}

/// Bytes of a result apart from its texts.
fn non_text_bytes(output: &ToolOutput) -> u64 {
    let json = [&output.structured, &output.meta].into_iter().flatten().map(|raw| raw.get().len() as u64);
    json.chain(output.content.iter().map(data_bytes)).fold(0, u64::saturating_add)
}

/// Bytes of a block apart from its texts.
pub(crate) fn data_bytes(block: &ContentBlock) -> u64 {
    block.data_bytes() as u64 + BLOCK_OVERHEAD
}

/// Where the policy sets `result_bytes` for a tool.
pub(crate) fn result_bytes_setting(entry: &ToolEntry) -> LimitSetting {
    match &*entry.def.source {
        ToolSource::Plugin { id, .. } => {
            LimitSetting::key(format_args!("plugins.{id}.limits"), "result_bytes")
        }
        ToolSource::Mcp { server, .. } => LimitSetting::key(format_args!("mcp.{server}"), "max_result_bytes"),
        ToolSource::OpenApi { document } => {
            LimitSetting::key(format_args!("openapi.{document}.limits"), "result_bytes")
        }
        ToolSource::Builtin => {
            LimitSetting::Nothing("the program that registers the tool sets the limit".to_owned())
        }
    }
}
