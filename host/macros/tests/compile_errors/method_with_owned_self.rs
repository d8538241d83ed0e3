struct Weather;

#[toolbay_macros::tools]
impl Weather {
    /// Says how warm it is.
    #[tool(read_only)]
    async fn degrees(self) -> String {
        String::new()
    }
}

fn main() {}
