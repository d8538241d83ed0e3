use toolbay_sdk::prelude::*;

/// Shows something.
#[tool]
pub fn show<T: std::fmt::Display>(
    /// What.
    what: T,
) -> String {
    what.to_string()
}

fn main() {}
