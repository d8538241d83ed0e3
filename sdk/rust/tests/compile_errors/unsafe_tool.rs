use toolbay_sdk::prelude::*;

/// Finds something.
#[tool]
pub unsafe fn find() -> String {
    String::new()
}

fn main() {}
