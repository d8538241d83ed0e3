//! The toolbay command.
fn main() {}
