//! `kanban_list`.

use toolbay_sdk::prelude::*;
use toolbay_sdk::serde_json;

use crate::tasks::{self, BoardTask, DONE};

/// A part of the tasks.
#[data]
#[derive(Debug, PartialEq, Eq)]
pub struct Board {
    /// The tasks, oldest first.
    pub tasks: Vec<BoardTask>,
    /// Whether there are more; ask again with `after` set to the last id.
    pub more: bool,
}

/// List the tasks on the board as a JSON array, oldest first: id, title, status, updatedAt in Unix milliseconds.
#[tool(
    toolset = "kanban", tags = ["list"], read_only, idempotent, closed_world, untrusted_output,
    kv = "plugin", reason = "keeps the board",
)]
pub fn kanban_list(
    /// List only this column.
    status: Option<String>,
    /// Also list what is done.
    #[arg(default = true)]
    done: bool,
    /// List only tasks after this id.
    after: Option<String>,
    /// List at most this many.
    #[arg(default = 500, range(min = 1, max = 1000))]
    max_tasks: usize,
) -> Result<Rendered<Board>> {
    if let Some(status) = &status {
        tasks::check_column(status, "/status")?;
    }
    let (mut found, mut more) = (Vec::new(), false);
    tasks::each(after.as_deref(), |task| {
        let wanted = status.as_ref().map_or(done || task.status != DONE, |status| task.status == *status);
        if wanted {
            more = found.len() == max_tasks;
            if !more {
                found.push(task);
            }
        }
        more
    })?;
    // Only the array, because a reducer parses it.
    Ok(Rendered { text: serde_json::to_string(&found)?, data: Board { tasks: found, more } })
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::kv::{self, Scope};
    use toolbay_sdk::serde_json::Value;
    use toolbay_sdk::testing::{FakeHost, call};

    use super::*;
    use crate::add::kanban_add;
    use crate::change::kanban_done;

    fn ids(args: Value) -> (Vec<String>, bool) {
        let output = call::<kanban_list>(args).unwrap();
        let tasks: Vec<BoardTask> = serde_json::from_str(&output.value).unwrap();
        let board: Board = serde_json::from_str(&output.structured.unwrap()).unwrap();
        assert_eq!(board.tasks, tasks, "the text is the same tasks");
        (tasks.into_iter().map(|task| task.id).collect(), board.more)
    }

    #[test]
    fn the_board_is_listed_in_pages_and_by_column() {
        FakeHost::new().kv(Scope::Plugin).run(|| {
            assert_eq!(ids(json!({})), (vec![], false));
            for n in 0..12 {
                call::<kanban_add>(json!({"title": format!("task {n}")})).unwrap();
            }
            call::<kanban_done>(json!({"id": "t2"})).unwrap();
            assert_eq!(ids(json!({})).0.len(), 12);
            assert_eq!(ids(json!({"done": false})).0.len(), 11);
            assert_eq!(ids(json!({"status": "done"})), (vec!["t2".to_owned()], false));
            assert_eq!(ids(json!({"max_tasks": 2})), (vec!["t1".to_owned(), "t2".to_owned()], true));
            assert_eq!(ids(json!({"after": "t9"})).0, ["t10", "t11", "t12"]);
            assert_eq!(call::<kanban_list>(json!({"status": "x"})).unwrap_err().subject(), Some("/status"));
        });
    }

    #[test]
    fn a_task_is_as_the_reducer_knows_it() {
        FakeHost::new().kv(Scope::Plugin).run(|| {
            call::<kanban_add>(json!({"title": "write", "notes": "soon"})).unwrap();
            let list: Value = serde_json::from_str(&call::<kanban_list>(json!({})).unwrap().value).unwrap();
            for key in ["id", "title", "status"] {
                assert!(list[0][key].is_string(), "{key}: {list}");
            }
            assert!(list[0]["updatedAt"].is_u64(), "{list}");
        });
    }

    #[test]
    fn a_task_of_an_older_version_is_read() {
        FakeHost::new().kv(Scope::Plugin).run(|| {
            let old = r#"{"id":"t1","title":"old","status":"todo","updatedAt":"2026-02-03T04:05:06Z"}"#;
            kv::set(Scope::Plugin, "task/00000000000000000001", old, None).unwrap();
            kv::set(Scope::Plugin, "next", "1", None).unwrap();
            call::<kanban_add>(json!({"title": "new"})).unwrap();
            let list: Value = serde_json::from_str(&call::<kanban_list>(json!({})).unwrap().value).unwrap();
            assert_eq!(list[0]["updatedAt"], 1_770_091_506_000_u64);
            assert_eq!(list[1]["id"], "t2");
            call::<kanban_done>(json!({"id": "t1"})).unwrap();
            assert_eq!(ids(json!({"status": "done"})).0, ["t1"]);
        });
    }
}
