use toolbay_sdk::prelude::*;

#[tool]
pub fn count(
    /// The text.
    text: String,
) -> String {
    text
}

fn main() {}
