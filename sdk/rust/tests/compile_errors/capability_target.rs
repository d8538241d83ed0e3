use toolbay_sdk::prelude::*;

/// Tells the time.
#[tool(clock = "wall")]
pub fn now() -> String {
    String::new()
}

fn main() {}
