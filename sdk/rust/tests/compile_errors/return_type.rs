use toolbay_sdk::prelude::*;

/// Counts words.
#[tool]
pub fn count() -> Vec<usize> {
    vec![1]
}

plugin! { tools: [count] }

fn main() {}
