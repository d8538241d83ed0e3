//! Sends what the buffer holds to a collector.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use toolbay::Host;
use url::Url;

use super::buffer::ExportBuffer;
use super::endpoint::OtlpEndpoint;
use super::spans;

/// How long a span waits for others.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// How long to wait before the second and last attempt.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How long the end of the program may wait for the last export.
const SHUTDOWN_TIME: Duration = Duration::from_secs(3);
/// How often a loss is reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Exports the calls of a host until it is shut down or dropped.
#[derive(Debug)]
pub struct OtlpExporter {
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl OtlpExporter {
    /// Starts to export what `buffer` gets. Requires a tokio runtime.
    #[must_use]
    pub fn start(buffer: Arc<ExportBuffer>, endpoint: OtlpEndpoint, host: Host) -> Self {
        let stop = CancellationToken::new();
        let task = ExportTask { buffer, endpoint, host, loss: LossReport::default() };
        // The exporter owns the task, which ends when it is stopped.
        let task = AbortOnDropHandle::new(tokio::spawn(task.run(stop.clone())));
        Self { stop, task }
    }

    /// Exports what is left, for at most three seconds.
    pub async fn shut_down(self) {
        self.stop.cancel();
        drop(tokio::time::timeout(SHUTDOWN_TIME, self.task).await);
    }
}

struct ExportTask {
    buffer: Arc<ExportBuffer>,
    endpoint: OtlpEndpoint,
    host: Host,
    loss: LossReport,
}

/// The reason why an export failed.
struct ExportError {
    problem: String,
    /// Whether the same request may succeed later.
    is_temporary: bool,
}

impl ExportTask {
    async fn run(mut self, stop: CancellationToken) {
        let mut metrics_due = Instant::now() + self.endpoint.interval;
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.buffer.batch_ready() => {}
                () = tokio::time::sleep(BATCH_DELAY) => {}
            }
            self.export_spans().await;
            if stop.is_cancelled() || Instant::now() >= metrics_due {
                metrics_due = Instant::now() + self.endpoint.interval;
                self.export_metrics().await;
            }
            self.loss.report(self.buffer.lost());
        }
    }

    async fn export_spans(&mut self) {
        while let Some((calls, spans)) = self.buffer.take_batch() {
            let body = spans::export_request(&self.endpoint.resource, &calls);
            drop(calls);
            let sent = self.send(&self.endpoint.traces, body).await;
            if let Err(problem) = sent {
                self.buffer.count_lost(spans);
                self.loss.problem = Some(problem);
            }
        }
    }

    async fn export_metrics(&mut self) {
        let Some(body) = self.buffer.durations().export_request(&self.endpoint.resource) else { return };
        // The counts are cumulative: the next export has everything that this one lost.
        if let Err(problem) = self.send(&self.endpoint.metrics, body).await {
            tracing::debug!(target: "toolbay::telemetry", problem, "metrics were not exported");
        }
    }

    /// Sends a request, a second time if the failure may pass.
    async fn send(&self, url: &Url, body: Vec<u8>) -> Result<(), String> {
        match self.try_send(url, body.clone()).await {
            Err(error) if error.is_temporary => {}
            sent => return sent.map_err(|error| error.problem),
        }
        tokio::time::sleep(RETRY_DELAY).await;
        self.try_send(url, body).await.map_err(|error| error.problem)
    }

    async fn try_send(&self, url: &Url, body: Vec<u8>) -> Result<(), ExportError> {
        let (timeout, headers) = (self.endpoint.timeout, &self.endpoint.headers);
        match tokio::time::timeout(timeout, self.host.post_telemetry(url, headers, body)).await {
            Ok(Ok(200..=299)) => Ok(()),
            Ok(Ok(status)) => Err(ExportError {
                problem: format!("the collector responds with status {status}"),
                // The list of OTLP.
                is_temporary: matches!(status, 429 | 502 | 503 | 504),
            }),
            Ok(Err(problem)) => Err(ExportError { problem, is_temporary: true }),
            // The collector may have received it.
            Err(_) => Err(ExportError {
                problem: format!("the collector does not respond within {} ms", timeout.as_millis()),
                is_temporary: false,
            }),
        }
    }
}

/// Reports lost spans, at most once in [`REPORT_INTERVAL`].
#[derive(Debug, Default)]
struct LossReport {
    /// The last problem of an export.
    problem: Option<String>,
    reported: u64,
    last: Option<Instant>,
}

impl LossReport {
    fn report(&mut self, lost: u64) {
        let is_due = self.last.is_none_or(|last| last.elapsed() >= REPORT_INTERVAL);
        if lost <= self.reported || !is_due {
            return;
        }
        let problem = self.problem.take().unwrap_or_else(|| "more calls end than can be sent".to_owned());
        tracing::warn!(target: "toolbay::telemetry", "{} spans were lost: {problem}", lost - self.reported);
        (self.reported, self.last) = (lost, Some(Instant::now()));
    }
}
