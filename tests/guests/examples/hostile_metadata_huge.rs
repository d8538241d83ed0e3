//! `list-tools` returns 64 MiB, the memory limit.

guest::metadata!(|| vec![guest::ToolDef { description: "x".repeat(64 << 20), ..guest::definition("huge") }]);
