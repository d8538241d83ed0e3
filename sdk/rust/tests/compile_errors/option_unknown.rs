use toolbay_sdk::prelude::*;

/// Counts words.
#[tool(timeout_sm = 100)]
pub fn count() -> String {
    String::new()
}

fn main() {}
