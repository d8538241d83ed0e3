//! Traces and metrics over OTLP: what is exported, and how it reaches a collector.
//!
//! A call that ends leaves its facts in [`ExportBuffer`], which is bounded and never waits. A task of [`OtlpExporter`]
//! writes them as OTLP messages and sends them. A collector that is down or slow costs spans, which are counted, and
//! never delays a call.

mod buffer;
mod durations;
mod endpoint;
mod exporter;
mod protobuf;
mod resource;
mod spans;

pub use buffer::ExportBuffer;
pub use endpoint::OtlpEndpoint;
pub use exporter::OtlpExporter;

#[cfg(test)]
mod tests;
