//! `kanban_move` and `kanban_done`.

use toolbay_sdk::prelude::*;

use crate::tasks::{self, BoardTask, DONE};

/// Move a task to another column.
#[tool(
    toolset = "kanban", tags = ["write"], idempotent, closed_world, kv = "plugin", reason = "keeps the board",
    optional(clock, reason = "notes when a task was changed"),
)]
pub fn kanban_move(
    /// The task's id, as `t7`.
    id: String,
    /// The column.
    status: String,
) -> Result<Rendered<BoardTask>> {
    tasks::check_column(&status, "/status")?;
    moved(&id, &status)
}

/// Mark a task as done.
#[tool(
    toolset = "kanban", tags = ["write"], idempotent, closed_world, kv = "plugin", reason = "keeps the board",
    optional(clock, reason = "notes when a task was changed"),
)]
pub fn kanban_done(
    /// The task's id, as `t7`.
    id: String,
) -> Result<Rendered<BoardTask>> {
    moved(&id, DONE)
}

fn moved(id: &str, status: &str) -> Result<Rendered<BoardTask>> {
    let task = tasks::change(id, |task| status.clone_into(&mut task.status))?;
    Ok(Rendered { text: format!("{} is in {}: {}", task.id, task.status, task.title), data: task })
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::kv::Scope;
    use toolbay_sdk::testing::{FakeHost, call};

    use super::*;
    use crate::add::kanban_add;

    #[test]
    fn a_task_goes_over_the_board() {
        FakeHost::new().kv(Scope::Plugin).run(|| {
            call::<kanban_add>(json!({"title": "write"})).unwrap();
            let doing = call::<kanban_move>(json!({"id": "t1", "status": "doing"})).unwrap();
            assert_eq!(doing.value, "t1 is in doing: write");
            assert_eq!(call::<kanban_done>(json!({"id": "t1"})).unwrap().value, "t1 is in done: write");
            assert_eq!(call::<kanban_done>(json!({"id": "t1"})).unwrap().value, "t1 is in done: write");
        });
    }

    #[test]
    fn what_is_not_there_is_said_so() {
        FakeHost::new().kv(Scope::Plugin).run(|| {
            for (id, subject) in [("t9", "not-found"), ("9", "/id"), ("t", "/id"), ("tx", "/id")] {
                assert_eq!(
                    call::<kanban_done>(json!({"id": id})).unwrap_err().subject(),
                    Some(subject),
                    "{id}"
                );
            }
            let error = call::<kanban_move>(json!({"id": "t1", "status": "nowhere"})).unwrap_err();
            assert!(error.to_string().contains("todo, doing, review, done"), "{error}");
        });
    }
}
