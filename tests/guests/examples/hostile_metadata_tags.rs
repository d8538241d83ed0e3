//! Tags and a toolset with text that a terminal or a model would obey.

guest::metadata!(|| {
    let bad = || String::from("a\u{1b}[2J\u{7}\0\r\n\u{202e}b");
    vec![guest::ToolDef {
        toolset: Some(bad()),
        tags: vec![bad(), String::new()],
        ..guest::definition("tagged")
    }]
});
