/// Counts.
#[toolbay_macros::tool(cache_sm = 500)]
fn count() {}

fn main() {}
