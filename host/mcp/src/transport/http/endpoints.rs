//! The endpoints that there are: one without a profile, and one for each profile of the policy.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::server::Server;

/// What fires when an endpoint is gone, for each that was asked for.
#[derive(Debug)]
pub(super) struct Endpoints {
    /// Fires when all of them end.
    stop: CancellationToken,
    profiles: Mutex<HashMap<Box<str>, CancellationToken>>,
}

/// An endpoint: what answers there, and what fires when it is gone.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) server: Arc<Server>,
    pub(super) gone: CancellationToken,
}

impl Endpoints {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { stop, profiles: Mutex::default() }
    }

    /// The endpoint of a profile, if the policy has it.
    pub(super) fn get(&self, server: &Arc<Server>, profile: Option<&str>) -> Option<Endpoint> {
        let Some(name) = profile else {
            return Some(Endpoint { server: Arc::clone(server), gone: self.stop.clone() });
        };
        // Looked for while nobody can end those that are gone: what is found here is told when it goes.
        let mut profiles = self.profiles.lock();
        let server = server.with_profile(profile)?;
        let gone = match profiles.get(name) {
            Some(gone) => gone.clone(),
            None => profiles.entry(name.into()).or_insert(self.stop.child_token()).clone(),
        };
        Some(Endpoint { server, gone })
    }

    /// Ends those that the policy does not have any more.
    pub(super) fn end_those_gone(&self, server: &Arc<Server>) {
        self.profiles.lock().retain(|profile, gone| {
            let is_there = server.with_profile(Some(profile)).is_some();
            if !is_there {
                gone.cancel();
            }
            is_there
        });
    }
}
