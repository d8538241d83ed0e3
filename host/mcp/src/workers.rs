//! Where a call runs: at once on the thread that reads its client, if that has nothing else to answer and the call does not
//! wait; else on those of the runtime that serves.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use crate::stdio::Asked;

/// The threads that work for a client.
#[derive(Clone)]
pub(crate) struct Workers {
    main: Handle,
    asked: Arc<Asked>,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").finish_non_exhaustive()
    }
}

impl Workers {
    pub(crate) fn new(main: Handle, asked: Arc<Asked>) -> Self {
        Self { main, asked }
    }

    /// Does what a request wants; `None`: it panicked on a thread of others. Whoever drops the future ends it.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let mut work = Box::pin(work);
        if self.asked.is_one() {
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
