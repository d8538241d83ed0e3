//! A crate with tools and a reducer, as an author would write it.

use toolbay_sdk::prelude::*;
use toolbay_sdk::testing::{plugin_tools, reduce};

/// Say hello.
#[tool(read_only)]
pub fn hello(name: String) -> String {
    format!("hello {name}")
}

/// Say goodbye.
#[tool(read_only)]
pub fn goodbye() -> &'static str {
    "goodbye"
}

/// Keeps the first line.
#[reducer("hello")]
pub fn first_line(input: &ToolResult, ctx: &ReduceContext) -> Option<ToolResult> {
    if ctx.arg::<String>("name").as_deref() == Some("all") {
        return None;
    }
    let (first, _) = input.as_ref().ok()?.value.split_once('\n')?;
    Some(Ok(Output::new(first)))
}

plugin! { tools: [hello, goodbye], reducers: [first_line] }

#[test]
fn the_plugin_has_its_tools_in_order() {
    let names: Vec<_> = plugin_tools::<ToolbayPlugin>().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["hello", "goodbye"]);
}

#[test]
fn a_reducer_reads_the_arguments_and_changes_the_result() {
    let input = Ok(Output::new("a\nb"));
    assert_eq!(reduce::<first_line>(&input, json!({"name": "x"})).unwrap().unwrap().value, "a");
    assert_eq!(reduce::<first_line>(&input, json!({"name": "all"})), None);
}
