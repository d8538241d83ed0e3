//! A schema that is not JSON.

guest::metadata!(|| vec![guest::ToolDef {
    input_schema: "{type: object".into(),
    ..guest::definition("bad_schema")
}]);
