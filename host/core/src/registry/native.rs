//! Native tools: the embedder's own code as a tool, with a name, a description, a schema and an async function.
//!
//! ```
//! use serde_json::json;
//! use toolbay_core::tool::content::{ErrorCode, ToolError, ToolOutput};
//! use toolbay_core::registry::native;
//! use toolbay_core::registry::Registry;
//!
//! let greet = native::tool("greet")
//!     .description("Greets somebody.")
//!     .input_schema(json!({
//!         "type": "object",
//!         "properties": {"name": {"type": "string"}},
//!         "required": ["name"],
//!     }))
//!     .read_only()
//!     .run(|args, _ctx| async move {
//!         match args.get("name").and_then(|name| name.as_str()) {
//!             Some(name) => Ok(ToolOutput::text(format!("Hello, {name}!"))),
//!             None => Err(ToolError::new(ErrorCode::InputInvalid, "`name` is missing")),
//!         }
//!     })?;
//! let registry = Registry::default();
//! registry.register(greet)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Native code runs without a sandbox: the host trusts its traits, and a call must not block its thread. A panic ends
//! only its call, and a call that exceeds its timeout is dropped. To use a type instead of a function, implement
//! [`Invoke`] and construct a [`ToolEntry`].

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::{Value, json};
use toolbay_policy::limits::{CallLimits, Usage};
use toolbay_policy::name::{NameError, PluginId, QualifiedName, ToolName};

use crate::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use crate::call::{AdmittedCall, CallContext};
use crate::registry::{CallSettings, CheckFn, OnCollision, ToolAvailability, ToolEntry, ToolFlags};
use crate::tool::content::{ToolOutput, ToolResult};
use crate::tool::fault::{Fault, FaultKind};
use crate::tool::schema::{Schema, SchemaError};
use crate::tool::{Keywords, ToolDef, ToolSource, ToolTraits};

/// The error of an invalid tool definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A schema is invalid.
    #[error("tool `{tool}`: {error}")]
    Schema {
        /// The tool.
        tool: String,
        /// The problem of the schema.
        error: SchemaError,
    },
    /// The description is empty.
    #[error("tool `{0}` has no description; a model needs one to know when to call the tool")]
    Description(String),
}

/// A builder of a native tool; [`NativeTool::run`] finishes it. Without a schema the tool takes any object.
#[derive(Debug, Clone)]
pub struct NativeTool {
    name: String,
    namespace: Option<String>,
    title: Option<String>,
    description: String,
    input: Value,
    output: Option<Value>,
    keywords: Keywords,
    traits: ToolTraits,
    flags: ToolFlags,
    timeout: Duration,
    max_result_chars: Option<u32>,
    serial: Option<Arc<str>>,
    cache: Option<Duration>,
    toolcall_reason: Option<bool>,
    on_collision: Option<OnCollision>,
    check: Option<Arc<dyn crate::registry::AvailabilityCheck>>,
}

/// Starts a native tool. The name follows the rules for tools of plugins: `[A-Za-z0-9_-]{1,48}`.
///
/// ```
/// use std::time::Instant;
/// use toolbay_core::registry::native;
/// use toolbay_core::tool::content::ToolOutput;
///
/// let started = Instant::now();
/// let uptime = native::tool("uptime")
///     .description("Returns how long the program has been running.")
///     .read_only()
///     .run(move |_args, _ctx| async move { Ok(ToolOutput::text(format!("{:?}", started.elapsed()))) })?;
/// assert_eq!(uptime.def.name.as_str(), "uptime");
/// # Ok::<(), toolbay_core::registry::native::DefinitionError>(())
/// ```
#[must_use]
pub fn tool(name: impl Into<String>) -> NativeTool {
    NativeTool {
        name: name.into(),
        namespace: None,
        title: None,
        description: String::new(),
        input: json!({"type": "object"}),
        output: None,
        keywords: Keywords::default(),
        traits: ToolTraits::default(),
        flags: ToolFlags::default(),
        timeout: CallLimits::default().timeout,
        max_result_chars: None,
        serial: None,
        cache: None,
        toolcall_reason: None,
        on_collision: None,
        check: None,
    }
}

impl NativeTool {
    /// Sets the namespace: the qualified name becomes `NAMESPACE__NAME`. A namespace follows the rules for plugin ids.
    #[must_use]
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Sets the display name for people.
    #[must_use]
    pub fn title(self, title: impl Into<String>) -> Self {
        Self { title: Some(title.into()), ..self }
    }

    /// Sets the description that a model reads to decide whether to call the tool.
    #[must_use]
    pub fn description(self, description: impl Into<String>) -> Self {
        Self { description: description.into(), ..self }
    }

    /// Sets the schema of the arguments. Its root must have the type `object`.
    #[must_use]
    pub fn input_schema(self, schema: Value) -> Self {
        Self { input: schema, ..self }
    }

    /// Sets the schema of `structured`, which every successful result must then match.
    #[must_use]
    pub fn output_schema(self, schema: Value) -> Self {
        Self { output: Some(schema), ..self }
    }

    /// Sets the toolset.
    #[must_use]
    pub fn toolset(mut self, toolset: impl Into<String>) -> Self {
        self.keywords.toolset = Some(toolset.into());
        self
    }

    /// Adds a tag. [`crate::tool::tags`] lists the tags with a meaning for the host.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.keywords.tags.push(tag.into());
        self
    }

    /// Sets further words for search.
    #[must_use]
    pub fn search_hint(mut self, words: impl Into<String>) -> Self {
        self.keywords.search_hint = Some(words.into());
        self
    }

    /// Declares that the tool changes nothing.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.traits.read_only = true;
        self
    }

    /// Sets all claims about the behaviour.
    #[must_use]
    pub fn traits(self, traits: ToolTraits) -> Self {
        Self { traits, ..self }
    }

    /// Sets the visibility.
    #[must_use]
    pub fn flags(self, flags: ToolFlags) -> Self {
        Self { flags, ..self }
    }

    /// Sets the timeout of a call. The default is 30 s.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Limits the text of a result, in characters. A longer text is cut and saved.
    #[must_use]
    pub fn max_result_chars(self, most: u32) -> Self {
        Self { max_result_chars: Some(most), ..self }
    }

    /// Runs the calls of all tools with the same queue one after the other. A tool must not call another of its queue.
    #[must_use]
    pub fn serial(self, queue: impl Into<Arc<str>>) -> Self {
        Self { serial: Some(queue.into()), ..self }
    }

    /// Lets a session reuse a result for this long. Set it only if the result depends on nothing but the arguments for
    /// that long.
    #[must_use]
    pub fn cache(self, age: Duration) -> Self {
        Self { cache: Some(age), ..self }
    }

    /// Sets whether callers are asked for a reason ([`crate::tool::toolcall_reason`]), regardless of the view
    /// and the policy.
    #[must_use]
    pub fn toolcall_reason(self, asks: bool) -> Self {
        Self { toolcall_reason: Some(asks), ..self }
    }

    /// Sets the action if the name is taken. It overrides the one of the registration.
    #[must_use]
    pub fn on_collision(self, policy: OnCollision) -> Self {
        Self { on_collision: Some(policy), ..self }
    }

    /// Sets a check that decides whether the tool is available. It runs at registration and again when its result is
    /// older than [`crate::registry::AVAILABILITY_MAX_AGE`]. It must not block; after a panic the tool is unavailable.
    #[must_use]
    pub fn availability_check(self, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { check: Some(Arc::new(CheckFn(check))), ..self }
    }

    /// Finishes the tool. `run` is called for each call with the arguments, which match the schema, and the call
    /// context.
    ///
    /// # Errors
    /// The name, the description or a schema is invalid.
    pub fn run<F, R>(self, run: F) -> Result<ToolEntry, DefinitionError>
    where
        F: Fn(Arc<Value>, Arc<CallContext>) -> R + Send + Sync + 'static,
        R: Future<Output = ToolResult> + Send + 'static,
    {
        let name = ToolName::new(&self.name)?;
        let name = match &self.namespace {
            Some(namespace) => QualifiedName::join(&PluginId::new(namespace)?, &name)?,
            None => QualifiedName::from_native(&name),
        };
        if self.description.trim().is_empty() {
            return Err(DefinitionError::Description(self.name));
        }
        let tool = name.as_str().to_owned();
        let bad = |error| DefinitionError::Schema { tool: tool.clone(), error };
        let input = Schema::input(&self.input.to_string()).map_err(bad)?.with_loose_tuples();
        let output = self.output.map(|schema| Schema::output(&schema.to_string())).transpose();
        let def = ToolDef {
            title: self.title,
            output_schema: output.map_err(bad)?.map(|schema| schema.with_loose_tuples()),
            keywords: self.keywords,
            traits: self.traits,
            max_result_chars: self.max_result_chars,
            timeout: Some(self.timeout),
            ..ToolDef::new(name, self.description, input, ToolSource::Builtin)
        };
        let deferred = self.flags.deferred || def.traits.deferred;
        let entry = ToolEntry::new(def, Arc::new(NativeInvoker { run, timeout: self.timeout }));
        let call = CallSettings {
            result_chars: self.max_result_chars.map(u64::from),
            serial: self.serial,
            cache: self.cache,
            toolcall_reason: self.toolcall_reason,
            ..CallSettings::default()
        };
        let flags = ToolFlags { deferred, ..self.flags };
        let availability = ToolAvailability { check: self.check, ..ToolAvailability::default() };
        Ok(ToolEntry { flags, call, on_collision: self.on_collision, availability, ..entry })
    }
}

struct NativeInvoker<F> {
    run: F,
    timeout: Duration,
}

impl<F> fmt::Debug for NativeInvoker<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeInvoker").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl<F, R> Invoke for NativeInvoker<F>
where
    F: Fn(Arc<Value>, Arc<CallContext>) -> R + Send + Sync,
    R: Future<Output = ToolResult> + Send,
{
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let run = async { (self.run)(Arc::clone(call.parsed()), Arc::clone(ctx)).await };
            let run = tokio::time::timeout(self.timeout, AssertUnwindSafe(run).catch_unwind());
            let result = tokio::select! {
                biased;
                // Checked first but awaited last: most tools return at once.
                () = std::future::ready(()), if ctx.cancel().is_cancelled() => cancelled(),
                ended = run => match ended {
                    Ok(Ok(answer)) => answer.map_err(Failure::Refused),
                    Ok(Err(_)) => {
                        tracing::error!(tool = %call.tool().name, "a native tool panicked");
                        Err(Failure::Host(format!("the native tool `{}` panicked", call.tool().name)))
                    }
                    Err(_) => {
                        let most = toolbay_policy::quantity::show_duration(self.timeout);
                        let text = format!("the native tool exceeded its timeout of {most}");
                        Err(Fault::new(FaultKind::Deadline, text).into())
                    }
                },
                () = ctx.cancel().cancelled() => cancelled(),
            };
            ToolOutcome { result, usage: Usage { args_bytes: call.args().len() as u64, ..Usage::default() } }
        })
    }
}

fn cancelled() -> Result<ToolOutput, Failure> {
    Err(Fault::new(FaultKind::Cancelled, "the call was cancelled").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(name: &str) -> NativeTool {
        tool(name).description("Does something.")
    }

    #[test]
    fn an_invalid_definition_is_refused() {
        let run = |tool: NativeTool| {
            tool.run(async |_, _| Ok(ToolOutput::default())).map(|_| ()).unwrap_err().to_string()
        };
        assert!(run(described("a b")).contains("has a character outside"));
        assert!(run(described("a").namespace("a__b")).contains("contains `__`"));
        assert_eq!(
            run(tool("a")),
            "tool `a` has no description; a model needs one to know when to call the tool"
        );
        let schema = run(described("a").input_schema(json!({"type": "array"})));
        assert!(schema.starts_with("tool `a`: the root of an input schema"), "{schema}");
    }
}
