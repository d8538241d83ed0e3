//! The sources of secrets: the environment, a file, the key ring.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use secrecy::SecretString;
use toolbay_policy::capability::secret::SecretSource;
use zeroize::Zeroizing;

use super::key_ring::KeyRing;

/// Maximum length of a value, in bytes. A private key or a service account has about 4 KiB.
const MAX_VALUE_BYTES: usize = 16 << 10;
/// Maximum number of symbolic links on the path, as in Linux.
const MAX_LINKS: usize = 40;

/// Reads the value of a source.
///
/// # Errors
/// When there is no usable value. The text contains nothing of the value.
pub(super) fn read(
    from: &SecretSource,
    workspace: &Path,
    ring: &mut KeyRing,
) -> Result<SecretString, String> {
    let value = match from {
        SecretSource::Env(name) => read_environment(name)?,
        SecretSource::File(path) => read_file(path, workspace)
            .map_err(|problem| format!("the file `{}` {problem}", path.display()))?,
        SecretSource::Keyring(name) => ring.read(name)?,
    };
    if value.len() > MAX_VALUE_BYTES {
        return Err(format!("it has {} bytes; at most {MAX_VALUE_BYTES} are read", value.len()));
    }
    // Moved, not copied: `SecretString`, which zeroes its memory, takes over the allocation.
    let text = String::from_utf8(value).map_err(|error| {
        drop(Zeroizing::new(error.into_bytes()));
        "it is not UTF-8".to_owned()
    })?;
    Ok(SecretString::from(text))
}

fn read_environment(name: &str) -> Result<Vec<u8>, String> {
    use std::os::unix::ffi::OsStringExt as _;
    match std::env::var_os(name) {
        Some(value) => Ok(value.into_vec()),
        None => Err(format!("the environment variable `{name}` is not set")),
    }
}

/// Reads a file that belongs to this user or root and that only its owner can access. Removes one trailing line
/// break.
fn read_file(path: &Path, workspace: &Path) -> Result<Vec<u8>, String> {
    let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_path_buf());
    let real = resolve_links(path, &workspace)?;
    let file = open_without_links(&real).map_err(|error| format!("cannot be opened: {error}"))?;
    let meta = file.metadata().map_err(|error| format!("cannot be examined: {error}"))?;
    if !meta.is_file() {
        return Err("is not a regular file".to_owned());
    }
    if meta.uid() != 0 && meta.uid() != rustix::process::geteuid().as_raw() {
        return Err("belongs to another user".to_owned());
    }
    if meta.mode() & 0o077 != 0 {
        let mode = meta.mode() & 0o777;
        return Err(format!("has mode {mode:03o}, which lets other users access it: run `chmod 600`"));
    }
    let max = MAX_VALUE_BYTES + 2;
    // Allocated in full, so that no outgrown buffer keeps a part of the value.
    let mut value = Zeroizing::new(Vec::with_capacity(max + 1));
    file.take(max as u64 + 1).read_to_end(&mut value).map_err(|error| format!("cannot be read: {error}"))?;
    if value.ends_with(b"\n") {
        value.pop();
        if value.ends_with(b"\r") {
            value.pop();
        }
    }
    Ok(std::mem::take(&mut *value))
}

/// Resolves the symbolic links of a path and refuses links in the workspace: a plugin or a repository that writes
/// there could choose which file of the user is sent as a secret.
fn resolve_links(path: &Path, workspace: &Path) -> Result<PathBuf, String> {
    let mut rest: Vec<PathBuf> = components_reversed(path);
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
            return Err("leads through a symbolic link in the workspace, where plugins can write".to_owned());
        }
        links += 1;
        if links > MAX_LINKS {
            return Err("leads through too many symbolic links".to_owned());
        }
        let target = next.read_link().map_err(|error| format!("cannot be opened: {error}"))?;
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        rest.extend(components_reversed(&target));
    }
    Ok(real)
}

/// The components of a path in reverse order.
fn components_reversed(path: &Path) -> Vec<PathBuf> {
    let step = |part: Component<'_>| match part {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    let mut parts: Vec<PathBuf> = path.components().filter_map(step).collect();
    parts.reverse();
    parts
}

/// Opens a path without links, component by component: a link that was added meanwhile is an error. `O_NONBLOCK`
/// keeps a FIFO from blocking the open.
fn open_without_links(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut here = rustix::fs::open("/", flags | OFlags::DIRECTORY, Mode::empty())?;
    let mut rest = components_reversed(path);
    while let Some(part) = rest.pop() {
        let kind = if rest.is_empty() { OFlags::NONBLOCK | OFlags::NOCTTY } else { OFlags::DIRECTORY };
        here = rustix::fs::openat(&here, &part, flags | kind, Mode::empty())?;
    }
    Ok(File::from(here))
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
