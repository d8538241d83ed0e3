//! The calls that ended, for the page of operators: the newest in memory, sums of each session, a chart of the last minutes,
//! and a stream. The audit file keeps all of them.

mod chart;
mod filter;
mod sessions;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::broadcast;
use toolbay::PluginId;
use toolbay_core::audit::AuditRecord;
use toolbay_core::audit::observer::AuditObserver;
use toolbay_core::tool::ToolSource;

pub(crate) use chart::{ChartPoint, POINT_SECONDS};
pub(crate) use filter::CallFilter;
pub(crate) use sessions::SessionTotals;

use chart::Chart;
use sessions::SessionTable;

/// Most calls in memory.
pub(crate) const MAX_CALLS: usize = 5000;
/// Most bytes of them, roughly. The uses of one call can have 100 KiB.
const MAX_BYTES: usize = 32 << 20;
/// The fixed part of a call, in bytes, with its summary.
const CALL_BYTES: usize = 1200;
/// Calls that a slow reader of the stream may lag behind. It learns the number of those that it lost.
const STREAM_CALLS: usize = 256;

/// A call that ended.
#[derive(Debug)]
pub(crate) struct FinishedCall {
    /// The number of the call in this process, from 1.
    pub(crate) number: u64,
    pub(crate) ended: SystemTime,
    pub(crate) record: AuditRecord,
    /// The JSON of the stream, once a reader needed it.
    pub(crate) summary: OnceLock<Box<str>>,
}

impl FinishedCall {
    /// The plugin of the tool.
    pub(crate) fn plugin(&self) -> Option<&str> {
        self.record.source.as_deref().and_then(ToolSource::plugin).map(PluginId::as_str)
    }
}

/// The calls of a server that ended.
#[derive(Debug)]
pub(crate) struct CallHistory {
    state: Mutex<HistoryState>,
    stream: broadcast::Sender<Arc<FinishedCall>>,
}

#[derive(Debug, Default)]
struct HistoryState {
    last: u64,
    bytes: usize,
    /// The oldest first, with their sizes.
    calls: VecDeque<(Arc<FinishedCall>, usize)>,
    sessions: SessionTable,
    chart: Chart,
}

impl Default for CallHistory {
    fn default() -> Self {
        Self { state: Mutex::default(), stream: broadcast::Sender::new(STREAM_CALLS) }
    }
}

impl CallHistory {
    /// The calls that a filter matches, the newest first, below the number `before`.
    pub(crate) fn find(
        &self,
        filter: &CallFilter,
        before: Option<u64>,
        most: usize,
    ) -> Vec<Arc<FinishedCall>> {
        let calls: Vec<Arc<FinishedCall>> = {
            let state = self.state.lock();
            let older = state.calls.iter().rev().filter(|(call, _)| before.is_none_or(|at| call.number < at));
            older.map(|(call, _)| Arc::clone(call)).collect()
        };
        // Without the lock, which calls wait for.
        calls.into_iter().filter(|call| filter.matches(call)).take(most).collect()
    }

    /// One call; `None` if it is not in memory.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<FinishedCall>> {
        let state = self.state.lock();
        let at = state.calls.binary_search_by_key(&number, |(call, _)| call.number).ok()?;
        state.calls.get(at).map(|(call, _)| Arc::clone(call))
    }

    /// The calls so far, including those that are not in memory any more.
    pub(crate) fn count(&self) -> u64 {
        self.state.lock().last
    }

    /// The sums of the sessions, the most recently used first.
    pub(crate) fn sessions(&self) -> Vec<(String, SessionTotals)> {
        self.state.lock().sessions.list()
    }

    /// The last minutes.
    pub(crate) fn chart(&self) -> Vec<ChartPoint> {
        self.state.lock().chart.points(SystemTime::now())
    }

    /// The calls from now on; `None` if there are `most` readers already.
    pub(crate) fn subscribe(&self, most: usize) -> Option<broadcast::Receiver<Arc<FinishedCall>>> {
        // Counted and added under the lock, so that two requests cannot both be the last one.
        let _state = self.state.lock();
        (self.stream.receiver_count() < most).then(|| self.stream.subscribe())
    }
}

impl AuditObserver for CallHistory {
    fn observe_call(&self, record: &AuditRecord) {
        let (ended, bytes) = (SystemTime::now(), bytes_of(record));
        // The exporter takes what a trace has beyond the record.
        let record = AuditRecord { trace: None, ..record.clone() };
        let mut state = self.state.lock();
        state.last += 1;
        state.chart.add(ended, &record);
        state.sessions.add(ended, &record);
        let call = Arc::new(FinishedCall { number: state.last, ended, record, summary: OnceLock::new() });
        state.bytes += bytes;
        state.calls.push_back((Arc::clone(&call), bytes));
        let mut oldest = None;
        while (state.calls.len() > MAX_CALLS || state.bytes > MAX_BYTES)
            && let Some((call, bytes)) = state.calls.pop_front()
        {
            state.bytes -= bytes;
            oldest = Some(call);
        }
        // Under the lock, in the order of the numbers. Without readers, it does nothing.
        drop(self.stream.send(call));
        drop(state);
        drop(oldest);
    }
}

fn bytes_of(record: &AuditRecord) -> usize {
    let uses: usize = record.uses.iter().map(|used| used.what.len() + 48).sum();
    let hints: usize = record.hints.iter().map(|hint| hint.to_string().len()).sum();
    CALL_BYTES + uses + hints + record.reason.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests;
