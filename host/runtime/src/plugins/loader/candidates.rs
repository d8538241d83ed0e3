//! Which files of a directory are to be which plugins.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;

use toolbay_policy::Policy;
use toolbay_policy::name::PluginId;

use crate::error::{HostError, LoadError};
use crate::plugins::foreign;

/// Most entries of a plugin directory, of whatever kind: they are looked at again and again.
const MAX_ENTRIES: usize = 65_536;
/// Most plugins of one directory.
const MAX_PLUGIN_FILES: usize = 16_384;

/// A file with the id under which it is to be loaded.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) file: Arc<Path>,
    pub(crate) id: Result<PluginId, LoadError>,
    /// Whether there may be a file beside it.
    pub(crate) beside: bool,
}

/// What a directory lists.
struct Listed {
    /// The names of the `.wasm` files.
    files: BTreeSet<OsString>,
    /// The names of all others that may stand beside one, as [`plain`] has them.
    others: HashSet<Vec<u8>>,
}

/// The `.wasm` files of a directory in the order of their names, each with its plugin's id: the one the policy gives
/// the file, or else the file's stem.
pub(crate) fn candidates(dir: &Path, policy: &Policy) -> Result<Vec<Candidate>, HostError> {
    let Listed { files, others } = list(dir)?;
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
        let beside =
            !others.is_empty() && others.contains(&plain(foreign::beside(name.as_ref()).as_os_str()));
        let ids = name.to_str().and_then(|name| named.remove(name));
        let ids: Vec<Result<PluginId, LoadError>> = match ids {
            Some(ids) => ids.into_iter().cloned().map(Ok).collect(),
            None => vec![
                PluginId::new(&file.file_stem().unwrap_or_default().to_string_lossy()).map_err(LoadError::Id),
            ],
        };
        for id in ids {
            let id =
                id.and_then(
                    |id| if taken.insert(id.clone()) { Ok(id) } else { Err(LoadError::DuplicateId(id)) },
                );
            found.push(Candidate { file: Arc::clone(&file), id, beside });
        }
    }
    let is_whole = named.is_empty();
    for (name, ids) in named {
        found.extend(ids.into_iter().map(|id| Candidate {
            file: dir.join(name).into(),
            id: Err(LoadError::Absent(id.clone())),
            beside: false,
        }));
    }
    if !is_whole {
        // In the order of names, as at each later look.
        found.sort_by(|one, other| one.file.cmp(&other.file));
    }
    Ok(found)
}

/// Checks that a directory can be listed, and has not too much in it.
pub(crate) fn check_listing(dir: &Path) -> Result<(), HostError> {
    each(dir, |_, _| {})
}

fn list(dir: &Path) -> Result<Listed, HostError> {
    let mut listed = Listed { files: BTreeSet::new(), others: HashSet::new() };
    each(dir, |name, is_plugin| {
        let kind = Path::new(&name).extension();
        if is_plugin {
            listed.files.insert(name);
        } else if kind.is_some_and(|kind| kind.eq_ignore_ascii_case("toml")) {
            listed.others.insert(plain(&name));
        }
    })?;
    Ok(listed)
}

/// Hands over the name of each entry, and whether it is one of a `.wasm` file.
fn each(dir: &Path, mut take: impl FnMut(OsString, bool)) -> Result<(), HostError> {
    let failed = |error| HostError::Directory { path: dir.to_path_buf(), error };
    let crowded = |most: usize, of: &str| failed(std::io::Error::other(format!("more than {most} {of}")));
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
        take(name, is_plugin);
    }
    Ok(())
}

/// A name as it is compared here. There are file systems to which names that differ in case are one; on others it is then
/// looked for something that is not there.
fn plain(name: &OsStr) -> Vec<u8> {
    name.as_encoded_bytes().to_ascii_lowercase()
}
