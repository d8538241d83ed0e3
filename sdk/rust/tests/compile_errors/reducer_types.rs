use toolbay_sdk::prelude::*;

/// Shortens it.
#[reducer("terminal")]
pub fn shorten(input: &String, ctx: &ReduceContext) -> Option<ToolResult> {
    let _ = (input, ctx);
    None
}

plugin! { reducers: [shorten] }

fn main() {}
