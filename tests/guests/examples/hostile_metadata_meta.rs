//! Metadata that is not a JSON object.

guest::metadata!(|| vec![guest::ToolDef { meta: Some("[1]".into()), ..guest::definition("meta") }]);
