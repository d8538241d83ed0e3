#[toolbay_macros::tool]
async fn count(
    /// The text.
    text: String,
) -> usize {
    text.len()
}

fn main() {}
