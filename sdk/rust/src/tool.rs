//! The metadata that `#[tool]` generates for a function, and the export made of it.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

#[cfg(feature = "async-tools")]
use crate::bindings::async_tools_world::exports::toolbay::plugin::tools_async;
use crate::bindings::tools_world::exports::toolbay::plugin::tools;
use crate::error::into_record;
use crate::schema::{Field, SchemaOf, input_schema};
use crate::types::{Capability, ToolDef, ToolError, ToolOutput, ToolTraits};
use crate::{Error, IntoOutput, Output};

/// The metadata of a tool.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct ToolSpec {
    pub name: &'static str,
    pub title: Option<&'static str>,
    pub description: &'static str,
    pub toolset: Option<&'static str>,
    pub tags: &'static [&'static str],
    pub traits: ToolTraits,
    pub max_result_chars: Option<u32>,
    pub timeout_ms: Option<u32>,
    pub capabilities: &'static [CapabilitySpec],
    /// A JSON object.
    pub meta: Option<&'static str>,
    pub arguments: &'static [Field],
    pub output_schema: fn() -> Option<String>,
    pub call: ToolFunction,
}

/// The code of a tool. Its argument is the JSON of a call.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub enum ToolFunction {
    Blocking(fn(&str) -> Result<Output, Error>),
    Async(for<'a> fn(&'a str) -> ToolFuture<'a>),
}

/// A running `async` tool.
#[doc(hidden)]
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<Output, Error>> + 'a>>;

impl ToolFunction {
    /// Calls the tool and runs it to its end.
    pub(crate) fn call(self, args: &str) -> Result<Output, Error> {
        match self {
            Self::Blocking(call) => call(args),
            Self::Async(call) => finish(call(args)),
        }
    }

    /// Calls the tool, which may await imports of WASI 0.3.
    #[cfg(feature = "async-tools")]
    async fn call_async(self, args: &str) -> Result<Output, Error> {
        match self {
            Self::Blocking(call) => call(args),
            Self::Async(call) => call(args).await,
        }
    }
}

/// One capability of a [`ToolSpec`].
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct CapabilitySpec {
    pub kind: &'static str,
    pub target: &'static str,
    pub optional: bool,
    pub reason: Option<&'static str>,
}

/// Ties a [`ToolSpec`] to the name of a function.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no tool",
    note = "write `#[tool]` above the function, or `#[tools]` above the `impl` of the type"
)]
pub trait Tool {
    const SPEC: ToolSpec;
}

/// One tool, or all tools of a type with methods.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no tool",
    note = "write `#[tool]` above the function, or `#[tools]` above the `impl` of the type"
)]
pub trait Toolset {
    const TOOLS: &'static [ToolSpec];
    /// The settings type of a type with methods.
    const SETTINGS: Option<SchemaOf> = None;
}

impl<T: Tool> Toolset for T {
    const TOOLS: &'static [ToolSpec] = &[T::SPEC];
}

/// Rejects two tools of one name at compile time.
#[doc(hidden)]
pub const fn check_names(toolsets: &[&[ToolSpec]]) {
    let mut names = NameList { toolsets, toolset: 0, tool: 0 };
    while let Some(name) = names.next() {
        let mut others = NameList { ..names };
        while let Some(other) = others.next() {
            assert!(
                !same(name.as_bytes(), other.as_bytes()),
                "two tools have one name: give one of them another with `#[tool(name = \"…\")]`"
            );
        }
    }
}

/// The names of tools, in order, as a constant.
struct NameList<'a> {
    toolsets: &'a [&'a [ToolSpec]],
    toolset: usize,
    tool: usize,
}

impl<'a> NameList<'a> {
    #[allow(
        clippy::indexing_slicing,
        reason = "in a constant there are no iterators; a mistake is one of the compiler's"
    )]
    const fn next(&mut self) -> Option<&'a str> {
        while self.toolset < self.toolsets.len() {
            let tools = self.toolsets[self.toolset];
            if self.tool < tools.len() {
                self.tool += 1;
                return Some(tools[self.tool - 1].name);
            }
            (self.toolset, self.tool) = (self.toolset + 1, 0);
        }
        None
    }
}

#[allow(clippy::indexing_slicing, reason = "as above")]
const fn same(one: &[u8], other: &[u8]) -> bool {
    let mut place = 0;
    while place < one.len() && place < other.len() && one[place] == other[place] {
        place += 1;
    }
    place == one.len() && place == other.len()
}

/// Ties the tools of a crate to the type that `plugin!` generates.
#[doc(hidden)]
pub trait ToolPlugin {
    const TOOLS: &'static [&'static [ToolSpec]];
}

/// Returns the definition of the tool for the host.
pub(crate) fn definition(spec: &ToolSpec) -> ToolDef {
    let capability = |spec: &CapabilitySpec| Capability {
        kind: spec.kind.to_owned(),
        target: spec.target.to_owned(),
        optional: spec.optional,
        reason: spec.reason.map(str::to_owned),
    };
    ToolDef {
        name: spec.name.to_owned(),
        title: spec.title.map(str::to_owned),
        description: spec.description.to_owned(),
        input_schema: input_schema(spec.arguments),
        output_schema: (spec.output_schema)(),
        toolset: spec.toolset.map(str::to_owned),
        tags: spec.tags.iter().map(|tag| (*tag).to_owned()).collect(),
        traits: spec.traits,
        max_result_chars: spec.max_result_chars,
        timeout_ms: spec.timeout_ms,
        capabilities: spec.capabilities.iter().map(capability).collect(),
        meta: spec.meta.map(str::to_owned),
    }
}

/// Calls one of the tools by name.
pub(crate) fn call(tools: &[&[ToolSpec]], name: &str, args: &str) -> Result<Output, Error> {
    find(tools, name)?.call.call(args)
}

fn find<'t>(tools: &[&'t [ToolSpec]], name: &str) -> Result<&'t ToolSpec, Error> {
    let unknown = || Error::not_available(format!("no tool `{name}` in this plugin")).at("unknown-tool");
    tools.iter().copied().flatten().find(|spec| spec.name == name).ok_or_else(unknown)
}

/// Returns the output schema of a return type, if it has one.
#[doc(hidden)]
pub fn output_schema<T: IntoOutput>() -> Option<String> {
    T::output_schema()
}

/// Runs an `async` tool to its end.
///
/// Nothing but the call itself runs in its instance: a future that waits and was not woken waits for ever, and is an
/// error instead.
fn finish(mut future: ToolFuture<'_>) -> Result<Output, Error> {
    /// Whether somebody said that it is worth asking again.
    struct WakeFlag(AtomicBool);
    impl Wake for WakeFlag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let woken = Arc::new(WakeFlag(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending if woken.0.swap(false, Ordering::Relaxed) => {}
            Poll::Pending => {
                return Err(Error::failed("the tool is pending, and nothing will wake it"));
            }
        }
    }
}

/// Returns a default as JSON, for schemas; `None` if it has none.
#[doc(hidden)]
pub fn default_json(value: &impl serde::Serialize) -> Option<String> {
    serde_json::to_string(value).ok()
}

/// The export `tools` or `tools-async` of a plugin.
#[derive(Debug)]
#[doc(hidden)]
pub struct ExportedTools<P>(PhantomData<P>);

fn definitions<P: ToolPlugin>() -> Vec<ToolDef> {
    P::TOOLS.iter().copied().flatten().map(definition).collect()
}

impl<P: ToolPlugin> tools::Guest for ExportedTools<P> {
    fn list_tools() -> Vec<ToolDef> {
        definitions::<P>()
    }

    fn call(name: String, args: String) -> Result<ToolOutput, ToolError> {
        call(P::TOOLS, &name, &args).map_err(into_record)
    }
}

#[cfg(feature = "async-tools")]
impl<P: ToolPlugin> tools_async::Guest for ExportedTools<P> {
    fn list_tools() -> Vec<ToolDef> {
        definitions::<P>()
    }

    async fn call(name: String, args: String) -> Result<ToolOutput, ToolError> {
        let spec = find(P::TOOLS, &name).map_err(into_record)?;
        spec.call.call_async(&args).await.map_err(into_record)
    }
}
