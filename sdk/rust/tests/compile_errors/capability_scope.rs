use toolbay_sdk::prelude::*;

/// Keeps a note.
#[tool(kv = "global", reason = "keeps it")]
pub fn keep() -> String {
    String::new()
}

fn main() {}
