//! Compiled code and metadata on disk, by the digest of the component and the version of the engine.
//!
//! Loading native code from a file is as dangerous as running that file, so the folder must belong to this user and
//! be writable by nobody else, and so must each file; the code's own digest is checked before it is mapped. Whatever
//! does not fit is ignored, compiled again and replaced. Metadata stands apart from code: listing tools maps none.
//!
//! What was not used for long goes, and what was used longest ago when there is too much. A file that is mapped stays
//! mapped when its name is gone, and what is needed again is compiled again, so nothing breaks by it.
//!
//! Beside that it keeps for each plugin directory what its files were hashed to ([`Index`]).

mod index;

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use wasmtime::component::Component;

use crate::engine::Engine;
use crate::engine::native;
use crate::plugins::descriptor::Descriptor;
use crate::plugins::digest::{Digest, sha256};
use crate::storage::private::{self, make_dir};
use crate::storage::regular::open_regular;
use index::MAX_INDEX;
pub(crate) use index::{Hashed, Index};

/// Grows when what is stored changes its meaning.
const FORMAT: u32 = 6;
/// Largest metadata file that is read, in bytes.
const MAX_METADATA: u64 = 16 << 20;

/// How long after its last use the time of an entry is brought up to date: not at every start.
const USED_AGAIN: Duration = Duration::from_secs(3600);
/// How old a file must be that a writer left half-done.
const LEFT_OVER: Duration = Duration::from_secs(3600);
/// Most entries of the folder that are looked at; what is beyond them is looked at once there are fewer.
const MAX_LISTED: usize = 100_000;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// All files together.
    pub(crate) bytes: u64,
    /// Since the last use.
    pub(crate) age: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        // Some forty components of a whole JavaScript engine, thousands of ordinary ones.
        Self { bytes: 2 << 30, age: Duration::from_secs(30 * 24 * 3600) }
    }
}

/// A folder that only this user can write.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    dir: PathBuf,
    key: String,
    bounds: Bounds,
    /// Whether the log was told that nothing can be stored.
    told: Arc<Once>,
}

/// The files of one component for one engine.
struct Kept {
    used: SystemTime,
    bytes: u64,
    files: Vec<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    component: String,
    code: String,
    descriptor: Descriptor,
}

/// What the cache knows of a component.
pub(crate) struct Hit {
    pub(crate) descriptor: Descriptor,
    code_digest: String,
}

impl Cache {
    /// Opens the folder, making it if it is not there.
    ///
    /// # Errors
    /// Says why the folder cannot be trusted or used; the host then works without a cache.
    pub(crate) fn open(dir: &Path, engine: &Engine, bounds: Bounds) -> Result<Self, String> {
        make_dir(dir)?;
        let this = Self { dir: dir.to_path_buf(), key: key(engine), bounds, told: Arc::new(Once::new()) };
        this.sweep();
        Ok(this)
    }

    /// The same folder, for what this engine compiles.
    pub(crate) fn of_engine(&self, engine: &Engine) -> Self {
        Self { key: key(engine), ..self.clone() }
    }

    /// Removes what is too old, and what was used longest ago until the rest is small enough. Files that are not this
    /// cache's are left alone.
    fn sweep(&self) {
        let now = SystemTime::now();
        let age = |time: SystemTime| now.duration_since(time).unwrap_or_default();
        let mut kept: BTreeMap<String, Kept> = BTreeMap::new();
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        for entry in entries.flatten().take(MAX_LISTED) {
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            let (Some(name), true) = (name.to_str(), meta.is_file()) else { continue };
            let time = meta.modified().unwrap_or(now);
            if name.starts_with('.') && name.ends_with(".tmp") && age(time) > LEFT_OVER {
                fs::remove_file(&path).ok();
            }
            let Some((stem, kind)) = name.split_once('.').filter(|(stem, kind)| is_ours(stem, kind)) else {
                continue;
            };
            let one = kept.entry(stem.to_owned()).or_insert(Kept { used: time, bytes: 0, files: Vec::new() });
            one.bytes += meta.len();
            // Metadata is read at each use, and says when that was; so is an index.
            if kind != "cwasm" {
                one.used = time;
            }
            one.files.push(path);
        }
        let mut kept: Vec<Kept> = kept.into_values().collect();
        kept.sort_by_key(|one| one.used);
        let mut bytes: u64 = kept.iter().map(|one| one.bytes).sum();
        for one in kept {
            if bytes <= self.bounds.bytes && age(one.used) <= self.bounds.age {
                break;
            }
            bytes -= one.bytes;
            // Metadata first: what stands there has its code.
            for file in one.files.iter().rev() {
                fs::remove_file(file).ok();
            }
        }
    }

    fn file(&self, component: &Digest, extension: &str) -> PathBuf {
        self.dir.join(format!("{component}-{}.{extension}", self.key))
    }

    /// Where the code of a component stands, if it does.
    pub(crate) fn code_file(&self, component: &Digest) -> PathBuf {
        self.file(component, "cwasm")
    }

    /// What is known of a component; `None` if nothing is, or nothing that can be used.
    pub(crate) fn get(&self, component: &Digest) -> Option<Hit> {
        let file = self.file(component, "json");
        let bytes = read_trusted(&file, MAX_METADATA)?;
        let stored: Stored = serde_json::from_slice(&bytes).ok()?;
        if stored.format != FORMAT || stored.component != component.as_str() {
            return None;
        }
        self.used(&file);
        Some(Hit { descriptor: stored.descriptor, code_digest: stored.code })
    }

    /// Notes that an entry is in use.
    fn used(&self, metadata: &Path) {
        let now = SystemTime::now();
        let Ok(file) = open_regular(metadata) else { return };
        let last = file.metadata().and_then(|meta| meta.modified()).unwrap_or(now);
        if now.duration_since(last).unwrap_or_default() > USED_AGAIN {
            file.set_modified(now).ok();
        }
    }

    /// Maps the code of a component that [`Cache::get`] knows.
    pub(crate) fn code(&self, engine: &Engine, component: &Digest, hit: &Hit) -> Option<Component> {
        let path = self.code_file(component);
        let bytes = read_trusted(&path, u64::MAX)?;
        if sha256(&bytes).as_str() != hit.code_digest {
            tracing::warn!(file = %path.display(), "compiled code in the cache is not what was stored; compiling again");
            return None;
        }
        native::map(engine, &path)
            .inspect_err(|error| tracing::warn!(file = %path.display(), %error, "compiled code does not load; compiling again"))
            .ok()
    }

    /// Stores what was compiled.
    ///
    /// # Errors
    /// When the disk is full or the folder is gone; the host goes on with what it has in memory.
    pub(crate) fn put(&self, component: &Digest, code: &[u8], descriptor: &Descriptor) -> Result<(), String> {
        let stored = Stored {
            format: FORMAT,
            component: component.as_str().to_owned(),
            code: sha256(code).as_str().to_owned(),
            descriptor: descriptor.clone(),
        };
        let metadata = serde_json::to_vec(&stored).map_err(|e| e.to_string())?;
        // Code first: metadata that stands there has its code. A mapped file is never changed, a reader never sees a part.
        private::put(&self.code_file(component), &[code]).map_err(|e| e.to_string())?;
        private::put(&self.file(component, "json"), &[&metadata]).map_err(|e| e.to_string())?;
        self.sweep();
        Ok(())
    }

    /// What the files of a directory were hashed to, as far as that is known. An index that cannot be used is told, and
    /// there is none then: the next one takes its place.
    pub(crate) fn index(&self, dir: &Path) -> Index {
        let (file, dir) = self.index_file(dir);
        let Some(bytes) = read_trusted(&file, MAX_INDEX) else { return Index::default() };
        match Index::parse(&bytes, &dir) {
            Ok(index) => {
                self.used(&file);
                index
            }
            Err(problem) => {
                tracing::warn!(
                    file = %file.display(), directory = %dir.display(),
                    "the index of plugin files is not used, {problem}: each file is read, and the index made anew"
                );
                Index::default()
            }
        }
    }

    /// Stores what the files of a directory were hashed to, if that is not what is stored.
    ///
    /// # Errors
    /// When the disk is full or the folder cannot be written; each file is read at the next start then.
    pub(crate) fn put_index(&self, dir: &Path, index: &Index) -> Result<(), String> {
        let (file, dir) = self.index_file(dir);
        let bytes = index.to_bytes(&dir).map_err(|e| e.to_string())?;
        let stored = private::read(&file, MAX_INDEX);
        let is_stored = match &stored {
            Ok(Some(stored)) => *stored == bytes,
            Ok(None) => index.is_empty(),
            Err(_) => false,
        };
        if is_stored {
            return Ok(());
        }
        private::put(&file, &[&bytes]).map_err(|e| e.to_string())
    }

    /// Where the index of a directory stands, and the directory's own path from the root.
    fn index_file(&self, dir: &Path) -> (PathBuf, PathBuf) {
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
        (self.file(&sha256(dir.as_os_str().as_encoded_bytes()), "index"), dir)
    }

    /// Tells that something could not be stored: once, since the next will not be either, and there may be thousands.
    pub(crate) fn tell_once(&self, what: &'static str, error: &str) {
        self.told.call_once(|| {
            tracing::warn!(folder = %self.dir.display(), error, "{what}");
        });
    }
}

/// What code of one engine has in its name: its version, and all settings that code depends on, whether work is counted
/// among them.
fn key(engine: &Engine) -> String {
    let mut hasher = DefaultHasher::new();
    engine.wasmtime.precompile_compatibility_hash().hash(&mut hasher);
    (FORMAT, env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Whether a file's name is one that this cache gives: two numbers in hex, and what it is.
fn is_ours(stem: &str, kind: &str) -> bool {
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    let parts = stem.split_once('-');
    matches!(kind, "json" | "cwasm" | "index")
        && parts.is_some_and(|(digest, key)| digest.len() == 64 && key.len() == 16 && hex(digest) && hex(key))
}

/// Reads a file of the cache, and logs one that cannot be trusted.
fn read_trusted(path: &Path, most: u64) -> Option<Vec<u8>> {
    private::read(path, most)
        .inspect_err(|problem| tracing::warn!("a file of the cache is not used: {problem}"))
        .ok()?
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
