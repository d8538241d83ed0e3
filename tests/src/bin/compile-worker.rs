//! A program that only serves as a compile worker, for the tests.

fn main() -> std::io::Result<()> {
    assert_eq!(std::env::args().nth(1).as_deref(), Some(toolbay::COMPILE_WORKER), "started by a test");
    toolbay::run_worker().expect("it is one")
}
