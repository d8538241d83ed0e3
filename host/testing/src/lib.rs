//! Runs the real component of a plugin in its author's tests: in the real host, under chosen grants and limits, with
//! a clock that the test controls, and with recorded HTTP.
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
//!     assert_eq!(task.structured()["updatedAt"], 1_770_091_506_000_u64);
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
//! | the component | [`TestHost::of_crate`] builds the crate under test, once for each test program; [`TestHost::of_file`] uses an existing file |
//! | grants, settings, limits | [`TestHostBuilder`]; a tool gets what the test grants and the tool declares |
//! | results | [`TestCallResult`]: text, structure, error or fault; [`TestCallResult::golden`] compares with a file |
//! | HTTP | [`TestHostBuilder::recorded_http`]: responses come from a file, and no request is sent |
//! | clock and randomness | [`FakeClock`], [`TestHostBuilder::random_seed`] |
//!
//! Two variables write the files that tests compare with: `TOOLBAY_UPDATE_GOLDEN=1` writes golden results, and
//! `TOOLBAY_RECORD_HTTP=1` sends the requests, within the grants, and writes the records. Review both files with the
//! change.
//!
//! A failure ends the test with a panic that names the line, as with `assert!`. The functions block until the host is
//! done: call them in plain `#[test]` functions, not in asynchronous ones.

mod builder;
mod called;
mod cassette;
mod component;
mod fake_clock;
mod golden;
mod host;

pub use builder::TestHostBuilder;
pub use called::TestCallResult;
pub use fake_clock::FakeClock;
pub use golden::GoldenFile;
pub use host::TestHost;
/// The types of the host, for cases that these functions do not cover.
pub use toolbay;

/// Fails the test.
#[track_caller]
#[expect(clippy::panic, reason = "it is how a test fails")]
fn fail(message: &str) -> ! {
    panic!("{message}")
}

/// The folder of the crate under test, from `cargo test`.
fn crate_folder() -> std::path::PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| ".".into(), Into::into)
}

/// The folder of components and compiled code: in the target directory that contains the test program.
fn target_folder() -> Option<std::path::PathBuf> {
    let program = std::env::current_exe().ok()?;
    // `target/debug/deps/PROGRAM`.
    Some(program.ancestors().nth(3)?.join("toolbay-testing"))
}

/// Whether a variable asks to write the files that tests compare with.
fn is_on(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| !value.is_empty() && value != "0")
}
