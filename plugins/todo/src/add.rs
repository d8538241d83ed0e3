//! `add`.

use toolbay_sdk::prelude::*;

use crate::items::{self, MAX_TEXT, TodoItem};

/// Add a thing to do. Its number is how the other tools name it.
#[tool(toolset = "todo", tags = ["write"], additive, closed_world, kv = "plugin", reason = "keeps the list")]
pub fn add(
    /// What to do.
    #[arg(length(min = 1, max = 2000))]
    text: String,
) -> Result<Rendered<TodoItem>> {
    debug_assert!(text.chars().count() <= MAX_TEXT, "the schema says so");
    items::check(&text)?;
    let item = items::create(text)?;
    Ok(Rendered { text: format!("Added item {}.", item.id), data: item })
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::kv::Scope;
    use toolbay_sdk::testing::{FakeHost, call};
    use toolbay_sdk::types::ErrorCode;

    use super::*;

    #[test]
    fn items_are_numbered_from_one() {
        let fake = FakeHost::new().kv(Scope::Plugin);
        fake.run(|| {
            let output = call::<add>(json!({"text": "buy milk"})).unwrap();
            assert_eq!(output.value, "Added item 1.");
            assert_eq!(output.structured.as_deref(), Some(r#"{"id":1,"text":"buy milk","done":false}"#));
            assert_eq!(call::<add>(json!({"text": "é"})).unwrap().value, "Added item 2.");
        });
    }

    #[test]
    fn an_empty_text_a_full_store_and_no_grant_are_errors() {
        let fake = FakeHost::new().kv(Scope::Plugin).kv_bytes(60);
        fake.run(|| {
            assert_eq!(call::<add>(json!({"text": "  "})).unwrap_err().code(), ErrorCode::InputInvalid);
            let full = call::<add>(json!({"text": "x".repeat(100)})).unwrap_err();
            assert_eq!((full.code(), full.subject()), (ErrorCode::NotAvailable, Some("quota")));
        });
        let denied = FakeHost::new().run(|| call::<add>(json!({"text": "x"}))).unwrap_err();
        assert_eq!((denied.code(), denied.subject()), (ErrorCode::NotAvailable, Some("denied")));
    }
}
