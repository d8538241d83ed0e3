//! The metadata that `#[reducer]` generates for a function, and the export made of it.

use std::marker::PhantomData;

use crate::bindings::reducers_world::exports::toolbay::plugin::reducers::{Guest, ReducerDef};
use crate::types::ToolResult;

pub use crate::bindings::reducers_world::exports::toolbay::plugin::reducers::ReduceContext;

impl ReduceContext {
    /// Returns an argument of the call that made the result, if it was given and has that type.
    pub fn arg<T: serde::de::DeserializeOwned>(&self, name: &str) -> Option<T> {
        let mut args: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&self.args).ok()?;
        serde_json::from_value(args.remove(name)?).ok()
    }
}

/// The metadata of a reducer.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct ReducerSpec {
    pub tool_name: &'static str,
    pub description: Option<&'static str>,
    pub reduce: fn(&ToolResult, &ReduceContext) -> Option<ToolResult>,
}

/// Ties a [`ReducerSpec`] to the name of a function.
#[doc(hidden)]
pub trait Reducer {
    const SPEC: ReducerSpec;
}

/// Ties the reducers of a crate to the type that `plugin!` generates.
#[doc(hidden)]
pub trait ReducerPlugin {
    const REDUCERS: &'static [ReducerSpec];
}

/// The export `reducers` of a plugin.
#[derive(Debug)]
#[doc(hidden)]
pub struct ExportedReducers<P>(PhantomData<P>);

impl<P: ReducerPlugin> Guest for ExportedReducers<P> {
    fn list_reducers() -> Vec<ReducerDef> {
        let definition = |spec: &ReducerSpec| ReducerDef {
            tool_name: spec.tool_name.to_owned(),
            description: spec.description.map(str::to_owned),
        };
        P::REDUCERS.iter().map(definition).collect()
    }

    fn reduce(input: ToolResult, ctx: ReduceContext) -> Option<ToolResult> {
        let spec = P::REDUCERS.iter().find(|spec| spec.tool_name == ctx.tool_name)?;
        (spec.reduce)(&input, &ctx)
    }
}
