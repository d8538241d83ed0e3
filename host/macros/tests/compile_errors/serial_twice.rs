/// Adds two numbers.
#[toolbay_macros::tool(serial, serial = "sums")]
fn add(a: i32, b: i32) -> String {
    (a + b).to_string()
}

fn main() {}
