//! All traits at once, `always-include` among them.

guest::metadata!(|| vec![guest::ToolDef { traits: guest::ToolTraits::all(), ..guest::definition("traits") }]);
