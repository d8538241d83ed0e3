//! OpenAPI services of the policy (`[openapi.NAME]`) as tools of the host.
//!
//! Each section is a separate tool source: its tools are added, removed and replaced together. A document that cannot
//! be loaded does not affect or delay the others. Each document is fetched and turned into tools on its own, without
//! the lock of the registry. If a reload of a document fails, the previous tools stay as long as the section is
//! unchanged. A policy reload removes what the policy no longer allows at once. Known documents become tools under the
//! new policy within [`SWAP_TIME`]. Tools that take longer, or whose document must be fetched first, are removed until
//! they are ready.

mod copies;
mod document;
mod document_text;
mod exchange;
mod known;
mod plan;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::StreamExt as _;
use tokio::sync::{Mutex, Semaphore};
use toolbay_capabilities::Services;
use toolbay_core::registry::{Bundle, PendingSource, SourceState};
use toolbay_core::tool::ToolSource;
use toolbay_openapi::ImportProblem;
use toolbay_policy::capability::protected_paths::Protection;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::name::{NAME_SEPARATOR, PluginId};
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::{DocumentLocation, OpenApiService};
use toolbay_sandbox::compile::cache::CacheLimits;

use crate::openapi_info::{DocumentState, OpenApiInfo};
use crate::plugins::installed::InstalledPlugins;
use copies::DocumentCopies;
use document_text::DocumentText;
use plan::ToolPlan;

/// Maximum number of parallel fetches, more than most policies have sections: one that hangs must not delay the others.
/// Each has a time-out.
const MAX_PARALLEL_FETCHES: usize = 64;
/// Maximum number of documents that are turned into tools in parallel. Each takes a thread, and memory in proportion to
/// its size.
const MAX_PARALLEL_PLANS: usize = 4;
/// Time limit to turn one document into tools.
const PLAN_TIME: Duration = Duration::from_secs(60);
/// Time limit to turn all known documents into tools after a policy reload.
const SWAP_TIME: Duration = Duration::from_secs(5);
/// How often a document is turned into tools again because the policy changed meanwhile. A policy reload triggers its
/// own load.
const MAX_ATTEMPTS: usize = 4;

/// Maximum number of warnings about tools that lack a part of their operation.
const MAX_WARNINGS: usize = 20;

/// The OpenAPI documents of a host and their results.
#[derive(Debug)]
pub(crate) struct OpenApiServices {
    documents: Mutex<BTreeMap<PluginId, LoadedDocument>>,
    infos: ArcSwap<BTreeMap<PluginId, OpenApiInfo>>,
    /// `None` without a cache.
    copies: Option<DocumentCopies>,
    /// Numbers the loads, so that a load does not replace the result of a later one.
    sequence: AtomicU64,
    plan_permits: Arc<Semaphore>,
}

/// A loaded document with its section.
#[derive(Debug, Clone)]
struct LoadedDocument {
    section: Arc<OpenApiService>,
    text: DocumentText,
    /// The number of its load, from [`OpenApiServices::sequence`].
    sequence: u64,
}

impl LoadedDocument {
    /// Whether the section has the same document and pin.
    fn is_same_document(&self, section: &OpenApiService) -> bool {
        (&self.section.document, &self.section.sha256) == (&section.document, &section.sha256)
    }
}

impl OpenApiServices {
    /// Creates the services without any document. `folder` is that for copies, which have these limits.
    pub(crate) fn new(folder: Option<PathBuf>, limits: CacheLimits) -> Self {
        Self {
            documents: Mutex::default(),
            infos: ArcSwap::default(),
            copies: folder.map(|folder| DocumentCopies::new(folder, limits)),
            sequence: AtomicU64::new(0),
            plan_permits: Arc::new(Semaphore::new(MAX_PARALLEL_PLANS)),
        }
    }

    /// The latest results, in the order of the section names.
    pub(crate) fn infos(&self) -> Vec<OpenApiInfo> {
        self.infos.load().values().cloned().collect()
    }

    /// Loads the documents of all sections.
    pub(crate) async fn load_all(&self, into: &InstalledPlugins) {
        self.load(into, false, |_| true).await;
    }

    /// Loads the documents of the `wanted` sections and registers their tools. Each section is registered as soon as it is
    /// ready, and its source is pending until then. The result is dropped if the section changed meanwhile.
    pub(crate) async fn load(
        &self,
        into: &InstalledPlugins,
        refresh: bool,
        wanted: impl Fn(&OpenApiService) -> bool,
    ) -> Vec<OpenApiInfo> {
        let services = into.services();
        let mut documents = self.documents.lock().await;
        self.remove_unnamed(into, &mut documents, &services);
        let sections = services.policy.openapi_services().filter(|section| wanted(section)).cloned();
        let begun: Vec<_> = sections
            .map(|section| {
                let is_new = !documents.contains_key(&section.name);
                (is_new.then(|| self.begin(into, &section)), section)
            })
            .collect();
        drop(documents);
        let all = begun.into_iter().map(|(pending, section)| async move {
            self.load_one(into, section, refresh).await;
            drop(pending);
        });
        futures_util::stream::iter(all).buffer_unordered(MAX_PARALLEL_FETCHES).collect::<()>().await;
        self.infos()
    }

    /// Marks a section as loading.
    fn begin(&self, into: &InstalledPlugins, section: &OpenApiService) -> PendingSource {
        self.update_state(section, DocumentState::Loading, None);
        set_state(into, &section.name, Some(SourceState::Loading));
        into.registry.begin_source(section.name.as_str())
    }

    async fn load_one(&self, into: &InstalledPlugins, section: Arc<OpenApiService>, refresh: bool) {
        let sequence = self.sequence.fetch_add(1, Ordering::AcqRel);
        if let DocumentLocation::File(path) = &section.document {
            // A plugin that could write the document could define tools.
            into.shared.folders.protect(path, Protection::WriteOnly);
        }
        let got = document::fetch_document(&section, &into.services(), self.copies.as_ref(), refresh).await;
        let got = got.map_err(|why| why.for_operator());
        for _ in 0..MAX_ATTEMPTS {
            let services = into.services();
            if services.policy.openapi_service(section.name.as_str()) != Some(&section) {
                return;
            }
            let planned = match &got {
                Ok(text) => self.plan_tools(&services, &section, text, Instant::now() + PLAN_TIME).await,
                Err(why) => Err(format!("its document: {why}")),
            };
            let mut documents = self.documents.lock().await;
            if !Arc::ptr_eq(&services, &into.services()) {
                continue;
            }
            if documents.get(&section.name).is_some_and(|before| before.sequence > sequence) {
                return;
            }
            match (planned, got) {
                (Ok(planned), Ok(text)) => {
                    self.register(into, &section, &text, planned);
                    documents.insert(section.name.clone(), LoadedDocument { section, text, sequence });
                }
                (Err(why), _) | (_, Err(why)) => {
                    // The previous tools stay.
                    if !documents.contains_key(&section.name) {
                        set_state(into, &section.name, Some(SourceState::Failed));
                    }
                    self.record_error(&section, why);
                }
            }
            return;
        }
    }

    /// Applies a new policy to the documents that are already loaded. The next load fetches the others.
    pub(crate) async fn apply_policy(&self, into: &InstalledPlugins) {
        let services = into.services();
        let mut documents = self.documents.lock().await;
        self.remove_unnamed(into, &mut documents, &services);
        let mut known = Vec::new();
        for section in services.policy.openapi_services().cloned() {
            let Some(before) = documents.get(&section.name) else { continue };
            if before.is_same_document(&section) {
                known.push((section, before.clone()));
            } else {
                documents.remove(&section.name);
                self.remove_service(into, &section.name);
            }
        }
        drop(documents);
        let until = Instant::now() + SWAP_TIME;
        let all = known
            .into_iter()
            .map(|(section, before)| self.apply_policy_to(into, &services, section, before, until));
        futures_util::future::join_all(all).await;
    }

    async fn apply_policy_to(
        &self,
        into: &InstalledPlugins,
        services: &Arc<Services>,
        section: Arc<OpenApiService>,
        before: LoadedDocument,
        until: Instant,
    ) {
        let planned = self.plan_tools(services, &section, &before.text, until).await;
        let mut documents = self.documents.lock().await;
        // A newer policy creates its own tools, and a newer document already uses this policy.
        let same = documents.get(&section.name).is_some_and(|now| now.sequence == before.sequence);
        if !same || !Arc::ptr_eq(services, &into.services()) {
            return;
        }
        match planned {
            Ok(planned) => {
                self.register(into, &section, &before.text, planned);
                documents.insert(section.name.clone(), LoadedDocument { section, ..before });
            }
            Err(why) => {
                // The previous tools may exceed what the new policy allows.
                documents.remove(&section.name);
                remove_tools(into, &section.name);
                set_state(into, &section.name, Some(SourceState::Failed));
                self.record_error(&section, why);
            }
        }
    }

    /// Removes sections that the policy no longer has.
    fn remove_unnamed(
        &self,
        into: &InstalledPlugins,
        documents: &mut BTreeMap<PluginId, LoadedDocument>,
        services: &Services,
    ) {
        let infos = self.infos.load_full();
        for name in infos.keys().filter(|name| services.policy.openapi_service(name.as_str()).is_none()) {
            documents.remove(name);
            self.remove_service(into, name);
        }
    }

    fn remove_service(&self, into: &InstalledPlugins, name: &PluginId) {
        remove_tools(into, name);
        set_state(into, name, None);
        self.update_infos(|infos| drop(infos.remove(name)));
    }

    /// Turns a document into tools on a blocking thread, with limits on parallelism and time.
    async fn plan_tools(
        &self,
        services: &Arc<Services>,
        section: &Arc<OpenApiService>,
        text: &DocumentText,
        until: Instant,
    ) -> Result<ToolPlan, String> {
        let late = || "its tools could not be created in time".to_owned();
        let (section, text, services) = (Arc::clone(section), Arc::clone(&text.text), Arc::clone(services));
        let made = async {
            let permit = Arc::clone(&self.plan_permits).acquire_owned().await.map_err(|e| e.to_string())?;
            let work = move || {
                // Held by the thread, which may outlive the caller.
                let _permit = permit;
                plan::plan_tools(&section, &services, &text, until)
            };
            // At most `MAX_PARALLEL_PLANS` threads at a time, each for at most `PLAN_TIME`.
            tokio::task::spawn_blocking(work).await.map_err(|e| e.to_string())?
        };
        tokio::time::timeout_at(until.into(), made).await.unwrap_or_else(|_| Err(late()))
    }

    fn register(
        &self,
        into: &InstalledPlugins,
        section: &OpenApiService,
        text: &DocumentText,
        planned: ToolPlan,
    ) {
        let ToolPlan {
            bundle,
            title,
            operations,
            problems,
            warnings: incomplete,
            left_out,
            unused,
            unknown_tools,
        } = planned;
        let unavailable = bundle.tools.iter().filter_map(|entry| {
            Some((entry.def.name.to_string(), entry.availability.unavailable.as_ref()?.for_operator()))
        });
        let unavailable = unavailable.collect();
        let label = source_label(&section.name);
        let registered = into.registry.replace_source(&label, bundle);
        into.registry.set_left_out(&label, left_out_tools(&section.name, &problems, &operations));
        set_state(into, &section.name, None);
        let mut warnings: Vec<String> = text.warning.clone().into_iter().collect();
        let unused = unused.iter().map(|line| one_line(line, 100));
        warnings.extend(unused.map(|line| format!("`include` has `{line}`, which matches no operation")));
        warnings.extend(unknown_tools.iter().map(|tool| plan::unknown_tool_warning(section, tool)));
        let kept = registered.skipped.iter();
        warnings
            .extend(kept.map(|name| format!("`{name}` is the name of another tool; this one is left out")));
        warnings.extend(
            incomplete
                .iter()
                .take(MAX_WARNINGS)
                .map(|one| format!("{}: {}", one.operation, one.reason.for_operator())),
        );
        if let Some(more) = incomplete.len().checked_sub(MAX_WARNINGS).filter(|more| *more > 0) {
            warnings.push(format!("{more} more tools lack a part of their operation"));
        }
        let problems = problems.into_iter().map(|one| (one.operation, one.reason.for_operator())).collect();
        let info = OpenApiInfo {
            name: section.name.to_string(),
            document: section.document.to_string(),
            state: DocumentState::Ready,
            digest: Some(text.digest.to_string()),
            title,
            tools: operations,
            unavailable,
            problems,
            left_out,
            warnings,
            error: None,
        };
        let (tools, skipped) = (info.tools.len(), info.problems.len());
        match tools {
            0 if skipped > 0 => {
                tracing::warn!(service = %section.name, skipped, "no operation of the OpenAPI document is a tool");
            }
            _ => tracing::info!(service = %section.name, tools, skipped, "the OpenAPI document was loaded"),
        }
        self.update_infos(|infos| drop(infos.insert(section.name.clone(), info)));
    }

    fn record_error(&self, section: &OpenApiService, why: String) {
        tracing::warn!(service = %section.name, "the OpenAPI document was not loaded: {why}");
        self.update_state(section, DocumentState::Failed, Some(why));
    }

    /// Updates the state of a section. The other results of its last load stay.
    fn update_state(&self, section: &OpenApiService, state: DocumentState, error: Option<String>) {
        self.update_infos(|infos| {
            let before = infos.remove(&section.name).unwrap_or_default();
            let (name, document) = (section.name.to_string(), section.document.to_string());
            infos.insert(section.name.clone(), OpenApiInfo { name, document, state, error, ..before });
        });
    }

    /// Updates the results. The caller holds the lock on the loaded documents, so there is one writer at a time.
    fn update_infos(&self, change: impl FnOnce(&mut BTreeMap<PluginId, OpenApiInfo>)) {
        let mut infos = BTreeMap::clone(&self.infos.load());
        change(&mut infos);
        self.infos.store(Arc::new(infos));
    }
}

/// Reads the document of a section, which need not be in the policy. Returns its text and its SHA-256 in hex.
///
/// # Errors
/// The document cannot be loaded.
pub(crate) async fn read_document(
    section: &Arc<OpenApiService>,
    services: &Arc<Services>,
) -> Result<(Arc<str>, Arc<str>), PolicyRefusal> {
    let text = document::fetch_document(section, services, None, true).await?;
    Ok((text.text, text.digest))
}

fn remove_tools(into: &InstalledPlugins, name: &PluginId) {
    let label = source_label(name);
    into.registry.replace_source(&label, Bundle::default());
    into.registry.set_left_out(&label, BTreeMap::new());
}

fn set_state(into: &InstalledPlugins, name: &PluginId, state: Option<SourceState>) {
    into.registry.set_source_state(name.as_str(), &source_label(name), state);
}

/// The names that skipped operations would have, each with the reason. Names of tools are not among them.
fn left_out_tools(
    service: &PluginId,
    problems: &[ImportProblem],
    tools: &BTreeMap<String, String>,
) -> BTreeMap<String, PolicyRefusal> {
    let names = problems.iter().filter_map(|one| {
        let name = format!("{service}{NAME_SEPARATOR}{}", one.tool.as_ref()?);
        let text = format!("the operation `{}` is not a tool: {}", one.operation, one.reason.text);
        Some((name, PolicyRefusal { text, hint: one.reason.hint.clone() }))
    });
    names.filter(|(name, _)| !tools.contains_key(name)).collect()
}

fn source_label(name: &PluginId) -> String {
    ToolSource::OpenApi { document: Arc::from(name.as_str()) }.label()
}
