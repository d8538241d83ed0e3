//! Where values come from: the environment, a file, the key ring.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use secrecy::SecretString;
use toolbay_policy::capability::secret::SecretSource;
use zeroize::Zeroizing;

use super::key_ring::KeyRing;

/// Largest value, in bytes: a private key or a service account has four thousand.
const MAX_VALUE_BYTES: usize = 16 << 10;
/// Most links that are followed to a file, as in Linux.
const MAX_LINKS: usize = 40;

/// Reads a value.
///
/// # Errors
/// Why there is none. Nothing of the value is in the text.
pub(super) fn read(
    from: &SecretSource,
    workspace: &Path,
    ring: &mut KeyRing,
) -> Result<SecretString, String> {
    let value = match from {
        SecretSource::Env(name) => environment(name)?,
        SecretSource::File(path) => {
            file(path, workspace).map_err(|problem| format!("the file `{}` {problem}", path.display()))?
        }
        SecretSource::Keyring(name) => ring.read(name)?,
    };
    if value.len() > MAX_VALUE_BYTES {
        return Err(format!("it has {} bytes; at most {MAX_VALUE_BYTES} are taken", value.len()));
    }
    // Moved, not copied: the wiped container takes the allocation over.
    let text = String::from_utf8(value).map_err(|error| {
        drop(Zeroizing::new(error.into_bytes()));
        "it is not UTF-8".to_owned()
    })?;
    Ok(SecretString::from(text))
}

fn environment(name: &str) -> Result<Vec<u8>, String> {
    use std::os::unix::ffi::OsStringExt as _;
    match std::env::var_os(name) {
        Some(value) => Ok(value.into_vec()),
        None => Err(format!("the environment variable `{name}` is not set")),
    }
}

/// The content of a file that only its owner, we or root, can read, less one line break at its end.
fn file(path: &Path, workspace: &Path) -> Result<Vec<u8>, String> {
    let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_path_buf());
    let real = without_links(path, &workspace)?;
    let file = open(&real).map_err(|error| format!("cannot be opened: {error}"))?;
    let meta = file.metadata().map_err(|error| format!("cannot be looked at: {error}"))?;
    if !meta.is_file() {
        return Err("is no regular file".to_owned());
    }
    if meta.uid() != 0 && meta.uid() != rustix::process::geteuid().as_raw() {
        return Err("belongs to another user".to_owned());
    }
    if meta.mode() & 0o077 != 0 {
        let mode = meta.mode() & 0o777;
        return Err(format!("has mode {mode:03o}, so that others can reach it: make it 600 (`chmod 600`)"));
    }
    let most = MAX_VALUE_BYTES + 2;
    // Room for all of it, so that no half of the value stays behind in a buffer that was outgrown.
    let mut value = Zeroizing::new(Vec::with_capacity(most + 1));
    file.take(most as u64 + 1).read_to_end(&mut value).map_err(|error| format!("cannot be read: {error}"))?;
    if value.ends_with(b"\n") {
        value.pop();
        if value.ends_with(b"\r") {
            value.pop();
        }
    }
    Ok(std::mem::take(&mut *value))
}

/// Follows the links of a path, as long as none of them lies in the workspace: whoever writes there (a plugin, a
/// repository) would choose which of the user's files is sent out as a secret.
fn without_links(path: &Path, workspace: &Path) -> Result<PathBuf, String> {
    let mut rest: Vec<PathBuf> = parts(path);
    let mut real = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part.as_os_str() == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&part);
        let is_link = next
            .symlink_metadata()
            .map_err(|error| format!("cannot be opened: {error}"))?
            .file_type()
            .is_symlink();
        if !is_link {
            real = next;
            continue;
        }
        if real.starts_with(workspace) {
            return Err("leads through a link in the workspace, where others write".to_owned());
        }
        links += 1;
        if links > MAX_LINKS {
            return Err("leads through too many links".to_owned());
        }
        let target = next.read_link().map_err(|error| format!("cannot be opened: {error}"))?;
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        rest.extend(parts(&target));
    }
    Ok(real)
}

/// The steps of a path, the first one last.
fn parts(path: &Path) -> Vec<PathBuf> {
    let step = |part: Component<'_>| match part {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    let mut parts: Vec<PathBuf> = path.components().filter_map(step).collect();
    parts.reverse();
    parts
}

/// Opens a path in which there are no links, step by step: one that was put there since we looked ends in an error. A
/// FIFO does not make us wait.
fn open(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut here = rustix::fs::open("/", flags | OFlags::DIRECTORY, Mode::empty())?;
    let mut rest = parts(path);
    while let Some(part) = rest.pop() {
        let kind = if rest.is_empty() { OFlags::NONBLOCK | OFlags::NOCTTY } else { OFlags::DIRECTORY };
        here = rustix::fs::openat(&here, &part, flags | kind, Mode::empty())?;
    }
    Ok(File::from(here))
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
