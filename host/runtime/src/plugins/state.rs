//! The states of a plugin file, with one function per transition.
//!
//! | state | how a file gets there |
//! |---|---|
//! | `Found` | its directory lists it |
//! | `Refused` | its name is not a plugin id, or the host rejected its content |
//! | `Compiled` | it was read, and compiled or found in the cache |
//! | `Prepared` | it was joined with its grants and consents, and waits for a consent or for a free name |
//! | `Registered` | the registry has its tools |
//! | `Removed` | `Host::unload` took it out |
//!
//! A registered plugin outlives its file. While a changed file is refused, held or not read yet, the older version
//! stays registered, and the state describes the new one.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use toolbay_capabilities::Services;
use toolbay_core::registry::Bundle;
use toolbay_core::tool::PluginOrigin;
use toolbay_policy::name::PluginId;
use toolbay_sandbox::engine::Metering;
use toolbay_state::digest::Digest;

use crate::error::LoadError;
use crate::plugins::file::Stamp;
use crate::plugins::plugin::Plugin;

/// A file and its plugin id. The policy can give one file several ids.
pub(crate) type FileKey = (Arc<Path>, PluginId);

/// A file that may be a plugin, or a component that was loaded from bytes.
#[derive(Debug)]
pub(crate) struct PluginFile {
    /// `None` for a component that was loaded from bytes.
    pub(crate) path: Option<Arc<Path>>,
    /// `None` if the file has no valid plugin id. Such a file is refused.
    pub(crate) id: Option<PluginId>,
    pub(crate) state: PluginState,
    /// The file at the time it was read; `None` if it must be read.
    pub(crate) record: Option<FileRecord>,
}

/// The stage that a plugin file has reached.
#[derive(Debug)]
pub(crate) enum PluginState {
    Found,
    Refused(Arc<LoadError>),
    Compiled(Arc<Plugin>),
    Prepared(Arc<PreparedPlugin>),
    Registered(Arc<ActivePlugin>),
    /// Contains the state to restore.
    Removed(Box<Self>),
}

/// A file at the time it was read.
#[derive(Debug)]
pub(crate) struct FileRecord {
    pub(crate) stamp: Option<Stamp>,
    /// Whether the stamp identifies the content, in this process and through the index in the next.
    pub(crate) is_stable: bool,
    /// The digest of the content; `None` if it could not be read.
    pub(crate) digest: Option<Digest>,
    /// The registry that a lock named for it.
    pub(crate) origin: Option<Arc<PluginOrigin>>,
    /// When to read the file again even without a change, because the error may be transient.
    pub(crate) retry_at: Option<Instant>,
}

/// The result of reading a file.
#[derive(Debug)]
pub(crate) enum ReadOutcome {
    /// The same bytes as before.
    Unchanged,
    Plugin(Arc<Plugin>),
    Refused(Arc<LoadError>),
}

/// A plugin with its grants, ready to be registered.
#[derive(Debug)]
pub(crate) struct PreparedPlugin {
    pub(crate) active: Arc<ActivePlugin>,
    pub(crate) bundle: Bundle,
    /// The version that the operator agreed to, if this one is held and the cache still has that one.
    pub(crate) agreed: Option<Arc<Plugin>>,
}

/// A registered plugin.
#[derive(Debug)]
pub(crate) struct ActivePlugin {
    pub(crate) plugin: Arc<Plugin>,
    /// The policy under which it was prepared, and the services built from it.
    pub(crate) services: Arc<Services>,
    /// Why the plugin is held and none of its tools can be called.
    pub(crate) held: Option<String>,
    pub(crate) warnings: Vec<String>,
}

impl ActivePlugin {
    /// The metering of the plugin as a whole.
    pub(crate) fn metering(&self) -> Metering {
        Metering::from_limits(&self.services.policy.limits(&self.plugin.id, None))
    }
}

impl PluginFile {
    /// A file that a directory lists.
    pub(crate) fn found(path: Arc<Path>, id: Result<PluginId, LoadError>) -> Self {
        let (id, state) = match id {
            Ok(id) => (Some(id), PluginState::Found),
            Err(error) => (None, PluginState::Refused(Arc::new(error))),
        };
        Self { path: Some(path), id, state, record: None }
    }

    /// A plugin that the embedder loaded directly.
    pub(crate) fn direct(path: Option<Arc<Path>>, plugin: Arc<Plugin>) -> Self {
        Self { path, id: Some(plugin.id.clone()), state: PluginState::Compiled(plugin), record: None }
    }

    /// Whether a directory or a lock lists the file.
    pub(crate) fn is_listed(&self) -> bool {
        self.record.is_some()
    }

    /// Records the result of reading the file. An unloaded plugin comes back only if its content changed.
    pub(crate) fn record_read(&mut self, record: FileRecord, content: ReadOutcome) {
        let new = match content {
            // The record was cleared meanwhile, so the file must be read again.
            ReadOutcome::Unchanged if self.record.is_none() => return,
            ReadOutcome::Unchanged => None,
            ReadOutcome::Plugin(plugin) => Some(PluginState::Compiled(plugin)),
            ReadOutcome::Refused(error) => Some(PluginState::Refused(error)),
        };
        self.record = Some(record);
        match (new, &mut self.state) {
            (None, _) => {}
            (Some(new @ PluginState::Refused(_)), PluginState::Removed(content)) => **content = new,
            (Some(new), state) => *state = new,
        }
    }

    /// Clears a refusal for a wrong digest, because the new policy may pin another one.
    pub(crate) fn clear_pin_refusal(&mut self) {
        if matches!(self.state.content(), Some(Err(error)) if matches!(**error, LoadError::DigestMismatch { .. }))
        {
            self.record = None;
            match &mut self.state {
                PluginState::Removed(content) => **content = PluginState::Found,
                state => *state = PluginState::Found,
            }
        }
    }

    /// The plugin was joined with its grants.
    pub(crate) fn set_prepared(&mut self, plugin: Arc<PreparedPlugin>) {
        self.state = PluginState::Prepared(plugin);
    }

    /// The plugin cannot be prepared under this policy.
    pub(crate) fn reset_prepared(&mut self) {
        if let Some(plugin) = self.plugin() {
            self.state = PluginState::Compiled(Arc::clone(plugin));
        }
    }

    /// Sets the state according to the plugin that the registry has under the id.
    pub(crate) fn set_registered(&mut self, active: Option<&Arc<ActivePlugin>>) {
        if active.is_some() {
            self.clear_removed();
        }
        let Some(plugin) = self.plugin() else { return };
        match active.filter(|active| Arc::ptr_eq(&active.plugin, plugin)) {
            Some(active) => self.state = PluginState::Registered(Arc::clone(active)),
            None if matches!(self.state, PluginState::Registered(_)) => self.reset_prepared(),
            None => {}
        }
    }

    /// Marks the file as unloaded, unless it contains another plugin than the unloaded one.
    pub(crate) fn set_removed(&mut self, plugin: &Arc<Plugin>) {
        if self.is_removed() || self.plugin().is_some_and(|own| !Arc::ptr_eq(own, plugin)) {
            return;
        }
        self.reset_prepared();
        let content = std::mem::replace(&mut self.state, PluginState::Found);
        self.state = PluginState::Removed(Box::new(content));
    }

    /// Allows an unloaded plugin to be registered again.
    pub(crate) fn clear_removed(&mut self) {
        if let PluginState::Removed(content) = &mut self.state {
            self.state = std::mem::replace(&mut **content, PluginState::Found);
        }
    }

    pub(crate) fn is_removed(&self) -> bool {
        matches!(self.state, PluginState::Removed(_))
    }

    /// The plugin, unless it was unloaded.
    pub(crate) fn plugin(&self) -> Option<&Arc<Plugin>> {
        self.state.content()?.ok().filter(|_| !self.is_removed())
    }

    /// The path and id, if the file has both.
    pub(crate) fn key(&self) -> Option<FileKey> {
        Some((self.path.clone()?, self.id.clone()?))
    }

    /// The key that identifies the file in listings: its path, and its id or the reason why it has none.
    pub(crate) fn listing_key(&self) -> (Option<Arc<Path>>, Result<PluginId, String>) {
        let refusal = || self.state.content().and_then(Result::err).map(ToString::to_string);
        (self.path.clone(), self.id.clone().ok_or_else(|| refusal().unwrap_or_default()))
    }
}

impl PluginState {
    /// The plugin in the file or the error; `None` before the file was read.
    pub(crate) fn content(&self) -> Option<Result<&Arc<Plugin>, &Arc<LoadError>>> {
        match self {
            Self::Found => None,
            Self::Refused(error) => Some(Err(error)),
            Self::Compiled(plugin) => Some(Ok(plugin)),
            Self::Prepared(prepared) => Some(Ok(&prepared.active.plugin)),
            Self::Registered(active) => Some(Ok(&active.plugin)),
            Self::Removed(content) => content.content(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> FileRecord {
        FileRecord { stamp: None, is_stable: false, digest: None, origin: None, retry_at: None }
    }

    fn error(file: &PluginFile) -> Option<String> {
        file.state.content().and_then(Result::err).map(ToString::to_string)
    }

    #[test]
    fn a_file_is_read_again_after_its_pin_changed() {
        let id = PluginId::new("a").unwrap();
        let mut file = PluginFile::found(Path::new("/p/a.wasm").into(), Ok(id));
        assert!(matches!(file.state, PluginState::Found) && file.record.is_none());
        let other = || LoadError::DigestMismatch { found: "1".to_owned(), pinned: "2".to_owned() };
        file.record_read(record(), ReadOutcome::Refused(Arc::new(other())));
        assert_eq!(error(&file), Some(other().to_string()));
        file.clear_pin_refusal();
        assert!(matches!(file.state, PluginState::Found) && file.record.is_none());
        // A scan that started under the previous policy found the same bytes.
        file.record_read(record(), ReadOutcome::Unchanged);
        assert!(file.record.is_none(), "the file must be read again");
        let broken = LoadError::Metadata("broken".to_owned());
        file.record_read(record(), ReadOutcome::Refused(Arc::new(broken)));
        file.clear_pin_refusal();
        assert!(error(&file).is_some_and(|error| error.contains("broken")) && file.record.is_some());
    }

    #[test]
    fn a_file_without_an_id_is_refused_from_the_start() {
        let twice = PluginId::new("a").unwrap();
        let mut file = PluginFile::found(Path::new("/p/a.wasm").into(), Err(LoadError::DuplicateId(twice)));
        assert!(error(&file).is_some() && file.key().is_none() && file.plugin().is_none());
        assert_ne!(file.listing_key().1, Ok(PluginId::new("a").unwrap()));
        file.set_registered(None);
        assert!(error(&file).is_some());
    }
}
