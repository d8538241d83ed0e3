//! Runs the real component of a plugin in its author's tests: in the host that will run it, under chosen grants and
//! limits, with a clock that stands where the test puts it, and with HTTP from a record.
//!
//! A file in the `tests` folder of a plugin:
//!
//! ```no_run
//! use serde_json::json;
//! use toolbay_testing::{FakeClock, TestHost};
//!
//! #[test]
//! fn a_page_is_read() {
//!     let host = TestHost::of_crate()
//!         .allow_net("https://example.com")
//!         .recorded_http("tests/http/page.json")
//!         .start();
//!     let page = host.call("fetch_url", json!({"url": "https://example.com/"}));
//!     assert!(page.text().contains("Example Domain"));
//!     page.golden("page");
//! }
//!
//! #[test]
//! fn a_task_is_dated() {
//!     let clock = FakeClock::at("2026-02-03T04:05:06Z");
//!     let host = TestHost::of_crate().kv("plugin").clock(&clock).start();
//!     let task = host.call("kanban_add", json!({"title": "a"}));
//!     assert_eq!(task.structured()["updatedAt"], "2026-02-03T04:05:06Z");
//! }
//!
//! #[test]
//! fn nothing_is_reached_without_a_grant() {
//!     let host = TestHost::of_crate().start();
//!     let refused = host.call("fetch_url", json!({"url": "https://example.com/"}));
//!     assert_eq!(refused.error().subject.as_deref(), Some("denied"));
//! }
//! ```
//!
//! | what | how |
//! |---|---|
//! | the component | [`TestHost::of_crate`] builds the crate under test, once for each test program; [`TestHost::of_file`] takes one that is there |
//! | grants, settings, limits | [`TestHostBuilder`]; nothing is granted that a test does not name, and a tool gets what it declares of that |
//! | results | [`Called`]: text, structure, error or fault; [`Called::golden`] compares with a file |
//! | HTTP | [`TestHostBuilder::recorded_http`]: answers come from a file, and nothing goes out |
//! | time and chance | [`FakeClock`], [`TestHostBuilder::random_seed`] |
//!
//! Two variables write the files that tests compare with: `TOOLBAY_UPDATE_GOLDEN=1` the golden results,
//! `TOOLBAY_RECORD_HTTP=1` the records, for which the requests go out, as far as the grants reach. Both files are then read
//! by whoever reviews the change.
//!
//! What goes wrong ends the test with a panic that says where, as with `assert!`. The functions wait for the host: call
//! them in plain `#[test]` functions, not in asynchronous ones.

mod builder;
mod called;
mod cassette;
mod component;
mod fake_clock;
mod golden;
mod host;

pub use builder::TestHostBuilder;
pub use called::Called;
pub use fake_clock::FakeClock;
pub use golden::Golden;
pub use host::TestHost;
/// The host's types, for what these functions do not cover.
pub use toolbay;

/// Ends the test.
#[track_caller]
#[expect(clippy::panic, reason = "it is how a test fails")]
fn fail(message: &str) -> ! {
    panic!("{message}")
}

/// The folder of the crate under test: `cargo test` tells it.
fn crate_folder() -> std::path::PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| ".".into(), Into::into)
}

/// Where components are built and compiled code is kept: in the target directory, in which the test program lies.
fn target_folder() -> Option<std::path::PathBuf> {
    let program = std::env::current_exe().ok()?;
    // `target/debug/deps/PROGRAM`.
    Some(program.ancestors().nth(3)?.join("toolbay-testing"))
}

/// Whether a variable is set that writes what tests compare with.
fn is_on(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| !value.is_empty() && value != "0")
}
