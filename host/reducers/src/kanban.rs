//! `kanban_list`: counts by status and the newest open tasks, for a JSON array of more than ten.
//!
//! ```text
//! [{"id":"t1","status":"todo","title":"Write","updatedAt":1767312000000}, … 12 more]
//! ->
//! Counts by status: todo=8, done=5. Top 5 open: t1: Write; t7: Read; …
//! [13 tasks; the newest open ones are shown]
//! ```

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cut::clip;
use crate::{ReducerInput, law};

/// Shorter lists are unchanged.
const FEW: usize = 10;

/// How many open tasks are shown.
const TOP: usize = 5;

/// A hostile list could have a status for each task.
const STATUSES: usize = 20;

/// The most characters of an id, a status or a title.
const FIELD_CHARS: usize = 120;

#[derive(Debug, Default, Deserialize)]
struct TaskSummary {
    id: Option<Value>,
    title: Option<Value>,
    status: Option<Value>,
    #[serde(rename = "updatedAt")]
    updated_at: Option<Value>,
}

/// Counts tasks by status, and shows the newest open ones.
#[must_use]
pub fn kanban_list(text: &str, ctx: &ReducerInput<'_>) -> Option<String> {
    law::apply(text, ctx, |text, _| summarize(text))
}

fn summarize(text: &str) -> Option<String> {
    let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    if items.len() <= FEW {
        return None;
    }
    // An element that is not a task, such as `null`, counts as a task without fields.
    let read = |item: &&RawValue| {
        let json = item.get();
        if json.starts_with('{') {
            serde_json::from_str(json).unwrap_or_default()
        } else {
            TaskSummary::default()
        }
    };
    let tasks: Vec<TaskSummary> = items.iter().map(read).collect();
    let mut counts: Vec<(String, usize)> = Vec::new();
    let mut place: BTreeMap<String, usize> = BTreeMap::new();
    let mut open: Vec<&TaskSummary> = Vec::new();
    for task in &tasks {
        let status = shown(task.status.as_ref(), "unknown");
        if status != "done" {
            open.push(task);
        }
        match place.get(&status).and_then(|index| counts.get_mut(*index)) {
            Some((_, number)) => *number += 1,
            None => {
                place.insert(status.clone(), counts.len());
                counts.push((status, 1));
            }
        }
    }
    // A stable sort keeps tasks of the same time in list order.
    open.sort_by_key(|task| Reverse(time_key(task.updated_at.as_ref())));
    open.truncate(TOP);
    let mut by_status: Vec<String> =
        counts.iter().take(STATUSES).map(|(status, number)| format!("{status}={number}")).collect();
    if counts.len() > STATUSES {
        by_status.push(format!("{} more", counts.len() - STATUSES));
    }
    let top: Vec<String> = open
        .iter()
        .map(|task| format!("{}: {}", shown(task.id.as_ref(), "?"), shown(task.title.as_ref(), "(no title)")))
        .collect();
    let colon = if top.is_empty() { "" } else { ": " };
    Some(format!(
        "Counts by status: {}. Top {} open{colon}{}.\n[{} tasks; the newest open ones are shown]",
        by_status.join(", "),
        top.len(),
        top.join("; "),
        tasks.len()
    ))
}

/// Orders times: texts, such as RFC 3339, as text, and after them Unix milliseconds as numbers.
fn time_key(value: Option<&Value>) -> (u64, &str) {
    match value {
        Some(Value::Number(number)) => (number.as_u64().map_or(0, |ms| ms.saturating_add(1)), ""),
        Some(Value::String(text)) => (0, text),
        _ => (0, ""),
    }
}

fn shown(value: Option<&Value>, default: &str) -> String {
    let text = match value {
        Some(Value::String(text)) if !text.is_empty() => {
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        }
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Bool(flag)) => flag.to_string(),
        _ => default.to_owned(),
    };
    clip(&text, FIELD_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTX: ReducerInput<'_> = ReducerInput { args: "{}", turn: 0, budget_chars: 80_000 };

    fn list(statuses: &[(&str, usize)]) -> String {
        let mut tasks = Vec::new();
        for (status, number) in statuses {
            for n in 0..*number {
                tasks.push(serde_json::json!({
                    "id": format!("{status}-{n}"), "title": format!("Task {n} of {status}"), "status": status,
                    "updatedAt": format!("2026-01-{:02}", n + 1),
                }));
            }
        }
        serde_json::to_string(&tasks).unwrap()
    }

    #[test]
    fn the_table_of_the_seed() {
        assert_eq!(kanban_list(&list(&[("todo", 10)]), &CTX), None, "ten are few");
        let reduced = kanban_list(&list(&[("todo", 8), ("done", 5)]), &CTX).unwrap();
        assert!(
            reduced.starts_with("Counts by status: todo=8, done=5. Top 5 open: todo-7: Task 7 of todo; "),
            "{reduced}"
        );
        assert!(!reduced.contains("todo-2:"), "{reduced}");
        let numbers: Vec<Value> = (0..12)
            .map(|n| serde_json::json!({"id": n, "title": "t", "status": "todo", "updatedAt": 1_770_000_000_000_u64 + n % 9}))
            .collect();
        let reduced = kanban_list(&serde_json::to_string(&numbers).unwrap(), &CTX).unwrap();
        assert!(reduced.contains("Top 5 open: 8: t; 7: t; 6: t; 5: t; 4: t."), "{reduced}");
        let done = kanban_list(&list(&[("done", 11)]), &CTX).unwrap();
        assert!(done.contains("Top 0 open"), "{done}");
        for text in ["no JSON", "{foo}", "{}", "[]", "null", "\"todo\""] {
            assert_eq!(kanban_list(text, &CTX), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_task_is_counted_too() {
        let strange = r#"[null, 1, "x", {}, {"status": null}, {"status": "", "id": 7}, {"title": {"a": 1}}, [], true, {"status": "todo", "id": 7, "title": 9}, {"status": ["a"], "id": "x"}]"#;
        let reduced = kanban_list(&strange.replace(", ", ",                         "), &CTX).unwrap();
        assert!(
            reduced.starts_with("Counts by status: unknown=10, todo=1. Top 5 open: ?: (no title)"),
            "{reduced}"
        );
    }

    #[test]
    fn many_statuses_are_cut() {
        let statuses: Vec<String> = (0..500).map(|n| format!("s{n}")).collect();
        let pairs: Vec<(&str, usize)> = statuses.iter().map(|s| (s.as_str(), 1)).collect();
        let reduced = kanban_list(&list(&pairs), &CTX).unwrap();
        assert!(reduced.contains("s19=1, 480 more. Top 5 open"), "{reduced}");
    }
}
