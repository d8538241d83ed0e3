//! Code that the guests share: the contract's bindings, and macros that turn functions into a component.
//!
//! Each guest is an example of this package, built for `wasm32-wasip2` by the build script of `guest-artifacts`. The
//! first part of its name states its purpose: `api_` shows the contract, `cap_` uses a capability, `hostile_` misbehaves,
//! `reduce_` has reducers, `bench_` is measured. Most guests use the bindings instead of the SDK, because a guest must
//! be able to return what the SDK prevents.
//!
//! ```ignore
//! use guest::{Answer, Args, text, tool};
//!
//! fn shout(args: &Args) -> Answer {
//!     text(args.text("text", "").to_uppercase())
//! }
//!
//! guest::tools!(tool("shout", shout));
//! ```

mod bindings {
    //! The output of `wit-bindgen` for `wit/`: the imports, and one world for each export, with shared types.
    #![allow(clippy::all, reason = "generated code")]

    /// Everything that a plugin may import. Unused imports do not become part of a component.
    pub mod imports {
        wit_bindgen::generate!({
            path: "../../wit",
            world: "imports-of-callers",
            features: ["tool-invoke"],
            generate_all,
            generate_unused_types: true,
        });
    }

    /// The export `tools`.
    pub mod tools_world {
        wit_bindgen::generate!({
            path: "../../wit",
            world: "exports-tools",
            with: { "toolbay:plugin/types@0.1.0": crate::bindings::imports::toolbay::plugin::types },
            pub_export_macro: true,
            export_macro_name: "export_tools",
        });
    }

    /// The export `reducers`.
    pub mod reducers_world {
        wit_bindgen::generate!({
            path: "../../wit",
            world: "exports-reducers",
            with: { "toolbay:plugin/types@0.1.0": crate::bindings::imports::toolbay::plugin::types },
            pub_export_macro: true,
            export_macro_name: "export_reducers",
        });
    }

    /// The export `availability`.
    pub mod availability_world {
        wit_bindgen::generate!({
            path: "../../wit",
            world: "exports-availability",
            pub_export_macro: true,
            export_macro_name: "export_availability",
        });
    }
}

pub mod compute;

/// The imports of the contract, one module per interface.
pub use bindings::imports::toolbay::plugin as host;
/// The types of the contract.
pub use bindings::imports::toolbay::plugin::types;
pub use bindings::reducers_world::exports::toolbay::plugin::reducers::{ReduceContext, ReducerDef};
pub use serde_json::{self, Value, json};
pub use types::{Capability, ErrorCode, ToolDef, ToolError, ToolOutput, ToolTraits};
/// The interfaces of WASI.
pub use wasip2;

/// The result of a tool.
pub type Answer = Result<ToolOutput, ToolError>;

/// The arguments of a call, read one by one with a default, because the schema allows anything.
pub struct Args(Value);

impl Args {
    /// The number `key`, or `default`.
    pub fn number(&self, key: &str, default: u64) -> u64 {
        self.0.get(key).and_then(Value::as_u64).unwrap_or(default)
    }

    /// The text `key`, or `default`.
    pub fn text<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        self.0.get(key).and_then(Value::as_str).unwrap_or(default)
    }

    /// Whether `key` is `true`.
    pub fn flag(&self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    /// All arguments.
    pub fn all(&self) -> &Value {
        &self.0
    }
}

/// One tool of a guest.
#[derive(Clone, Copy)]
pub struct Tool {
    name: &'static str,
    input_schema: &'static str,
    output_schema: Option<&'static str>,
    /// Kind, target, optional.
    needs: &'static [(&'static str, &'static str, bool)],
    untrusted: bool,
    run: Run,
}

#[derive(Clone, Copy)]
enum Run {
    /// A function of the parsed arguments.
    Args(fn(&Args) -> Answer),
    /// A function of the JSON text, without a JSON library in the component.
    Raw(fn(String) -> Answer),
}

/// A tool that takes any object.
pub const fn tool(name: &'static str, run: fn(&Args) -> Answer) -> Tool {
    Tool::new(name, Run::Args(run))
}

/// A tool that takes any object as text.
pub const fn raw_tool(name: &'static str, run: fn(String) -> Answer) -> Tool {
    Tool::new(name, Run::Raw(run))
}

impl Tool {
    const fn new(name: &'static str, run: Run) -> Self {
        let input_schema = r#"{"type":"object"}"#;
        Self { name, input_schema, output_schema: None, needs: &[], untrusted: false, run }
    }

    /// Sets the schema of the arguments.
    pub const fn input(self, schema: &'static str) -> Self {
        Self { input_schema: schema, ..self }
    }

    /// Sets the schema of `structured`.
    pub const fn output(self, schema: &'static str) -> Self {
        Self { output_schema: Some(schema), ..self }
    }

    /// Declares capabilities: kind, target, optional.
    pub const fn needs(self, needs: &'static [(&'static str, &'static str, bool)]) -> Self {
        Self { needs, ..self }
    }

    /// Declares that the output contains text of others.
    pub const fn untrusted(self) -> Self {
        Self { untrusted: true, ..self }
    }

    /// The definition for `list-tools`.
    #[doc(hidden)]
    pub fn define(&self) -> ToolDef {
        ToolDef {
            input_schema: self.input_schema.to_owned(),
            output_schema: self.output_schema.map(str::to_owned),
            traits: if self.untrusted { ToolTraits::UNTRUSTED_OUTPUT } else { ToolTraits::empty() },
            capabilities: self
                .needs
                .iter()
                .map(|&(kind, target, optional)| Capability {
                    kind: kind.to_owned(),
                    target: target.to_owned(),
                    optional,
                    reason: None,
                })
                .collect(),
            ..definition(self.name)
        }
    }
}

/// A valid definition, to be broken.
pub fn definition(name: impl Into<String>) -> ToolDef {
    ToolDef {
        name: name.into(),
        title: None,
        description: "A tool of a test guest.".to_owned(),
        input_schema: r#"{"type":"object"}"#.to_owned(),
        output_schema: None,
        toolset: None,
        tags: Vec::new(),
        traits: ToolTraits::empty(),
        max_result_chars: None,
        timeout_ms: None,
        capabilities: Vec::new(),
        meta: None,
    }
}

/// Runs the tool `name`.
#[doc(hidden)]
pub fn run(tools: &[Tool], name: &str, args: String) -> Answer {
    match tools.iter().find(|tool| tool.name == name).map(|tool| tool.run) {
        None => fail(ErrorCode::NotAvailable, format!("no tool `{name}`")),
        Some(Run::Raw(run)) => run(args),
        Some(Run::Args(run)) => match serde_json::from_str(&args) {
            Ok(args) => run(&Args(args)),
            Err(error) => fail(ErrorCode::InputInvalid, error.to_string()),
        },
    }
}

/// An output with `value` only.
pub fn output(value: impl Into<String>) -> ToolOutput {
    ToolOutput { value: value.into(), structured: None, content: Vec::new(), cost_usd: None, meta: None }
}

/// Returns text.
pub fn text(value: impl Into<String>) -> Answer {
    Ok(output(value))
}

/// Returns JSON, as text and as `structured`.
pub fn structured(value: &Value) -> Answer {
    let json = value.to_string();
    Ok(ToolOutput { structured: Some(json.clone()), ..output(json) })
}

/// The tool of the guests with reducers: returns `n` characters with `structured`, or fails if `fail`.
pub fn produce(args: &Args) -> Answer {
    let value: String = ('a'..='z').cycle().take(args.number("n", 1000) as usize).collect();
    if args.flag("fail") {
        return fail(ErrorCode::ExecutionFailed, value);
    }
    let structured = args.all().get("structured").map(Value::to_string);
    Ok(ToolOutput { structured, ..output(value) })
}

/// Returns an error.
pub fn fail(code: ErrorCode, message: impl Into<String>) -> Answer {
    Err(ToolError { code, message: message.into(), subject: None, cost_usd: None })
}

/// Exports the tools, each made with [`tool`] or [`raw_tool`].
#[macro_export]
macro_rules! tools {
    ($($tool:expr),+ $(,)?) => {
        const TOOLS: &[$crate::Tool] = &[$($tool),+];
        $crate::tools_by!(|| TOOLS.iter().map($crate::Tool::define).collect(), |name, args| $crate::run(TOOLS, &name, args));
    };
}

/// Exports a custom `list-tools` and `call`.
#[macro_export]
macro_rules! tools_by {
    ($list:expr, $call:expr $(,)?) => {
        #[doc(hidden)]
        pub struct Tools;

        impl $crate::__private::Tools for Tools {
            fn list_tools() -> Vec<$crate::ToolDef> {
                let list: fn() -> Vec<$crate::ToolDef> = $list;
                list()
            }

            fn call(name: String, args: String) -> $crate::Answer {
                let call: fn(String, String) -> $crate::Answer = $call;
                call(name, args)
            }
        }

        $crate::__private::export_tools!(Tools with_types_in $crate::__private::tools_world);
    };
}

/// Exports a component whose only fault is the result of `list-tools`.
#[macro_export]
macro_rules! metadata {
    ($list:expr) => {
        $crate::tools_by!($list, |_, _| $crate::text("called"));
    };
}

/// Adds reducers: their tools, and one function for all.
#[macro_export]
macro_rules! reducers {
    ([$($tool:expr),* $(,)?], $reduce:expr) => {
        #[doc(hidden)]
        pub struct Reducers;

        impl $crate::__private::Reducers for Reducers {
            fn list_reducers() -> Vec<$crate::ReducerDef> {
                vec![$($crate::ReducerDef { tool_name: String::from($tool), description: None }),*]
            }

            fn reduce(input: $crate::Answer, context: $crate::ReduceContext) -> Option<$crate::Answer> {
                let reduce: fn($crate::Answer, $crate::ReduceContext) -> Option<$crate::Answer> = $reduce;
                reduce(input, context)
            }
        }

        $crate::__private::export_reducers!(Reducers with_types_in $crate::__private::reducers_world);
    };
}

/// Adds the availability check.
#[macro_export]
macro_rules! availability {
    ($check:expr) => {
        #[doc(hidden)]
        pub struct Availability;

        impl $crate::__private::Availability for Availability {
            fn check(tool: String) -> Result<(), String> {
                let check: fn(&str) -> Result<(), String> = $check;
                check(&tool)
            }
        }

        $crate::__private::export_availability!(Availability with_types_in $crate::__private::availability_world);
    };
}

/// The macros use these items.
#[doc(hidden)]
pub mod __private {
    pub use crate::bindings::availability_world::exports::toolbay::plugin::availability::Guest as Availability;
    pub use crate::bindings::availability_world::{self, export_availability};
    pub use crate::bindings::reducers_world::exports::toolbay::plugin::reducers::Guest as Reducers;
    pub use crate::bindings::reducers_world::{self, export_reducers};
    pub use crate::bindings::tools_world::exports::toolbay::plugin::tools::Guest as Tools;
    pub use crate::bindings::tools_world::{self, export_tools};
}
