//! `toolbay.lock`: which plugins of registries run, each pinned to a manifest and a component. It belongs in version
//! control beside the policy. The consents of operators are not in it.
//!
//! A command replaces the file as a whole, so a reader sees the old or the new one. Writers exclude each other by a lock
//! on the folder. Unknown keys and versions are refused: a newer program may have written a restriction.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::Spanned;
use toolbay_core::tool::PluginOrigin;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::hidden_chars::is_hidden;
use toolbay_policy::name::PluginId;
use toolbay_policy::quantity::show_duration;
use toolbay_state::private;
use toolbay_state::regular::read_regular_text;

use crate::digest::BlobDigest;
use crate::reference::Reference;

/// The name of the file, in the folder of the policy.
pub const FILE_NAME: &str = "toolbay.lock";
/// Begins the names of files that are still being written, in the same folder.
const TEMPORARY: &str = ".toolbay.lock.";
/// The version of the format.
const VERSION: i64 = 1;
/// Largest lock in bytes: ten thousand plugins.
const MAX_BYTES: u64 = 4 << 20;
/// The signer of a plugin without a signature.
const UNSIGNED: &str = "none";
/// Begins the signer of a plugin that a key signed.
const KEY: &str = "key:";
/// Begins the signer of a plugin that a certificate signed.
const KEYLESS: &str = "keyless:";
/// Longest issuer, and longest identity, in characters.
pub(crate) const MAX_IDENTITY: usize = 500;
/// Longest time of a signature, in bytes.
const MAX_TIME: usize = 40;
/// Longest text of a signer in a message, in characters.
const MAX_SHOWN: usize = 100;
/// The first lines of the file.
const HEAD: &str = "# Written by `toolbay add`. Commit this file; `toolbay fetch` downloads what it names.\n";

/// A plugin of the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedPlugin {
    /// The repository: `oci://HOST/REPOSITORY`.
    pub source: String,
    /// The tag that the operator named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The manifest.
    pub manifest: BlobDigest,
    /// The component.
    pub layer: BlobDigest,
    /// The size of the component in bytes.
    pub size: u64,
    /// Who signed it.
    pub signer: Signer,
    /// The signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<BlobDigest>,
    /// When it was signed (RFC 3339), as a log or an authority confirms; absent for the signature of a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_at: Option<String>,
}

impl LockedPlugin {
    /// The reference to exactly this manifest.
    ///
    /// # Errors
    /// The source is not a repository.
    pub fn reference(&self) -> Result<Reference, String> {
        let text = format!("{}@{}", self.source, self.manifest);
        text.parse().map_err(|error: String| format!("`source`: {error}"))
    }

    /// What the host records about the plugin with each of its tools.
    #[must_use]
    pub fn origin(&self) -> PluginOrigin {
        let tag = self.tag.iter().map(|tag| format!(":{tag}")).collect::<String>();
        PluginOrigin {
            reference: format!("{}{tag}", self.source),
            manifest: self.manifest.to_string(),
            signer: self.signer.to_string(),
        }
    }
}

/// Who signed a plugin: `none`, `key:` and the [id](crate::signature::key::PublicKey::id) of a key, or `keyless:` with an
/// issuer and an identity, `|` between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signer {
    /// Unsigned, or by a signer whose signature was not checked. The operator agreed to that.
    None,
    /// A key that a `[[trust]]` rule of the policy names.
    Key(BlobDigest),
    /// An identity that a `[[trust]]` rule of the policy covers, by a certificate.
    Keyless {
        /// Who vouched for the identity.
        issuer: String,
        /// The identity.
        identity: String,
    },
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str(UNSIGNED),
            Self::Key(id) => write!(f, "{KEY}{}", id.hex()),
            Self::Keyless { issuer, identity } => write!(f, "{KEYLESS}{issuer}|{identity}"),
        }
    }
}

impl FromStr for Signer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || {
            let shown = one_line(text, MAX_SHOWN);
            format!(
                "`{shown}` is not a signer: `{UNSIGNED}`, `{KEY}` and 64 hex digits, or `{KEYLESS}ISSUER|IDENTITY` is \
                 expected"
            )
        };
        if let Some(hex) = text.strip_prefix(KEY) {
            return BlobDigest::from_hex(hex).map(Self::Key).ok_or_else(unknown);
        }
        if let Some(both) = text.strip_prefix(KEYLESS) {
            let (issuer, identity) = both.split_once('|').ok_or_else(unknown)?;
            let is_good = |part: &str| {
                !part.is_empty() && part.chars().count() <= MAX_IDENTITY && !part.contains(is_hidden)
            };
            let signer = Self::Keyless { issuer: issuer.to_owned(), identity: identity.to_owned() };
            return (is_good(issuer) && is_good(identity)).then_some(signer).ok_or_else(unknown);
        }
        if text == UNSIGNED { Ok(Self::None) } else { Err(unknown()) }
    }
}

impl Serialize for Signer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Signer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The plugins of a lock, by id.
pub type LockedPlugins = BTreeMap<PluginId, LockedPlugin>;

/// The kinds of errors of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockErrorKind {
    /// The file cannot be read, or is not understood.
    Unusable,
    /// The file cannot be written, or another process holds its folder.
    Unwritable,
}

/// Why a lock cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", at_line(.path, *.line, .message))]
pub struct LockError {
    /// Whether the lock is wrong, or the system fails.
    pub kind: LockErrorKind,
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: Option<usize>,
    /// What is wrong and what to do.
    pub message: String,
}

#[derive(Deserialize)]
struct VersionLine {
    version: Spanned<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadLock {
    version: Spanned<i64>,
    #[serde(default)]
    plugin: Vec<Spanned<ReadEntry>>,
}

/// A plugin with its id. `serde(flatten)` would lose the refusal of unknown keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadEntry {
    id: String,
    source: String,
    tag: Option<String>,
    manifest: BlobDigest,
    layer: BlobDigest,
    size: u64,
    signer: Signer,
    bundle: Option<BlobDigest>,
    signed_at: Option<String>,
}

#[derive(Serialize)]
struct WrittenLock<'a> {
    version: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    plugin: Vec<WrittenEntry<'a>>,
}

#[derive(Serialize)]
struct WrittenEntry<'a> {
    id: &'a str,
    #[serde(flatten)]
    plugin: &'a LockedPlugin,
}

/// Reads a lock. A lock that does not exist is empty. Blocks.
///
/// # Errors
/// The file cannot be read, has conflict markers, an unknown version or key, or names a plugin twice.
pub fn read(path: &Path) -> Result<LockedPlugins, LockError> {
    Ok(read_existing(path)?.unwrap_or_default())
}

/// Reads the text of a lock.
///
/// # Errors
/// As [`read`]; the path of the error is [`FILE_NAME`].
pub fn from_text(text: &str) -> Result<LockedPlugins, LockError> {
    parse_file(Path::new(FILE_NAME), text)
}

/// Reads a lock; `None` if it does not exist.
pub(crate) fn read_existing(path: &Path) -> Result<Option<LockedPlugins>, LockError> {
    read_lock_text(path)?.map(|text| parse_file(path, &text)).transpose()
}

/// The text of a lock; `None` if it does not exist.
fn read_lock_text(path: &Path) -> Result<Option<String>, LockError> {
    match read_regular_text(path, MAX_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(path, None, error.to_string())),
    }
}

fn parse_file(path: &Path, text: &str) -> Result<LockedPlugins, LockError> {
    parse(text).map_err(|(line, message)| unusable(path, line, message))
}

fn unusable(path: &Path, line: Option<usize>, message: String) -> LockError {
    LockError { kind: LockErrorKind::Unusable, path: path.to_path_buf(), line, message }
}

/// A lock that is read again and again. It is parsed only if its text has changed. Clones share what was parsed.
#[derive(Debug, Clone)]
pub struct LockFile {
    path: PathBuf,
    last: Arc<Mutex<Option<ParsedLock>>>,
}

/// The text of a lock and what it says.
type ParsedLock = (String, Arc<LockedPlugins>);

impl LockFile {
    /// The lock at a path. It need not exist.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), last: Arc::default() }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the lock; `None` if it does not exist. Blocks.
    ///
    /// # Errors
    /// As [`read`].
    pub fn read(&self) -> Result<Option<Arc<LockedPlugins>>, LockError> {
        let Some(text) = read_lock_text(&self.path)? else { return Ok(None) };
        let mut last = self.last.lock();
        if let Some((of, plugins)) = &*last
            && *of == text
        {
            return Ok(Some(Arc::clone(plugins)));
        }
        let plugins = Arc::new(parse_file(&self.path, &text)?);
        *last = Some((text, Arc::clone(&plugins)));
        Ok(Some(plugins))
    }
}

/// Replaces a lock by an edited one, and returns what `edit` returns. Waits up to `wait` for other writers. A lock that
/// `edit` does not change is left. Blocks.
///
/// # Errors
/// Fails if the file cannot be read, locked or written, or with the error of `edit`. Nothing is written then.
pub fn update<T, E: From<LockError>>(
    path: &Path,
    wait: Duration,
    edit: impl FnOnce(&mut LockedPlugins) -> Result<T, E>,
) -> Result<T, E> {
    let kind = LockErrorKind::Unwritable;
    let failed = |message: String| LockError { kind, path: path.to_path_buf(), line: None, message };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let guard =
        lock_folder(folder, wait).map_err(|error| failed(format!("its folder cannot be locked: {error}")))?;
    remove_abandoned(folder);
    let before = read(path)?;
    let mut plugins = before.clone();
    let result = edit(&mut plugins)?;
    if plugins == before {
        return Ok(result);
    }
    let text = to_text(&plugins).map_err(failed)?;
    replace(path, folder, &text).map_err(|error| failed(format!("it cannot be written: {error}")))?;
    drop(guard);
    Ok(result)
}

/// The text of a lock.
pub(crate) fn to_text(plugins: &LockedPlugins) -> Result<String, String> {
    let entries = plugins.iter().map(|(id, plugin)| WrittenEntry { id: id.as_str(), plugin });
    let text = toml::to_string(&WrittenLock { version: VERSION, plugin: entries.collect() });
    Ok(format!("{HEAD}{}", text.map_err(|error| error.to_string())?))
}

fn at_line(path: &Path, line: Option<usize>, message: &str) -> String {
    let line = line.map(|line| format!(", line {line}")).unwrap_or_default();
    format!("`{}`{line}: {message}", path.display())
}

/// Parses a lock. The error has the line, if it is known.
pub(crate) fn parse(text: &str) -> Result<LockedPlugins, (Option<usize>, String)> {
    let is_marker =
        |line: &str| ["<<<<<<<", "=======", ">>>>>>>"].iter().any(|marker| line.starts_with(marker));
    if let Some(at) = text.lines().position(is_marker) {
        let message = "it has a merge conflict: keep whole `[[plugin]]` tables, and remove the markers";
        return Err((Some(at + 1), message.to_owned()));
    }
    let line = |at: usize| Some(1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count());
    let in_line = |(at, message): (usize, String)| (line(at), message);
    let of_toml =
        |error: toml::de::Error| (error.span().and_then(|span| line(span.start)), error.message().to_owned());
    let read = toml::from_str::<ReadLock>(text).or_else(|error| {
        // Another version may have other keys.
        check_version(&toml::from_str::<VersionLine>(text).map_err(of_toml)?.version).map_err(in_line)?;
        Err(of_toml(error))
    })?;
    check_version(&read.version).map_err(in_line)?;
    let mut plugins = LockedPlugins::new();
    for entry in read.plugin {
        // Counted for errors only: it takes as long as the rest.
        let start = entry.span().start;
        let wrong = |message: String| in_line((start, message));
        let ReadEntry { id, source, tag, manifest, layer, size, signer, bundle, signed_at } =
            entry.into_inner();
        let id = PluginId::new(&id).map_err(|error| wrong(error.to_string()))?;
        if (signer == Signer::None) != bundle.is_none() {
            return Err(wrong("`signer` and `bundle` do not match: a signed plugin has both".to_owned()));
        }
        let is_time = |c: char| c.is_ascii_alphanumeric() || ":.+-".contains(c);
        if signed_at.as_ref().is_some_and(|time| time.len() > MAX_TIME || !time.chars().all(is_time)) {
            return Err(wrong("`signed_at` is not a time".to_owned()));
        }
        let plugin = LockedPlugin { source, tag, manifest, layer, size, signer, bundle, signed_at };
        plugin.reference().map_err(wrong)?;
        if plugins.insert(id.clone(), plugin).is_some() {
            return Err(wrong(format!("the plugin `{id}` is there twice: remove one of the tables")));
        }
    }
    Ok(plugins)
}

/// Checks the version of a lock. The error has its place.
fn check_version(version: &Spanned<i64>) -> Result<(), (usize, String)> {
    if *version.get_ref() == VERSION {
        return Ok(());
    }
    let message = format!("`version = {}`: this program reads version {VERSION}", version.get_ref());
    Err((version.span().start, message))
}

/// Locks a folder against other writers of its lock, until the returned handle is dropped. A lock on the file itself
/// would end when the file is replaced.
fn lock_folder(folder: &Path, wait: Duration) -> io::Result<File> {
    let handle = File::open(folder)?;
    if private::retry_until(wait, || private::try_lock(&handle))? {
        return Ok(handle);
    }
    let held = format!("another process has held it for {}", show_duration(wait));
    Err(io::Error::new(ErrorKind::TimedOut, held))
}

/// Removes what killed writers left. The caller holds the lock on the folder, so no writer runs.
fn remove_abandoned(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes()) {
            std::fs::remove_file(entry.path()).ok();
        }
    }
}

/// Replaces a file atomically, also across a crash of the system.
fn replace(path: &Path, folder: &Path, text: &str) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(TEMPORARY).permissions(readable()).tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

/// The mode of the file: it is committed, and holds nothing secret.
fn readable() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o644)
}

#[cfg(test)]
#[path = "lock_tests.rs"]
mod tests;
