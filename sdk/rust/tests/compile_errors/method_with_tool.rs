use toolbay_sdk::prelude::*;

pub struct Search;

impl Search {
    /// Finds something.
    #[tool(read_only)]
    pub fn find(&self) -> String {
        String::new()
    }
}

fn main() {}
