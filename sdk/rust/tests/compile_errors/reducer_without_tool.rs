use toolbay_sdk::prelude::*;

/// Shortens it.
#[reducer]
pub fn shorten(_: &ToolResult, _: &ReduceContext) -> Option<ToolResult> {
    None
}

fn main() {}
