//! Links components, and queries their descriptions.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use toolbay_capabilities::Capabilities;
use toolbay_capabilities::bindings::types::{ToolDef, ToolResult};
use toolbay_capabilities::state::{GuestEngine, GuestState};
use toolbay_core::call::AdmittedCall;
use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::limits::CallLimits;
use toolbay_policy::name::PluginId;
use toolbay_sandbox::engine::Engine;
use toolbay_sandbox::instance::{ContractBreach, GuestEntry, as_fault};
use wasmtime::Store;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, ComponentExportIndex, Instance, InstancePre};

use crate::error::LoadError;
use crate::plugins::bindings::about::ExportsAboutPre;
use crate::plugins::bindings::availability::ExportsAvailabilityPre;
use crate::plugins::bindings::reducers::ExportsReducersPre;
use crate::plugins::descriptor::Descriptor;
use crate::plugins::missing_import;
use crate::plugins::plain_component::{self, ComponentSections, PlainComponent, ToolEntryPoint};

/// The package of the contract, and the version that this host implements.
const PACKAGE: &str = "toolbay:plugin/";
const VERSION: &str = "0.1.0";
/// Maximum length of a validator's or linker's message, in characters.
const MAX_REASON: usize = 400;
/// Upper bounds of an isolated entry: a metadata query or a reduction.
const ISOLATED_FUEL: u64 = 2_000_000_000;
const ISOLATED_TIMEOUT: Duration = Duration::from_secs(5);

/// The limits of an isolated entry.
pub(crate) fn isolated_limits(limits: &CallLimits) -> CallLimits {
    let mut sealed = limits.clone();
    sealed.cap_fuel_and_timeout(ISOLATED_FUEL, ISOLATED_TIMEOUT);
    sealed
}

/// The tools of a component.
pub(crate) enum ToolExports {
    /// A component that implements the contract.
    Contract(ContractTools),
    /// A plain component.
    Plain(PlainComponent),
}

/// A component that implements the contract: `tools`, or `tools-async`, whose functions have the same types. The
/// generated bindings would compare the types of all functions of the interface for each instance.
pub(crate) struct ContractTools {
    pre: InstancePre<GuestState>,
    list_tools: ComponentExportIndex,
    call: ComponentExportIndex,
}

impl ContractTools {
    fn new(component: &Component, interface: &str, pre: InstancePre<GuestState>) -> wasmtime::Result<Self> {
        let interface = component.get_export_index(None, format!("{PACKAGE}{interface}@{VERSION}"));
        let function = |name: &str| {
            let index = interface.and_then(|interface| component.get_export_index(Some(&interface), name));
            index.ok_or_else(|| ContractBreach::error(format!("no function `{name}`")))
        };
        Ok(Self { list_tools: function("list-tools")?, call: function("call")?, pre })
    }

    async fn list_tools(&self, store: &mut Store<GuestState>) -> wasmtime::Result<Vec<ToolDef>> {
        let guest = self.instantiate(store).await?;
        let list = guest.get_typed_func::<(), (Vec<ToolDef>,)>(&mut *store, self.list_tools)?;
        let (tools,) = list.call_async(store, ()).await?;
        Ok(tools)
    }

    async fn call(
        &self,
        store: &mut Store<GuestState>,
        name: &str,
        args: &str,
    ) -> wasmtime::Result<ToolResult> {
        let guest = self.instantiate(store).await?;
        self.call_in(guest, store, name, args).await
    }

    /// Creates an instance.
    pub(crate) async fn instantiate(&self, store: &mut Store<GuestState>) -> wasmtime::Result<Instance> {
        self.pre.instantiate_async(store).await
    }

    /// Runs one tool in an existing instance.
    pub(crate) async fn call_in(
        &self,
        guest: Instance,
        store: &mut Store<GuestState>,
        name: &str,
        args: &str,
    ) -> wasmtime::Result<ToolResult> {
        let call = guest.get_typed_func::<(&str, &str), (ToolResult,)>(&mut *store, self.call)?;
        let (answer,) = call.call_async(store, (name, args)).await?;
        Ok(answer)
    }
}

impl ToolExports {
    /// Runs one tool in a fresh store.
    pub(crate) async fn call(
        &self,
        store: &mut Store<GuestState>,
        entry: &ToolEntryPoint,
        name: &str,
        call: &AdmittedCall,
    ) -> wasmtime::Result<ToolResult> {
        match (self, entry) {
            (Self::Contract(contract), ToolEntryPoint::Contract) => {
                contract.call(store, name, call.args()).await
            }
            (Self::Plain(plain), ToolEntryPoint::Function(export)) => {
                plain.call(store, export, call.parsed()).await
            }
            (Self::Plain(plain), ToolEntryPoint::Program(template)) => plain.run(store, template).await,
            (Self::Plain(plain), ToolEntryPoint::Handler(template)) => {
                plain.handle(store, template, call.parsed()).await
            }
            (
                Self::Contract(_),
                ToolEntryPoint::Function(_) | ToolEntryPoint::Program(_) | ToolEntryPoint::Handler(_),
            )
            | (Self::Plain(_), ToolEntryPoint::Contract) => {
                Err(ContractBreach::error("the component no longer matches its description"))
            }
        }
    }
}

/// A linked component that can be instantiated.
pub(crate) struct Code {
    /// The engine that it was compiled for.
    linked: Arc<GuestEngine>,
    pub(crate) tools: Option<ToolExports>,
    pub(crate) reducers: Option<ExportsReducersPre<GuestState>>,
    pub(crate) availability: Option<ExportsAvailabilityPre<GuestState>>,
    about: Option<ExportsAboutPre<GuestState>>,
    imports: Vec<String>,
    /// The size of the mapped code, in bytes.
    pub(crate) bytes: u64,
}

impl Code {
    /// Links a component and finds its exports.
    pub(crate) fn link(linked: &Arc<GuestEngine>, component: &Component) -> Result<Self, LoadError> {
        let engine = &linked.engine;
        check_version(engine, component)?;
        let pre = linked
            .linker
            .instantiate_pre(component)
            .map_err(|e| link_error(engine, component, &one_line(&format!("{e:#}"), MAX_REASON)))?;
        let imports = imported_interfaces(engine, &pre);
        let contract = |interface| {
            find_export(component, interface, || ContractTools::new(component, interface, pre.clone()))
        };
        let tools = match (contract("tools")?, contract("tools-async")?) {
            (Some(_), Some(_)) => {
                return Err(LoadError::WrongWorld(
                    "exports both `tools` and `tools-async`: export one of them".to_owned(),
                ));
            }
            (tools, asynchronous) => tools.or(asynchronous).map(ToolExports::Contract),
        };
        let plain = || ToolExports::Plain(PlainComponent::new(pre.clone()));
        Ok(Self {
            linked: Arc::clone(linked),
            tools: tools.or_else(|| (!has_export(component, "reducers")).then(plain)),
            reducers: find_export(component, "reducers", || ExportsReducersPre::new(pre.clone()))?,
            availability: find_export(component, "availability", || {
                ExportsAvailabilityPre::new(pre.clone())
            })?,
            about: find_export(component, "about", || ExportsAboutPre::new(pre.clone()))?,
            imports,
            bytes: code_bytes(component),
        })
    }

    /// The engine of the code.
    pub(crate) fn engine(&self) -> &Engine {
        &self.linked.engine
    }

    /// Adds the kind of engine that the component needs.
    fn with_engine(&self, descriptor: Descriptor) -> Descriptor {
        Descriptor { async_support: self.engine().kind.async_support, ..descriptor }
    }

    /// The engine with its linker and cache.
    pub(crate) fn linked(&self) -> &GuestEngine {
        &self.linked
    }

    /// Queries the description of the component in isolated instances. Also finds type mismatches, which show only
    /// here.
    pub(crate) async fn describe(
        &self,
        plugin: &PluginId,
        limits: &CallLimits,
        sections: &ComponentSections,
    ) -> Result<Descriptor, LoadError> {
        if let Some(ToolExports::Plain(plain)) = &self.tools {
            let declared = plain_component::declare(self.engine(), plain, sections, &self.imports)?;
            let (tools, entries) = declared.tools.into_iter().unzip();
            let descriptor = Descriptor::new(declared.about, tools, Vec::new(), self.imports.clone())?;
            return Ok(self.with_engine(descriptor.with_entry_points(entries, declared.left_out)));
        }
        if sections.has_manifest() {
            return Err(LoadError::Metadata(
                "declares its tools itself and also has a `plugin.toml`: remove that file".to_owned(),
            ));
        }
        let limits = Arc::new(isolated_limits(limits));
        let cancel = CancellationToken::new();
        let entry = GuestEntry { engine: self.engine(), plugin, limits: &limits, cancel: &cancel };
        let mut tools = Vec::new();
        if let Some(ToolExports::Contract(contract)) = &self.tools {
            let ask = async |store: &mut Store<GuestState>| contract.list_tools(store).await;
            tools = query(&entry, &limits, "tools", ask).await?;
        }
        let mut reducers = Vec::new();
        if let Some(pre) = &self.reducers {
            let ask = async |store: &mut Store<GuestState>| {
                let guest = pre.instantiate_async(&mut *store).await?;
                guest.toolbay_plugin_reducers().call_list_reducers(store).await
            };
            reducers = query(&entry, &limits, "reducers", ask).await?;
        }
        let mut about = None;
        if let Some(pre) = &self.about {
            let ask = async |store: &mut Store<GuestState>| {
                let guest = pre.instantiate_async(&mut *store).await?;
                guest.toolbay_plugin_about().call_describe(store).await
            };
            about = Some(query(&entry, &limits, "origin", ask).await?);
        }
        let descriptor = Descriptor::new(about, tools, reducers, self.imports.clone())?;
        Ok(Descriptor { availability: self.availability.is_some(), ..self.with_engine(descriptor) })
    }
}

/// Queries an isolated instance.
async fn query<T>(
    entry: &GuestEntry<'_>,
    limits: &Arc<CallLimits>,
    what: &str,
    ask: impl AsyncFnOnce(&mut Store<GuestState>) -> wasmtime::Result<T>,
) -> Result<T, LoadError> {
    let state = GuestState::new(Capabilities::sealed(entry.plugin.clone(), Arc::clone(limits)));
    entry.run(state, ask).await.0.map_err(|failure| match as_fault(failure) {
        // Not the plugin's fault. The file is read again later.
        Fault { kind: FaultKind::Busy, message, .. } => LoadError::Host(message),
        fault => LoadError::Metadata(format!("failed when asked for its {what}: {}", fault.for_operator())),
    })
}

fn code_bytes(component: &Component) -> u64 {
    let image = component.image_range();
    (image.end.addr() - image.start.addr()) as u64
}

/// The names of imported interfaces that have functions. An interface with only types gives access to nothing.
fn imported_interfaces(engine: &Engine, pre: &InstancePre<GuestState>) -> Vec<String> {
    let ty = pre.component().component_type();
    let mut names: Vec<String> = ty
        .imports(&engine.wasmtime)
        .filter(|(_, item)| match &item.ty {
            ComponentItem::ComponentInstance(instance) => {
                instance.exports(&engine.wasmtime).any(|(_, export)| {
                    matches!(export.ty, ComponentItem::ComponentFunc(_) | ComponentItem::Resource(_))
                })
            }
            ComponentItem::ComponentFunc(_) => true,
            _ => false,
        })
        .map(|(name, _)| name.to_owned())
        .collect();
    names.sort();
    names
}

fn has_export(component: &Component, interface: &str) -> bool {
    component.get_export_index(None, format!("{PACKAGE}{interface}@{VERSION}")).is_some()
}

/// Looks up an interface, if the component exports it.
fn find_export<T>(
    component: &Component,
    interface: &str,
    find: impl FnOnce() -> wasmtime::Result<T>,
) -> Result<Option<T>, LoadError> {
    if !has_export(component, interface) {
        return Ok(None);
    }
    find().map(Some).map_err(|e| {
        let reason = one_line(&format!("{e:#}"), MAX_REASON);
        LoadError::WrongWorld(format!(
            "its `{PACKAGE}{interface}@{VERSION}` does not match the contract: {reason}"
        ))
    })
}

/// Refuses a component that implements another version of the contract.
fn check_version(engine: &Engine, component: &Component) -> Result<(), LoadError> {
    if ["tools", "tools-async", "reducers"].iter().any(|interface| has_export(component, interface)) {
        return Ok(());
    }
    let ty = component.component_type();
    let other = ty.exports(&engine.wasmtime).map(|(name, _)| name).find(|name| name.starts_with(PACKAGE));
    other.map_or(Ok(()), |other| Err(version_error(other)))
}

/// The reason why a component cannot be linked. An import of another version of the contract is reported as such.
fn link_error(engine: &Engine, component: &Component, reason: &str) -> LoadError {
    let ty = component.component_type();
    let imports = || ty.imports(&engine.wasmtime).map(|(name, _)| name);
    let of_ours = |name: &&str| name.starts_with(PACKAGE) && !name.ends_with(&format!("@{VERSION}"));
    match imports().find(of_ours) {
        Some(other) => LoadError::WrongWorld(format!("{}: {reason}", version_error(other))),
        None => LoadError::UnknownImport(missing_import::describe(imports(), reason)),
    }
}

fn version_error(interface: &str) -> LoadError {
    let interface = one_line(interface, 100);
    let version = interface.rsplit('@').next().unwrap_or_default();
    LoadError::WrongWorld(format!(
        "is built for `{interface}`: it speaks version {version} of the contract, this host speaks {VERSION}; \
         {advice}",
        advice = advice(version)
    ))
}

/// How to make the versions match.
fn advice(version: &str) -> String {
    let parts =
        |version: &str| -> Vec<u64> { version.split('.').map_while(|part| part.parse().ok()).collect() };
    if parts(version) > parts(VERSION) {
        format!("update the host, or rebuild it with an SDK for {VERSION}")
    } else {
        format!("rebuild it with an SDK for {VERSION}")
    }
}
