struct CallContext;

/// Counts.
#[toolbay_macros::tool]
async fn count(context: &mut CallContext) {}

fn main() {}
