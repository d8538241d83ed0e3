//! Loads plugins from files or bytes, and joins them with their grants into registry bundles. A bad file is reported
//! and does not affect other plugins.

mod candidates;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

pub(crate) use candidates::{Candidate, LockedComponent, candidates, check_listing};

use parking_lot::Mutex;
use toolbay_capabilities::files::FileGrants;
use toolbay_capabilities::{GrantsByProfile, ResolvedGrants, Services};
use toolbay_core::registry::{Bundle, CallSettings, ReducerEntry, ToolAvailability, ToolEntry, ToolFlags};
use toolbay_core::tool::client_compat;
use toolbay_core::tool::prompts_and_resources::PromptsAndResources;
use toolbay_core::tool::tags::Effects;
use toolbay_core::tool::{PluginOrigin, ToolDef};
use toolbay_policy::capability::{imports_everything, undeclared_imports};
use toolbay_policy::limits::CallLimits;
use toolbay_policy::name::{PluginId, ToolName};
use toolbay_policy::name_list::{list_all_names, list_names};
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::{Grants, Policy, ReducerBinding};
use toolbay_sandbox::circuit_breaker::CircuitBreaker;
use toolbay_sandbox::compile::{MAX_COMPONENT_BYTES, compiler};
use toolbay_sandbox::engine::{AsyncSupport, EngineKind, Metering};
use toolbay_state::digest::Digest;

use crate::error::LoadError;
use crate::plugins::availability::{self, ToolCheck};
use crate::plugins::code::Code;
use crate::plugins::consent_gate::ConsentGate;
use crate::plugins::descriptor::{Descriptor, ToolDescription};
use crate::plugins::file::{Stamp, read_component};
use crate::plugins::loading::CompileProgress;
use crate::plugins::memory_estimate::MemoryEstimate;
use crate::plugins::plain_component::{self, ComponentSections};
use crate::plugins::plugin::{ComponentOrigin, HostResources, Plugin};
use crate::plugins::prompts_and_resources;
use crate::plugins::reducer::PluginReducer;
use crate::plugins::run_blocking;
use crate::plugins::settings;
use crate::plugins::tool::PluginTool;

/// Maximum number of tools that one warning names.
const MAX_NAMED: usize = 3;
/// Maximum number of functions whose reason for not being a tool is a warning; the rest are counted.
const MAX_LEFT_OUT: usize = 20;

/// The bytes of a component and their origin.
pub(crate) struct ComponentSource {
    pub(crate) origin: ComponentOrigin,
    bytes: Vec<u8>,
}

/// Cache look-ups during one scan, by digest and metering, so that each component is looked up once.
#[derive(Default)]
pub(crate) struct CacheLookups(Mutex<HashMap<(Digest, Metering), CacheLookup>>);

/// The cached descriptor of a component, if there is one.
type CacheLookup = Option<Arc<Descriptor>>;

/// Warns about interfaces of the contract that the component imports but no tool declares. Calls to them are denied.
/// Either a declaration is missing, or the component does something that it does not declare. Toolchains that import
/// the whole contract get no warning.
fn warn_undeclared(plugin: &Plugin, mut warn: impl FnMut(String)) {
    let descriptor = &plugin.descriptor;
    if imports_everything(&descriptor.imports) {
        return;
    }
    let declared = descriptor.tools.iter().flat_map(|tool| &tool.capabilities);
    for one in undeclared_imports(&descriptor.imports, declared).iter().filter(|one| one.is_contract) {
        warn(format!(
            "it imports `{}`, but none of its tools declares that; calls to it are denied",
            one.import
        ));
    }
}

/// Turns components into plugins.
#[derive(Clone)]
pub(crate) struct Loader {
    pub(crate) shared: Arc<HostResources>,
    /// The policy, and the services built from it.
    pub(crate) services: Arc<Services>,
    pub(crate) consent_gate: Arc<ConsentGate>,
}

/// A plugin whose tools are defined, before it is joined with its grants.
pub(crate) struct DefinedPlugin<'a> {
    pub(crate) plugin: &'a Arc<Plugin>,
    tools: Vec<(ToolName, ToolDef)>,
    /// The names of the tools, in the order of the descriptor.
    pub(crate) names: Vec<ToolName>,
    /// Why no tool can be called before the operator writes a setting.
    unset: Option<PolicyRefusal>,
    prompts_and_resources: Option<Arc<PromptsAndResources>>,
}

impl Loader {
    /// Reads a file. Also returns its stamp, if the file did not change meanwhile. Blocks.
    pub(crate) fn read(
        id: PluginId,
        file: &Arc<Path>,
        registry: Option<Arc<PluginOrigin>>,
    ) -> Result<(ComponentSource, Option<Stamp>), LoadError> {
        let (bytes, stamp) = read_component(file)?;
        let (digest, size) = (Digest::of(&bytes), bytes.len() as u64);
        let origin = ComponentOrigin::new(id, digest, size, Some(Arc::clone(file)));
        Ok((ComponentSource { origin: ComponentOrigin { registry, ..origin }, bytes }, stamp))
    }

    /// Loads a plugin from a file, with cached metadata or by compiling.
    pub(crate) async fn prepare(&self, id: PluginId, file: &Path) -> Result<Arc<Plugin>, LoadError> {
        let (this, file) = (self.clone(), Arc::from(file));
        let read = run_blocking(move || {
            let (contents, _) = Self::read(id, &file, None)?;
            let known = this.load_cached(&contents.origin, &CacheLookups::default())?;
            Ok((contents, known))
        });
        match read.await? {
            (_, Some(plugin)) => Ok(plugin),
            (contents, None) => self.compile(contents).await,
        }
    }

    /// Loads a plugin with cached metadata. Returns `None` if the cache does not have it. Blocks.
    pub(crate) fn load_cached(
        &self,
        origin: &ComponentOrigin,
        lookups: &CacheLookups,
    ) -> Result<Option<Arc<Plugin>>, LoadError> {
        self.check_id(&origin.id, &origin.digest)?;
        let (digest, metering) = (&origin.digest, self.metering(&origin.id));
        // The engine for asynchronous components has the same cache.
        let kind = EngineKind { metering, async_support: AsyncSupport::Off };
        let Some(cache) = &self.shared.engine(kind)?.cache else { return Ok(None) };
        let read = || Some(self.shared.descriptors.share(digest, cache.get(digest)?.descriptor));
        let mut lookups = lookups.0.lock();
        let descriptor = lookups.entry((*digest, metering)).or_insert_with(read).clone();
        drop(lookups);
        let plugin = |descriptor| Plugin::new(Arc::clone(&self.shared), origin.clone(), descriptor, true);
        Ok(descriptor.map(plugin))
    }

    /// The version of a plugin with this digest, if the cache has it. Blocks.
    pub(crate) fn older_version(&self, plugin: &Plugin, digest: &Digest) -> Option<Arc<Plugin>> {
        if *digest == plugin.digest {
            return None;
        }
        let origin = ComponentOrigin::new(plugin.id.clone(), *digest, plugin.bytes, plugin.file.clone());
        self.load_cached(&origin, &CacheLookups::default()).ok().flatten()
    }

    /// The metering of the plugin as a whole. The code for a tool with another metering is loaded with the tool's first
    /// call.
    fn metering(&self, id: &PluginId) -> Metering {
        Metering::from_limits(&self.services.policy.limits(id, None))
    }

    /// Loads a plugin from bytes, with cached metadata or by compiling. Its code stays in memory once it is there.
    pub(crate) async fn prepare_bytes(&self, id: PluginId, bytes: Vec<u8>) -> Result<Arc<Plugin>, LoadError> {
        if bytes.len() as u64 > MAX_COMPONENT_BYTES {
            return Err(LoadError::TooLarge { size: bytes.len() as u64, limit: MAX_COMPONENT_BYTES });
        }
        let origin = ComponentOrigin::new(id, Digest::of(&bytes), bytes.len() as u64, None);
        let origin = ComponentOrigin { component_bytes: Some(bytes.as_slice().into()), ..origin };
        let (this, wanted) = (self.clone(), origin.clone());
        match run_blocking(move || this.load_cached(&wanted, &CacheLookups::default())).await? {
            Some(plugin) => Ok(plugin),
            None => self.compile(ComponentSource { origin, bytes }).await,
        }
    }

    /// Checks that no other source uses the id, and that the digest matches the pin.
    fn check_id(&self, id: &PluginId, digest: &Digest) -> Result<(), LoadError> {
        if let Some(table) = self.services.policy.conflicting_section(id) {
            return Err(LoadError::ReservedId { id: id.clone(), table });
        }
        match self.services.policy.pinned_sha256(id) {
            Some(pinned) if *pinned != *digest.hex() => {
                Err(LoadError::DigestMismatch { found: digest.to_string(), pinned: pinned.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Compiles, links, describes and caches a component.
    pub(crate) async fn compile(&self, contents: ComponentSource) -> Result<Arc<Plugin>, LoadError> {
        let ComponentSource { origin, bytes } = contents;
        let shared = &self.shared;
        let (id, host, metering) = (origin.id.clone(), Arc::clone(shared), self.metering(&origin.id));
        let progress = CompileProgress::start(shared.listener.as_ref(), &id, origin.bytes);
        let read = run_blocking(move || {
            compiler::check(&bytes)?;
            let sections = ComponentSections::read(&bytes)?;
            let kind = EngineKind { metering, async_support: AsyncSupport::for_component(&bytes) };
            Ok((bytes, sections, Arc::clone(host.engine(kind)?)))
        });
        let (bytes, sections, linked) = read.await?;
        let compiled = shared.compiler.compile(&linked.engine, linked.cache.as_ref(), bytes).await?;
        let component = compiled.component.clone();
        let code = Arc::new(run_blocking(move || Code::link(&linked, &component)).await?);
        let limits = self.services.policy.limits(&origin.id, None);
        // Never cancelled: a caller that gives up drops this future.
        let cancel = tokio_util::sync::CancellationToken::new();
        let permit = shared.concurrency.acquire(&origin.id, limits.concurrency, &cancel).await;
        let permit = permit.map_err(|fault| LoadError::Host(fault.message))?;
        let descriptor = code.describe(&origin.id, &limits, &sections).await?;
        let descriptor = descriptor.with_document(sections.prompts_and_resources)?;
        drop(permit);
        let descriptor = shared.descriptors.share(&origin.digest, descriptor);
        let plugin = Plugin::new(Arc::clone(shared), origin, descriptor, false);
        let this = Arc::clone(&plugin);
        run_blocking(move || {
            this.store_code(compiled, code);
            Ok(())
        })
        .await?;
        drop(progress);
        Ok(plugin)
    }

    /// Checks a plugin against the policy, and defines its tools. Nothing is granted yet.
    ///
    /// # Errors
    /// The policy names a tool or setting that the plugin does not have, or the plugin breaks a rule of the policy.
    pub(crate) fn define<'a>(&self, plugin: &'a Arc<Plugin>) -> Result<DefinedPlugin<'a>, LoadError> {
        self.check_id(&plugin.id, &plugin.digest)?;
        let (id, policy) = (&plugin.id, &self.services.policy);
        self.check_sections(plugin)?;
        let schema = plugin.descriptor.about.as_ref().and_then(|about| about.config_schema.as_ref());
        let unset = settings::check(policy, id, schema)?;
        let source = plugin.source();
        let define = |tool: &ToolDescription| tool.define(id, &source);
        let tools = plugin.descriptor.tools.iter().map(define).collect::<Result<Vec<_>, _>>()?;
        self.check_tags(tools.iter().map(|(_, def)| def))?;
        let document = plugin.descriptor.prompts_and_resources.as_ref();
        let prompts_and_resources = prompts_and_resources::from_document(id, document)?;
        let names = tools.iter().map(|(name, _)| name.clone()).collect();
        Ok(DefinedPlugin { plugin, tools, names, unset, prompts_and_resources })
    }

    /// Joins a plugin with its grants. If there is a reason to hold it, it is granted nothing. `warn` receives grants
    /// that cannot be opened and other findings. Blocks on folders.
    pub(crate) fn bundle(
        &self,
        defined: DefinedPlugin<'_>,
        held: Option<PolicyRefusal>,
        mut warn: impl FnMut(String),
    ) -> (Bundle, Option<String>) {
        let DefinedPlugin { plugin, tools: defined, unset, prompts_and_resources, .. } = defined;
        let (id, policy) = (&plugin.id, &self.services.policy);
        let config = Arc::new(setting_texts(policy, id));
        let description: Option<Arc<str>> =
            plugin.descriptor.about.as_ref().and_then(|about| about.description.as_deref()).map(Arc::from);
        warn_findings(plugin, defined.iter().map(|(_, def)| def), &mut warn);
        held.iter().for_each(|held| warn(held.for_operator()));
        // A held plugin is not run, not even for availability checks.
        let availability = match held {
            None => {
                availability::availability_entry(plugin, &policy.limits(id, None), &config, policy.host())
            }
            Some(_) => None,
        };
        let reusable = plugin.descriptor.about.as_ref().is_some_and(|about| about.reusable);
        let reuse = settings::reuse(policy, id, reusable, &mut warn);
        let mut bundle = Bundle::default();
        let mut problems: BTreeMap<String, Vec<ToolName>> = BTreeMap::new();
        let mut unmet = BTreeSet::new();
        for ((name, def), described) in defined.into_iter().zip(&plugin.descriptor.tools) {
            let limits = tool_limits(policy, id, &name, &def);
            let call = call_settings(policy, id, &name, &def, &limits);
            let how = (plugin.descriptor.wants_folders(), is_plain(&described.entry));
            let (granted, unavailable, mut under_profiles) =
                self.resolve_grants(id, &name, &def, held.as_ref(), how, &mut problems);
            unmet.extend(unmet_capabilities(&granted.no_profile));
            let unavailable = unavailable.or_else(|| unset.clone());
            for reason in under_profiles.values_mut().filter(|reason| reason.is_none()) {
                reason.clone_from(&unset);
            }
            let effects = (granted.iter().map(|one| Effects::from_grants(&one.grants, policy)))
                .fold(Effects::default(), Effects::union);
            let check =
                availability.clone().map(|entry| Arc::new(ToolCheck { entry, tool: name.clone() }) as _);
            let always_include = def.traits.always_include && policy.always_include(id);
            let invoker = PluginTool {
                plugin: Arc::clone(plugin),
                breaker: CircuitBreaker::new(format!("`{}`", def.name), policy.host()),
                name: name.clone(),
                limits: Arc::new(limits),
                granted,
                config: Arc::clone(&config),
                entry: described.entry.clone(),
                reuse,
                memory_estimate: MemoryEstimate::default(),
            };
            let entry = ToolEntry::new(def, Arc::new(invoker)).with_effects(effects);
            let entry = ToolEntry {
                availability: ToolAvailability {
                    disabled: None,
                    unavailable,
                    by_profile: Some(Arc::new(under_profiles)),
                    check,
                },
                flags: ToolFlags { always_include, ..entry.flags },
                call,
                prompts_and_resources: prompts_and_resources.clone(),
                plugin_description: description.clone(),
                ..entry
            };
            bundle.tools.push(entry);
        }
        problems.iter().for_each(|(problem, tools)| warn(tools_message(tools, problem)));
        // A held plugin does not reduce results either.
        if held.is_none() {
            warn_unmet(&bundle, &unmet, &mut warn);
            self.bind_reducers(plugin, &mut bundle);
        }
        (bundle, held.map(|held| held.for_operator()))
    }

    /// Resolves the grants of a tool without a profile and under each profile, with the reasons why it is unavailable.
    /// The tools of a held plugin are granted nothing.
    fn resolve_grants(
        &self,
        id: &PluginId,
        name: &ToolName,
        def: &ToolDef,
        held: Option<&PolicyRefusal>,
        (wants_folders, is_plain): (bool, bool),
        tools_by_problem: &mut BTreeMap<String, Vec<ToolName>>,
    ) -> (GrantsByProfile, Option<PolicyRefusal>, BTreeMap<Arc<str>, Option<PolicyRefusal>>) {
        let (policy, shared) = (&self.services.policy, &self.shared);
        let join = |grants: Grants, files| {
            let base = ResolvedGrants::new(&self.services, name.clone(), grants);
            Arc::new(ResolvedGrants { files, is_plain, ..base })
        };
        let granted_under = |profile: Option<&str>| match held {
            Some(_) => Grants::default(),
            None => policy.grant(id, name, &def.capabilities, profile),
        };
        let mut resolve = |grants: Grants| {
            if let Some(held) = held {
                return (join(grants, None), Some(held.clone()));
            }
            let mut problems = Vec::new();
            let opened = FileGrants::open(&grants, policy, id, &shared.folders, |problem| {
                problems.push(problem);
            });
            let (files, kept) = match opened {
                Ok(files) => (files.map(|files| files.with_internal_reads(internal_reads(def))), None),
                Err(kept) => (None, Some(kept)),
            };
            if let (true, Some(files)) = (wants_folders, &files) {
                problems.extend(files.not_preopened());
            }
            let lost = (files.is_none() && !problems.is_empty()).then(|| {
                PolicyRefusal::new("none of its granted folders can be opened", problems.join("; "))
            });
            let mut unavailable = grants.unavailable().or(kept).or(lost);
            for (optional, problem) in self.services.secrets.missing_secrets(&grants, policy) {
                problems.push(problem.for_operator());
                if !optional {
                    unavailable = unavailable.or(Some(problem));
                }
            }
            for problem in problems {
                let tools = tools_by_problem.entry(problem).or_default();
                if tools.last() != Some(name) {
                    tools.push(name.clone());
                }
            }
            (join(grants, files), unavailable)
        };
        // Most profiles grant a tool what it has without one, or what another profile grants. Only what differs is kept.
        let (mut profiles, mut reasons) = (BTreeMap::new(), BTreeMap::new());
        let mut known = vec![resolve(granted_under(None))];
        for profile in policy.profile_names() {
            let grants = granted_under(Some(profile));
            let same = known.iter().position(|(one, _)| one.grants == grants);
            let at = same.unwrap_or_else(|| {
                known.push(resolve(grants));
                known.len() - 1
            });
            let Some((granted, unavailable)) = known.get(at) else { continue };
            let profile: Arc<str> = profile.into();
            profiles.insert(Arc::clone(&profile), Arc::clone(granted));
            reasons.insert(profile, unavailable.clone());
        }
        let (no_profile, unavailable) = known.swap_remove(0);
        // Most tools are granted nothing, so the value can be shared.
        let is_nothing = no_profile.grants == Grants::default() && no_profile.files.is_none();
        let nothing = match is_nothing {
            true => Arc::clone(&no_profile),
            false => join(Grants::default(), None),
        };
        (GrantsByProfile { no_profile, profiles, unknown_profile: nothing }, unavailable, reasons)
    }

    /// Rejects a section for a tool that does not exist. Most likely the name is misspelt, and its restrictions would
    /// not apply.
    fn check_sections(&self, plugin: &Plugin) -> Result<(), LoadError> {
        let tools = &plugin.descriptor.tools;
        match self
            .services
            .policy
            .tool_sections(&plugin.id)
            .find(|name| !tools.iter().any(|t| t.name == name.as_str()))
        {
            Some(name) => {
                Err(LoadError::UnknownToolSection { plugin: plugin.id.clone(), tool: name.clone() })
            }
            None => Ok(()),
        }
    }

    /// Rejects tags that start with the name of an OpenAPI service, such as `pets.read`. They are reserved for that
    /// service.
    fn check_tags<'a>(&self, tools: impl Iterator<Item = &'a ToolDef>) -> Result<(), LoadError> {
        let policy = &self.services.policy;
        let of_service = |tag: &&String| {
            let name = tag.split_once('.').map(|(name, _)| name);
            name.is_some_and(|name| {
                policy.openapi_services().any(|one| one.name.as_str().eq_ignore_ascii_case(name))
            })
        };
        match tools.flat_map(|def| &def.keywords.tags).find(of_service) {
            Some(tag) => Err(LoadError::Metadata(format!(
                "its tag `{tag}` begins with the name of a service in the policy ([openapi.NAME]), which is reserved for \
                 that service"
            ))),
            None => Ok(()),
        }
    }

    /// Binds the plugin's reducers to its own tools, and to other tools only if the operator wrote their qualified
    /// names under `reduce`.
    fn bind_reducers(&self, plugin: &Arc<Plugin>, bundle: &mut Bundle) {
        let (id, granted) = (&plugin.id, self.services.policy.reducer_bindings(&plugin.id));
        let limits = self.services.policy.limits(id, None);
        let takes =
            |reducer: &str, binding: &ReducerBinding| binding.reducer == reducer || binding.tool == reducer;
        for reducer in &plugin.descriptor.reducers {
            let declared = reducer.tool_name.as_str();
            let own = bundle
                .tools
                .iter()
                .map(|t| &t.def.name)
                .find(|name| name.as_str() == declared || name.tool_part() == declared);
            let own = own.map(|name| name.as_str().to_owned());
            let others =
                granted.iter().filter(|binding| takes(declared, binding)).map(|binding| binding.tool.clone());
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

/// The settings of a plugin, each as JSON text.
fn setting_texts(policy: &Policy, id: &PluginId) -> BTreeMap<String, String> {
    let settings = policy.config(id).into_iter().flatten();
    settings.map(|(key, value)| (key.clone(), value.to_string())).collect()
}

/// Warns about undeclared imports, functions that are not tools, and features that some clients lose.
fn warn_findings<'d>(
    plugin: &Plugin,
    defined: impl Iterator<Item = &'d ToolDef>,
    mut warn: impl FnMut(String),
) {
    warn_undeclared(plugin, &mut warn);
    let left_out = &plugin.descriptor.left_out;
    left_out.iter().take(MAX_LEFT_OUT).for_each(|one| warn(one.clone()));
    match left_out.len().saturating_sub(MAX_LEFT_OUT) {
        0 => {}
        more => warn(format!("{more} more of its functions are not tools; `toolbay check` lists them")),
    }
    defined.flat_map(client_compat::findings).filter(|one| one.breaks_client).for_each(|one| warn(one.text));
}

/// Formats a problem that several tools share.
fn tools_message(tools: &[ToolName], problem: &str) -> String {
    let noun = if tools.len() == 1 { "tool" } else { "tools" };
    format!("{noun} {}: {problem}", list_names(tools, MAX_NAMED))
}

/// Whether the caller of a tool does not see what the tool reads, as the tool's metadata says.
fn internal_reads(def: &ToolDef) -> bool {
    let meta = def.meta.as_ref().and_then(|meta| serde_json::from_str::<serde_json::Value>(meta.get()).ok());
    meta.is_some_and(|meta| meta.get("internal_reads") == Some(&true.into()))
}

/// The capability kinds that a plain component's tool needs and is not granted. No interface reports them to the tool.
fn unmet_capabilities(granted: &ResolvedGrants) -> impl Iterator<Item = String> {
    let missing = granted.grants.missing().filter(|_| granted.is_plain);
    missing.map(|one| one.capability.kind.as_str().to_owned())
}

/// Warns once per plugin about imports of a plain component that are not granted.
fn warn_unmet(bundle: &Bundle, unmet: &BTreeSet<String>, mut warn: impl FnMut(String)) {
    let Some(first) = bundle.tools.first().filter(|_| !unmet.is_empty()) else { return };
    warn(format!(
        "its component imports what is not granted to all of its tools: {}; results of calls that use it say so, and \
         `toolbay explain {}` shows what would grant it",
        list_all_names(unmet),
        first.def.name
    ));
}

/// Whether a tool belongs to a plain component, which does not use the contract.
pub(crate) fn is_plain(entry: &plain_component::ToolEntryPoint) -> bool {
    !matches!(entry, plain_component::ToolEntryPoint::Contract)
}

/// The settings for calls of a tool. The stricter of the author's and the operator's length limits applies.
fn call_settings(
    policy: &Policy,
    id: &PluginId,
    name: &ToolName,
    def: &ToolDef,
    limits: &CallLimits,
) -> CallSettings {
    CallSettings {
        args_bytes: limits.args_bytes,
        result_chars: def.max_result_chars.map(u64::from).into_iter().chain(limits.result_chars).min(),
        result_bytes: limits.result_bytes,
        serial: policy.serial_queue(id, name),
        cache: policy.cache(id, name),
        // Taken from the current policy, which may differ from the policy at the start of the host.
        output: policy.tool_results(id, name).or(policy.results()),
        toolcall_reason: policy.tool_asks_reason(id, name),
    }
}

/// The limits of one tool: those of the policy, with the author's time-out if it is shorter.
pub(crate) fn tool_limits(policy: &Policy, plugin: &PluginId, name: &ToolName, def: &ToolDef) -> CallLimits {
    let mut limits = policy.limits(plugin, Some(name));
    if let Some(asked) = def.timeout {
        limits.lower_timeout(asked);
    }
    limits
}
