//! Caches compiled code and metadata on disk, by the digest of the component, the version and the kind of the engine.
//!
//! Loading native code from a file is as dangerous as running the file. The folder and each file must therefore belong
//! to this user and be writable by nobody else, and the digest of the code is verified before it is mapped. Invalid
//! entries are ignored, compiled again and replaced. Metadata is stored separately, so listing tools maps no code.
//!
//! All programs of a user share one folder. The name of an entry has only what a program without a compiler knows
//! (`engine_key`). wasmtime checks the rest when it loads code: settings of the compiler, features of the processor, and
//! the version (`engine::code_version`). Code that it refuses is compiled again and replaced.
//!
//! Entries that were not used for long are removed, then the least recently used ones until the rest fits. A mapped
//! file stays mapped after its removal, and a removed entry is compiled again, so removal is always safe.
//!
//! The cache also stores an index of each plugin directory, and the functions of interpreters for builds (`compiled_functions`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toolbay_state::digest::Digest;
use toolbay_state::private::{self, make_dir};
use toolbay_state::regular::open_regular;
use wasmtime::component::Component;

use crate::compile::mount::Mount;
use crate::engine::{Engine, EngineKind, code_version};
use crate::native;

/// Increased when the meaning of the stored data changes, that of the descriptors included.
const FORMAT: u32 = 9;
/// Maximum size of a metadata file, in bytes.
const MAX_METADATA: u64 = 16 << 20;

/// Minimum age of a modification time before a use updates it, so that not every start writes.
const TOUCH_INTERVAL: Duration = Duration::from_secs(3600);
/// Age after which a temporary file is removed.
const TEMP_FILE_AGE: Duration = Duration::from_secs(3600);
/// Maximum number of folder entries that a sweep examines.
const MAX_SWEPT: usize = 100_000;
/// The number of hexadecimal digits that identify an engine in file names.
const KEY_DIGITS: usize = 16;

/// The limits of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Maximum total size, in bytes.
    pub bytes: u64,
    /// Maximum time since the last use.
    pub age: Duration,
}

impl Default for CacheLimits {
    fn default() -> Self {
        // About forty components with a whole JavaScript engine, or thousands of ordinary ones.
        Self { bytes: 2 << 30, age: Duration::from_secs(30 * 24 * 3600) }
    }
}

impl CacheLimits {
    /// Removes the entries that were not used for long, then the least recently used until the rest fits. The files of an
    /// entry are removed from the last to the first. Blocks.
    fn enforce(self, mut entries: Vec<CacheEntryFiles>) {
        let now = SystemTime::now();
        entries.sort_by_key(|one| one.used);
        let mut bytes: u64 = entries.iter().map(|one| one.bytes).sum();
        for one in entries {
            let age = now.duration_since(one.used).unwrap_or_default();
            if bytes <= self.bytes && age <= self.age {
                break;
            }
            bytes -= one.bytes;
            for file in one.files.iter().rev() {
                fs::remove_file(file).ok();
            }
        }
    }

    /// Removes the files of a folder with this extension that were not used for long, then the least recently used until the
    /// rest fits, and temporary files that killed processes left. Other files are left alone. Blocks.
    pub fn enforce_in(self, folder: &Path, extension: &str) {
        private::sweep_temporary(folder);
        let Ok(entries) = fs::read_dir(folder) else { return };
        let entries = entries.flatten().take(MAX_SWEPT).filter_map(|entry| {
            let path = entry.path();
            let meta = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            let is_entry = path.extension().is_some_and(|found| found == extension);
            let used = meta.modified().ok().filter(|_| is_entry)?;
            Some(CacheEntryFiles { used, bytes: meta.len(), files: vec![path] })
        });
        self.enforce(entries.collect());
    }
}

/// The files of one entry of a cache, such as those of one component for one engine.
struct CacheEntryFiles {
    used: SystemTime,
    bytes: u64,
    files: Vec<PathBuf>,
}

/// A cache folder that only this user can write.
#[derive(Debug, Clone)]
pub struct Cache {
    dir: PathBuf,
    key: String,
    limits: CacheLimits,
    /// Whether a failed write was logged.
    warned: Arc<Once>,
}

#[derive(Serialize, Deserialize)]
struct StoredMetadata<T> {
    format: u32,
    component: Digest,
    code: Digest,
    descriptor: T,
}

/// The cached metadata of a component.
pub struct CachedMetadata<T> {
    /// What the caller stored with the code.
    pub descriptor: T,
    code_digest: Digest,
}

impl Cache {
    /// Opens the folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be trusted or used. The host then works without a cache.
    pub fn open(dir: &Path, engine: EngineKind, limits: CacheLimits) -> Result<Self, String> {
        make_dir(dir)?;
        check_executable(dir, Mount::of(dir))?;
        let this =
            Self { dir: dir.to_path_buf(), key: engine_key(engine), limits, warned: Arc::new(Once::new()) };
        this.sweep();
        Ok(this)
    }

    /// The same folder, for code of engines of this kind.
    pub(crate) fn for_engine(&self, engine: EngineKind) -> Self {
        Self { key: engine_key(engine), ..self.clone() }
    }

    /// Removes expired entries, then the least recently used until the rest fits. Files of others are left alone.
    fn sweep(&self) {
        let now = SystemTime::now();
        let age = |time: SystemTime| now.duration_since(time).unwrap_or_default();
        let mut kept: BTreeMap<String, CacheEntryFiles> = BTreeMap::new();
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        for entry in entries.flatten().take(MAX_SWEPT) {
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            let (Some(name), true) = (name.to_str(), meta.is_file()) else { continue };
            let time = meta.modified().unwrap_or(now);
            if name.starts_with('.') && name.ends_with(".tmp") && age(time) > TEMP_FILE_AGE {
                fs::remove_file(&path).ok();
            }
            let Some((stem, kind)) = name.split_once('.').filter(|(stem, kind)| is_cache_file(stem, kind))
            else {
                continue;
            };
            let one = kept.entry(stem.to_owned()).or_insert(CacheEntryFiles {
                used: time,
                bytes: 0,
                files: Vec::new(),
            });
            one.bytes += meta.len();
            // Each use touches the metadata or the index, so their time counts. Code is removed last: metadata without code
            // must not exist.
            if kind == "cwasm" {
                one.files.insert(0, path);
            } else {
                one.used = time;
                one.files.push(path);
            }
        }
        self.limits.enforce(kept.into_values().collect());
    }

    fn file(&self, component: &Digest, extension: &str) -> PathBuf {
        self.dir.join(format!("{component}-{}.{extension}", self.key))
    }

    /// The path of a component's code.
    pub fn code_file(&self, component: &Digest) -> PathBuf {
        self.file(component, "cwasm")
    }

    /// The metadata of a component; `None` if there is none that can be used.
    pub fn get<T: DeserializeOwned>(&self, component: &Digest) -> Option<CachedMetadata<T>> {
        let file = self.file(component, "json");
        let bytes = read_trusted(&file, MAX_METADATA)?;
        let stored: StoredMetadata<T> = serde_json::from_slice(&bytes).ok()?;
        if stored.format != FORMAT || stored.component != *component {
            return None;
        }
        touch(&file);
        Some(CachedMetadata { descriptor: stored.descriptor, code_digest: stored.code })
    }

    /// Maps the code of a component whose metadata [`Cache::get`] returned.
    pub fn code<T>(&self, engine: &Engine, component: &Digest, hit: &CachedMetadata<T>) -> Option<Component> {
        let path = self.code_file(component);
        let bytes = read_trusted(&path, u64::MAX)?;
        if Digest::of(&bytes) != hit.code_digest {
            tracing::warn!(file = %path.display(), "the compiled code in the cache is damaged; compiling again");
            return None;
        }
        native::map(engine, &path)
            .inspect_err(|error| {
                tracing::warn!(
                    file = %path.display(), %error,
                    "the compiled code in the cache cannot be mapped; compiling again"
                );
            })
            .ok()
    }

    /// Stores compiled code and metadata.
    ///
    /// # Errors
    /// The disk is full or the folder is gone. The host continues with the code in memory.
    pub fn put(&self, component: &Digest, code: &[u8], descriptor: &impl Serialize) -> Result<(), String> {
        let stored =
            StoredMetadata { format: FORMAT, component: *component, code: Digest::of(code), descriptor };
        let metadata = serde_json::to_vec(&stored).map_err(|e| e.to_string())?;
        // Code first: metadata without code must not exist. Files are replaced atomically, because others may have them
        // mapped.
        private::replace_unsynced(&self.code_file(component), &[code]).map_err(|e| e.to_string())?;
        private::replace_unsynced(&self.file(component, "json"), &[&metadata]).map_err(|e| e.to_string())?;
        self.sweep();
        Ok(())
    }

    /// The compiled functions of a component; `None` if there are none that can be used.
    pub fn functions(&self, component: &Digest) -> Option<Vec<u8>> {
        let file = self.file(component, "functions");
        let mut bytes = read_trusted(&file, u64::MAX)?;
        let digest = bytes.split_off(bytes.len().checked_sub(size_of::<Digest>())?);
        if Digest::of(&bytes).as_bytes() != &*digest {
            tracing::warn!(file = %file.display(), "compiled functions in the cache are damaged; compiling again");
            return None;
        }
        touch(&file);
        Some(bytes)
    }

    /// Stores the compiled functions of a component.
    ///
    /// # Errors
    /// The disk is full or the folder is gone.
    pub fn put_functions(&self, component: &Digest, functions: &[u8]) -> Result<(), String> {
        let file = self.file(component, "functions");
        let digest = Digest::of(functions);
        private::replace_unsynced(&file, &[functions, digest.as_bytes()]).map_err(|e| e.to_string())?;
        self.sweep();
        Ok(())
    }

    /// The file for the index of a directory, which has this absolute path.
    pub fn index_file(&self, dir: &Path) -> PathBuf {
        self.file(&Digest::of(dir.as_os_str().as_encoded_bytes()), "index")
    }

    /// Logs a failed write once: the next ones fail as well, and there may be thousands.
    pub fn warn_once(&self, what: &'static str, error: &str) {
        self.warned.call_once(|| {
            tracing::warn!(folder = %self.dir.display(), error, "{what}");
        });
    }
}

/// Identifies the engine in file names. Programs with other versions, other metering or another architecture have other
/// names, so that they do not replace each other's entries in turn. Of two machines that share a home, the one whose
/// processor has fewer features compiles again, and both run its code. If each has features that the other lacks, they do
/// replace each other's entries, and the operator gives each a folder. The asynchronous kind is left out: the component
/// determines it.
fn engine_key(engine: EngineKind) -> String {
    let (arch, os) = (std::env::consts::ARCH, std::env::consts::OS);
    let engine = format!("{FORMAT} {} {arch} {os} {:?}", code_version(), engine.metering);
    Digest::of(engine.as_bytes()).hex().chars().take(KEY_DIGITS).collect()
}

/// Checks that code can be mapped from the folder. Otherwise each start would find the metadata, and compile in the first
/// call.
fn check_executable(dir: &Path, mount: Mount) -> Result<(), String> {
    match mount {
        Mount::Executable => Ok(()),
        Mount::NoExec => Err(format!(
            "`{}` is on a file system that is mounted with `noexec`, and compiled plugins are mapped from the cache; name \
             another folder with `TOOLBAY_CACHE`",
            dir.display()
        )),
    }
}

/// Whether the cache creates files with such a name: two hex numbers and a known extension.
fn is_cache_file(stem: &str, kind: &str) -> bool {
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    let parts = stem.split_once('-');
    matches!(kind, "json" | "cwasm" | "index" | "functions")
        && parts.is_some_and(|(digest, key)| {
            digest.len() == 64 && key.len() == KEY_DIGITS && hex(digest) && hex(key)
        })
}

/// Records that the entry with this file is in use: its time of modification is that of the last use.
pub fn touch(file: &Path) {
    let now = SystemTime::now();
    let Ok(file) = open_regular(file) else { return };
    let last = file.metadata().and_then(|meta| meta.modified()).unwrap_or(now);
    if now.duration_since(last).unwrap_or_default() > TOUCH_INTERVAL {
        file.set_modified(now).ok();
    }
}

/// Reads a cache file, and logs if it cannot be trusted.
pub fn read_trusted(path: &Path, max_bytes: u64) -> Option<Vec<u8>> {
    private::read(path, max_bytes)
        .inspect_err(|problem| tracing::warn!("a cache file is not used: {problem}"))
        .ok()?
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
