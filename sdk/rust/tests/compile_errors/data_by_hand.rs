use toolbay_sdk::prelude::*;

#[data]
#[serde(from = "String")]
pub struct Day {
    pub day: u8,
}

fn main() {}
