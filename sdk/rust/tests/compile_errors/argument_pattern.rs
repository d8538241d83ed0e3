use toolbay_sdk::prelude::*;

/// Adds two numbers.
#[tool]
pub fn add(
    /// The numbers.
    (a, b): (u32, u32),
) -> String {
    (a + b).to_string()
}

fn main() {}
