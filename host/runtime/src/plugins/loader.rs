//! From a directory of files, or from bytes, to plugins in the registry. A bad file is reported and stops nobody.

mod candidates;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

pub(crate) use candidates::{Candidate, candidates, check_listing};

use parking_lot::Mutex;
use toolbay_core::registry::{Bundle, CallSettings, Entry, Flags, ReducerEntry, ToolAvailability};
use toolbay_core::tool::ToolDef;
use toolbay_core::tool::portable;
use toolbay_core::tool::tags::Effects;
use toolbay_policy::capability::{imports_everything, undeclared};
use toolbay_policy::limits::Limits;
use toolbay_policy::name::{PluginId, ToolName};
use toolbay_policy::refusal::Refusal;
use toolbay_policy::{Grants, Policy, Reduction};

use crate::capability::files::FileGrants;
use crate::capability::{Granted, GrantedUnder, Services};
use crate::engine::Metering;
use crate::engine::breaker::Breaker;
use crate::error::LoadError;
use crate::plugins::availability::{self, ToolCheck};
use crate::plugins::code::Code;
use crate::plugins::compiler::off_the_async_threads;
use crate::plugins::descriptor::{Descriptor, ToolDescription};
use crate::plugins::digest::{Digest, sha256};
use crate::plugins::file::{MAX_COMPONENT_BYTES, Stamp, read_component};
use crate::plugins::foreign::{self, Sections};
use crate::plugins::loading::CompileProgress;
use crate::plugins::offers;
use crate::plugins::plugin::{Origin, Plugin, Shared};
use crate::plugins::reducer::PluginReducer;
use crate::plugins::settings;
use crate::plugins::tool::PluginTool;
use crate::plugins::usual::UsualMemory;
use crate::storage::consent::Keeper;

/// Most tools that one warning names.
const MAX_NAMED: usize = 3;

/// Bytes, and where they come from.
pub(crate) struct Contents {
    pub(crate) origin: Origin,
    bytes: Vec<u8>,
}

/// What the cache said of components while one look is worked off, by their digests and for which engine they are to be
/// compiled: each is asked for once.
#[derive(Default)]
pub(crate) struct CacheAnswers(Mutex<HashMap<(Digest, Metering), CacheAnswer>>);

/// What the cache knows of a component, if it does.
type CacheAnswer = Option<Arc<Descriptor>>;

/// An interface of the contract that no tool declares is denied; it is told, because either a declaration was forgotten
/// or the component does what it does not say. Not where the contract is imported as a whole: that is the toolchain's.
fn tell_undeclared(plugin: &Plugin, mut warn: impl FnMut(String)) {
    let descriptor = &plugin.descriptor;
    if imports_everything(&descriptor.imports) {
        return;
    }
    let declared = descriptor.tools.iter().flat_map(|tool| &tool.capabilities);
    for one in undeclared(&descriptor.imports, declared).iter().filter(|one| one.of_contract) {
        warn(format!(
            "it imports `{}`, which no tool of it declares; what it asks there is denied",
            one.import
        ));
    }
}

/// Turns components into plugins.
#[derive(Clone)]
pub(crate) struct Loader {
    pub(crate) shared: Arc<Shared>,
    /// The policy, and what stands behind it.
    pub(crate) services: Arc<Services>,
    pub(crate) keeper: Arc<Keeper>,
    /// Where plugins are asked what of them is available; `None`: they are asked later.
    pub(crate) runtime: Option<tokio::runtime::Handle>,
}

impl Loader {
    /// Reads a file; also tells what the file was, if that stayed the same meanwhile. Blocks.
    pub(crate) fn read(id: PluginId, file: &Arc<Path>) -> Result<(Contents, Option<Stamp>), LoadError> {
        let (bytes, stamp) = read_component(file)?;
        let (digest, size) = (sha256(&bytes), bytes.len() as u64);
        let origin = Origin { id, digest, bytes: size, file: Some(Arc::clone(file)), given: None };
        Ok((Contents { origin, bytes }, stamp))
    }

    /// Makes a plugin of a file: with what the cache knows, or compiled.
    pub(crate) async fn prepare(&self, id: PluginId, file: &Path) -> Result<Arc<Plugin>, LoadError> {
        let (this, file) = (self.clone(), Arc::from(file));
        let read = off_the_async_threads(move || {
            let (contents, _) = Self::read(id, &file)?;
            let known = this.known(&contents.origin, &CacheAnswers::default())?;
            Ok((contents, known))
        });
        match read.await? {
            (_, Some(plugin)) => Ok(plugin),
            (contents, None) => self.compile(contents).await,
        }
    }

    /// Makes a plugin of what a file holds, if the cache knows it. Blocks.
    pub(crate) fn known(
        &self,
        origin: &Origin,
        answers: &CacheAnswers,
    ) -> Result<Option<Arc<Plugin>>, LoadError> {
        self.check_id(&origin.id, &origin.digest)?;
        let (digest, metering) = (&origin.digest, self.metering(&origin.id));
        let Some(cache) = &self.shared.engine(metering)?.cache else { return Ok(None) };
        let read = || Some(self.shared.descriptors.share(digest, cache.get(digest)?.descriptor));
        let mut answers = answers.0.lock();
        let descriptor = answers.entry((digest.clone(), metering)).or_insert_with(read).clone();
        drop(answers);
        let plugin = |descriptor| Plugin::new(Arc::clone(&self.shared), origin.clone(), descriptor, true);
        Ok(descriptor.map(plugin))
    }

    /// What bounds a plugin as a whole. A tool can be bound otherwise: its code is then brought with its first call.
    fn metering(&self, id: &PluginId) -> Metering {
        Metering::of(&self.services.policy.limits(id, None))
    }

    /// Prepares a plugin from bytes; its code stays in memory.
    pub(crate) async fn prepare_bytes(&self, id: PluginId, bytes: Vec<u8>) -> Result<Arc<Plugin>, LoadError> {
        if bytes.len() as u64 > MAX_COMPONENT_BYTES {
            return Err(LoadError::TooLarge { size: bytes.len() as u64, most: MAX_COMPONENT_BYTES });
        }
        let given = Some(bytes.as_slice().into());
        let origin = Origin { id, digest: sha256(&bytes), bytes: bytes.len() as u64, file: None, given };
        self.check_id(&origin.id, &origin.digest)?;
        self.compile(Contents { origin, bytes }).await
    }

    /// Whether the operator gave the id to another source, or pinned the plugin to other bytes.
    fn check_id(&self, id: &PluginId, digest: &Digest) -> Result<(), LoadError> {
        if let Some(table) = self.services.policy.source_named(id) {
            return Err(LoadError::Reserved { id: id.clone(), table });
        }
        match self.services.policy.pinned_sha256(id) {
            Some(pinned) if pinned != digest.as_str() => {
                Err(LoadError::Digest { found: digest.to_string(), pinned: pinned.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Compiles, links, asks what it is, stores.
    pub(crate) async fn compile(&self, contents: Contents) -> Result<Arc<Plugin>, LoadError> {
        let Contents { origin, bytes } = contents;
        let shared = &self.shared;
        let (id, host, metering) = (origin.id.clone(), Arc::clone(shared), self.metering(&origin.id));
        let progress = CompileProgress::begin(shared.listener.as_ref(), &id, origin.bytes);
        let read = off_the_async_threads(move || {
            let (offers, sections) = (offers::read(&bytes)?, Sections::read(&bytes)?);
            Ok((bytes, offers, sections, Arc::clone(host.engine(metering)?)))
        });
        let (bytes, offers, sections, linked) = read.await?;
        let compiled = shared.compiler.compile(&linked.engine, bytes).await?;
        let component = compiled.component.clone();
        let code = Arc::new(off_the_async_threads(move || Code::link(&linked, &component)).await?);
        let limits = self.services.policy.limits(&origin.id, None);
        // Never fires: who gives up drops this future.
        let cancel = tokio_util::sync::CancellationToken::new();
        let place = shared.admission.enter(&origin.id, limits.concurrency, &cancel).await;
        let place = place.map_err(|fault| LoadError::Host(fault.message))?;
        let descriptor = code.describe(&origin.id, &limits, &sections).await?.offering(offers)?;
        drop(place);
        let descriptor = shared.descriptors.share(&origin.digest, descriptor);
        let plugin = Plugin::new(Arc::clone(shared), origin, descriptor, false);
        let this = Arc::clone(&plugin);
        off_the_async_threads(move || {
            this.keep(compiled, code);
            Ok(())
        })
        .await?;
        drop(progress);
        Ok(plugin)
    }

    /// Joins a plugin with what the policy grants it. `warn` hears what is granted but cannot be had. Blocks on
    /// folders and consents. The second value tells why the plugin is held, if it is.
    pub(crate) fn bundle(
        &self,
        plugin: &Arc<Plugin>,
        mut warn: impl FnMut(String),
    ) -> Result<(Bundle, Option<String>), LoadError> {
        self.check_id(&plugin.id, &plugin.digest)?;
        let (id, policy) = (&plugin.id, &self.services.policy);
        let config = Arc::new(setting_texts(policy, id));
        self.check_sections(plugin)?;
        let schema = plugin.descriptor.about.as_ref().and_then(|about| about.config_schema.as_ref());
        let unset = settings::check(policy, id, schema)?;
        let source = plugin.source();
        let define = |tool: &ToolDescription| tool.define(id, &source);
        let defined = plugin.descriptor.tools.iter().map(define).collect::<Result<Vec<_>, _>>()?;
        self.check_tags(defined.iter().map(|(_, def)| def))?;
        let offers = offers::of(id, plugin.descriptor.offers.as_ref())?;
        tell_findings(plugin, defined.iter().map(|(_, def)| def), &mut warn);
        let names: Vec<ToolName> = defined.iter().map(|(name, _)| name.clone()).collect();
        let held = self.keeper.admit(policy, plugin, &names);
        held.iter().for_each(|held| warn(held.for_operator()));
        // A plugin that is held is not run, not even for this.
        let availability = match held {
            None => availability::of(plugin, &policy.limits(id, None), &config, policy.host()),
            Some(_) => None,
        };
        let reusable = plugin.descriptor.about.as_ref().is_some_and(|about| about.reusable);
        let reuse = settings::reuse(policy, id, reusable, &mut warn);
        let mut bundle = Bundle::default();
        let mut problems: BTreeMap<String, Vec<ToolName>> = BTreeMap::new();
        let mut unmet = BTreeSet::new();
        for ((name, def), described) in defined.into_iter().zip(&plugin.descriptor.tools) {
            let limits = limits_of(policy, id, &name, &def);
            let call = call_settings(policy, id, &name, &def, &limits);
            let how = (plugin.descriptor.wants_folders(), is_foreign(&described.entry));
            let (granted, unavailable, mut under_profiles) =
                self.grant(id, &name, &def, held.as_ref(), how, &mut problems);
            unmet.extend(unmet_of(&granted.no_profile));
            let unavailable = unavailable.or_else(|| unset.clone());
            for reason in under_profiles.values_mut().filter(|reason| reason.is_none()) {
                reason.clone_from(&unset);
            }
            let effects = (granted.all().map(|one| Effects::of(&one.grants, policy)))
                .fold(Effects::default(), Effects::or);
            let check =
                availability.clone().map(|entry| Arc::new(ToolCheck { entry, tool: name.clone() }) as _);
            let always_include = def.traits.always_include && policy.always_include(id);
            let invoker = PluginTool {
                plugin: Arc::clone(plugin),
                breaker: Breaker::new(format!("`{}`", def.name), policy.host()),
                name: name.clone(),
                limits: Arc::new(limits),
                granted,
                config: Arc::clone(&config),
                entry: described.entry.clone(),
                reuse,
                usual_memory: UsualMemory::default(),
            };
            let asks = policy.asks_reason(Some((id, &invoker.name)));
            let entry = Entry::new(def, Arc::new(invoker)).with_effects(effects);
            let entry = Entry {
                availability: ToolAvailability {
                    disabled: None,
                    unavailable,
                    under_profiles: Some(Arc::new(under_profiles)),
                    check,
                },
                flags: Flags { always_include, ..entry.flags },
                call,
                offers: offers.clone(),
                unasked: described.checked_schema.clone(),
                ..entry
            };
            bundle.tools.push(if asks { entry.asking_reason() } else { entry });
        }
        problems.iter().for_each(|(problem, tools)| warn(of_tools(tools, problem)));
        // A plugin that is held changes nobody's results either.
        if held.is_none() {
            tell_unmet(&bundle, &unmet, &mut warn);
            self.bind_reducers(plugin, &mut bundle);
        }
        Ok((bundle, held.map(|held| held.for_operator())))
    }

    /// What a tool gets without a profile and under each, and why it is not available there. Nothing, if its plugin
    /// is held.
    fn grant(
        &self,
        id: &PluginId,
        name: &ToolName,
        def: &ToolDef,
        held: Option<&Refusal>,
        (wants_folders, foreign): (bool, bool),
        told: &mut BTreeMap<String, Vec<ToolName>>,
    ) -> (GrantedUnder, Option<Refusal>, BTreeMap<Arc<str>, Option<Refusal>>) {
        let (policy, shared) = (&self.services.policy, &self.shared);
        let join = |grants: Grants, files, profile: Option<&Arc<str>>| {
            let profile = profile.cloned();
            let plain = Granted::new(&self.services, name.clone(), grants);
            Arc::new(Granted { profile, files, foreign, ..plain })
        };
        let mut under = |profile: Option<&Arc<str>>| {
            if let Some(held) = held {
                return (join(Grants::default(), None, profile), Some(held.clone()));
            }
            let grants = policy.grant(id, name, &def.capabilities, profile.map(AsRef::as_ref));
            let mut problems = Vec::new();
            let opened = FileGrants::open(&grants, policy, id, &shared.folders, |problem| {
                problems.push(problem);
            });
            let (files, kept) = match opened {
                Ok(files) => (files, None),
                Err(kept) => (None, Some(kept)),
            };
            if let (true, Some(files)) = (wants_folders, &files) {
                problems.extend(files.without_preopen());
            }
            let lost = (files.is_none() && !problems.is_empty()).then(|| {
                Refusal::new("none of the folders that it was granted can be opened", problems.join("; "))
            });
            let mut unavailable = grants.unavailable().or(kept).or(lost);
            for (optional, problem) in self.services.secrets.missing(&grants, policy) {
                problems.push(problem.for_operator());
                if !optional {
                    unavailable = unavailable.or(Some(problem));
                }
            }
            for problem in problems {
                let tools = told.entry(problem).or_default();
                if tools.last() != Some(name) {
                    tools.push(name.clone());
                }
            }
            (join(grants, files, profile), unavailable)
        };
        let (no_profile, unavailable) = under(None);
        let (mut profiles, mut reasons) = (BTreeMap::new(), BTreeMap::new());
        for profile in policy.profiles() {
            let profile: Arc<str> = profile.into();
            let (granted, unavailable) = under(Some(&profile));
            profiles.insert(Arc::clone(&profile), granted);
            reasons.insert(profile, unavailable);
        }
        // Most tools are granted nothing anyway.
        let is_nothing = no_profile.grants == Grants::default() && no_profile.files.is_none();
        let nothing = match is_nothing {
            true => Arc::clone(&no_profile),
            false => join(Grants::default(), None, None),
        };
        (GrantedUnder { no_profile, profiles, nothing }, unavailable, reasons)
    }

    /// A section for a tool that is not there is a narrowing that would not hold: most likely a name is misspelt.
    fn check_sections(&self, plugin: &Plugin) -> Result<(), LoadError> {
        let tools = &plugin.descriptor.tools;
        match self
            .services
            .policy
            .tool_sections(&plugin.id)
            .find(|name| !tools.iter().any(|t| t.name == name.as_str()))
        {
            Some(name) => Err(LoadError::Section { plugin: plugin.id.clone(), tool: name.clone() }),
            None => Ok(()),
        }
    }

    /// A label that begins with the name of a service is that service's: `pets.read`.
    fn check_tags<'a>(&self, tools: impl Iterator<Item = &'a ToolDef>) -> Result<(), LoadError> {
        let policy = &self.services.policy;
        let of_service = |tag: &&String| {
            let name = tag.split_once('.').map(|(name, _)| name);
            name.is_some_and(|name| policy.openapi().any(|one| one.name.as_str().eq_ignore_ascii_case(name)))
        };
        match tools.flat_map(|def| &def.keywords.tags).find(of_service) {
            Some(tag) => Err(LoadError::Metadata(format!(
                "its tag `{tag}` begins with the name of a service of the policy ([openapi.NAME]), as that service's do"
            ))),
            None => Ok(()),
        }
    }

    /// A plugin reduces its own tools; others' only where the operator wrote their qualified names under `reduce`.
    fn bind_reducers(&self, plugin: &Arc<Plugin>, bundle: &mut Bundle) {
        let (id, granted) = (&plugin.id, self.services.policy.reduces(&plugin.id));
        let limits = self.services.policy.limits(id, None);
        let takes = |reducer: &str, wish: &Reduction| wish.reducer == reducer || wish.tool == reducer;
        for reducer in &plugin.descriptor.reducers {
            let declared = reducer.tool_name.as_str();
            let own = bundle
                .tools
                .iter()
                .map(|t| &t.def.name)
                .find(|name| name.as_str() == declared || name.bare() == declared);
            let own = own.map(|name| name.as_str().to_owned());
            let others = granted.iter().filter(|wish| takes(declared, wish)).map(|wish| wish.tool.clone());
            let targets: BTreeSet<String> = own.into_iter().chain(others).collect();
            for target in targets {
                let host = self.services.policy.host();
                let reducer = Arc::new(PluginReducer::new(plugin, &limits, &target, host));
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

/// The settings of a plugin, each as JSON.
fn setting_texts(policy: &Policy, id: &PluginId) -> BTreeMap<String, String> {
    let settings = policy.config(id).into_iter().flatten();
    settings.map(|(key, value)| (key.clone(), value.to_string())).collect()
}

/// Warns of what the component imports and nobody declares, of functions that are no tools, and of what some clients lose.
fn tell_findings<'d>(
    plugin: &Plugin,
    defined: impl Iterator<Item = &'d ToolDef>,
    mut warn: impl FnMut(String),
) {
    tell_undeclared(plugin, &mut warn);
    plugin.descriptor.left_out.iter().for_each(|one| warn(one.clone()));
    defined.flat_map(portable::findings).filter(|one| one.loses).for_each(|one| warn(one.text));
}

/// Says of several tools at once what is wrong with each.
fn of_tools(tools: &[ToolName], problem: &str) -> String {
    let names: Vec<String> = tools.iter().take(MAX_NAMED).map(|name| format!("`{name}`")).collect();
    let more = match tools.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = if tools.len() == 1 { "tool" } else { "tools" };
    format!("{noun} {}{more}: {problem}", names.join(", "))
}

/// The kinds of capability that a tool is not granted, if no interface tells it so.
fn unmet_of(granted: &Granted) -> impl Iterator<Item = String> {
    let missing = granted.grants.missing().filter(|_| granted.foreign);
    missing.map(|one| one.capability.kind.as_str().to_owned())
}

/// Warns of what a component that does not know the contract imports and is not granted: once for all its tools.
fn tell_unmet(bundle: &Bundle, unmet: &BTreeSet<String>, mut warn: impl FnMut(String)) {
    let Some(first) = bundle.tools.first().filter(|_| !unmet.is_empty()) else { return };
    let kinds: Vec<String> = unmet.iter().map(|kind| format!("`{kind}`")).collect();
    warn(format!(
        "its component imports what is not granted to all of its tools: {}; results of calls that use it say so, and \
         `toolbay explain {}` shows what would grant it",
        kinds.join(", "),
        first.def.name
    ));
}

/// Whether a tool belongs to a component that does not know the contract.
fn is_foreign(entry: &foreign::Entry) -> bool {
    !matches!(entry, foreign::Entry::Contract)
}

/// How the calls of a tool run. Lengths of results have the stricter of the author's and the operator's bounds.
fn call_settings(
    policy: &Policy,
    id: &PluginId,
    name: &ToolName,
    def: &ToolDef,
    limits: &Limits,
) -> CallSettings {
    CallSettings {
        args_bytes: limits.args_bytes,
        result_chars: def.max_result_chars.map(u64::from).into_iter().chain(limits.result_chars).min(),
        result_bytes: limits.result_bytes,
        serial: policy.lane(id, name),
        cache: policy.cache(id, name),
        // With the settings of the whole policy, which may be another than when the host was made.
        delivery: policy.results_of(id, name).or(policy.results()),
    }
}

/// The limits of one tool: the policy's, and a time-out that its author wants shorter.
pub(crate) fn limits_of(policy: &Policy, plugin: &PluginId, name: &ToolName, def: &ToolDef) -> Limits {
    let mut limits = policy.limits(plugin, Some(name));
    if let Some(asked) = def.timeout {
        limits.ask_timeout(asked);
    }
    limits
}
