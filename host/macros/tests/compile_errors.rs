//! What the macros say of mistakes. The first lines of each case show the mistake, the `.stderr` file beside it the
//! message.

#[test]
fn mistakes_are_named() {
    trybuild::TestCases::new().compile_fail("tests/compile_errors/*.rs");
}
