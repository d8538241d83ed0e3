//! Assigns plugin ids to the files of a directory.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;

use toolbay_core::tool::PluginOrigin;
use toolbay_distribution::digest::BlobDigest;
use toolbay_policy::Policy;
use toolbay_policy::name::PluginId;

use crate::error::{HostError, LoadError};
use crate::plugins::plain_component;

/// Maximum number of entries of a plugin directory, because it is listed repeatedly.
const MAX_ENTRIES: usize = 65_536;
/// Maximum number of plugins in one directory.
const MAX_PLUGIN_FILES: usize = 16_384;

/// A file with its plugin id.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) file: Arc<Path>,
    pub(crate) id: Result<PluginId, LoadError>,
    /// Whether a `plugin.toml` may exist for it.
    pub(crate) may_have_manifest: bool,
    /// The lock's entry, for a file of a lock.
    pub(crate) locked: Option<LockedComponent>,
}

/// A lock's entry for a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockedComponent {
    /// The only content that is accepted.
    pub(crate) digest: BlobDigest,
    pub(crate) origin: Arc<PluginOrigin>,
}

/// The relevant names in a directory.
struct DirectoryListing {
    /// The names of the `.wasm` files.
    files: BTreeSet<OsString>,
    /// The names of all `.toml` files, folded by [`fold_name`].
    others: HashSet<Vec<u8>>,
}

/// The `.wasm` files of a directory in the order of their names, each with the id that the policy gives it, or else its
/// file stem.
pub(crate) fn candidates(dir: &Path, policy: &Policy) -> Result<Vec<Candidate>, HostError> {
    let DirectoryListing { files, others } = list(dir)?;
    let mut named: BTreeMap<&str, Vec<&PluginId>> = BTreeMap::new();
    for (id, file) in policy.plugins() {
        if let Some(file) = file {
            named.entry(file).or_default().push(id);
        }
    }
    let mut found = Vec::with_capacity(files.len());
    let mut taken = HashSet::new();
    for name in &files {
        let file: Arc<Path> = dir.join(name).into();
        let may_have_manifest = !others.is_empty()
            && others.contains(&fold_name(plain_component::manifest_path(name.as_ref()).as_os_str()));
        let ids = name.to_str().and_then(|name| named.remove(name));
        let ids: Vec<Result<PluginId, LoadError>> = match ids {
            Some(ids) => ids.into_iter().cloned().map(Ok).collect(),
            None => vec![
                PluginId::new(&file.file_stem().unwrap_or_default().to_string_lossy())
                    .map_err(LoadError::InvalidId),
            ],
        };
        for id in ids {
            let id =
                id.and_then(
                    |id| if taken.insert(id.clone()) { Ok(id) } else { Err(LoadError::DuplicateId(id)) },
                );
            found.push(Candidate { file: Arc::clone(&file), id, may_have_manifest, locked: None });
        }
    }
    let is_whole = named.is_empty();
    for (name, ids) in named {
        found.extend(ids.into_iter().map(|id| Candidate {
            file: dir.join(name).into(),
            id: Err(LoadError::MissingFile(id.clone())),
            may_have_manifest: false,
            locked: None,
        }));
    }
    if !is_whole {
        // Sorted by name, like all later listings.
        found.sort_by(|one, other| one.file.cmp(&other.file));
    }
    Ok(found)
}

/// Checks that a directory can be listed and does not have too many entries.
pub(crate) fn check_listing(dir: &Path) -> Result<(), HostError> {
    for_each_entry(dir, |_, _| {})
}

fn list(dir: &Path) -> Result<DirectoryListing, HostError> {
    let mut listed = DirectoryListing { files: BTreeSet::new(), others: HashSet::new() };
    for_each_entry(dir, |name, is_plugin| {
        let kind = Path::new(&name).extension();
        if is_plugin {
            listed.files.insert(name);
        } else if kind.is_some_and(|kind| kind.eq_ignore_ascii_case("toml")) {
            listed.others.insert(fold_name(&name));
        }
    })?;
    Ok(listed)
}

/// Calls `on_entry` with the name of each entry, and whether it is a `.wasm` file.
fn for_each_entry(dir: &Path, mut on_entry: impl FnMut(OsString, bool)) -> Result<(), HostError> {
    let failed = |error| HostError::Directory { path: dir.to_path_buf(), error };
    let crowded = |max: usize, of: &str| failed(std::io::Error::other(format!("more than {max} {of}")));
    let mut plugins = 0;
    for (number, entry) in std::fs::read_dir(dir).map_err(failed)?.enumerate() {
        let name = entry.map_err(failed)?.file_name();
        let is_plugin = Path::new(&name).extension().is_some_and(|kind| kind == "wasm");
        plugins += usize::from(is_plugin);
        if number >= MAX_ENTRIES {
            return Err(crowded(MAX_ENTRIES, "entries"));
        }
        if plugins > MAX_PLUGIN_FILES {
            return Err(crowded(MAX_PLUGIN_FILES, "`.wasm` files"));
        }
        on_entry(name, is_plugin);
    }
    Ok(())
}

/// Folds a name to lower case. On a case-insensitive file system the names may be equal; on others this only costs a
/// look-up of a missing file.
fn fold_name(name: &OsStr) -> Vec<u8> {
    name.as_encoded_bytes().to_ascii_lowercase()
}
