use toolbay_sdk::prelude::*;

/// Finds something.
#[tool]
pub fn find() -> String {
    String::new()
}

plugin! { tool: [find] }

fn main() {}
