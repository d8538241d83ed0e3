use toolbay_sdk::prelude::*;

pub struct Helper;

plugin! { tools: [Helper] }

fn main() {}
