use toolbay_sdk::prelude::*;

#[data]
pub struct Search {
    /// Whom to ask.
    pub url: String,
}

#[tools]
impl Search {
    /// Finds something.
    #[tool(read_only)]
    pub fn find(self) -> String {
        self.url
    }
}

fn main() {}
