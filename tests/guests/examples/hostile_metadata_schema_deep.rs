//! A schema with 100,000 levels.

guest::metadata!(|| {
    let (open, close) = (r#"{"type":"object","not":"#.repeat(100_000), "}".repeat(100_000));
    vec![guest::ToolDef { input_schema: format!("{open}true{close}"), ..guest::definition("bad_schema") }]
});
