//! From a directory of files, or from bytes, to plugins in the registry. A bad file is reported and stops nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::StreamExt;
use toolbay_core::name::PluginId;
use toolbay_core::policy::Policy;
use toolbay_core::registry::{Bundle, Entry, ReducerEntry};

use crate::capability::files::FileGrants;
use crate::code::{self, Code};
use crate::digest::sha256;
use crate::error::{HostError, LoadError};
use crate::file::{MAX_COMPONENT_BYTES, read_component};
use crate::plugin::{Origin, Plugin, Shared};
use crate::reducer::PluginReducer;
use crate::tool::PluginTool;

/// What is heard while plugins are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadEvent<'a> {
    /// A component that is not in the cache is being compiled.
    Compiling {
        /// Its plugin.
        plugin: &'a PluginId,
        /// Its size in bytes.
        bytes: u64,
    },
}

/// Hears what happens while plugins are loaded.
pub type LoadListener = Arc<dyn Fn(LoadEvent<'_>) + Send + Sync>;

/// A file with the id under which it is to be loaded.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) file: PathBuf,
    pub(crate) id: Result<PluginId, LoadError>,
}

/// The `.wasm` files of a directory in the order of their names, each with its plugin's id: the one the policy gives
/// the file, or else the file's stem.
pub(crate) fn candidates(dir: &Path, policy: &Policy) -> Result<Vec<Candidate>, HostError> {
    let failed = |error| HostError::Directory { path: dir.to_path_buf(), error };
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if Path::new(&name).extension().is_some_and(|e| e == "wasm") {
            names.insert(name);
        }
    }
    let mut named: BTreeMap<&str, Vec<&PluginId>> = BTreeMap::new();
    for (id, file) in policy.plugins() {
        if let Some(file) = file {
            named.entry(file).or_default().push(id);
        }
    }
    let mut found = Vec::new();
    let mut taken = BTreeSet::new();
    for name in &names {
        let file = dir.join(name);
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
            found.push(Candidate { file: file.clone(), id });
        }
    }
    for (name, ids) in named {
        found.extend(
            ids.into_iter()
                .map(|id| Candidate { file: dir.join(name), id: Err(LoadError::Absent(id.clone())) }),
        );
    }
    Ok(found)
}

/// Turns components into plugins.
#[derive(Clone)]
pub(crate) struct Loader {
    pub(crate) shared: Arc<Shared>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) listener: Option<LoadListener>,
}

impl Loader {
    /// Prepares all candidates, several at once; results come in their order.
    pub(crate) async fn prepare_all(
        &self,
        candidates: Vec<Candidate>,
    ) -> Vec<(PathBuf, Result<Arc<Plugin>, LoadError>)> {
        let at_once = std::thread::available_parallelism().map_or(2, usize::from);
        futures_util::stream::iter(candidates)
            .map(|Candidate { file, id }| async move {
                let plugin = match id {
                    Ok(id) => self.prepare_file(id, &file).await,
                    Err(error) => Err(error),
                };
                (file, plugin)
            })
            .buffered(at_once)
            .collect()
            .await
    }

    async fn prepare_file(&self, id: PluginId, file: &Path) -> Result<Arc<Plugin>, LoadError> {
        let (loader, path) = (self.clone(), file.to_path_buf());
        let read = tokio::task::spawn_blocking(move || {
            let bytes = read_component(&path)?;
            let digest = sha256(&bytes);
            let known = loader.shared.cache.as_ref().and_then(|cache| cache.get(&digest));
            let origin = Origin { id, digest, bytes: bytes.len() as u64, file: Some(path) };
            Ok::<_, LoadError>((origin, bytes, known.map(|hit| hit.descriptor)))
        });
        let (origin, bytes, known) = read.await.map_err(|e| LoadError::Host(e.to_string()))??;
        self.check_pin(&origin)?;
        match known {
            Some(descriptor) => Ok(Arc::new(Plugin::new(Arc::clone(&self.shared), origin, descriptor, None))),
            None => self.compile(origin, bytes).await,
        }
    }

    /// Prepares a plugin from bytes; its code stays in memory.
    pub(crate) async fn prepare_bytes(&self, id: PluginId, bytes: Vec<u8>) -> Result<Arc<Plugin>, LoadError> {
        if bytes.len() as u64 > MAX_COMPONENT_BYTES {
            return Err(LoadError::TooLarge { size: bytes.len() as u64, most: MAX_COMPONENT_BYTES });
        }
        let origin = Origin { id, digest: sha256(&bytes), bytes: bytes.len() as u64, file: None };
        self.check_pin(&origin)?;
        self.compile(origin, bytes).await
    }

    fn check_pin(&self, origin: &Origin) -> Result<(), LoadError> {
        match self.policy.pinned_sha256(&origin.id) {
            Some(pinned) if pinned != origin.digest.as_str() => {
                Err(LoadError::Digest { found: origin.digest.to_string(), pinned: pinned.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Compiles, links, asks what it is, stores. Compiling is CPU work of up to many seconds: off the async threads.
    async fn compile(&self, origin: Origin, bytes: Vec<u8>) -> Result<Arc<Plugin>, LoadError> {
        if let Some(listener) = &self.listener {
            listener(LoadEvent::Compiling { plugin: &origin.id, bytes: origin.bytes });
        }
        let shared = Arc::clone(&self.shared);
        let work = tokio::task::spawn_blocking(move || {
            let component = code::compile(&shared.engine, &bytes)?;
            let code = Code::link(&shared.engine, &shared.linker, &component)?;
            Ok::<_, LoadError>((component, code))
        });
        let (component, code) = work.await.map_err(|e| LoadError::Host(e.to_string()))??;
        let limits = self.policy.limits(&origin.id, None);
        let cancel = tokio_util::sync::CancellationToken::new();
        let place = self.shared.admission.enter(&cancel).await.map_err(|f| LoadError::Host(f.message))?;
        let descriptor = code.describe(&self.shared.engine, &origin.id, &limits).await?;
        drop(place);
        if let Some(cache) = &self.shared.cache
            && let Err(error) = cache.put(&origin.digest, &component, &descriptor)
        {
            tracing::warn!(plugin = %origin.id, error, "compiled code was not stored");
        }
        Ok(Arc::new(Plugin::new(Arc::clone(&self.shared), origin, descriptor, Some(Arc::new(code)))))
    }

    /// Joins a plugin with what the policy grants it. `warn` hears what is granted but can not be had.
    pub(crate) fn bundle(
        &self,
        plugin: &Arc<Plugin>,
        mut warn: impl FnMut(String),
    ) -> Result<Bundle, LoadError> {
        let (id, policy) = (&plugin.id, &self.policy);
        let version = plugin.descriptor.about.as_ref().map(|a| a.version.as_str());
        let config: BTreeMap<_, _> = policy
            .config(id)
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), value.to_string()))
            .collect();
        let config = Arc::new(config);
        self.check_sections(plugin)?;
        let mut bundle = Bundle::default();
        for tool in &plugin.descriptor.tools {
            let (name, def) = tool.define(id, version, plugin.digest.text())?;
            let grants = policy.grant(id, &name, &tool.capabilities);
            let mut problems = Vec::new();
            let files = FileGrants::open(&grants, policy, &name, &self.shared.folders, |problem| {
                problems.push(problem);
            });
            let lost = (files.is_none() && !problems.is_empty()).then(|| problems.join("; "));
            problems.into_iter().for_each(|problem| warn(format!("tool `{name}`: {problem}")));
            let mut limits = policy.limits(id, Some(&name));
            if let Some(asked) = def.timeout {
                limits.ask_timeout(asked);
            }
            let own = tool.max_result_chars.map(u64::from);
            let result_chars = own.into_iter().chain(limits.result_chars).min();
            let args_bytes = limits.args_bytes;
            let unavailable = grants.unavailable().or(lost);
            let invoker =
                PluginTool { plugin: Arc::clone(plugin), name, limits, files, config: Arc::clone(&config) };
            bundle.tools.push(Entry {
                def: Arc::new(def),
                invoker: Arc::new(invoker),
                unavailable,
                args_bytes,
                result_chars,
            });
        }
        self.bind_reducers(plugin, &mut bundle, warn);
        Ok(bundle)
    }

    /// A section for a tool that is not there is a narrowing that would not hold: most likely a name is misspelt.
    fn check_sections(&self, plugin: &Plugin) -> Result<(), LoadError> {
        let tools = &plugin.descriptor.tools;
        match self
            .policy
            .tool_sections(&plugin.id)
            .find(|name| !tools.iter().any(|t| t.name == name.as_str()))
        {
            Some(name) => Err(LoadError::Section { plugin: plugin.id.clone(), tool: name.clone() }),
            None => Ok(()),
        }
    }

    /// A plugin reduces its own tools; others' only where the operator wrote their qualified names under `reduce`.
    fn bind_reducers(&self, plugin: &Arc<Plugin>, bundle: &mut Bundle, mut warn: impl FnMut(String)) {
        let (id, granted) = (&plugin.id, self.policy.reduces(&plugin.id));
        let limits = self.policy.limits(id, None);
        for reducer in &plugin.descriptor.reducers {
            let declared = reducer.tool_name.as_str();
            let own = bundle
                .tools
                .iter()
                .map(|t| &t.def.name)
                .find(|n| n.as_str() == declared || n.bare() == declared);
            let own = own.map(|name| name.as_str().to_owned());
            let others = granted.iter().filter(|name| {
                let bare = name.split_once("__").map_or(name.as_str(), |(_, bare)| bare);
                name.as_str() == declared || bare == declared
            });
            let targets: BTreeSet<String> = own.into_iter().chain(others.cloned()).collect();
            if targets.is_empty() {
                warn(format!(
                    "its reducer for `{declared}` is not used; to use it, write in the policy: [plugins.{id}.grant] reduce = [\"PLUGIN__{declared}\"]"
                ));
            }
            for target in targets {
                let reducer = Arc::new(PluginReducer::new(Arc::clone(plugin), &limits));
                bundle.reducers.push(ReducerEntry {
                    target,
                    declared: declared.to_owned(),
                    owner: Some(id.clone()),
                    reducer,
                });
            }
        }
    }
}
