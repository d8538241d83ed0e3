//! A tool that asks for more than anybody may have.

guest::metadata!(|| vec![guest::ToolDef {
    max_result_chars: Some(u32::MAX),
    timeout_ms: Some(u32::MAX),
    ..guest::definition("most")
}]);
