use toolbay_sdk::prelude::*;

/// Finds something.
#[tool(example(args = "{what: 1}", value = "x"))]
pub fn find() -> String {
    String::new()
}

fn main() {}
