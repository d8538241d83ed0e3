//! Where a call runs: at once on the thread that reads its client, if the call does not wait and, over stdio, the client has
//! nothing else to be answered; else on those of the runtime that serves.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use crate::server::asked::Asked;

/// The threads that work for a client.
#[derive(Clone)]
pub(crate) struct Workers {
    main: Handle,
    /// What a client of one thread waits for.
    asked: Option<Arc<Asked>>,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").finish_non_exhaustive()
    }
}

impl Workers {
    /// Those for a client that asks many things over one pipe.
    pub(crate) fn new(main: Handle, asked: Arc<Asked>) -> Self {
        Self { main, asked: Some(asked) }
    }

    /// Those for one request.
    pub(crate) fn of_request(main: Handle) -> Self {
        Self { main, asked: None }
    }

    /// Does what a request wants; `None`: it panicked on a thread of others. Whoever drops the future ends it.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let mut work = Box::pin(work);
        if self.asked.as_ref().is_none_or(|asked| asked.is_one()) {
            // What it begins is begun there: this thread has the client to look after.
            let first = poll_fn(|context| {
                let _entered = self.main.enter();
                Poll::Ready(work.as_mut().poll(context))
            });
            if let Poll::Ready(done) = first.await {
                return Some(done);
            }
        }
        AbortOnDropHandle::new(self.main.spawn(work)).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::RequestId;
    use std::thread::{self, ThreadId};
    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::oneshot;

    fn runtime() -> Runtime {
        Builder::new_multi_thread().worker_threads(1).build().unwrap()
    }

    /// Workers for a client that waits for so many answers.
    fn workers(main: &Runtime, open: i64) -> Workers {
        let asked = Arc::new(Asked::new(8));
        assert!((0..open).all(|id| asked.ask(&RequestId::Number(id))));
        Workers::new(main.handle().clone(), asked)
    }

    /// On which threads a work is done that waits in between, and whether what it begins is begun by the workers.
    async fn places(workers: &Workers, waits: bool) -> (ThreadId, ThreadId, ThreadId) {
        let work = async move {
            let before = thread::current().id();
            let begun = tokio::spawn(async { thread::current().id() });
            if waits {
                tokio::task::yield_now().await;
            }
            (before, thread::current().id(), begun)
        };
        let (before, after, begun) = workers.work(work).await.unwrap();
        (before, after, begun.await.unwrap())
    }

    #[test]
    fn one_call_begins_where_it_was_read_and_goes_on_elsewhere_if_it_waits() {
        let main = runtime();
        let alone = Builder::new_current_thread().build().unwrap();
        let here = thread::current().id();
        alone.block_on(async {
            let (before, after, begun) = places(&workers(&main, 1), false).await;
            assert!(before == here && after == here && begun != here);
            let (before, after, begun) = places(&workers(&main, 1), true).await;
            assert!(before == here && after != here && begun != here);
            let (before, after, begun) = places(&workers(&main, 2), false).await;
            assert!(before != here && after != here && begun != here, "others wait to be read");
            let (before, after, begun) = places(&Workers::of_request(main.handle().clone()), true).await;
            assert!(before == here && after != here && begun != here);
        });
    }

    #[test]
    fn what_panics_elsewhere_is_told_and_what_nobody_waits_for_ends() {
        let main = runtime();
        let alone = Builder::new_current_thread().build().unwrap();
        alone.block_on(async {
            assert_eq!(workers(&main, 2).work(async { panic!("boom") }).await, None::<()>);
            let (held, gone) = oneshot::channel::<()>();
            let workers = workers(&main, 1);
            let mut work = Box::pin(workers.work(async move {
                let _held = held;
                std::future::pending::<()>().await;
            }));
            assert!(futures_util::poll!(&mut work).is_pending());
            drop(work);
            assert!(gone.await.is_err());
        });
    }
}
