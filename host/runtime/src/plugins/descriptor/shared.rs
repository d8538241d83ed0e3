//! What components say of themselves, each held once however many plugins are this component.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Descriptor;
use crate::plugins::digest::Digest;

/// The descriptors of the plugins of one host, by their digests. Some may be gone.
#[derive(Debug, Default)]
pub(crate) struct Descriptors(Mutex<HashMap<Digest, Weak<Descriptor>>>);

impl Descriptors {
    /// The descriptor that other plugins of this digest have, or else this one. The same bytes say the same.
    pub(crate) fn share(&self, digest: &Digest, descriptor: Descriptor) -> Arc<Descriptor> {
        let mut all = self.0.lock();
        if let Some(shared) = all.get(digest).and_then(Weak::upgrade) {
            return shared;
        }
        let shared = Arc::new(descriptor);
        if all.len() == all.capacity() {
            all.retain(|_, one| one.strong_count() > 0);
        }
        all.insert(digest.clone(), Arc::downgrade(&shared));
        shared
    }
}
