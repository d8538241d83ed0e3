//! An output schema that is not JSON.

guest::metadata!(|| vec![guest::ToolDef {
    output_schema: Some("{type: object".into()),
    ..guest::definition("bad_schema")
}]);
