use toolbay_sdk::prelude::*;

/// Draws lots.
#[tool]
pub fn draw(
    /// How many.
    #[arg(default = 0, range(min = 1, max = 10))]
    count: u32,
    /// From whom.
    #[arg(default = "nobody", length(max = 3))]
    from: String,
) -> String {
    format!("{count} {from}")
}

fn main() {}
