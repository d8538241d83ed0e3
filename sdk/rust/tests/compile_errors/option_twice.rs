use toolbay_sdk::prelude::*;

/// Counts words.
#[tool(toolset = "text", toolset = "words")]
pub fn count() -> String {
    String::new()
}

fn main() {}
