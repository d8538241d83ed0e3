//! A program that only serves as a compile worker, for the tests.

fn main() -> std::io::Result<()> {
    toolbay::run_worker().unwrap_or_else(|| Err(std::io::Error::other("only a test starts this program")))
}
