#[toolbay_macros::data(strict)]
struct Note {
    text: String,
}

fn main() {}
