//! The requests of a pipe that are not answered yet.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use rmcp::model::RequestId;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Cancelled requests whose ids are remembered.
const MAX_CANCELLED: usize = 64;

/// Requests that are not answered yet.
#[derive(Debug)]
pub(crate) struct OpenRequests {
    limit: usize,
    ids: Mutex<Ids>,
    /// One was answered.
    answered: Notify,
}

#[derive(Debug, Default)]
struct Ids {
    open: HashMap<RequestId, CancellationToken>,
    /// Those that were cancelled last. They may still be on their way to their end, and the answer to one would be taken
    /// for the answer to another.
    cancelled: VecDeque<RequestId>,
}

impl OpenRequests {
    /// Most open requests.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ids: Mutex::default(), answered: Notify::new() }
    }

    /// Waits until there is room for one more.
    pub(crate) async fn room(&self) {
        while self.ids.lock().open.len() >= self.limit {
            self.answered.notified().await;
        }
    }

    /// Takes one more in, which `cancel` ends; returns whether its id was free.
    pub(crate) fn begin(&self, id: &RequestId, cancel: CancellationToken) -> bool {
        let mut ids = self.ids.lock();
        if ids.cancelled.contains(id) || ids.open.contains_key(id) {
            return false;
        }
        ids.open.insert(id.clone(), cancel);
        true
    }

    /// Whether the client still wants the answer.
    pub(crate) fn is_open(&self, id: &RequestId) -> bool {
        self.ids.lock().open.contains_key(id)
    }

    /// The request was answered.
    pub(crate) fn end(&self, id: &RequestId) {
        if self.ids.lock().open.remove(id).is_some() {
            self.answered.notify_one();
        }
    }

    /// The client does not want the answer any more.
    pub(crate) fn cancel(&self, id: &RequestId) {
        let mut ids = self.ids.lock();
        if let Some(cancel) = ids.open.remove(id) {
            cancel.cancel();
            ids.cancelled.push_back(id.clone());
            if ids.cancelled.len() > MAX_CANCELLED {
                ids.cancelled.pop_front();
            }
            drop(ids);
            self.answered.notify_one();
        }
    }
}
