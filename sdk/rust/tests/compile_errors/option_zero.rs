use toolbay_sdk::prelude::*;

/// Counts words.
#[tool(timeout_ms = 0)]
pub fn count() -> String {
    String::new()
}

fn main() {}
