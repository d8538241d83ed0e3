//! The built component in the host, with a clock that the test controls.

use std::time::Duration;

use serde_json::json;
use toolbay_testing::{FakeClock, TestHost, TestHostBuilder};

fn board() -> TestHostBuilder {
    TestHost::of_file("kanban", guest_artifacts::PLUGIN_KANBAN)
}

#[test]
fn a_task_knows_when_it_was_changed() {
    let clock = FakeClock::at("2026-02-03T04:05:06Z");
    let host = board().kv("plugin").clock(&clock).start();
    host.call("kanban_add", json!({"title": "Paint the fence"})).golden("added");
    clock.advance(Duration::from_secs(24 * 3600));
    let moved = host.call("kanban_move", json!({"id": "t1", "status": "doing"}));
    assert_eq!(moved.structured()["updatedAt"], 1_770_177_906_000_u64);
    host.call("kanban_list", json!({})).golden("listed");
}

#[test]
fn without_the_clock_all_is_of_one_time() {
    let clock = FakeClock::at("2026-02-03T04:05:06Z");
    let host = board().kv("plugin").clock(&clock).policy("[plugins.kanban.grant]\nclock = false").start();
    let task = host.call("kanban_add", json!({"title": "a"})).structured();
    assert_eq!(task["updatedAt"], 1_735_689_600_000_u64);
}

#[test]
fn without_state_there_is_no_board() {
    let refused = board().start().call("kanban_add", json!({"title": "a"}));
    assert!(
        refused.error().message.contains("it needs `kv` of `plugin`, which is not granted"),
        "{}",
        refused.error().message
    );
}
