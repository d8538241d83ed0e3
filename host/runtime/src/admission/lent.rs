//! Places that are lent: a call that waits for calls of its own needs none meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolbay_core::name::PluginId;

use super::{Place, Seat, State, Verdict, lock, release};

/// The place of a call that lends it while calls of its own run.
#[derive(Debug)]
pub(crate) struct Lent {
    state: Arc<Mutex<State>>,
    plugin: PluginId,
    place: Mutex<Option<Place>>,
}

impl Lent {
    pub(crate) fn new(place: Place) -> Self {
        let (state, plugin) = (Arc::clone(&place.state), place.plugin.clone());
        Self { state, plugin, place: Mutex::new(Some(place)) }
    }

    /// Gives the place to whoever is next.
    pub(crate) fn give(&self) {
        drop(self.held().take());
    }

    /// Waits for the next place that becomes free, before everybody who has not begun yet and without an end of its own: it
    /// is its call's. Dropping the future gives up.
    pub(crate) async fn take_back(&self) {
        let place = Return::begin(&self.state, &self.plugin).place().await;
        *self.held() = Some(place);
    }

    fn held(&self) -> MutexGuard<'_, Option<Place>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that wants the place back that it lent.
struct Return {
    state: Arc<Mutex<State>>,
    plugin: PluginId,
    seat: Arc<Seat>,
    taken: bool,
}

impl Return {
    fn begin(state: &Arc<Mutex<State>>, plugin: &PluginId) -> Self {
        let seat = Arc::new(Seat::default());
        let granted = {
            let mut state = lock(state);
            state.returning.push_back((plugin.clone(), Arc::clone(&seat)));
            state.hand_out()
        };
        granted.into_iter().for_each(|seat| seat.wake.notify_one());
        Self { state: Arc::clone(state), plugin: plugin.clone(), seat, taken: false }
    }

    async fn place(mut self) -> Place {
        while self.seat.verdict() != Verdict::Granted {
            self.seat.wake.notified().await;
        }
        self.taken = true;
        Place { state: Arc::clone(&self.state), plugin: self.plugin.clone(), queued_us: 0 }
    }
}

impl Drop for Return {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut state = lock(&self.state);
        state.returning.retain(|(_, seat)| !Arc::ptr_eq(seat, &self.seat));
        drop(state);
        if self.seat.verdict() == Verdict::Granted {
            release(&self.state, &self.plugin);
        }
    }
}
