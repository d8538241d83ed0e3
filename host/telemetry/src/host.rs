//! Metrics that are read from the host at each scrape.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use toolbay::{Host, LoadError};
use toolbay_core::call::shared::SharedStatus;

/// The gauges of a host.
pub(crate) struct HostCollector(pub(crate) Host);

impl fmt::Debug for HostCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostCollector")
    }
}

impl Collector for HostCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Self(host) = self;
        let running = host.pipeline().running().count();
        let held =
            host.problems().iter().filter(|one| matches!(&*one.error, LoadError::ConsentRequired(_))).count();
        let lost = host.pipeline().audit().health().map_or(0, |health| health.lost);
        gauge(&mut encoder, "calls_running", "Calls in progress", running)?;
        gauge(&mut encoder, "plugins_held", "Plugins that wait for consent", held)?;
        let stopped = usize::from(host.pipeline().running().stopped().is_some());
        gauge(&mut encoder, "stopped", "1 while the operator has stopped all calls", stopped)?;
        if let Some(shared) = host.pipeline().shared_status() {
            encode_shared(&mut encoder, &shared)?;
        }
        let counter = ConstCounter::new(lost);
        let help = "Audit records that were lost";
        counter.encode(encoder.encode_descriptor("audit_lost", help, None, counter.metric_type())?)?;
        let build = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("wasmtime", toolbay::WASMTIME_VERSION),
            ("contract", toolbay::CONTRACT),
        ];
        let one = ConstGauge::new(1_i64);
        let mut info = encoder.encode_descriptor("build_info", "This program", None, MetricType::Gauge)?;
        one.encode(info.encode_family(&build)?)?;
        let mut info = encoder.encode_descriptor("plugin_info", "Loaded plugins", None, MetricType::Gauge)?;
        for plugin in host.plugins() {
            let version = plugin.about.map(|about| about.version).unwrap_or_default();
            let labels = [
                ("plugin", plugin.id.to_string()),
                ("version", version),
                ("digest", plugin.digest.to_string()),
            ];
            one.encode(info.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// The gauges of a server that shares state with others.
fn encode_shared(encoder: &mut DescriptorEncoder<'_>, shared: &SharedStatus) -> Result<(), fmt::Error> {
    let contact = usize::from(shared.refusing.is_none());
    gauge(encoder, "shared_contact", "1 while this server accepts calls", contact)?;
    let epoch = usize::try_from(shared.epoch.unwrap_or(0)).unwrap_or(usize::MAX);
    gauge(encoder, "shared_epoch", "The published epoch in force", epoch)?;
    gauge(encoder, "shared_servers", "Servers that are alive", shared.others.len() + 1)?;
    gauge(encoder, "shared_queues", "Serial queues whose lease this server has", shared.queues)?;
    gauge(encoder, "shared_budgets", "Shared budgets that this server takes part in", shared.budgets)
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: usize,
) -> Result<(), fmt::Error> {
    let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}
