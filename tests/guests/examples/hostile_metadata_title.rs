//! A title with text that a terminal or a model would obey.

guest::metadata!(|| vec![guest::ToolDef {
    title: Some("a\u{1b}[2J\u{7}\0\r\n\u{202e}b".into()),
    ..guest::definition("titled")
}]);
