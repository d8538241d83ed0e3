//! A capability that no host has: needed by one tool, wished for by another.

use guest::{Capability, ToolDef, definition};

guest::metadata!(|| {
    let wish = |name: &str, optional| ToolDef {
        capabilities: vec![Capability {
            kind: "root".into(),
            target: "everything".into(),
            optional,
            reason: None,
        }],
        ..definition(name)
    };
    vec![wish("needs", false), wish("wishes", true)]
});
