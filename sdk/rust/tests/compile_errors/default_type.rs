use toolbay_sdk::prelude::*;

/// Draws lots.
#[tool]
pub fn draw(
    /// How many.
    #[arg(default = "many")]
    count: u32,
) -> String {
    count.to_string()
}

plugin! { tools: [draw] }

fn main() {}
