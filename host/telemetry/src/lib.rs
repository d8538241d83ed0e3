//! Metrics of a host, for Prometheus. [`MetricsAudit`] derives them from the audit records, so a host without it does
//! nothing for them.
//!
//! ```
//! use std::sync::Arc;
//! use toolbay_core::audit::LogAudit;
//! use toolbay_telemetry::{Metrics, MetricsAudit};
//!
//! # fn example(policy: toolbay::Policy) -> Result<(), toolbay::HostError> {
//! let metrics = Arc::new(Metrics::new());
//! let audit = MetricsAudit::new(Arc::new(LogAudit), Arc::clone(&metrics));
//! let host = toolbay::Host::builder(policy).audit(Arc::new(audit)).build()?;
//! metrics.count_reloads(&host);
//! println!("{}", metrics.to_text(&host));
//! # Ok(())
//! # }
//! ```

mod audit;
mod host;
mod labels;
mod metrics;

pub use audit::MetricsAudit;
pub use metrics::{CONTENT_TYPE, MAX_TOOLS, Metrics};
