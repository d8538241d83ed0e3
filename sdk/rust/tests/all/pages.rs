//! The Rust that the pages show to authors of plugins, as they show it: a test of the host's documentation compares.

#[rustfmt::skip]
mod shout {
    use toolbay_sdk::prelude::*;

    /// Say a text louder.
    #[tool(read_only, idempotent, closed_world)]
    pub fn shout(
        /// The text.
        text: String,
        /// How many exclamation marks.
        #[arg(default = 1, range(min = 0, max = 10))]
        marks: u32,
    ) -> String {
        format!("{}{}", text.to_uppercase(), "!".repeat(marks as usize))
    }

    plugin! { tools: [shout] }

    #[test]
    fn shouts() {
        assert_eq!(shout("hey".to_owned(), 2), "HEY!!");
    }
}

#[rustfmt::skip]
mod outline {
    use toolbay_sdk::files;
    use toolbay_sdk::prelude::*;

    /// Count the words of a text.
    #[tool(read_only, idempotent, closed_world)]
    fn count_words(
        /// The text.
        text: String,
        /// Count only words of at least that many letters.
        #[arg(default = 1, range(min = 1, max = 100))]
        min_letters: usize,
    ) -> String {
        text.split_whitespace().filter(|word| word.chars().count() >= min_letters).count().to_string()
    }

    /// Return the headings of a Markdown file, one a line.
    #[tool(read_only, idempotent, closed_world, untrusted_output,
           fs_read = "$workspace/**", reason = "reads the file you name")]
    fn headings(
        /// Path of the file, below the workspace.
        path: String,
    ) -> Result<String> {
        let text = files::read_text(&path)?;
        let found: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
        if found.is_empty() {
            return Err(Error::failed(format!("`{path}` has no headings")));
        }
        Ok(found.join("\n"))
    }

    plugin! { tools: [count_words, headings] }

    #[cfg(test)]
    mod tests {
        use toolbay_sdk::testing::{FakeHost, call};

        use super::*;

        #[test]
        fn short_words_are_left_out() {
            assert_eq!(count_words("to be or not to be".to_owned(), 3), "1");
            // The same with JSON, as the host calls it; what has a default may be left out.
            assert_eq!(call::<count_words>(json!({"text": "to be"})).unwrap().value, "2");
        }

        #[test]
        fn headings_are_found() {
            let fake = FakeHost::new().file("plan.md", "# Plan\n\ntext\n\n## Steps\n").deny("secret");
            assert_eq!(fake.run(|| headings("plan.md".to_owned())).unwrap(), "# Plan\n## Steps");
            let error = fake.run(|| headings("secret/plan.md".to_owned())).unwrap_err();
            assert_eq!(error.subject(), Some("denied"));
        }
    }
}

#[rustfmt::skip]
mod availability {
    use toolbay_sdk::config;
    use toolbay_sdk::prelude::*;

    /// Find something.
    #[tool(read_only)]
    fn search() -> String {
        String::new()
    }

    plugin! { tools: [search], available: check }

    /// Called for each tool. The operator and the caller of the tool see the reason.
    fn check(tool: &str) -> std::result::Result<(), String> {
        match config::get::<String>("index") {
            Ok(Some(_)) => Ok(()),
            _ => Err(format!("`{tool}` needs `index` in the settings of this plugin")),
        }
    }

    #[test]
    fn without_the_setting_there_is_a_reason() {
        assert_eq!(search(), "");
        let fake = toolbay_sdk::testing::FakeHost::new();
        assert!(fake.run(|| check("x__search")).unwrap_err().starts_with("`x__search` needs"));
    }
}

#[rustfmt::skip]
mod process {
    #[test]
    fn a_program_that_is_not_granted_is_an_error() {
        fn status() -> toolbay_sdk::prelude::Result<()> {
            use toolbay_sdk::process::Command;
            let done = Command::new("git").args(["status", "--short"]).run()?;
            assert_eq!(done.exit_code, Some(0));
            Ok(())
        }
        assert!(toolbay_sdk::testing::FakeHost::new().run(status).is_err());
    }
}

#[rustfmt::skip]
mod settings {
    use toolbay_sdk::prelude::*;

    /// What the operator may set.
    #[data]
    pub struct Settings {
        /// How many headings are shown.
        #[schemars(range(min = 1, max = 500))]
        pub headings: Option<u32>,
    }

    /// Tell how many headings are shown.
    #[tool(read_only)]
    pub fn shown() -> Result<String> {
        let settings: Settings = toolbay_sdk::config::all()?;
        Ok(settings.headings.unwrap_or(10).to_string())
    }

    plugin! { tools: [shown], config: Settings }

    #[test]
    fn they_are_declared() {
        let schema = toolbay_sdk::schema::settings_schema(toolbay_sdk::schema::of::<Settings>);
        let schema: toolbay_sdk::serde_json::Value = toolbay_sdk::serde_json::from_str(&schema).unwrap();
        assert_eq!(schema, json!({
            "type": "object", "description": "What the operator may set.", "additionalProperties": false,
            "properties": {"headings": {
                "type": ["integer", "null"], "description": "How many headings are shown.", "minimum": 1, "maximum": 500,
            }},
        }));
        let fake = toolbay_sdk::testing::FakeHost::new().config("headings", 3);
        assert_eq!(fake.run(shown).unwrap(), "3");
    }
}
