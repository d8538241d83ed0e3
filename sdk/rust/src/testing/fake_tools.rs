//! Tools that a test implements.

use std::collections::BTreeMap;
use std::fmt;

use crate::Result;
use crate::bindings::imports::toolbay::plugin::tool_invoke::{Callable, Invocation, Invoked};
use crate::error::{Error, into_record};
use crate::types::ToolError;

type FakeToolReply = Box<dyn Fn(&serde_json::Value) -> Result<Invoked>>;

/// The tools of a fake host.
#[derive(Default)]
pub(crate) struct FakeTools {
    tools: BTreeMap<String, FakeToolReply>,
    calls: Vec<Invocation>,
}

impl FakeTools {
    pub(crate) fn add(&mut self, name: &str, answer: FakeToolReply) {
        self.tools.insert(name.to_owned(), answer);
    }

    pub(crate) fn calls(&self) -> Vec<Invocation> {
        self.calls.clone()
    }

    pub(crate) fn list(&self) -> Vec<Callable> {
        let callable = |name: &String| Callable {
            name: name.clone(),
            description: format!("A tool of the test: {name}"),
            input_schema: r#"{"type":"object"}"#.to_owned(),
            output_schema: None,
        };
        self.tools.keys().map(callable).collect()
    }

    pub(crate) fn invoke(&mut self, calls: &[Invocation]) -> Vec<Result<Invoked, ToolError>> {
        self.calls.extend_from_slice(calls);
        calls.iter().map(|call| self.answer(call).map_err(into_record)).collect()
    }

    fn answer(&self, call: &Invocation) -> Result<Invoked> {
        let Some(answer) = self.tools.get(&call.name) else {
            return Err(
                Error::not_available(format!("the fake host has no tool `{}`", call.name)).at("denied")
            );
        };
        let args = serde_json::from_str(&call.args)
            .map_err(|error| Error::input(format!("the arguments are not JSON: {error}")))?;
        answer(&args)
    }
}

impl fmt::Debug for FakeTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeTools")
            .field("tools", &self.tools.keys().collect::<Vec<_>>())
            .field("calls", &self.calls)
            .finish()
    }
}
