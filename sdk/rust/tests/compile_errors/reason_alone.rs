use toolbay_sdk::prelude::*;

/// Counts words.
#[tool(reason = "to count")]
pub fn count() -> String {
    String::new()
}

fn main() {}
