//! `kanban_add`.

use toolbay_sdk::prelude::*;

use crate::tasks::{self, BoardTask};

/// Put a new task on the board. Its id is how the other tools name it.
#[tool(
    toolset = "kanban", tags = ["write"], additive, closed_world, kv = "plugin", reason = "keeps the board",
    optional(clock, reason = "notes when a task was changed"),
)]
pub fn kanban_add(
    /// What is to be done, in one line.
    #[arg(length(min = 1, max = 500))]
    title: String,
    /// More about it.
    #[arg(default = String::new(), length(max = 8000))]
    notes: String,
    /// The column; the first one, if it is left out.
    status: Option<String>,
) -> Result<Rendered<BoardTask>> {
    if title.trim().is_empty() || title.contains('\n') {
        return Err(Error::input("the title is empty or has more than one line").at("/title"));
    }
    let status = match status {
        Some(status) => status,
        None => tasks::columns()?.into_iter().next().unwrap_or_default(),
    };
    tasks::check_column(&status, "/status")?;
    let task = tasks::create(title, notes, status)?;
    Ok(Rendered { text: format!("Added {} to {}.", task.id, task.status), data: task })
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::kv::Scope;
    use toolbay_sdk::testing::{FakeHost, call};
    use toolbay_sdk::types::ErrorCode;

    use super::*;

    #[test]
    fn a_task_begins_in_the_first_column_or_where_it_is_put() {
        FakeHost::new().kv(Scope::Plugin).run(|| {
            assert_eq!(call::<kanban_add>(json!({"title": "a"})).unwrap().value, "Added t1 to todo.");
            let review = call::<kanban_add>(json!({"title": "b", "status": "review"})).unwrap();
            assert_eq!(review.value, "Added t2 to review.");
        });
        FakeHost::new().kv(Scope::Plugin).config("columns", ["ideas", "now"]).run(|| {
            assert_eq!(call::<kanban_add>(json!({"title": "a"})).unwrap().value, "Added t1 to ideas.");
            assert_eq!(
                call::<kanban_add>(json!({"title": "a", "status": "done"})).unwrap().value,
                "Added t2 to done."
            );
        });
    }

    #[test]
    fn what_can_not_be_a_task_is_refused() {
        FakeHost::new().kv(Scope::Plugin).run(|| {
            for (args, at) in [
                (json!({"title": " "}), "/title"),
                (json!({"title": "a\nb"}), "/title"),
                (json!({"title": "a", "status": "nowhere"}), "/status"),
            ] {
                let error = call::<kanban_add>(args).unwrap_err();
                assert_eq!((error.code(), error.subject()), (ErrorCode::InputInvalid, Some(at)));
            }
        });
        let denied = FakeHost::new().run(|| call::<kanban_add>(json!({"title": "x"}))).unwrap_err();
        assert_eq!((denied.code(), denied.subject()), (ErrorCode::NotAvailable, Some("denied")));
    }
}
