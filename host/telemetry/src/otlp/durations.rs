//! The duration metrics of the conventions: histograms by tool and error, for all calls whether sampled or not.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use toolbay_core::audit::AuditRecord;
use toolbay_core::call::trace::CallTrace;

use super::protobuf::{AttributeValue, Message};
use super::resource::Resource;
use crate::conventions as names;

/// Most series. Calls of further tools share the name `_OTHER`.
const MAX_SERIES: usize = 2000;
/// Upper bounds of the buckets, in seconds. A native call takes less than the 10 ms of the conventions' first bucket.
const BOUNDS: [f64; 14] = [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0];
/// `AGGREGATION_TEMPORALITY_CUMULATIVE` of OTLP.
const CUMULATIVE: u64 = 2;

/// The histograms.
#[derive(Debug)]
pub(super) struct Durations {
    since: SystemTime,
    series: Mutex<HashMap<SeriesKey, Histogram>>,
}

/// The attributes of a series.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SeriesKey {
    tool: Arc<str>,
    /// Whether a protocol server received the call: the metric.
    is_server: bool,
    error: Option<&'static str>,
}

#[derive(Debug, Clone, Default)]
struct Histogram {
    /// One more than there are bounds.
    buckets: [u64; BOUNDS.len() + 1],
    sum: f64,
}

impl Default for Durations {
    fn default() -> Self {
        Self { since: SystemTime::now(), series: Mutex::default() }
    }
}

impl Durations {
    /// Counts a call.
    pub(super) fn observe(&self, record: &AuditRecord, trace: &CallTrace) {
        let is_server = trace.request().is_some() && record.outer.is_none();
        let failed = (record.outcome != "ok").then_some(record.outcome);
        let other = || Arc::from(names::OTHER);
        let key = SeriesKey {
            // A caller chooses the names of unknown tools.
            tool: record.source.as_ref().map_or_else(other, |_| Arc::clone(&record.tool)),
            is_server,
            error: failed.map(|outcome| if is_server { names::TOOL_ERROR } else { outcome }),
        };
        let seconds = Duration::from_micros(record.duration_us).as_secs_f64();
        let mut series = self.series.lock();
        let is_full = series.len() >= MAX_SERIES && !series.contains_key(&key);
        let key = if is_full { SeriesKey { tool: other(), ..key } } else { key };
        series.entry(key).or_default().observe(seconds);
    }

    /// Writes the export request of all series; `None` if there are none.
    pub(super) fn export_request(&self, resource: &Resource) -> Option<Vec<u8>> {
        let series = self.series.lock().clone();
        let (since, now) = (nanos(self.since), nanos(SystemTime::now()));
        let times = (since, now);
        (!series.is_empty()).then(|| {
            resource.export_request(|scope| {
                write_metric(scope, names::SERVER_OPERATION_DURATION, &series, true, times);
                write_metric(scope, names::EXECUTE_TOOL_DURATION, &series, false, times);
            })
        })
    }
}

impl Histogram {
    fn observe(&mut self, seconds: f64) {
        let at = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        if let Some(bucket) = self.buckets.get_mut(at) {
            *bucket += 1;
        }
        self.sum += seconds;
    }
}

/// Writes a `Metric` with one `HistogramDataPoint` for each series.
fn write_metric(
    scope: &mut Message,
    name: &str,
    all: &HashMap<SeriesKey, Histogram>,
    is_server: bool,
    (since, now): (u64, u64),
) {
    let mut of_metric = all.iter().filter(|(key, _)| key.is_server == is_server).peekable();
    if of_metric.peek().is_none() {
        return;
    }
    scope.message(2, |metric| {
        metric.text(1, name);
        metric.text(3, "s");
        metric.message(9, |histogram| {
            for (key, values) in of_metric {
                histogram.message(1, |point| {
                    point.fixed64(2, since);
                    point.fixed64(3, now);
                    point.fixed64(4, values.buckets.iter().sum());
                    point.double(5, values.sum);
                    point.packed(6, values.buckets.iter().map(|count| count.to_le_bytes()));
                    point.packed(7, BOUNDS.iter().map(|bound| bound.to_le_bytes()));
                    key.write(point);
                });
            }
            histogram.varint(2, CUMULATIVE);
        });
    });
}

impl SeriesKey {
    fn write(&self, point: &mut Message) {
        let mut text = |name, value| point.attribute(9, (name, AttributeValue::Text(value)));
        text(names::OPERATION_NAME, names::EXECUTE_TOOL);
        text(names::TOOL_NAME, &self.tool);
        if self.is_server {
            text(names::METHOD_NAME, names::TOOLS_CALL);
        }
        if let Some(error) = self.error {
            text(names::ERROR_TYPE, error);
        }
    }
}

fn nanos(time: SystemTime) -> u64 {
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}
