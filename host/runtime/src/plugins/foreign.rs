//! Components that know nothing of this host. An exported function whose types JSON can say is a tool; a program
//! (`wasi:cli/run`) is one as its author's file beside it says ([`toolbay_core::tool::manifest`]).
//!
//! What a component offers is read from its types, without running it, and from then on is as if it had answered
//! `list-tools`: the same checks, the same registry, the same way of a call. It declares no capabilities, so what it
//! imports speaks for it: whoever imports the file system wants files, and gets those that are granted.
//!
//! Types are as much others' data as texts are: see the bounds in [`schema`], [`values`] and [`text`].

mod declare;
mod names;
mod schema;
mod sections;
mod text;
mod values;

use std::fmt;

pub(crate) use declare::declare;
pub(crate) use sections::{Sections, beside, put_in};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolbay_core::tool::content::ToolError;
use toolbay_core::tool::manifest::{CommandLine, Template};
use toolbay_policy::text::one_line;
use wasmtime::Store;
use wasmtime::component::types::{Component, ComponentFunc, ComponentItem};
use wasmtime::component::{InstancePre, Val};
use wasmtime_wasi::I32Exit;
use wasmtime_wasi::p2::bindings::CommandPre;

use crate::engine::Engine;
use crate::engine::bindings::types::{self, ToolResult};
use crate::engine::state::{GuestState, TooMuch};
use crate::error::LoadError;
use crate::plugins::answer::error_to_guest;

/// Most exported functions that are looked at: more than a plugin may have tools.
const MAX_FUNCTIONS: usize = 2000;
/// Longest last words of a program that failed, in characters.
const LAST_WORDS: usize = 2000;

/// How a tool of a plugin is entered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// By `tools.call` of the contract.
    #[default]
    Contract,
    /// An exported function.
    Function(Export),
    /// The program, started like this.
    Program(Template),
}

impl Entry {
    /// What a program is started with; `None`: it is no program.
    ///
    /// # Errors
    /// What of the arguments cannot stand on a command line.
    pub(crate) fn command_line(&self, args: &Value) -> Result<Option<CommandLine>, ToolError> {
        let Self::Program(template) = self else { return Ok(None) };
        template.fill(values::members(args)?).map(Some)
    }
}

/// Where an exported function stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Export {
    /// The interface; `None`: it is exported by itself.
    interface: Option<String>,
    function: String,
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interface {
            Some(interface) => write!(f, "{interface}#{}", self.function),
            None => f.write_str(&self.function),
        }
    }
}

/// A linked component that does not speak the contract.
pub(crate) struct Foreign {
    pre: InstancePre<GuestState>,
    /// `None`: it is no program.
    program: Option<CommandPre<GuestState>>,
}

impl Foreign {
    pub(crate) fn new(pre: InstancePre<GuestState>) -> Self {
        let program = CommandPre::new(pre.clone()).ok();
        Self { pre, program }
    }

    pub(crate) fn ty(&self) -> Component {
        self.pre.component().component_type()
    }

    pub(crate) fn is_program(&self) -> bool {
        self.program.is_some()
    }

    /// Calls an exported function. What does not fit its types is refused as any other argument.
    pub(crate) async fn call(
        &self,
        store: &mut Store<GuestState>,
        export: &Export,
        args: &Value,
    ) -> wasmtime::Result<ToolResult> {
        let component = self.pre.component();
        let interface = match &export.interface {
            Some(interface) => {
                Some(component.get_export_index(None, interface.as_str()).ok_or_else(|| lost(export))?)
            }
            None => None,
        };
        let index = component.get_export_index(interface.as_ref(), export.function.as_str());
        let index = index.ok_or_else(|| lost(export))?;
        let instance = self.pre.instantiate_async(&mut *store).await?;
        let func = instance.get_func(&mut *store, index).ok_or_else(|| lost(export))?;
        let ty = func.ty(&*store);
        let params = match values::members(args).and_then(|args| values::of_arguments(&ty, args)) {
            Ok(params) => params,
            Err(refused) => return Ok(Err(error_to_guest(refused))),
        };
        let mut results = vec![Val::Bool(false); ty.results().len()];
        if ty.results().any(|ty| schema::has_flags(&ty)) {
            store.set_hostcall_fuel(store.hostcall_fuel() / schema::FLAGS_WEIGHT);
        }
        func.call_async(&mut *store, &params, &mut results).await?;
        drop(params);
        let most = store.data().answer_bytes();
        text::of_result(&ty, &results, most)
    }

    /// Runs the program once. Its context was set up with the store.
    pub(crate) async fn run(
        &self,
        store: &mut Store<GuestState>,
        template: &Template,
    ) -> wasmtime::Result<ToolResult> {
        let program = self.program.as_ref().ok_or_else(|| wasmtime::format_err!("it is no program"))?;
        let command = program.instantiate_async(&mut *store).await?;
        let status = match command.wasi_cli_run().call_run(&mut *store).await {
            Ok(Ok(())) => 0,
            Ok(Err(())) => 1,
            // To end itself is a program's way to say how it went; the host goes on.
            Err(error) => match error.downcast_ref::<I32Exit>() {
                Some(exit) => exit.0,
                None => return Err(error),
            },
        };
        let state = store.data();
        let (printed, lost) = state.answer();
        if lost > 0 {
            return Err(TooMuch.into());
        }
        let said = state.output().map(|[_, (_, stderr)]| stderr.read().0).unwrap_or_default();
        if !template.is_success(status) || template.failure(&said).is_some() {
            let words = state.output().map(|[_, (_, stderr)]| stderr.tail(LAST_WORDS)).unwrap_or_default();
            let words = if words.trim().is_empty() { "it wrote nothing to stderr" } else { words.trim() };
            let message = match template.failure(&said) {
                Some(line) if template.is_success(status) => {
                    let line = one_line(line, LAST_WORDS);
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
        Ok(Ok(text::of_output(printed, template.prints_json())))
    }
}

fn lost(export: &Export) -> wasmtime::Error {
    wasmtime::format_err!("it has lost its function `{export}`")
}

/// A function that may be a tool.
pub(crate) struct Function {
    export: Export,
    ty: ComponentFunc,
}

/// The exported functions of a component, without those of WASI's own interfaces: what a program or a server exports is
/// called by its host and not by a model.
///
/// # Errors
/// There are more than are looked at.
pub(crate) fn functions(engine: &Engine, component: &Component) -> Result<Vec<Function>, LoadError> {
    let mut found = Vec::new();
    let mut add = |interface: Option<&str>, name: &str, ty| {
        let export = Export { interface: interface.map(str::to_owned), function: name.to_owned() };
        found.push(Function { export, ty });
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
