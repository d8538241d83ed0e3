//! Shares descriptors between plugins with the same component.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use toolbay_state::digest::Digest;

use super::Descriptor;

/// The descriptors of a host's plugins by digest. Some may have been dropped.
#[derive(Debug, Default)]
pub(crate) struct DescriptorCache(Mutex<HashMap<Digest, Weak<Descriptor>>>);

impl DescriptorCache {
    /// Returns the descriptor that is already shared for this digest, or else shares this one.
    pub(crate) fn share(&self, digest: &Digest, descriptor: Descriptor) -> Arc<Descriptor> {
        let mut all = self.0.lock();
        if let Some(shared) = all.get(digest).and_then(Weak::upgrade) {
            return shared;
        }
        let shared = Arc::new(descriptor);
        if all.len() == all.capacity() {
            all.retain(|_, one| one.strong_count() > 0);
        }
        all.insert(*digest, Arc::downgrade(&shared));
        shared
    }
}
