//! Short texts in all fields, with content that a terminal or a model would obey.

guest::metadata!(|| {
    let bad = || String::from("a\u{1b}[2J\u{7}\0\r\n\u{202e}b");
    vec![guest::ToolDef {
        title: Some(bad()),
        description: bad(),
        toolset: Some(bad()),
        tags: vec![bad(), String::new()],
        ..guest::definition("controlled")
    }]
});
