//! `list-tools` answers 32 MiB: more than may cross to the host, less than the memory it may have.

guest::metadata!(|| vec![guest::ToolDef { description: "x".repeat(32 << 20), ..guest::definition("large") }]);
