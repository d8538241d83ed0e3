//! Probes whether calls can run, for the readiness of the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use toolbay::Host;

use crate::output::Printer;

/// The pause between two probes.
const PAUSE: Duration = Duration::from_secs(10);
/// The pause while calls cannot run: an operator may just have repaired it.
const FAILING_PAUSE: Duration = Duration::from_secs(1);

/// Why calls cannot run; `None` if they can.
type Problem = Option<Arc<str>>;

/// The probes of a server.
#[derive(Debug)]
pub(super) struct ReadinessProbe {
    printer: Printer,
    problem: watch::Sender<Problem>,
}

impl ReadinessProbe {
    /// Probes again and again, until the handle is dropped.
    pub(super) fn start(printer: Printer, host: &Host) -> (Arc<Self>, AbortOnDropHandle<()>) {
        let probe = Arc::new(Self { printer, problem: watch::Sender::new(None) });
        // Ends with the handle.
        let probes = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&probe).follow(host.clone())));
        (probe, probes)
    }

    /// The results.
    pub(super) fn results(&self) -> watch::Receiver<Problem> {
        self.problem.subscribe()
    }

    /// Probes now, and reports a change to the operator.
    pub(super) async fn run(&self, host: &Host) {
        let found: Problem = host.probe().await.err().map(Arc::from);
        match (&*self.problem.borrow(), &found) {
            // Only the first reason is reported: each probe may name another temporary file.
            (Some(_), Some(_)) | (None, None) => {}
            (None, Some(problem)) => self.printer.error(&format!("no call can run: {problem}")),
            (Some(_), None) => self.printer.note("calls can run again"),
        }
        self.problem.send_replace(found);
    }

    async fn follow(self: Arc<Self>, host: Host) {
        loop {
            let pause = if self.problem.borrow().is_some() { FAILING_PAUSE } else { PAUSE };
            tokio::time::sleep(pause).await;
            self.run(&host).await;
        }
    }
}
