//! A tool that asks for no time and no result.

guest::metadata!(|| vec![guest::ToolDef {
    max_result_chars: Some(0),
    timeout_ms: Some(0),
    ..guest::definition("least")
}]);
