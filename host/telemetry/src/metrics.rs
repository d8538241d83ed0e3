//! The metrics, and how the records of the audit change them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use toolbay::{Host, HostEvent};
use toolbay_core::audit::observer::AuditObserver;
use toolbay_core::audit::{AuditRecord, RequestRecord};
use toolbay_core::tool::ToolSource;

use crate::conventions::OTHER;
use crate::host::HostCollector;
use crate::labels::{self, CallLabels, OneLabel, PluginLabels, RefusalLabels, RefusedCallLabels};

/// Most tools with series of their own. Further ones share the name `_OTHER`.
pub const MAX_TOOLS: usize = 20_000;
/// The prefix of all names.
const PREFIX: &str = "toolbay";
/// The media type of [`Metrics::to_text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of a host.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    tools: RwLock<HashMap<Arc<str>, Arc<ToolMetrics>>>,
    calls: Family<CallLabels, Counter>,
    durations: Family<PluginLabels, Histogram, fn() -> Histogram>,
    queued: Histogram,
    memory: Histogram,
    fuel: Family<PluginLabels, Counter>,
    refusals: Family<RefusalLabels, Counter>,
    refused_calls: Family<RefusedCallLabels, Counter>,
    permissions: Family<OneLabel<&'static str>, Counter>,
    limits: Family<OneLabel<&'static str>, Counter>,
    reloads: Family<OneLabel<&'static str>, Counter>,
    rejected: Family<OneLabel<u16>, Counter>,
    pub(crate) spans_lost: Counter,
}

/// The metrics of one tool, found once.
#[derive(Debug)]
struct ToolMetrics {
    plugin: String,
    /// The name in labels.
    tool: String,
    source: Option<Arc<ToolSource>>,
    good: Counter,
    duration: Histogram,
    fuel: Counter,
}

/// Bounds of a duration, in seconds: 10 µs to 84 s.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(1e-5, 2.5, 18))
}

/// Bounds of a memory size, in bytes: 64 KiB to 4 GiB.
fn sizes() -> Histogram {
    Histogram::new(exponential_buckets(65_536.0, 4.0, 9))
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics without values.
    #[must_use]
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix(PREFIX),
            tools: RwLock::default(),
            calls: Family::default(),
            durations: Family::new_with_constructor(durations),
            queued: durations(),
            memory: sizes(),
            fuel: Family::default(),
            refusals: Family::default(),
            refused_calls: Family::default(),
            permissions: Family::default(),
            limits: Family::default(),
            reloads: Family::default(),
            rejected: Family::default(),
            spans_lost: Counter::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("calls", "Calls by tool and outcome", self.calls.clone());
        registry.register_with_unit(
            "call_duration",
            "Time from the arrival of a call to its result, without what it waited",
            Unit::Seconds,
            self.durations.clone(),
        );
        registry.register_with_unit(
            "queue",
            "Time that calls waited for a run permit",
            Unit::Seconds,
            self.queued.clone(),
        );
        registry.register_with_unit(
            "memory_peak",
            "Largest memory of the guest in a call",
            Unit::Bytes,
            self.memory.clone(),
        );
        registry.register("fuel", "Fuel that calls consumed", self.fuel.clone());
        registry.register("refusals", "Refused uses of capabilities", self.refusals.clone());
        registry.register(
            "refused_calls",
            "Calls that were refused before their tools were started",
            self.refused_calls.clone(),
        );
        registry.register("permissions", "Decisions of the permission rules", self.permissions.clone());
        registry.register("limit_hits", "Calls that a limit ended", self.limits.clone());
        registry.register("reloads", "Plugins and policies that were read again", self.reloads.clone());
        registry.register("http_rejected", "HTTP requests that were refused", self.rejected.clone());
        registry.register("spans_lost", "Spans that did not reach the collector", self.spans_lost.clone());
    }

    /// Counts the reloads of a host from now on. Call it once for each host.
    pub fn count_reloads(&self, host: &Host) {
        let reloads = self.reloads.clone();
        host.events().listen(move |event| {
            let result = match event {
                HostEvent::Registered { .. }
                | HostEvent::Replaced { .. }
                | HostEvent::PolicyReloaded { .. } => "ok",
                HostEvent::NotLoaded { .. } | HostEvent::PolicyRefused { .. } => "failed",
                HostEvent::ConsentRequired { .. } => "held",
                _ => return,
            };
            reloads.get_or_create_owned(&[("result", result)]).inc();
        });
    }

    /// The metrics with the gauges of a host, in the text format of OpenMetrics ([`CONTENT_TYPE`]), which Prometheus
    /// reads.
    #[must_use]
    pub fn to_text(&self, host: &Host) -> String {
        let mut gauges = Registry::with_prefix(PREFIX);
        gauges.register_collector(Box::new(HostCollector(host.clone())));
        let mut text = String::new();
        let written = text::encode_registry(&mut text, &self.registry)
            .and_then(|()| text::encode_registry(&mut text, &gauges))
            .and_then(|()| text::encode_eof(&mut text));
        match written {
            Ok(()) => text,
            // A string takes any text.
            Err(fmt::Error) => String::new(),
        }
    }

    /// The metrics of the tool of a record.
    fn tool(&self, record: &AuditRecord) -> Arc<ToolMetrics> {
        // A caller chooses the names of unknown tools.
        let name: &str = if record.source.is_some() { &record.tool } else { OTHER };
        if let Some(known) = self.tools.read().get(name)
            && known.is_of(record)
        {
            return Arc::clone(known);
        }
        let mut tools = self.tools.write();
        let is_full = tools.len() >= MAX_TOOLS && !tools.contains_key(name);
        let name = if is_full { OTHER } else { name };
        let source = record.source.as_ref().filter(|_| !is_full);
        let tool = Arc::new(self.tool_metrics(name, source));
        tools.insert(name.into(), Arc::clone(&tool));
        tool
    }

    fn tool_metrics(&self, tool: &str, source: Option<&Arc<ToolSource>>) -> ToolMetrics {
        let plugin = source.map_or_else(|| OTHER.to_owned(), |source| labels::plugin(source));
        let of_plugin = PluginLabels { plugin: plugin.clone() };
        let good = CallLabels { plugin: plugin.clone(), tool: tool.to_owned(), outcome: "ok" };
        ToolMetrics {
            tool: tool.to_owned(),
            source: source.cloned(),
            good: self.calls.get_or_create_owned(&good),
            duration: self.durations.get_or_create_owned(&of_plugin),
            fuel: self.fuel.get_or_create_owned(&of_plugin),
            plugin,
        }
    }
}

impl AuditObserver for Metrics {
    /// Counts a call.
    fn observe_call(&self, record: &AuditRecord) {
        let tool = self.tool(record);
        match record.outcome {
            "ok" => drop(tool.good.inc()),
            outcome => drop(self.calls.get_or_create_owned(&tool.labels(outcome)).inc()),
        }
        // A person who thinks, and a queue, make no tool slow.
        tool.duration.observe(seconds(record.working_us()));
        if let Some(reason) = record.refusal {
            let labels = RefusedCallLabels { plugin: tool.plugin.clone(), reason: reason.as_str() };
            self.refused_calls.get_or_create_owned(&labels).inc();
        }
        if let Some(decision) = &record.permission {
            self.permissions.get_or_create_owned(&[("action", decision.action.as_str())]).inc();
        }
        if let Some(limit) = &record.limit {
            self.limits.get_or_create_owned(&[("limit", limit.name)]).inc();
        }
        if record.began {
            self.queued.observe(seconds(record.usage.queued_us));
            if let Some(fuel) = record.usage.fuel {
                tool.fuel.inc_by(fuel);
            }
        }
        if record.usage.peak_memory_bytes > 0 {
            #[allow(clippy::cast_precision_loss, reason = "a memory has at most 2^40 bytes")]
            self.memory.observe(record.usage.peak_memory_bytes as f64);
        }
        for refused in record.uses.iter().filter(|used| !used.allowed) {
            let labels = RefusalLabels { plugin: tool.plugin.clone(), capability: refused.key };
            self.refusals.get_or_create_owned(&labels).inc();
        }
    }

    /// Counts a refused HTTP request.
    fn observe_request(&self, record: &RequestRecord) {
        self.rejected.get_or_create_owned(&[("status", record.status)]).inc();
    }
}

impl ToolMetrics {
    /// Whether a record is of this tool: its name may have belonged to another source before.
    fn is_of(&self, record: &AuditRecord) -> bool {
        match (&self.source, &record.source) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(own, other) || own == other,
            _ => false,
        }
    }

    fn labels(&self, outcome: &'static str) -> CallLabels {
        CallLabels { plugin: self.plugin.clone(), tool: self.tool.clone(), outcome }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a call takes less than 2^52 microseconds")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}
