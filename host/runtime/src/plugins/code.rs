//! A component from bytes to something that can be instantiated, and the question what it is.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use toolbay_core::call::AdmittedCall;
use toolbay_core::call::fault::{Fault, FaultKind};
use toolbay_policy::limits::Limits;
use toolbay_policy::name::PluginId;
use toolbay_policy::text::one_line;
use wasmtime::Store;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, ComponentExportIndex, Instance, InstancePre};

use crate::capability::Capabilities;
use crate::engine::bindings::about::ExportsAboutPre;
use crate::engine::bindings::availability::ExportsAvailabilityPre;
use crate::engine::bindings::reducers::ExportsReducersPre;
use crate::engine::bindings::tools::ExportsToolsPre;
use crate::engine::bindings::types::ToolResult;
use crate::engine::engines::Linked;
use crate::engine::instance::{Bounds, as_fault};
use crate::engine::state::{GuestState, Seal};
use crate::engine::{self, Engine};
use crate::error::LoadError;
use crate::plugins::descriptor::Descriptor;
use crate::plugins::foreign::{self, Entry, Foreign, Sections};

/// The contract's package, and the version this host speaks.
const PACKAGE: &str = "toolbay:plugin/";
const VERSION: &str = "0.1.0";
/// Longest part of a validator's or linker's message that is shown.
const MAX_REASON: usize = 400;
/// Bounds of a sealed entry (metadata, reduction), unless the plugin's own are lower.
const SEALED_FUEL: u64 = 2_000_000_000;
const SEALED_TIMEOUT: Duration = Duration::from_secs(5);

/// The limits of a metadata query or a reduction.
pub(crate) fn sealed(limits: &Limits) -> Limits {
    let mut sealed = limits.clone();
    sealed.seal(SEALED_FUEL, SEALED_TIMEOUT);
    sealed
}

/// What has tools.
pub(crate) enum Tools {
    /// A component that speaks the contract.
    Contract(Contract),
    /// One that does not.
    Foreign(Foreign),
}

/// A component that speaks the contract, and where its `call` is. Calls take that alone: the generated look-up compares
/// the types of all functions of the interface, in each instance anew.
pub(crate) struct Contract {
    pre: ExportsToolsPre<GuestState>,
    call: ComponentExportIndex,
}

impl Contract {
    fn of(component: &Component, pre: InstancePre<GuestState>) -> wasmtime::Result<Self> {
        let pre = ExportsToolsPre::new(pre)?;
        let interface = component.get_export_index(None, format!("{PACKAGE}tools@{VERSION}"));
        let call = interface.and_then(|interface| component.get_export_index(Some(&interface), "call"));
        let call = call.ok_or_else(|| wasmtime::format_err!("no function `call`"))?;
        Ok(Self { pre, call })
    }

    async fn call(
        &self,
        store: &mut Store<GuestState>,
        name: &str,
        args: &str,
    ) -> wasmtime::Result<ToolResult> {
        let guest = self.instance(store).await?;
        self.call_in(guest, store, name, args).await
    }

    /// A new instance.
    pub(crate) async fn instance(&self, store: &mut Store<GuestState>) -> wasmtime::Result<Instance> {
        self.pre.instance_pre().instantiate_async(store).await
    }

    /// Runs one tool in an instance of this code.
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

impl Tools {
    /// Runs one tool in a fresh store.
    pub(crate) async fn call(
        &self,
        store: &mut Store<GuestState>,
        entry: &Entry,
        name: &str,
        call: &AdmittedCall,
    ) -> wasmtime::Result<ToolResult> {
        match (self, entry) {
            (Self::Contract(contract), Entry::Contract) => contract.call(store, name, call.args()).await,
            (Self::Foreign(foreign), Entry::Function(export)) => {
                foreign.call(store, export, call.parsed()).await
            }
            (Self::Foreign(foreign), Entry::Program(template)) => foreign.run(store, template).await,
            (Self::Contract(_), Entry::Function(_) | Entry::Program(_))
            | (Self::Foreign(_), Entry::Contract) => {
                Err(wasmtime::format_err!("it is not what it was when it was described"))
            }
        }
    }
}

/// A linked component, ready to be instantiated.
pub(crate) struct Code {
    /// For which it was compiled, and in which it runs.
    linked: Arc<Linked>,
    pub(crate) tools: Option<Tools>,
    pub(crate) reducers: Option<ExportsReducersPre<GuestState>>,
    pub(crate) availability: Option<ExportsAvailabilityPre<GuestState>>,
    about: Option<ExportsAboutPre<GuestState>>,
    imports: Vec<String>,
    /// Whether it imports WASI's file system.
    pub(crate) folders: bool,
    /// Bytes that it takes as it is mapped.
    pub(crate) bytes: u64,
}

/// Says what is no component at all.
pub(crate) fn check_header(bytes: &[u8]) -> Result<(), LoadError> {
    match bytes {
        [] => Err(LoadError::NotAComponent("is empty")),
        [0, b'a', b's', b'm', 0x0d, 0, 1, 0, ..] => Ok(()),
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => Err(LoadError::NotAComponent(
            "is a core module, not a component: build it for wasm32-wasip2, or wrap it with `wasm-tools component new`",
        )),
        [0, b'a', b's', b'm', ..] => {
            Err(LoadError::NotAComponent("is truncated, or of a WebAssembly version this host does not know"))
        }
        _ => Err(LoadError::NotAComponent("is not WebAssembly")),
    }
}

/// Compiles a component. Takes CPU seconds for large ones, and more for bad ones: only `compiler` and `worker` do it.
pub(crate) fn compile(engine: &Engine, bytes: &[u8]) -> Result<Component, LoadError> {
    Component::new(&engine.wasmtime, bytes).map_err(|error| invalid(bytes, &error))
}

/// Compiles a component to what can be stored, as [`compile`].
pub(crate) fn precompile(engine: &Engine, bytes: &[u8]) -> Result<Vec<u8>, LoadError> {
    engine.wasmtime.precompile_component(bytes).map_err(|error| invalid(bytes, &error))
}

fn invalid(bytes: &[u8], error: &wasmtime::Error) -> LoadError {
    let features = engine::refused_features(bytes);
    if features.is_empty() {
        LoadError::Invalid(one_line(&format!("{error:#}"), MAX_REASON))
    } else {
        LoadError::Feature(features.join(", "))
    }
}

impl Code {
    /// Links a component and finds what it exports.
    pub(crate) fn link(linked: &Arc<Linked>, component: &Component) -> Result<Self, LoadError> {
        let engine = &linked.engine;
        check_version(engine, component)?;
        let pre = linked
            .linker
            .instantiate_pre(component)
            .map_err(|e| unlinked(engine, component, &one_line(&format!("{e:#}"), MAX_REASON)))?;
        let imports = imports(engine, &pre);
        let folders = imports.iter().any(|name| name.starts_with("wasi:filesystem/"));
        let tools = export(component, "tools", || Contract::of(component, pre.clone()))?.map(Tools::Contract);
        let foreign = || Tools::Foreign(Foreign::new(pre.clone()));
        Ok(Self {
            linked: Arc::clone(linked),
            tools: tools.or_else(|| (!exports(component, "reducers")).then(foreign)),
            reducers: export(component, "reducers", || ExportsReducersPre::new(pre.clone()))?,
            availability: export(component, "availability", || ExportsAvailabilityPre::new(pre.clone()))?,
            about: export(component, "about", || ExportsAboutPre::new(pre.clone()))?,
            imports,
            folders,
            bytes: size(component),
        })
    }

    /// The engine in which it runs.
    pub(crate) fn engine(&self) -> &Engine {
        &self.linked.engine
    }

    /// The same, with what belongs to it.
    pub(crate) fn linked(&self) -> &Linked {
        &self.linked
    }

    /// Asks the component what it is, in sealed instances. Finds type mismatches, too: they show only here.
    pub(crate) async fn describe(
        &self,
        plugin: &PluginId,
        limits: &Limits,
        sections: &Sections,
    ) -> Result<Descriptor, LoadError> {
        if let Some(Tools::Foreign(foreign)) = &self.tools {
            let declared = foreign::declare(self.engine(), foreign, sections, &self.imports)?;
            let (tools, entries) = declared.tools.into_iter().unzip();
            let descriptor = Descriptor::new(declared.about, tools, Vec::new(), self.imports.clone())?;
            return Ok(descriptor.entered_by(entries, declared.left_out));
        }
        if sections.has_manifest() {
            return Err(LoadError::Metadata(
                "says itself what its tools are, and has a `plugin.toml` that says it, too: take that away"
                    .to_owned(),
            ));
        }
        let limits = Arc::new(sealed(limits));
        let cancel = CancellationToken::new();
        let bounds = Bounds { engine: self.engine(), plugin, limits: &limits, cancel: &cancel };
        let mut tools = Vec::new();
        if let Some(Tools::Contract(contract)) = &self.tools {
            let ask = async |store: &mut Store<GuestState>| {
                let guest = contract.pre.instantiate_async(&mut *store).await?;
                guest.toolbay_plugin_tools().call_list_tools(store).await
            };
            tools = asked(&bounds, &limits, "tools", ask).await?;
        }
        let mut reducers = Vec::new();
        if let Some(pre) = &self.reducers {
            let ask = async |store: &mut Store<GuestState>| {
                let guest = pre.instantiate_async(&mut *store).await?;
                guest.toolbay_plugin_reducers().call_list_reducers(store).await
            };
            reducers = asked(&bounds, &limits, "reducers", ask).await?;
        }
        let mut about = None;
        if let Some(pre) = &self.about {
            let ask = async |store: &mut Store<GuestState>| {
                let guest = pre.instantiate_async(&mut *store).await?;
                guest.toolbay_plugin_about().call_describe(store).await
            };
            about = Some(asked(&bounds, &limits, "origin", ask).await?);
        }
        let descriptor = Descriptor::new(about, tools, reducers, self.imports.clone())?;
        Ok(Descriptor { availability: self.availability.is_some(), ..descriptor })
    }
}

/// Asks a sealed instance something.
async fn asked<T>(
    bounds: &Bounds<'_>,
    limits: &Arc<Limits>,
    what: &str,
    ask: impl AsyncFnOnce(&mut Store<GuestState>) -> wasmtime::Result<T>,
) -> Result<T, LoadError> {
    let sealed = Capabilities::sealed(bounds.plugin.clone(), Arc::clone(limits));
    let state = GuestState::new(Seal::Sealed, limits, sealed).map_err(|e| LoadError::Host(e.to_string()))?;
    bounds.enter(state, ask).await.0.map_err(|failure| match as_fault(failure) {
        // Not the plugin's fault: it may be asked again.
        Fault { kind: FaultKind::Busy, message, .. } => LoadError::Host(message),
        fault => LoadError::Metadata(format!("failed when asked for its {what}: {}", fault.for_operator())),
    })
}

fn size(component: &Component) -> u64 {
    let image = component.image_range();
    (image.end.addr() - image.start.addr()) as u64
}

/// Names of the imported interfaces that have functions; an interface of types alone reaches nothing.
fn imports(engine: &Engine, pre: &InstancePre<GuestState>) -> Vec<String> {
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

fn exports(component: &Component, interface: &str) -> bool {
    component.get_export_index(None, format!("{PACKAGE}{interface}@{VERSION}")).is_some()
}

/// The typed look-up of an interface, if the component exports it at all.
fn export<T>(
    component: &Component,
    interface: &str,
    find: impl FnOnce() -> wasmtime::Result<T>,
) -> Result<Option<T>, LoadError> {
    if !exports(component, interface) {
        return Ok(None);
    }
    find().map(Some).map_err(|e| {
        let reason = one_line(&format!("{e:#}"), MAX_REASON);
        LoadError::WrongWorld(format!(
            "its `{PACKAGE}{interface}@{VERSION}` is not what the contract says: {reason}"
        ))
    })
}

/// Refuses a component that speaks another version of the contract, and says which.
fn check_version(engine: &Engine, component: &Component) -> Result<(), LoadError> {
    if exports(component, "tools") || exports(component, "reducers") {
        return Ok(());
    }
    let ty = component.component_type();
    let other = ty.exports(&engine.wasmtime).map(|(name, _)| name).find(|name| name.starts_with(PACKAGE));
    other.map_or(Ok(()), |other| Err(of_another_version(other)))
}

/// Why a component cannot be linked: if what it lacks is of another version of the contract, that is why.
fn unlinked(engine: &Engine, component: &Component, reason: &str) -> LoadError {
    let ty = component.component_type();
    let of_ours = |name: &&str| name.starts_with(PACKAGE) && !name.ends_with(&format!("@{VERSION}"));
    match ty.imports(&engine.wasmtime).map(|(name, _)| name).find(of_ours) {
        Some(other) => LoadError::WrongWorld(format!("{}: {reason}", of_another_version(other))),
        None => LoadError::Import(reason.to_owned()),
    }
}

fn of_another_version(interface: &str) -> LoadError {
    let interface = one_line(interface, 100);
    let spoken = interface.rsplit('@').next().unwrap_or_default();
    LoadError::WrongWorld(format!(
        "is built for `{interface}`: it speaks version {spoken} of the contract, this host speaks {VERSION}; \
         {advice}",
        advice = advice(spoken)
    ))
}

/// What brings the two together.
fn advice(spoken: &str) -> String {
    let parts =
        |version: &str| -> Vec<u64> { version.split('.').map_while(|part| part.parse().ok()).collect() };
    if parts(spoken) > parts(VERSION) {
        format!("take a newer host, or rebuild it with an SDK for {VERSION}")
    } else {
        format!("rebuild it with an SDK for {VERSION}")
    }
}
