//! A schema of 10 MB.

guest::metadata!(|| {
    let input_schema = format!(r#"{{"type":"object","description":"{}"}}"#, "x".repeat(10_000_000));
    vec![guest::ToolDef { input_schema, ..guest::definition("bad_schema") }]
});
