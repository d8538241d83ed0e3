//! Which processes are alive, for records that name the one that wrote them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// A process: the name of a replica and a random value for each of its starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pub(crate) replica: String,
    pub(crate) incarnation: String,
}

/// The processes that are alive, as one of them sees it. While it has no contact with the store, the others stay alive. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Roster {
    own: Arc<ProcessId>,
    peers: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Roster {
    /// The roster of this process, without others.
    pub(crate) fn new(replica: &str, incarnation: &str) -> Self {
        let own = ProcessId { replica: replica.to_owned(), incarnation: incarnation.to_owned() };
        Self { own: Arc::new(own), peers: Arc::default() }
    }

    /// This process.
    pub(crate) fn own(&self) -> &ProcessId {
        &self.own
    }

    /// Whether a process is alive.
    pub(crate) fn is_alive(&self, process: &ProcessId) -> bool {
        *process == *self.own || self.peers.lock().get(&process.replica) == Some(&process.incarnation)
    }

    /// The number of processes that are alive.
    pub(crate) fn len(&self) -> usize {
        self.peers.lock().len() + 1
    }

    /// Replaces the others: incarnations by the names of replicas.
    pub(crate) fn set_peers(&self, peers: BTreeMap<String, String>) {
        *self.peers.lock() = peers;
    }
}
