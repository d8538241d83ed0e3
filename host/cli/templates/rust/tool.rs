//! The tools of this plugin.

use toolbay_sdk::prelude::*;

/// Greet somebody.
#[tool(
    read_only, idempotent, closed_world,
    example(args = r#"{"name": "world", "marks": 2}"#, value = "Hello, world!!"),
)]
pub fn hello(
    /// Who is greeted.
    name: String,
    /// How many exclamation marks.
    #[arg(default = 1, range(min = 0, max = 10))]
    marks: u32,
) -> Result<String> {
    if name.trim().is_empty() {
        return Err(Error::input("the name is empty").at("/name"));
    }
    Ok(format!("Hello, {name}{}", "!".repeat(marks as usize)))
}

plugin! { tools: [hello] }

#[cfg(test)]
mod tests {
    use toolbay_sdk::testing::call;

    use super::*;

    #[test]
    fn greets() {
        assert_eq!(hello("world".to_owned(), 2).unwrap(), "Hello, world!!");
        // The same with JSON, as the host calls it; what has a default may be left out.
        assert_eq!(call::<hello>(json!({"name": "world"})).unwrap().value, "Hello, world!");
    }

    #[test]
    fn nobody_is_an_error() {
        let error = hello(" ".to_owned(), 1).unwrap_err();
        assert_eq!(error.subject(), Some("/name"));
    }
}
