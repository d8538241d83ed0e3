//! Tests of the bounds on tasks, and of their input requests.

use serde_json::json;
use toolbay_core::call::dialog::DialogRequestKind;

use super::*;

const LIFE: Duration = Duration::from_secs(60);

fn store(limits: TaskLimits) -> TaskTable {
    TaskTable { limits, ..TaskTable::default() }
}

fn owner(name: &str) -> Arc<str> {
    name.into()
}

fn create(store: &TaskTable, name: &str) -> Option<Arc<CallTask>> {
    store.create(&owner(name), CancellationToken::new(), LIFE)
}

fn result_of(bytes: usize) -> Result<Box<RawValue>, ErrorData> {
    Ok(RawValue::from_string(format!("\"{}\"", "x".repeat(bytes - 2))).unwrap())
}

fn form(key: &str) -> DialogRequest {
    let schema = json!({"type": "object", "properties": {}});
    DialogRequest::new(key, DialogRequestKind::Elicit, json!({"message": "Sure?", "requestedSchema": schema}))
}

#[test]
fn the_number_of_tasks_is_bounded_for_one_client_and_for_all() {
    let store = store(TaskLimits { count: 2, total_count: 3, ..TaskLimits::default() });
    let first = create(&store, "a").unwrap();
    let _second = create(&store, "a").unwrap();
    assert!(create(&store, "a").is_none(), "two of one client");
    let _third = create(&store, "b").unwrap();
    assert!(create(&store, "c").is_none(), "three of all clients");
    store.finish(&first, result_of(10));
    assert!(create(&store, "a").is_none(), "a task that has ended still counts");
    store.remove(&first);
    assert!(create(&store, "c").is_some());
}

#[test]
fn results_are_bounded_for_one_client_and_for_all() {
    let store = store(TaskLimits { bytes: 100, total_bytes: 150, ..TaskLimits::default() });
    let (first, second) = (create(&store, "a").unwrap(), create(&store, "a").unwrap());
    store.finish(&first, result_of(60));
    store.finish(&second, result_of(60));
    assert_eq!((first.result_bytes(), second.result_bytes()), (60, 0));
    let error = second.result().unwrap().unwrap_err();
    assert!(
        error.message.contains("60 bytes does not fit") && error.message.contains("100 bytes"),
        "{error:?}"
    );
    let third = create(&store, "a").unwrap();
    store.finish(&third, result_of(40));
    assert!(create(&store, "a").is_none(), "the results of this client reach the limit");
    let (other, late) = (create(&store, "b").unwrap(), create(&store, "c").unwrap());
    store.finish(&other, result_of(50));
    assert_eq!(other.result_bytes(), 50);
    store.finish(&late, result_of(10));
    assert_eq!(late.summary().status, TaskStatus::Failed, "the results of all clients reach the limit");
    assert!(create(&store, "d").is_none());
    store.remove(&first);
    assert!(create(&store, "d").is_some(), "the results of a removed task do not count");
}

#[test]
fn a_task_is_unknown_to_others_and_after_its_life() {
    let store = store(TaskLimits::default());
    let task = create(&store, "a").unwrap();
    assert!(store.find("a", task.id()).is_ok() && store.find("b", task.id()).is_err());
    assert!(store.cancel("b", task.id()).is_err() && !task.cancel.is_cancelled());
    assert_eq!((store.list("a").len(), store.list("b").len()), (1, 0));
    let expired = store.create(&owner("a"), CancellationToken::new(), Duration::ZERO).unwrap();
    assert!(store.find("a", expired.id()).is_err());
    assert_eq!(store.list("a").len(), 1);
}

#[test]
fn a_cancelled_task_stays_cancelled() {
    let store = store(TaskLimits::default());
    let task = create(&store, "a").unwrap();
    assert!(store.cancel("a", task.id()).unwrap().1 && task.cancel.is_cancelled());
    store.finish(&task, result_of(10));
    assert_eq!((task.summary().status, task.result_bytes()), (TaskStatus::Cancelled, 0));
    assert!(!store.cancel("a", task.id()).unwrap().1);
    assert!(task.result().unwrap().is_err());
    let done = create(&store, "a").unwrap();
    store.finish(&done, result_of(10));
    assert!(!store.cancel("a", done.id()).unwrap().1);
    assert_eq!(done.summary().status, TaskStatus::Completed, "a task that has ended cannot be cancelled");
}

#[test]
fn a_status_message_is_cut() {
    let store = store(TaskLimits::default());
    let task = create(&store, "a").unwrap();
    task.set_message(&"ä".repeat(MAX_STATUS_MESSAGE + 1));
    assert_eq!(task.summary().status_message.unwrap().chars().count(), MAX_STATUS_MESSAGE);
}

#[tokio::test]
async fn open_input_requests_are_bounded() {
    let store = store(TaskLimits::default());
    let task = create(&store, "a").unwrap();
    let asks = || (0..MAX_OPEN_REQUESTS).map(|n| form(&n.to_string())).collect::<Vec<_>>();
    let waiting = task.open_requests(asks()).unwrap();
    assert_eq!(task.summary().status, TaskStatus::InputRequired);
    let error = task.ask(vec![form("more")]).await.unwrap_err();
    assert!(error.to_string().contains("input requests at once"), "{error}");
    assert_eq!(task.view().input_requests.unwrap().len(), MAX_OPEN_REQUESTS);
    drop(waiting);
    assert_eq!(
        task.open_requests(asks()).unwrap().len(),
        MAX_OPEN_REQUESTS,
        "abandoned requests do not count"
    );
    assert_eq!(task.ask(vec![]).await.unwrap(), Vec::<Value>::new());
}

#[tokio::test]
async fn a_tool_learns_why_there_is_no_response() {
    let store = store(TaskLimits::default());
    let task = create(&store, "a").unwrap();
    let answered = async {
        let (key, _) = task.next_request().unwrap();
        task.close_request(&key, Err("the client sent an invalid response".to_owned()));
        task.request_closed(&key).await;
    };
    let (answer, ()) = tokio::join!(task.ask(vec![form("a")]), answered);
    assert!(answer.unwrap_err().to_string().contains("an invalid response"));
    assert_eq!(task.summary().status, TaskStatus::Working);
    let (answer, _) =
        tokio::join!(task.ask(vec![form("b")]), async { store.cancel("a", task.id()).unwrap() });
    assert!(answer.unwrap_err().to_string().contains("the task has ended"));
    assert!(task.ask(vec![form("c")]).await.is_err());
}
