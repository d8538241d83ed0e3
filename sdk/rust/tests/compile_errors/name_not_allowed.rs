use toolbay_sdk::prelude::*;

/// Counts words.
#[tool(name = "count words")]
pub fn count() -> String {
    String::new()
}

fn main() {}
