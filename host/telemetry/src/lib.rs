//! Metrics of a host, for Prometheus, and its traces and metrics over OTLP. [`Metrics`] and [`ExportBuffer`] observe the audit
//! records, so a host without them does nothing for them.
//!
//! ```
//! use std::sync::Arc;
//! use toolbay::audit::LogAudit;
//! use toolbay::audit::observer::ObservedAudit;
//! use toolbay_telemetry::Metrics;
//!
//! # fn example(policy: toolbay::Policy) -> Result<(), toolbay::HostError> {
//! let metrics = Arc::new(Metrics::new());
//! let audit = ObservedAudit::new(Arc::new(LogAudit), vec![Arc::clone(&metrics) as _]);
//! let host = toolbay::Host::builder(policy).audit(Arc::new(audit)).build()?;
//! metrics.count_reloads(&host);
//! println!("{}", metrics.to_text(&host));
//! # Ok(())
//! # }
//! ```

mod conventions;
mod host;
mod labels;
mod metrics;
mod otlp;

pub use metrics::{CONTENT_TYPE, MAX_TOOLS, Metrics};
pub use otlp::{ExportBuffer, OtlpEndpoint, OtlpExporter};
