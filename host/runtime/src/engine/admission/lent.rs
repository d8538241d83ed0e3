//! Places that are lent: a call that waits for calls of its own needs none meanwhile.

use std::sync::Arc;

use parking_lot::Mutex;
use toolbay_policy::name::PluginId;

use super::fair::{FairPermit, State, Verdict, Waiter, lock, release};

/// The place of a call that lends it while calls of its own run.
#[derive(Debug)]
pub(crate) struct Lent {
    state: Arc<Mutex<State>>,
    plugin: PluginId,
    place: Mutex<Option<FairPermit>>,
}

impl Lent {
    pub(crate) fn new(place: FairPermit) -> Self {
        let (state, plugin) = (Arc::clone(&place.state), place.plugin.clone());
        Self { state, plugin, place: Mutex::new(Some(place)) }
    }

    /// Gives the place to whoever is next.
    pub(crate) fn give(&self) {
        drop(self.place.lock().take());
    }

    /// Waits for the next place that becomes free and is not reserved for plugins with fewer, before everybody who has not
    /// begun yet and without an end of its own: it is its call's. Dropping the future gives up.
    pub(crate) async fn take_back(&self) {
        let place = Return::begin(&self.state, &self.plugin).place().await;
        *self.place.lock() = Some(place);
    }
}

/// A call that wants the place back that it lent.
struct Return {
    state: Arc<Mutex<State>>,
    plugin: PluginId,
    waiter: Arc<Waiter>,
    taken: bool,
}

impl Return {
    fn begin(state: &Arc<Mutex<State>>, plugin: &PluginId) -> Self {
        let waiter = Arc::new(Waiter::default());
        let granted = {
            let mut state = lock(state);
            state.returning.push_back((plugin.clone(), Arc::clone(&waiter)));
            state.hand_out()
        };
        granted.into_iter().for_each(|waiter| waiter.wake.notify_one());
        Self { state: Arc::clone(state), plugin: plugin.clone(), waiter, taken: false }
    }

    async fn place(mut self) -> FairPermit {
        while self.waiter.verdict() != Verdict::Granted {
            self.waiter.wake.notified().await;
        }
        self.taken = true;
        FairPermit { state: Arc::clone(&self.state), plugin: self.plugin.clone(), queued_us: 0 }
    }
}

impl Drop for Return {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut state = lock(&self.state);
        state.returning.retain(|(_, waiter)| !Arc::ptr_eq(waiter, &self.waiter));
        drop(state);
        if self.waiter.verdict() == Verdict::Granted {
            release(&self.state, &self.plugin);
        }
    }
}
