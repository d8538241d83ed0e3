//! Compiled code and metadata on disk, by the digest of the component and the version of the engine.
//!
//! Loading native code from a file is as dangerous as running that file, so the folder must belong to this user and
//! be writable by nobody else, and so must each file; the code's own digest is checked before it is mapped. Whatever
//! does not fit is ignored, compiled again and replaced. Metadata stands apart from code: listing tools maps none.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use wasmtime::component::Component;

use crate::descriptor::Descriptor;
use crate::digest::{Digest, sha256};
use crate::engine::Engine;
use crate::native;

/// Grows when what is stored changes its meaning.
const FORMAT: u32 = 1;
/// Largest metadata file that is read, in bytes.
const MAX_METADATA: u64 = 16 << 20;

/// A folder that only this user can write.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    dir: PathBuf,
    key: String,
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
    /// Says why the folder can not be trusted or used; the host then works without a cache.
    pub(crate) fn open(dir: &Path, engine: &Engine) -> Result<Self, String> {
        let shown = dir.display();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|e| format!("`{shown}` can not be made: {e}"))?;
        let meta = fs::symlink_metadata(dir).map_err(|e| format!("`{shown}`: {e}"))?;
        if !meta.is_dir() {
            return Err(format!("`{shown}` is not a folder"));
        }
        trusted(&meta).map_err(|problem| {
            format!("`{shown}` {problem}: only its owner may be able to write it (mode 0700)")
        })?;
        let mut hasher = DefaultHasher::new();
        engine.wasmtime.precompile_compatibility_hash().hash(&mut hasher);
        (FORMAT, env!("CARGO_PKG_VERSION")).hash(&mut hasher);
        Ok(Self { dir: dir.to_path_buf(), key: format!("{:016x}", hasher.finish()) })
    }

    fn file(&self, component: &Digest, extension: &str) -> PathBuf {
        self.dir.join(format!("{component}-{}.{extension}", self.key))
    }

    /// What is known of a component; `None` if nothing is, or nothing that can be used.
    pub(crate) fn get(&self, component: &Digest) -> Option<Hit> {
        let bytes = read_trusted(&self.file(component, "json"), MAX_METADATA)?;
        let stored: Stored = serde_json::from_slice(&bytes).ok()?;
        if stored.format != FORMAT || stored.component != component.as_str() {
            return None;
        }
        Some(Hit { descriptor: stored.descriptor, code_digest: stored.code })
    }

    /// Maps the code of a component that [`Cache::get`] knows.
    pub(crate) fn code(&self, engine: &Engine, component: &Digest, hit: &Hit) -> Option<Component> {
        let path = self.file(component, "cwasm");
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
    pub(crate) fn put(
        &self,
        component: &Digest,
        compiled: &Component,
        descriptor: &Descriptor,
    ) -> Result<Hit, String> {
        let code = compiled.serialize().map_err(|e| e.to_string())?;
        let stored = Stored {
            format: FORMAT,
            component: component.as_str().to_owned(),
            code: sha256(&code).as_str().to_owned(),
            descriptor: descriptor.clone(),
        };
        let metadata = serde_json::to_vec(&stored).map_err(|e| e.to_string())?;
        // Code first: metadata that stands there has its code.
        self.write(&self.file(component, "cwasm"), &code).map_err(|e| e.to_string())?;
        self.write(&self.file(component, "json"), &metadata).map_err(|e| e.to_string())?;
        Ok(Hit { descriptor: stored.descriptor, code_digest: stored.code })
    }

    /// Writes beside and renames: a mapped file is never changed, a reader never sees a part.
    fn write(&self, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |t| t.as_nanos());
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let unique = format!(".{}-{count}-{now:x}.tmp", std::process::id());
        let temporary = self.dir.join(unique);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let done = file.write_all(bytes).and_then(|()| fs::rename(&temporary, path));
        if done.is_err() {
            fs::remove_file(&temporary).ok();
        }
        done
    }
}

/// Belongs to us, and nobody else may write it.
fn trusted(meta: &fs::Metadata) -> Result<(), &'static str> {
    if meta.uid() != rustix::process::geteuid().as_raw() {
        Err("belongs to another user")
    } else if meta.mode() & 0o022 != 0 {
        Err("can be written by others")
    } else {
        Ok(())
    }
}

fn read_trusted(path: &Path, most: u64) -> Option<Vec<u8>> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let mut file: File =
        OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.len() > most {
        return None;
    }
    if let Err(problem) = trusted(&meta) {
        tracing::warn!(file = %path.display(), "file of the cache {problem}; it is not used");
        return None;
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
    file.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
