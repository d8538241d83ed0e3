//! A schema for something other than an object.

guest::metadata!(|| vec![guest::ToolDef {
    input_schema: r#"{"type":"string"}"#.into(),
    ..guest::definition("bad_schema")
}]);
