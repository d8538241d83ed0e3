//! The life of a plugin file: one state per file, and one function per change of it.
//!
//! | state | how a file gets there |
//! |---|---|
//! | `Found` | its directory lists it |
//! | `Refused` | its name is no plugin id; or it was read and is no plugin that this host takes |
//! | `Compiled` | it was read, and compiled or found in the cache |
//! | `Prepared` | it was joined with the grants and consents of the policy; it waits for a consent or for a free name |
//! | `Registered` | the registry has its tools |
//! | `Removed` | `Host::unload` took it out |
//!
//! A registered plugin outlives its file: when the file is refused, held or not read yet, the older version stays
//! registered, and only its file's state says what became of the new one.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use toolbay_core::registry::Bundle;
use toolbay_policy::name::PluginId;

use crate::capability::Services;
use crate::engine::Metering;
use crate::error::LoadError;
use crate::plugins::digest::Digest;
use crate::plugins::file::Stamp;
use crate::plugins::plugin::Plugin;

/// A file and the plugin it is to be. The policy can give one file several ids.
pub(crate) type FileKey = (Arc<Path>, PluginId);

/// A file that may be a plugin, or a component that was given as bytes.
#[derive(Debug)]
pub(crate) struct PluginFile {
    /// `None`: a component given as bytes.
    pub(crate) path: Option<Arc<Path>>,
    /// `None`: no plugin id leads to the file; it is refused.
    pub(crate) id: Option<PluginId>,
    pub(crate) state: PluginState,
    /// What the file was when it was read; `None`: it is to be read.
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
    /// With the state that it goes back to.
    Removed(Box<Self>),
}

/// A file as it was when it was read.
#[derive(Debug)]
pub(crate) struct FileRecord {
    pub(crate) stamp: Option<Stamp>,
    /// Whether the stamp alone says what is in the file, in this process and by the index in the next.
    pub(crate) stands: bool,
    /// The digest of its content, if it could be read.
    pub(crate) digest: Option<Digest>,
    /// When to read it again without a change: the reason it was refused for may pass.
    pub(crate) again: Option<Instant>,
}

/// The content of a file that was read.
#[derive(Debug)]
pub(crate) enum Content {
    /// The same bytes as before, which need no new judgement.
    Unchanged,
    Plugin(Arc<Plugin>),
    Refused(Arc<LoadError>),
}

/// A plugin with its grants, ready to be registered.
#[derive(Debug)]
pub(crate) struct PreparedPlugin {
    pub(crate) active: Arc<ActivePlugin>,
    pub(crate) bundle: Bundle,
}

/// A registered plugin.
#[derive(Debug)]
pub(crate) struct ActivePlugin {
    pub(crate) plugin: Arc<Plugin>,
    /// The policy under which it was prepared, and what stands behind it.
    pub(crate) services: Arc<Services>,
    /// Why none of its tools can be called.
    pub(crate) held: Option<String>,
    pub(crate) warnings: Vec<String>,
}

impl ActivePlugin {
    /// The limits of the plugin as a whole.
    pub(crate) fn metering(&self) -> Metering {
        Metering::of(&self.services.policy.limits(&self.plugin.id, None))
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

    /// A plugin that an embedder gave to the host.
    pub(crate) fn given(path: Option<Arc<Path>>, plugin: Arc<Plugin>) -> Self {
        Self { path, id: Some(plugin.id.clone()), state: PluginState::Compiled(plugin), record: None }
    }

    /// It was read. A plugin that was removed comes back only as another one.
    pub(crate) fn read(&mut self, record: FileRecord, content: Content) {
        let new = match content {
            // What was forgotten meanwhile is to be read again.
            Content::Unchanged if self.record.is_none() => return,
            Content::Unchanged => None,
            Content::Plugin(plugin) => Some(PluginState::Compiled(plugin)),
            Content::Refused(error) => Some(PluginState::Refused(error)),
        };
        self.record = Some(record);
        match (new, &mut self.state) {
            (None, _) => {}
            (Some(new @ PluginState::Refused(_)), PluginState::Removed(content)) => **content = new,
            (Some(new), state) => *state = new,
        }
    }

    /// The policy is another one: a file that was refused since other bytes were pinned is to be read again.
    pub(crate) fn forget_pin(&mut self) {
        if matches!(self.state.content(), Some(Err(error)) if matches!(**error, LoadError::Digest { .. })) {
            self.record = None;
            match &mut self.state {
                PluginState::Removed(content) => **content = PluginState::Found,
                state => *state = PluginState::Found,
            }
        }
    }

    /// Its plugin was joined with its grants.
    pub(crate) fn prepared(&mut self, plugin: Arc<PreparedPlugin>) {
        self.state = PluginState::Prepared(plugin);
    }

    /// Its plugin cannot have its grants under this policy; the next policy may be another one.
    pub(crate) fn unprepared(&mut self) {
        if let Some(plugin) = self.plugin() {
            self.state = PluginState::Compiled(Arc::clone(plugin));
        }
    }

    /// The registry has `active` under its id now.
    pub(crate) fn registered(&mut self, active: Option<&Arc<ActivePlugin>>) {
        if active.is_some() {
            self.readmitted();
        }
        let Some(plugin) = self.plugin() else { return };
        match active.filter(|active| Arc::ptr_eq(&active.plugin, plugin)) {
            Some(active) => self.state = PluginState::Registered(Arc::clone(active)),
            None if matches!(self.state, PluginState::Registered(_)) => self.unprepared(),
            None => {}
        }
    }

    /// What runs under its id is taken out by hand. A file that holds another plugin stays.
    pub(crate) fn removed(&mut self, plugin: &Arc<Plugin>) {
        if self.is_removed() || self.plugin().is_some_and(|own| !Arc::ptr_eq(own, plugin)) {
            return;
        }
        self.unprepared();
        let content = std::mem::replace(&mut self.state, PluginState::Found);
        self.state = PluginState::Removed(Box::new(content));
    }

    /// What was taken out by hand may be registered again.
    pub(crate) fn readmitted(&mut self) {
        if let PluginState::Removed(content) = &mut self.state {
            self.state = std::mem::replace(&mut **content, PluginState::Found);
        }
    }

    pub(crate) fn is_removed(&self) -> bool {
        matches!(self.state, PluginState::Removed(_))
    }

    /// Its plugin, unless it was removed.
    pub(crate) fn plugin(&self) -> Option<&Arc<Plugin>> {
        self.state.content()?.ok().filter(|_| !self.is_removed())
    }

    /// Its file with its id, if it has both.
    pub(crate) fn key(&self) -> Option<FileKey> {
        Some((self.path.clone()?, self.id.clone()?))
    }

    /// What its directory lists it as: its file with its id, or why it has none.
    pub(crate) fn listed(&self) -> (Option<Arc<Path>>, Result<PluginId, String>) {
        let refusal = || self.state.content().and_then(Result::err).map(ToString::to_string);
        (self.path.clone(), self.id.clone().ok_or_else(|| refusal().unwrap_or_default()))
    }
}

impl PluginState {
    /// What the file came to when it was read.
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
        FileRecord { stamp: None, stands: false, digest: None, again: None }
    }

    fn error(file: &PluginFile) -> Option<String> {
        file.state.content().and_then(Result::err).map(ToString::to_string)
    }

    #[test]
    fn a_pin_that_was_forgotten_is_judged_anew() {
        let id = PluginId::new("a").unwrap();
        let mut file = PluginFile::found(Path::new("/p/a.wasm").into(), Ok(id));
        assert!(matches!(file.state, PluginState::Found) && file.record.is_none());
        let other = || LoadError::Digest { found: "1".to_owned(), pinned: "2".to_owned() };
        file.read(record(), Content::Refused(Arc::new(other())));
        assert_eq!(error(&file), Some(other().to_string()));
        file.forget_pin();
        assert!(matches!(file.state, PluginState::Found) && file.record.is_none());
        // A look that began under the policy before found the same bytes.
        file.read(record(), Content::Unchanged);
        assert!(file.record.is_none(), "it is to be read again");
        let broken = LoadError::Metadata("broken".to_owned());
        file.read(record(), Content::Refused(Arc::new(broken)));
        file.forget_pin();
        assert!(error(&file).is_some_and(|error| error.contains("broken")) && file.record.is_some());
    }

    #[test]
    fn a_file_without_an_id_is_refused_from_the_start() {
        let twice = PluginId::new("a").unwrap();
        let mut file = PluginFile::found(Path::new("/p/a.wasm").into(), Err(LoadError::DuplicateId(twice)));
        assert!(error(&file).is_some() && file.key().is_none() && file.plugin().is_none());
        assert_ne!(file.listed().1, Ok(PluginId::new("a").unwrap()));
        file.registered(None);
        assert!(error(&file).is_some());
    }
}
