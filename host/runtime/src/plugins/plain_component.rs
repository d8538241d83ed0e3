//! Plain components, which do not know Toolbay. Each exported function whose types have a JSON form is a tool. A
//! program (`wasi:cli/run`) and an HTTP handler (`wasi:http/incoming-handler`, `wasi:http/handler`) become the tools that
//! the `plugin.toml` declares ([`toolbay_core::tool::manifest`]).
//!
//! The tools are derived from the component's types, without running it. From then on they are treated like those of a
//! plugin that answered `list-tools`. A plain component declares no capabilities, so its imports imply them: a
//! component that imports the file system wants files, and gets those that are granted.
//!
//! Types are untrusted input like texts. [`schema`], [`values`] and [`text`] bound them.

mod declare;
#[cfg(feature = "net")]
mod http_handler;
#[cfg(not(feature = "net"))]
#[path = "plain_component/no_http_handler.rs"]
mod http_handler;
mod names;
mod schema;
mod sections;
mod text;
mod values;

use std::fmt;

pub(crate) use declare::declare;
use http_handler::HttpHandler;
pub(crate) use sections::{ComponentSections, embed_manifest, manifest_path};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolbay_capabilities::bindings::types::{self, ToolResult};
use toolbay_capabilities::invoke::error_to_guest;
use toolbay_capabilities::state::GuestState;
use toolbay_core::tool::content::ToolError;
use toolbay_core::tool::manifest::{CommandLine, CommandTemplate, RequestTemplate};
use toolbay_policy::excerpt::one_line;
use toolbay_sandbox::engine::Engine;
use toolbay_sandbox::guest_data::GuestData as _;
use toolbay_sandbox::instance::ContractBreach;
use toolbay_sandbox::instance::ProgramOutputTooLong;
use wasmtime::Store;
use wasmtime::component::types::{Component, ComponentFunc, ComponentItem};
use wasmtime::component::{ComponentExportIndex, InstancePre, Val};
use wasmtime_wasi::I32Exit;

use crate::error::LoadError;

/// Maximum number of exported functions, more than a plugin may have tools.
const MAX_FUNCTIONS: usize = 2000;
/// Maximum length of a failed program's stderr in the error, in characters.
const MAX_STDERR_CHARS: usize = 2000;

/// How a tool of a plugin is called.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToolEntryPoint {
    /// Through `tools.call` of the contract.
    #[default]
    Contract,
    /// As an exported function.
    Function(ExportPath),
    /// As a program with this command line.
    Program(CommandTemplate),
    /// As the HTTP handler, with this request.
    Handler(RequestTemplate),
}

impl ToolEntryPoint {
    /// The command line for a call; `None` if the tool is not a program.
    ///
    /// # Errors
    /// An argument cannot be passed on a command line.
    pub(crate) fn command_line(&self, args: &Value) -> Result<Option<CommandLine>, ToolError> {
        let Self::Program(template) = self else { return Ok(None) };
        template.fill(values::arguments_object(args)?).map(Some)
    }
}

/// The path of an exported function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExportPath {
    /// The interface; `None` for a function at the top level.
    interface: Option<String>,
    function: String,
}

impl ExportPath {
    /// A function at the top level.
    pub(crate) fn top_level(function: &str) -> Self {
        Self { interface: None, function: function.to_owned() }
    }
}

impl fmt::Display for ExportPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interface {
            Some(interface) => write!(f, "{interface}#{}", self.function),
            None => f.write_str(&self.function),
        }
    }
}

/// A linked component that does not use the contract.
pub(crate) struct PlainComponent {
    pre: InstancePre<GuestState>,
    /// `run` of `wasi:cli/run`; `None` if the component is not a program.
    program: Option<ComponentExportIndex>,
    /// `None` if the component does not handle HTTP.
    handler: Option<HttpHandler>,
}

/// The interface of programs, in each version. A later patch matches, too.
const RUN: [&str; 2] = ["wasi:cli/run@0.2.0", "wasi:cli/run@0.3.0"];

impl PlainComponent {
    pub(crate) fn new(pre: InstancePre<GuestState>) -> Self {
        let component = pre.component();
        let program = RUN.into_iter().find_map(|name| {
            let interface = component.get_export_index(None, name)?;
            component.get_export_index(Some(&interface), "run")
        });
        Self { program, handler: HttpHandler::new(&pre), pre }
    }

    pub(crate) fn ty(&self) -> Component {
        self.pre.component().component_type()
    }

    pub(crate) fn is_program(&self) -> bool {
        self.program.is_some()
    }

    pub(crate) fn is_handler(&self) -> bool {
        self.handler.is_some()
    }

    /// Calls the HTTP handler.
    pub(crate) async fn handle(
        &self,
        store: &mut Store<GuestState>,
        template: &RequestTemplate,
        args: &Value,
    ) -> wasmtime::Result<ToolResult> {
        let handler =
            self.handler.as_ref().ok_or_else(|| ContractBreach::error("it does not handle HTTP"))?;
        handler.call(store, template, args).await
    }

    /// Calls an exported function. Arguments that do not match its types are refused like any invalid arguments.
    pub(crate) async fn call(
        &self,
        store: &mut Store<GuestState>,
        export: &ExportPath,
        args: &Value,
    ) -> wasmtime::Result<ToolResult> {
        let component = self.pre.component();
        let interface = match &export.interface {
            Some(interface) => Some(
                component.get_export_index(None, interface.as_str()).ok_or_else(|| lost_export(export))?,
            ),
            None => None,
        };
        let index = component.get_export_index(interface.as_ref(), export.function.as_str());
        let index = index.ok_or_else(|| lost_export(export))?;
        let instance = self.pre.instantiate_async(&mut *store).await?;
        let func = instance.get_func(&mut *store, index).ok_or_else(|| lost_export(export))?;
        let ty = func.ty(&*store);
        let params = match values::arguments_object(args).and_then(|args| values::from_arguments(&ty, args)) {
            Ok(params) => params,
            Err(refused) => return Ok(Err(error_to_guest(refused))),
        };
        let mut results = vec![Val::Bool(false); ty.results().len()];
        if ty.results().any(|ty| schema::contains_flags(&ty)) {
            store.set_hostcall_fuel(store.hostcall_fuel() / schema::FLAGS_WEIGHT);
        }
        func.call_async(&mut *store, &params, &mut results).await?;
        drop(params);
        let max = store.data().max_program_output();
        text::result_from_values(&ty, &results, max)
    }

    /// Runs the program once. The WASI context was set up with the store.
    pub(crate) async fn run(
        &self,
        store: &mut Store<GuestState>,
        template: &CommandTemplate,
    ) -> wasmtime::Result<ToolResult> {
        let program = self.program.ok_or_else(|| ContractBreach::error("it is not a program"))?;
        let instance = self.pre.instantiate_async(&mut *store).await?;
        let run = instance.get_typed_func::<(), (Result<(), ()>,)>(&mut *store, program)?;
        let status = match run.call_async(&mut *store, ()).await {
            Ok((Ok(()),)) => 0,
            Ok((Err(()),)) => 1,
            // A program reports its status by exiting, which is not an error of the host.
            Err(error) => match error.downcast_ref::<I32Exit>() {
                Some(exit) => exit.0,
                None => return Err(error),
            },
        };
        let state = store.data();
        let (printed, lost) = state.program_output();
        if lost > 0 {
            return Err(ProgramOutputTooLong.into());
        }
        let written = state.stdio_sinks().map(|[_, (_, stderr)]| stderr.read().0).unwrap_or_default();
        if !template.is_success(status) || template.failure_line(&written).is_some() {
            let words =
                state.stdio_sinks().map(|[_, (_, stderr)]| stderr.tail(MAX_STDERR_CHARS)).unwrap_or_default();
            let words = if words.trim().is_empty() { "it wrote nothing to stderr" } else { words.trim() };
            let message = match template.failure_line(&written) {
                Some(line) if template.is_success(status) => {
                    let line = one_line(line, MAX_STDERR_CHARS);
                    format!("the program ended with exit status {status} and wrote to stderr: {line}")
                }
                _ => format!("the program ended with exit status {status}: {words}"),
            };
            return Ok(Err(types::ToolError {
                code: types::ErrorCode::ExecutionFailed,
                message,
                subject: Some(format!("exit-status-{status}")),
                cost_usd: None,
            }));
        }
        Ok(Ok(text::result_from_stdout(printed, template.prints_json())))
    }
}

fn lost_export(export: &ExportPath) -> wasmtime::Error {
    ContractBreach::error(format!("it no longer exports the function `{export}`"))
}

/// An exported function that may be a tool.
pub(crate) struct ExportedFunction {
    export: ExportPath,
    ty: ComponentFunc,
}

/// The exported functions of a component, except those of WASI interfaces, which a host calls and not a model.
///
/// # Errors
/// The component exports too many functions.
pub(crate) fn functions(engine: &Engine, component: &Component) -> Result<Vec<ExportedFunction>, LoadError> {
    let mut found = Vec::new();
    let mut add = |interface: Option<&str>, name: &str, ty| {
        let export = ExportPath { interface: interface.map(str::to_owned), function: name.to_owned() };
        found.push(ExportedFunction { export, ty });
        if found.len() > MAX_FUNCTIONS {
            return Err(LoadError::Metadata(format!("exports more than {MAX_FUNCTIONS} functions")));
        }
        Ok(())
    };
    for (name, item) in component.exports(&engine.wasmtime) {
        match item.ty {
            ComponentItem::ComponentFunc(ty) => add(None, name, ty)?,
            ComponentItem::ComponentInstance(instance) if !name.starts_with("wasi:") => {
                for (function, item) in instance.exports(&engine.wasmtime) {
                    if let ComponentItem::ComponentFunc(ty) = item.ty {
                        add(Some(name), function, ty)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(found)
}
