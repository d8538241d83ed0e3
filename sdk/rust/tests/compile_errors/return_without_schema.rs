use toolbay_sdk::prelude::*;

pub struct Count(pub usize);

/// Counts words.
#[tool]
pub fn count() -> Json<Count> {
    Json(Count(1))
}

plugin! { tools: [count] }

fn main() {}
