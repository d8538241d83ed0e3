//! The memory of results: reserved before a call runs, corrected to what it answered, held until the result is delivered.
//!
//! A call reserves what its tool is expected to answer. While other calls run, it waits for them to give back what they do
//! not need; when only finished results hold the memory, it is answered `busy` and does not run. Whatever the expectation
//! was, an answer is counted before anything else is done with it, and one that does not fit is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use toolbay_policy::limits::LimitHit;
use toolbay_policy::limits::{DEFAULT_RESULT_BYTES, HostLimits};
use toolbay_policy::quantity;

use super::batch::BatchContext;
use crate::call::CallContext;
use crate::call::fault::{Fault, FaultKind};
use crate::call::invoke::Failure;
use crate::pipeline::memory::{MemoryBudget, MemoryReservation};
use crate::registry::view::Entry;
use crate::tool::ToolSource;
use crate::tool::content::{BlockBody, ContentBlock, EmbeddedResource, ResourceBody, ToolOutput};

/// What every call reserves: more than most results have.
const USUAL: u64 = 32 << 10;
/// No call reserves more than this part of the budget before it runs: a generous limit alone must not stop all others.
const LARGEST_SHARE: u64 = 4;
/// A budget that the policy does not set, for a pipeline that was not told what the machine has.
const DEFAULT_BUDGET: u64 = 128 << 20;
/// What a content block takes beside its texts and bytes.
const BLOCK: u64 = 128;

/// The memory of a host's results. Clones are one.
#[derive(Debug, Clone)]
pub(super) struct ResultMemory {
    budget: MemoryBudget,
    /// Answers that are there and wait.
    late: MemoryBudget,
    /// Calls that have reserved and are not done: what they will not need is given back.
    running: Arc<AtomicU32>,
    patience: Duration,
    /// Bytes of it that one client may leave unread.
    outbox: u64,
}

/// What a result holds of the memory, from before its call runs.
#[derive(Debug)]
struct Reserved {
    held: MemoryReservation,
    /// Dropped once the result is settled, so that calls that wait are woken.
    _running: Running,
}

#[derive(Debug)]
struct Running {
    count: Arc<AtomicU32>,
    budget: MemoryBudget,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
        self.budget.wake();
    }
}

impl ResultMemory {
    pub(super) fn new(limits: &HostLimits) -> Self {
        let bytes = limits.result_memory.unwrap_or(DEFAULT_BUDGET);
        Self {
            budget: MemoryBudget::new("result_memory", bytes),
            late: MemoryBudget::new("result_memory", bytes),
            running: Arc::default(),
            patience: limits.queue_timeout,
            outbox: limits.outbox_bytes,
        }
    }

    pub(super) fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    pub(super) fn outbox(&self) -> (u64, Duration) {
        (self.outbox, self.patience)
    }

    fn try_reserve(&self, bytes: u64) -> Option<Reserved> {
        let held = self.budget.reserve(bytes)?;
        self.running.fetch_add(1, Ordering::AcqRel);
        let running = Running { count: Arc::clone(&self.running), budget: self.budget.clone() };
        Some(Reserved { held, _running: running })
    }

    /// Reserves `bytes`; waits for calls that run, and not for results that nobody has taken.
    async fn reserve_later(&self, bytes: u64, cancel: &CancellationToken) -> Result<Reserved, Fault> {
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
pub(super) struct CallMemory(Option<Reserved>);

impl CallMemory {
    /// Reserves memory for what the tool may answer.
    pub(super) async fn reserve(
        &mut self,
        batch: &BatchContext,
        entry: &Entry,
        ctx: &CallContext,
    ) -> Result<(), Fault> {
        // A calling tool takes its results at once, and what may cross to it is bounded.
        let more = if batch.parent.is_some() { 0 } else { entry.expected_answer_bytes() };
        let results = &batch.pipeline.results;
        let bytes = USUAL.saturating_add(more).min(results.budget.limit() / LARGEST_SHARE);
        self.0 = match results.try_reserve(bytes) {
            Some(reserved) => Some(reserved),
            // Boxed to keep the future of the calls that do not wait small.
            None => Some(Box::pin(results.reserve_later(bytes, ctx.cancel())).await?),
        };
        Ok(())
    }

    /// Counts an answer, and refuses one that is larger than `result_bytes` or than the memory that is left.
    pub(super) async fn count(
        &mut self,
        batch: &BatchContext,
        entry: &Entry,
        answer: &Result<ToolOutput, Failure>,
    ) -> Result<(), Fault> {
        let bytes = match answer {
            Ok(output) => {
                let beside = beside_text(output);
                let text = text_bytes(output);
                // A text that will be cut is copied, to be saved.
                let text = if text > DEFAULT_RESULT_BYTES { text.saturating_mul(2) } else { text };
                let whole = beside.saturating_add(text);
                entry.note_answer(beside, whole);
                if batch.parent.is_none() && beside > entry.call.result_bytes {
                    return Err(too_large(entry, beside));
                }
                whole
            }
            Err(failure) => failure_bytes(failure),
        };
        let results = &batch.pipeline.results;
        if self.try_hold(results, bytes) {
            return Ok(());
        }
        // Boxed to keep the future of the answers that do not wait small.
        Box::pin(self.hold_later(results, bytes)).await
    }

    /// Corrects the reservation to the delivered result, and gives back the capacity of texts that were cut.
    pub(super) fn settle(self, result: &mut Result<ToolOutput, Failure>) -> Option<MemoryReservation> {
        if let Ok(output) = result {
            shrink(&mut output.value);
            output.content.iter_mut().filter_map(ContentBlock::text_mut).for_each(shrink);
        }
        let mut memory = self.0?;
        let bytes = match result {
            Ok(output) => beside_text(output).saturating_add(text_bytes(output)),
            Err(failure) => failure_bytes(failure),
        };
        if !memory.held.resize(bytes) {
            tracing::debug!(bytes, "a result became longer than what was counted for it");
        }
        Some(memory.held)
    }

    fn try_hold(&mut self, results: &ResultMemory, bytes: u64) -> bool {
        match &mut self.0 {
            Some(memory) => memory.held.resize(bytes),
            None => {
                self.0 = results.try_reserve(bytes);
                self.0.is_some()
            }
        }
    }

    /// Waits for memory with an answer at hand. As many answers may wait as fit into the budget once more.
    async fn hold_later(&mut self, results: &ResultMemory, bytes: u64) -> Result<(), Fault> {
        let what = "the result came, and the memory for results is used up";
        let exhausted = || results.budget.exhausted(what, bytes);
        let _waits = results.late.reserve(bytes).ok_or_else(exhausted)?;
        let held = results.budget.wait_until(|| self.try_hold(results, bytes).then_some(()));
        tokio::time::timeout(results.patience, held).await.map_err(|_| exhausted())
    }
}

/// A text that was cut still has the room that it had.
fn shrink(text: &mut String) {
    if text.capacity() / 2 > text.len() {
        text.shrink_to_fit();
    }
}

fn failure_bytes(failure: &Failure) -> u64 {
    let bytes = match failure {
        Failure::Refused(error) => error.message.len() + error.subject.as_ref().map_or(0, String::len),
        Failure::Fault(fault) => fault.message.len(),
        Failure::Host(message) => message.len(),
    };
    bytes as u64
}

/// Bytes of the texts of a result, those of blocks included: they are cut to the budget.
fn text_bytes(output: &ToolOutput) -> u64 {
    output.content.iter().map(block_text_bytes).fold(output.value.len() as u64, u64::saturating_add)
}

fn block_text_bytes(block: &ContentBlock) -> u64 {
    let text = match &block.body {
        BlockBody::Text(text) => text.len(),
        BlockBody::Embedded(EmbeddedResource { body: ResourceBody::Text(text), .. }) => text.len(),
        BlockBody::Image(_) | BlockBody::Audio(_) | BlockBody::Link(_) | BlockBody::Embedded(_) => 0,
    };
    let beside: usize = block.labels().into_iter().chain(block.kinds()).map(str::len).sum();
    (text + beside) as u64
}

/// Bytes of a result beside its texts.
fn beside_text(output: &ToolOutput) -> u64 {
    let json = [&output.structured, &output.meta].into_iter().flatten().map(|raw| raw.get().len() as u64);
    json.chain(output.content.iter().map(data_of)).fold(0, u64::saturating_add)
}

fn data_of(block: &ContentBlock) -> u64 {
    let data = match &block.body {
        BlockBody::Image(blob) | BlockBody::Audio(blob) => blob.data.len(),
        BlockBody::Embedded(EmbeddedResource { body: ResourceBody::Blob(data), .. }) => data.len(),
        BlockBody::Text(_) | BlockBody::Link(_) | BlockBody::Embedded(_) => 0,
    };
    data as u64 + BLOCK
}

fn too_large(entry: &Entry, bytes: u64) -> Fault {
    let setting = match &*entry.def.source {
        ToolSource::Plugin { id, .. } => format!("[plugins.{id}.limits] result_bytes = …"),
        ToolSource::Mcp { server, .. } => format!("[mcp.{server}] max_result_bytes = …"),
        ToolSource::OpenApi { document } => format!("[openapi.{document}.limits] result_bytes = …"),
        ToolSource::Builtin => "nothing: the program that brings the tool sets it".to_owned(),
    };
    let value = quantity::show_bytes(entry.call.result_bytes);
    let what =
        format!("`{}` answered with {bytes} bytes of structured data, blocks and metadata", entry.def.name,);
    let limit = LimitHit { name: "result_bytes", value, setting };
    Fault::by_limit(FaultKind::OutputTooLarge, &what, limit)
}
