//! Sources whose tools are still to come, such as a service whose document is being fetched. A list waits a moment for
//! them, and a call waits for the source of its tool. They delay nothing else.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;
use toolbay_policy::name;

use super::Registry;

/// The number of loads of each source, by namespace.
type Sources = BTreeMap<Arc<str>, usize>;

/// The sources of a registry whose tools are still to come.
#[derive(Debug, Clone)]
pub(super) struct PendingSources(watch::Sender<Sources>);

impl Default for PendingSources {
    fn default() -> Self {
        Self(watch::Sender::new(Sources::new()))
    }
}

/// A source whose tools are still to come, until this is dropped.
#[must_use = "the source is pending until this is dropped"]
#[derive(Debug)]
pub struct PendingSource {
    sources: PendingSources,
    namespace: Arc<str>,
}

impl Drop for PendingSource {
    fn drop(&mut self) {
        self.sources.0.send_modify(|sources| {
            if let Some(loads) = sources.get_mut(&self.namespace) {
                *loads -= 1;
                if *loads == 0 {
                    sources.remove(&self.namespace);
                }
            }
        });
    }
}

impl Registry {
    /// Marks a source as pending: its tools, whose names begin with `namespace`, are still to come.
    pub fn begin_source(&self, namespace: &str) -> PendingSource {
        let namespace: Arc<str> = namespace.into();
        self.pending.0.send_modify(|sources| {
            *sources.entry(Arc::clone(&namespace)).or_default() += 1;
        });
        PendingSource { sources: self.pending.clone(), namespace }
    }

    /// Whether a source is pending.
    #[must_use]
    pub fn has_pending_sources(&self) -> bool {
        !self.pending.0.borrow().is_empty()
    }

    /// Waits until no source is pending.
    pub async fn wait_for_sources(&self) {
        let mut sources = self.pending.0.subscribe();
        // An error means that the registry is gone.
        drop(sources.wait_for(BTreeMap::is_empty).await);
    }

    /// Returns a future that waits for the source of a tool name, if that source is pending.
    pub fn wait_for_source_of(&self, tool: &str) -> Option<impl Future<Output = ()> + use<>> {
        let namespace = name::split_qualified(tool)?.0.to_owned();
        let mut sources = self.pending.0.subscribe();
        let is_pending = sources.borrow_and_update().contains_key(&*namespace);
        is_pending.then_some(async move {
            drop(sources.wait_for(|sources| !sources.contains_key(&*namespace)).await);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_source_is_pending_until_its_last_load_ends() {
        let registry = Registry::default();
        assert!(registry.wait_for_source_of("slow__get").is_none());
        registry.wait_for_sources().await;
        let (first, second) = (registry.begin_source("slow"), registry.begin_source("slow"));
        assert!(registry.has_pending_sources());
        assert!(
            registry.wait_for_source_of("other__get").is_none()
                && registry.wait_for_source_of("slow").is_none()
        );
        let waiting = tokio::spawn(registry.wait_for_source_of("slow__get").unwrap());
        drop(first);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "a load that was replaced by another");
        drop(second);
        waiting.await.unwrap();
        assert!(!registry.has_pending_sources());
    }
}
