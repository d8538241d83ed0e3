use toolbay_sdk::prelude::*;

/// Shortens it.
#[reducer("terminal")]
pub fn shorten(input: ToolResult) -> ToolResult {
    input
}

fn main() {}
