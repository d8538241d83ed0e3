use toolbay_sdk::prelude::*;

pub struct Venue {
    pub name: String,
}

/// Goes to a place.
#[tool]
pub fn go(
    /// Where.
    place: Venue,
) -> String {
    place.name
}

plugin! { tools: [go] }

fn main() {}
