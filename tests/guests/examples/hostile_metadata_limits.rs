//! A tool that requests more than the maximum of each limit, and one that requests nothing.

guest::metadata!(|| {
    let asks = |name: &str, number| guest::ToolDef {
        max_result_chars: Some(number),
        timeout_ms: Some(number),
        ..guest::definition(name)
    };
    vec![asks("most", u32::MAX), asks("least", 0)]
});
