//! The unanswered requests of a stdio connection.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use rmcp::model::RequestId;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::incoming;

/// Most ids of cancelled requests that are remembered.
const MAX_CANCELLED: usize = 64;

/// Requests without a response.
#[derive(Debug)]
pub(crate) struct OpenRequests {
    limit: usize,
    ids: Mutex<RequestIds>,
    /// Notified when a request ends.
    answered: Notify,
}

#[derive(Debug, Default)]
struct RequestIds {
    open: HashMap<RequestId, CancellationToken>,
    /// The last cancelled requests. They may still be running, and their ids must not be reused: a late response would
    /// be attributed to the wrong request.
    cancelled: VecDeque<RequestId>,
}

impl OpenRequests {
    /// Creates the set; `limit` is the most open requests.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ids: Mutex::default(), answered: Notify::new() }
    }

    /// Waits until another request may begin.
    pub(crate) async fn wait_for_capacity(&self) {
        while self.ids.lock().open.len() >= self.limit {
            self.answered.notified().await;
        }
    }

    /// Adds a request, which `cancel` ends. Returns `false` if its id is in use.
    pub(crate) fn begin(&self, id: &RequestId, cancel: CancellationToken) -> bool {
        let mut ids = self.ids.lock();
        if ids.cancelled.contains(id) || ids.open.contains_key(id) {
            return false;
        }
        ids.open.insert(id.clone(), cancel);
        true
    }

    /// Whether the request was neither answered nor cancelled.
    pub(crate) fn is_open(&self, id: &RequestId) -> bool {
        self.ids.lock().open.contains_key(id)
    }

    /// Removes a request that was answered.
    pub(crate) fn finish(&self, id: &RequestId) {
        if self.ids.lock().open.remove(id).is_some() {
            self.answered.notify_one();
        }
    }

    /// Cancels a request. Its id may be text in place of a number, or the other way round.
    pub(crate) fn cancel(&self, id: &RequestId) {
        let mut ids = self.ids.lock();
        let other = incoming::other_form(id).filter(|_| !ids.open.contains_key(id));
        let id = other.as_ref().unwrap_or(id);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancellation_finds_its_request_by_an_equal_id() {
        let (number, text) = (RequestId::Number(3), RequestId::String("3".into()));
        for (open, named) in [(&number, &number), (&number, &text), (&text, &number), (&text, &text)] {
            let requests = OpenRequests::new(9);
            let cancel = CancellationToken::new();
            assert!(requests.begin(open, cancel.clone()));
            requests.cancel(named);
            assert!(cancel.is_cancelled() && !requests.is_open(open));
            assert!(!requests.begin(open, CancellationToken::new()), "its id is not free");
        }
        let requests = OpenRequests::new(9);
        let (one, other) = (CancellationToken::new(), CancellationToken::new());
        assert!(requests.begin(&number, one.clone()) && requests.begin(&text, other.clone()));
        requests.cancel(&text);
        assert!(other.is_cancelled() && !one.is_cancelled(), "the exact id comes first");
    }
}
