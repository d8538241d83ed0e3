//! `update`, `complete` and `remove`.

use toolbay_sdk::prelude::*;

use crate::items::{self, TodoItem};

/// Change the text of an item.
#[tool(toolset = "todo", tags = ["write"], idempotent, closed_world, kv = "plugin", reason = "keeps the list")]
pub fn update(
    /// The item's number.
    #[arg(range(min = 1))]
    id: u64,
    /// What to do now.
    #[arg(length(min = 1, max = 2000))]
    text: String,
) -> Result<Rendered<TodoItem>> {
    items::check(&text)?;
    let item = items::change(id, |item| item.text.clone_from(&text))?;
    Ok(Rendered { text: format!("Changed item {id}."), data: item })
}

/// Mark an item as done, or as open again.
#[tool(toolset = "todo", tags = ["write"], idempotent, closed_world, kv = "plugin", reason = "keeps the list")]
pub fn complete(
    /// The item's number.
    #[arg(range(min = 1))]
    id: u64,
    /// `false` opens it again.
    #[arg(default = true)]
    done: bool,
) -> Result<Rendered<TodoItem>> {
    let item = items::change(id, |item| item.done = done)?;
    let state = if done { "done" } else { "open" };
    Ok(Rendered { text: format!("Item {id} is {state}."), data: item })
}

/// Remove an item for good. Its number is not given again.
#[tool(toolset = "todo", tags = ["write"], closed_world, kv = "plugin", reason = "keeps the list")]
pub fn remove(
    /// The item's number.
    #[arg(range(min = 1))]
    id: u64,
) -> Result<Rendered<TodoItem>> {
    let item = items::take(id)?;
    Ok(Rendered { text: format!("Removed item {id}: {}", item.text), data: item })
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::kv::Scope;
    use toolbay_sdk::testing::{FakeHost, call};

    use super::*;
    use crate::add::add;
    use crate::list::list;

    #[test]
    fn an_item_lives_from_add_to_remove() {
        let fake = FakeHost::new().kv(Scope::Plugin);
        fake.run(|| {
            call::<add>(json!({"text": "one"})).unwrap();
            call::<add>(json!({"text": "two"})).unwrap();
            assert_eq!(call::<update>(json!({"id": 1, "text": "uno"})).unwrap().value, "Changed item 1.");
            assert_eq!(call::<complete>(json!({"id": 1})).unwrap().value, "Item 1 is done.");
            assert_eq!(
                call::<complete>(json!({"id": 1})).unwrap().value,
                "Item 1 is done.",
                "twice is as once"
            );
            assert_eq!(call::<complete>(json!({"id": 1, "done": false})).unwrap().value, "Item 1 is open.");
            assert_eq!(call::<remove>(json!({"id": 2})).unwrap().value, "Removed item 2: two");
            assert_eq!(call::<list>(json!({})).unwrap().value, "1 [ ] uno\n");
            assert_eq!(
                call::<add>(json!({"text": "three"})).unwrap().value,
                "Added item 3.",
                "2 is not reused"
            );
        });
    }

    #[test]
    fn what_is_not_there_is_said_so() {
        let fake = FakeHost::new().kv(Scope::Plugin);
        fake.run(|| {
            for error in [
                call::<update>(json!({"id": 9, "text": "x"})).unwrap_err(),
                call::<complete>(json!({"id": 9})).unwrap_err(),
                call::<remove>(json!({"id": 9})).unwrap_err(),
            ] {
                assert_eq!(error.subject(), Some("not-found"));
            }
        });
    }
}
