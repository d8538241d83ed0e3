//! The endpoints: one without a profile, and one for each profile of the policy.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::server::Server;

/// The endpoints that were requested so far, with tokens that fire on their removal.
#[derive(Debug)]
pub(super) struct Endpoints {
    /// Fires when the server shuts down.
    stop: CancellationToken,
    profiles: Mutex<HashMap<Box<str>, CancellationToken>>,
}

/// An endpoint: its server, and the token that fires on its removal.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) server: Arc<Server>,
    pub(super) removed: CancellationToken,
}

impl Endpoints {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { stop, profiles: Mutex::default() }
    }

    /// The endpoint of a profile. `None` if the policy has no such profile.
    pub(super) fn get(&self, server: &Arc<Server>, profile: Option<&str>) -> Option<Endpoint> {
        let Some(name) = profile else {
            return Some(Endpoint { server: Arc::clone(server), removed: self.stop.clone() });
        };
        // Looked up under the lock of `end_removed`, so that a removal of the profile cannot be missed.
        let mut profiles = self.profiles.lock();
        let server = server.with_profile(profile)?;
        let removed = match profiles.get(name) {
            Some(removed) => removed.clone(),
            None => profiles.entry(name.into()).or_insert(self.stop.child_token()).clone(),
        };
        Some(Endpoint { server, removed })
    }

    /// Ends the endpoints of profiles that the policy no longer has.
    pub(super) fn end_removed(&self, server: &Arc<Server>) {
        self.profiles.lock().retain(|profile, removed| {
            let exists = server.with_profile(Some(profile)).is_some();
            if !exists {
                removed.cancel();
            }
            exists
        });
    }
}
