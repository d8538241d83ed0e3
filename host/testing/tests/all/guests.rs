//! What a test sees of components: clock, randomness, limits, files, faults.

use std::time::Duration;

use serde_json::{Value, json};
use toolbay_testing::{FakeClock, TestHost};

/// A guest that reports its view.
fn look(host: &TestHost, tool: &str) -> Value {
    host.call(tool, json!({})).structured()
}

#[test]
fn the_clock_is_the_tests_and_goes_when_it_says_so() {
    let clock = FakeClock::at("2030-01-01T00:00:00Z").with_step(Duration::from_millis(1));
    let host = TestHost::of_file("e", guest_artifacts::CAP_ENVIRONMENT).clock(&clock).start();
    let first = look(&host, "time");
    let began = 1_893_456_000_000_u64;
    let at = |said: &Value| said["unix_ms"].as_u64().unwrap();
    assert!((began..began + 100).contains(&at(&first)), "{first}");
    // It slept for 20 ms of real time, and the clock advanced with each of its reads.
    assert!(first["elapsed_ms"].as_u64().unwrap() < 20, "{first}");
    clock.advance(Duration::from_secs(60));
    assert!((began + 60_000..began + 60_200).contains(&at(&look(&host, "time"))));
    // A tool that does not declare `clock` does not see it.
    assert_eq!(at(&look(&host, "nothing")), 1_735_689_600_000);
}

#[test]
fn chance_is_that_of_the_seed() {
    let draw = |seed| {
        let host = TestHost::of_file("e", guest_artifacts::CAP_ENVIRONMENT).random_seed(seed).start();
        [look(&host, "chance"), look(&host, "chance")].map(|said| said["random"].clone())
    };
    let [first, second] = draw(1);
    assert_ne!(first, second, "a call continues where the one before ended");
    assert_eq!(draw(1), [first.clone(), second]);
    assert_ne!(draw(2)[0], first);
}

#[test]
fn a_limit_ends_a_call_in_a_fault() {
    let host = TestHost::of_file("s", guest_artifacts::HOSTILE_SPIN).limit("fuel", 1_000_000).start();
    let ended = host.call("spin", json!({}));
    assert_eq!((ended.outcome(), ended.fault().kind.as_str()), ("out_of_fuel", "out_of_fuel"));
    assert_eq!(ended.fault().limit.as_ref().map(|limit| limit.name), Some("fuel"));
}

#[test]
fn files_are_a_copy() {
    let host = TestHost::of_file("files", guest_artifacts::PLUGIN_FILES).files("tests/files").start();
    assert!(host.call("read_file", json!({"path": "notes/one.txt"})).text().contains("first note"));
    let written = host.call("write_file", json!({"path": "notes/one.txt", "content": "changed"}));
    assert!(written.text().contains("7 bytes"), "{}", written.text());
    assert_eq!(std::fs::read_to_string(host.workspace().join("notes/one.txt")).unwrap(), "changed");
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files/notes/one.txt");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "first note\n");
}

#[test]
#[should_panic(expected = "hash__hash_text gave no error, but the result")]
fn what_came_otherwise_is_told() {
    let host = TestHost::of_file("hash", guest_artifacts::PLUGIN_HASH).start();
    drop(host.call("hash_text", json!({"text": "a"})).error().clone());
}

#[test]
fn a_file_that_is_no_component_is_told() {
    let problem = TestHost::of_file("a", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).try_start();
    assert!(problem.unwrap_err().contains("Cargo.toml"));
}
