use toolbay_sdk::prelude::*;

plugin! {}

fn main() {}
