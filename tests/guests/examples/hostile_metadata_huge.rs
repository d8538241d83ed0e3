//! `list-tools` answers 64 MiB: as much as the memory it may have.

guest::metadata!(|| vec![guest::ToolDef { description: "x".repeat(64 << 20), ..guest::definition("huge") }]);
