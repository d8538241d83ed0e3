use toolbay_sdk::prelude::*;

pub struct Place {
    pub name: String,
}

/// Goes to a place.
#[tool]
pub fn go(
    /// Where.
    place: Place,
) -> String {
    place.name
}

plugin! { tools: [go] }

fn main() {}
