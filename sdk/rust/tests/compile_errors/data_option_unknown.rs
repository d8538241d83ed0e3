use toolbay_sdk::prelude::*;

#[data]
pub struct Page {
    #[schemars(title = "x")]
    pub number: u8,
}

fn main() {}
