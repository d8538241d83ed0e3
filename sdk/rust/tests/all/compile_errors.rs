//! What the compiler says of mistakes: each case is a program that does not compile, with the message that its author
//! reads. `TRYBUILD=overwrite cargo test -p toolbay-sdk --test all compile_errors` rewrites the expected messages.

#[test]
fn mistakes_are_told_with_what_to_write() {
    trybuild::TestCases::new().compile_fail("tests/compile_errors/*.rs");
}
