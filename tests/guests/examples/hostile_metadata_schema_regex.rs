//! A schema with a pattern that backtracks forever on the wrong text.

guest::metadata!(|| {
    let input_schema = r#"{"type":"object","properties":{"a":{"type":"string","pattern":"^(a+)+$"}}}"#.into();
    vec![guest::ToolDef { input_schema, ..guest::definition("regex") }]
});
