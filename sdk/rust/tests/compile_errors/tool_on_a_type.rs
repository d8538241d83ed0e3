use toolbay_sdk::prelude::*;

/// Finds something.
#[tool]
pub struct Search;

fn main() {}
