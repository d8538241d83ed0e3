use toolbay_sdk::prelude::*;

/// Greets somebody.
#[tool]
pub fn greet(
    /// Whom.
    #[arg(lenght(max = 100))]
    name: String,
) -> String {
    name
}

fn main() {}
