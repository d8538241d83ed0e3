//! Services that an OpenAPI document describes, as tools of the host: `[openapi.NAME]` of the policy.
//!
//! Each section is a source of its own: its tools come, go and are replaced together. A document that cannot be had or is
//! none costs the others nothing, time included: each is fetched and made into tools by itself, outside of the lock under
//! which tools are put in. The tools of before stay as long as the section says of it what it said. When the policy is
//! read again, what it takes away is gone at once: what is known is made anew under the new policy, as far as that takes no
//! longer than [`SWAP_TIME`]; what takes longer, or has to be read first, is taken out until it was.

mod document;
mod plan;
mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::StreamExt as _;
use serde::Serialize;
use tokio::sync::{Mutex, Semaphore};
use toolbay_core::registry::Bundle;
use toolbay_core::tool::ToolSource;
use toolbay_policy::capability::floor::Keep;
use toolbay_policy::name::PluginId;
use toolbay_policy::text::one_line;
use toolbay_policy::{OpenApi, Place};

use crate::capability::Services;
use crate::plugins::installed::InstalledPlugins;
use document::Text;
use plan::Planned;

/// Documents that are fetched at once; each is given up after a while.
const FETCHES: usize = 16;
/// Documents that tools are made of at once: each takes a thread, and memory as it is large.
const PLANS: usize = 2;
/// How long making tools of one document may take.
const PLAN_TIME: Duration = Duration::from_secs(60);
/// How long it may take for all documents when the policy is read again.
const SWAP_TIME: Duration = Duration::from_secs(5);
/// How often tools are made again because the policy changed meanwhile. Whoever changes it loads again.
const TRIES: usize = 4;

/// What one section of the policy came to.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OpenApiInfo {
    /// Its name.
    pub name: String,
    /// Where its document is.
    pub document: String,
    /// SHA-256 of the document, in hex.
    pub digest: Option<String>,
    /// What the document calls the service.
    pub title: Option<String>,
    /// The tools by name, each with its operation: `GET /pets/{id}`.
    pub tools: BTreeMap<String, String>,
    /// Tools that cannot be called, each with the reason.
    pub unavailable: BTreeMap<String, String>,
    /// Operations that are no tool, each with the reason.
    pub problems: Vec<(String, String)>,
    /// How many operations the section leaves out.
    pub left_out: usize,
    /// What does not stop it but should be known.
    pub warnings: Vec<String>,
    /// Why it has no tools, or those of before.
    pub error: Option<String>,
}

/// The documents of a host, and what they came to.
#[derive(Debug)]
pub(crate) struct Sources {
    read: Mutex<BTreeMap<PluginId, Read>>,
    told: ArcSwap<BTreeMap<PluginId, OpenApiInfo>>,
    /// Where copies of documents are kept.
    copies: Option<PathBuf>,
    /// Counts what is begun, so that what began later is not replaced by what ends later.
    turn: AtomicU64,
    plans: Arc<Semaphore>,
}

/// A document that was read, and for which section.
#[derive(Debug, Clone)]
struct Read {
    section: Arc<OpenApi>,
    text: Text,
    /// When it began to be read, by [`Sources::turn`].
    turn: u64,
}

impl Read {
    /// Whether another section means the same document.
    fn is_for(&self, section: &OpenApi) -> bool {
        (&self.section.document, &self.section.sha256) == (&section.document, &section.sha256)
    }
}

impl Sources {
    /// Without any yet; copies of documents are kept in a folder, if there is one.
    pub(crate) fn new(copies: Option<PathBuf>) -> Self {
        Self {
            read: Mutex::default(),
            told: ArcSwap::default(),
            copies,
            turn: AtomicU64::new(0),
            plans: Arc::new(Semaphore::new(PLANS)),
        }
    }

    /// What the sections came to when they were read last, in the order of their names.
    pub(crate) fn told(&self) -> Vec<OpenApiInfo> {
        self.told.load().values().cloned().collect()
    }

    /// Reads the documents of all sections, and makes tools of their operations. Each is put in as soon as it is made; what
    /// came of a section that is another one by then is dropped.
    pub(crate) async fn load(&self, into: &InstalledPlugins, anew: bool) -> Vec<OpenApiInfo> {
        let services = into.services();
        let mut read = self.read.lock().await;
        self.gone(into, &mut read, &services);
        drop(read);
        let sections: Vec<Arc<OpenApi>> = services.policy.openapi().cloned().collect();
        let all = sections.into_iter().map(|section| self.load_one(into, section, anew));
        futures_util::stream::iter(all).buffer_unordered(FETCHES).collect::<()>().await;
        self.told()
    }

    async fn load_one(&self, into: &InstalledPlugins, section: Arc<OpenApi>, anew: bool) {
        let turn = self.turn.fetch_add(1, Ordering::AcqRel);
        if let Place::File(path) = &section.document {
            // Whoever writes there says what tools there are.
            into.shared.folders.keep(path, Keep::FromWriters);
        }
        let got = document::get(&section, &into.services(), self.copies.clone(), anew).await;
        for _ in 0..TRIES {
            let services = into.services();
            if services.policy.openapi_named(section.name.as_str()) != Some(&section) {
                return;
            }
            let planned = match &got {
                Ok(text) => self.plan(&services, &section, text, Instant::now() + PLAN_TIME).await,
                Err(why) => Err(format!("its document: {why}")),
            };
            let mut read = self.read.lock().await;
            if !Arc::ptr_eq(&services, &into.services()) {
                continue;
            }
            if read.get(&section.name).is_some_and(|before| before.turn > turn) {
                return;
            }
            match (planned, got) {
                (Ok(planned), Ok(text)) => {
                    self.register(into, &section, &text, planned);
                    read.insert(section.name.clone(), Read { section, text, turn });
                }
                (Err(why), _) | (_, Err(why)) => self.failed(&section, why),
            }
            return;
        }
    }

    /// What of another policy can be had at once; what is to be read first is read by the next load.
    pub(crate) async fn swap(&self, into: &InstalledPlugins) {
        let services = into.services();
        let mut read = self.read.lock().await;
        self.gone(into, &mut read, &services);
        let mut known = Vec::new();
        for section in services.policy.openapi().cloned() {
            let Some(before) = read.get(&section.name) else { continue };
            if before.is_for(&section) {
                known.push((section, before.clone()));
            } else {
                read.remove(&section.name);
                self.take_out(into, &section.name);
            }
        }
        drop(read);
        let until = Instant::now() + SWAP_TIME;
        let all =
            known.into_iter().map(|(section, before)| self.swap_one(into, &services, section, before, until));
        futures_util::future::join_all(all).await;
    }

    async fn swap_one(
        &self,
        into: &InstalledPlugins,
        services: &Arc<Services>,
        section: Arc<OpenApi>,
        before: Read,
        until: Instant,
    ) {
        let planned = self.plan(services, &section, &before.text, until).await;
        let mut read = self.read.lock().await;
        // Another policy has come, and makes its own; or what was read meanwhile is under this one already.
        let same = read.get(&section.name).is_some_and(|now| now.turn == before.turn);
        if !same || !Arc::ptr_eq(services, &into.services()) {
            return;
        }
        match planned {
            Ok(planned) => {
                self.register(into, &section, &before.text, planned);
                read.insert(section.name.clone(), Read { section, ..before });
            }
            Err(why) => {
                // What stood under the policy before may be more than this one allows.
                read.remove(&section.name);
                into.registry.replace_source(&label(&section.name), Bundle::default());
                self.failed(&section, why);
            }
        }
    }

    /// Takes out what the policy does not name any more.
    fn gone(&self, into: &InstalledPlugins, read: &mut BTreeMap<PluginId, Read>, services: &Services) {
        let told = self.told.load_full();
        for name in told.keys().filter(|name| services.policy.openapi_named(name.as_str()).is_none()) {
            read.remove(name);
            self.take_out(into, name);
        }
    }

    fn take_out(&self, into: &InstalledPlugins, name: &PluginId) {
        into.registry.replace_source(&label(name), Bundle::default());
        self.tell(|told| drop(told.remove(name)));
    }

    /// Makes tools of a document: in a thread, of which there are few, and with an end.
    async fn plan(
        &self,
        services: &Arc<Services>,
        section: &Arc<OpenApi>,
        text: &Text,
        until: Instant,
    ) -> Result<Planned, String> {
        let late = || "no tools could be made of it in time".to_owned();
        let (section, text, under) = (Arc::clone(section), Arc::clone(&text.text), Arc::clone(services));
        let made = async {
            let place = Arc::clone(&self.plans).acquire_owned().await.map_err(|e| e.to_string())?;
            let work = move || {
                // The place is free again when the thread is, not when nobody waits any more.
                let _place = place;
                plan::plan(&section, &under, &text, until)
            };
            // Two at most; each ends after a minute at the latest.
            tokio::task::spawn_blocking(work).await.map_err(|e| e.to_string())?
        };
        tokio::time::timeout_at(until.into(), made).await.unwrap_or_else(|_| Err(late()))
    }

    fn register(&self, into: &InstalledPlugins, section: &OpenApi, text: &Text, planned: Planned) {
        let Planned { bundle, title, operations, problems, left_out, unused } = planned;
        let unavailable = bundle.tools.iter().filter_map(|entry| {
            Some((entry.def.name.to_string(), entry.availability.unavailable.as_ref()?.for_operator()))
        });
        let unavailable = unavailable.collect();
        let registered = into.registry.replace_source(&label(&section.name), bundle);
        let mut warnings: Vec<String> = text.warning.clone().into_iter().collect();
        let unused = unused.iter().map(|line| one_line(line, 100));
        warnings.extend(unused.map(|line| format!("`include` has `{line}`, which no operation fits")));
        let kept = registered.kept.iter();
        warnings.extend(kept.map(|name| format!("`{name}` is the name of another tool; it is left out")));
        let info = OpenApiInfo {
            name: section.name.to_string(),
            document: section.document.to_string(),
            digest: Some(text.digest.to_string()),
            title,
            tools: operations,
            unavailable,
            problems,
            left_out,
            warnings,
            error: None,
        };
        tracing::info!(service = %section.name, tools = info.tools.len(), "read");
        self.tell(|told| drop(told.insert(section.name.clone(), info)));
    }

    fn failed(&self, section: &OpenApi, why: String) {
        tracing::warn!(service = %section.name, "not read: {why}");
        self.tell(|told| {
            let info = told.entry(section.name.clone()).or_default();
            info.name = section.name.to_string();
            info.document = section.document.to_string();
            info.error = Some(why);
        });
    }

    /// One writer at a time: who calls holds the lock of what was read.
    fn tell(&self, change: impl FnOnce(&mut BTreeMap<PluginId, OpenApiInfo>)) {
        let mut told = BTreeMap::clone(&self.told.load());
        change(&mut told);
        self.told.store(Arc::new(told));
    }
}

/// Reads the document of a section that need not be in the policy: its text, and its SHA-256 in hex.
///
/// # Errors
/// Why it cannot be had.
pub(crate) async fn read(
    section: &Arc<OpenApi>,
    services: &Arc<Services>,
) -> Result<(Arc<str>, Arc<str>), String> {
    let text = document::get(section, services, None, true).await?;
    Ok((text.text, text.digest))
}

fn label(name: &PluginId) -> String {
    ToolSource::OpenApi { document: Arc::from(name.as_str()) }.label()
}
