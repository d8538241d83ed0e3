//! `list`.

use toolbay_sdk::prelude::*;

use crate::items::{self, TodoItem};

/// A part of the items.
#[data]
#[derive(Debug, PartialEq, Eq)]
pub struct TodoListing {
    /// The items, oldest first.
    pub items: Vec<TodoItem>,
    /// Whether there are more; ask again with `after` set to the last number.
    pub more: bool,
}

/// List the things to do, oldest first, one a line: number, `[ ]` or `[x]`, text.
#[tool(
    toolset = "todo", tags = ["list"], read_only, idempotent, closed_world, untrusted_output,
    kv = "plugin", reason = "keeps the list",
)]
pub fn list(
    /// Also list what is done.
    #[arg(default = false)]
    all: bool,
    /// List only items after this number.
    #[arg(default = 0)]
    after: u64,
    /// List at most this many.
    #[arg(default = 100, range(min = 1, max = 1000))]
    max_items: usize,
) -> Result<Rendered<TodoListing>> {
    let (mut found, mut more) = (Vec::new(), false);
    items::each(after, |item| {
        if item.done && !all {
            return false;
        }
        more = found.len() == max_items;
        if !more {
            found.push(item);
        }
        more
    })?;
    let mut text: String = found.iter().map(TodoItem::line).collect();
    if found.is_empty() {
        text = "Nothing to do.".to_owned();
    } else if more {
        let last = found.last().map_or(0, |item| item.id);
        text.push_str(&format!("[there are more: list again with after = {last}]\n"));
    }
    Ok(Rendered { text, data: TodoListing { items: found, more } })
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::kv::Scope;
    use toolbay_sdk::testing::{FakeHost, call};

    use super::*;
    use crate::add::add;
    use crate::change::complete;

    #[test]
    fn open_items_are_listed_in_pages() {
        let fake = FakeHost::new().kv(Scope::Plugin);
        fake.run(|| {
            assert_eq!(call::<list>(json!({})).unwrap().value, "Nothing to do.");
            for n in 1..=12 {
                call::<add>(json!({"text": format!("t{n}")})).unwrap();
            }
            call::<complete>(json!({"id": 2})).unwrap();
            let page = call::<list>(json!({"max_items": 2})).unwrap();
            assert_eq!(page.value, "1 [ ] t1\n3 [ ] t3\n[there are more: list again with after = 3]\n");
            let page = call::<list>(json!({"after": 9, "all": true})).unwrap();
            assert_eq!(page.value, "10 [ ] t10\n11 [ ] t11\n12 [ ] t12\n");
            let all = call::<list>(json!({"all": true, "max_items": 12})).unwrap();
            assert!(all.value.contains("2 [x] t2\n") && all.structured.unwrap().contains(r#""more":false"#));
        });
    }

    #[test]
    fn many_items_come_through_all_pages_of_the_store() {
        let fake = FakeHost::new().kv(Scope::Plugin);
        fake.run(|| {
            for n in 0..1201 {
                call::<add>(json!({"text": n.to_string()})).unwrap();
            }
            let page = call::<list>(json!({"max_items": 1000, "after": 201})).unwrap();
            assert_eq!(page.value.lines().count(), 1000);
            assert!(page.value.starts_with("202 [ ] 201\n") && page.value.ends_with("1201 [ ] 1200\n"));
        });
    }
}
