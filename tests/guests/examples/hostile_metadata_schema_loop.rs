//! A schema that refers to itself.

guest::metadata!(|| {
    let input_schema = r##"{"type":"object","$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}"##;
    vec![guest::ToolDef { input_schema: input_schema.into(), ..guest::definition("bad_schema") }]
});
