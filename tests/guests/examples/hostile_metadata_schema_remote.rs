//! A schema with a reference to another machine.

guest::metadata!(|| {
    let input_schema =
        r#"{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:1/schema.json"}}}"#.into();
    vec![guest::ToolDef { input_schema, ..guest::definition("bad_schema") }]
});
