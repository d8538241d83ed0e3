use toolbay_sdk::prelude::*;

/// Counts words.
#[tool(name = "count")]
pub fn count_words() -> String {
    String::new()
}

/// Counts lines.
#[tool(name = "count")]
pub fn count_lines() -> String {
    String::new()
}

plugin! { tools: [count_words, count_lines] }

fn main() {}
