//! The requests of a client that are not answered yet.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::RequestId;
use tokio::sync::Notify;

/// Requests that were cancelled and whose ids are remembered.
const MAX_CANCELLED: usize = 64;

/// Requests that are not answered yet.
#[derive(Debug)]
pub(crate) struct Asked {
    most: usize,
    ids: Mutex<Ids>,
    /// One was answered.
    less: Notify,
}

#[derive(Debug, Default)]
struct Ids {
    open: HashSet<RequestId>,
    /// Those that were cancelled last. They may still be on their way to their end, and the answer to one would be taken
    /// for the answer to another.
    cancelled: VecDeque<RequestId>,
}

impl Asked {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, ids: Mutex::default(), less: Notify::new() }
    }

    fn ids(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for one more.
    pub(crate) async fn room(&self) {
        while self.ids().open.len() >= self.most {
            self.less.notified().await;
        }
    }

    /// Whether no more than one waits for its answer.
    pub(crate) fn is_one(&self) -> bool {
        self.ids().open.len() <= 1
    }

    /// Takes one more in; returns whether there was none of this id.
    pub(crate) fn ask(&self, id: &RequestId) -> bool {
        let mut ids = self.ids();
        !ids.cancelled.contains(id) && ids.open.insert(id.clone())
    }

    pub(crate) fn answered(&self, id: &RequestId) {
        if self.ids().open.remove(id) {
            self.less.notify_one();
        }
    }

    /// It is not answered any more.
    pub(crate) fn cancelled(&self, id: &RequestId) {
        let mut ids = self.ids();
        if ids.open.remove(id) {
            ids.cancelled.push_back(id.clone());
            if ids.cancelled.len() > MAX_CANCELLED {
                ids.cancelled.pop_front();
            }
            drop(ids);
            self.less.notify_one();
        }
    }
}
