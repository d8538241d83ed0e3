use toolbay_sdk::prelude::*;

/// Reads a file.
#[tool(optional(fs_raed = "**", reason = "reads"))]
pub fn read() -> String {
    String::new()
}

fn main() {}
