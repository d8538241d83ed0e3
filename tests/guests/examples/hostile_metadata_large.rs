//! `list-tools` returns 32 MiB: above the transfer limit, below the memory limit.

guest::metadata!(|| vec![guest::ToolDef { description: "x".repeat(32 << 20), ..guest::definition("large") }]);
