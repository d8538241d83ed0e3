//! Metrics of a host, for Prometheus, and its traces and metrics over OTLP. [`TelemetryAudit`] derives them from the audit
//! records, so a host without it does nothing for them.
//!
//! ```
//! use std::sync::Arc;
//! use toolbay_core::audit::LogAudit;
//! use toolbay_telemetry::{Metrics, TelemetryAudit};
//!
//! # fn example(policy: toolbay::Policy) -> Result<(), toolbay::HostError> {
//! let metrics = Arc::new(Metrics::new());
//! let audit = TelemetryAudit::new(Arc::new(LogAudit), Some(Arc::clone(&metrics)), None);
//! let host = toolbay::Host::builder(policy).audit(Arc::new(audit)).build()?;
//! metrics.count_reloads(&host);
//! println!("{}", metrics.to_text(&host));
//! # Ok(())
//! # }
//! ```

mod audit;
mod conventions;
mod host;
mod labels;
mod metrics;
mod otlp;

pub use audit::TelemetryAudit;
pub use metrics::{CONTENT_TYPE, MAX_TOOLS, Metrics};
pub use otlp::{ExportBuffer, OtlpEndpoint, OtlpExporter};
