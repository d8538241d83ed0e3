//! Lent run permits: a call that waits for its nested calls needs no permit meanwhile.

use std::sync::Arc;

use parking_lot::Mutex;
use toolbay_policy::name::PluginId;

use super::fair_semaphore::{FairPermit, SemaphoreState, Waiter, release};

/// The run permit of a call, which lends it while its nested calls run.
#[derive(Debug)]
pub struct LentPermit {
    state: Arc<Mutex<SemaphoreState>>,
    plugin: PluginId,
    permit: Mutex<Option<FairPermit>>,
}

impl LentPermit {
    /// A permit that its call holds for now.
    #[must_use]
    pub fn new(permit: FairPermit) -> Self {
        let (state, plugin) = (Arc::clone(&permit.state), permit.plugin.clone());
        Self { state, plugin, permit: Mutex::new(Some(permit)) }
    }

    /// Releases the permit to the next waiter.
    pub fn lend(&self) {
        drop(self.permit.lock().take());
    }

    /// Waits for the next permit that is free and not reserved for plugins with fewer calls. Calls that have not
    /// started come later. The call's own deadline bounds the wait. Dropping the future gives up.
    pub async fn reclaim(&self) {
        let permit = PermitReclaim::start(&self.state, &self.plugin).wait().await;
        *self.permit.lock() = Some(permit);
    }
}

/// A call that reclaims its lent permit.
struct PermitReclaim {
    state: Arc<Mutex<SemaphoreState>>,
    plugin: PluginId,
    waiter: Arc<Waiter>,
    taken: bool,
}

impl PermitReclaim {
    fn start(state: &Arc<Mutex<SemaphoreState>>, plugin: &PluginId) -> Self {
        let waiter = Arc::new(Waiter::default());
        let granted = {
            let mut state = state.lock();
            state.returning.push_back((plugin.clone(), Arc::clone(&waiter)));
            state.grant_free()
        };
        granted.into_iter().for_each(|waiter| waiter.wake.notify_one());
        Self { state: Arc::clone(state), plugin: plugin.clone(), waiter, taken: false }
    }

    async fn wait(mut self) -> FairPermit {
        while !self.waiter.is_granted() {
            self.waiter.wake.notified().await;
        }
        self.taken = true;
        FairPermit { state: Arc::clone(&self.state), plugin: self.plugin.clone(), queued_us: 0 }
    }
}

impl Drop for PermitReclaim {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut state = self.state.lock();
        state.returning.retain(|(_, waiter)| !Arc::ptr_eq(waiter, &self.waiter));
        drop(state);
        if self.waiter.is_granted() {
            release(&self.state, &self.plugin);
        }
    }
}
