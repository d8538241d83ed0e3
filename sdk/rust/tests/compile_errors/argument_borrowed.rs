use toolbay_sdk::prelude::*;

/// Counts words.
#[tool]
pub fn count(
    /// The text.
    text: &str,
) -> String {
    text.len().to_string()
}

fn main() {}
