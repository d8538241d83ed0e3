//! A tool that requests more than the maximum of each limit.

guest::metadata!(|| vec![guest::ToolDef {
    max_result_chars: Some(u32::MAX),
    timeout_ms: Some(u32::MAX),
    ..guest::definition("most")
}]);
