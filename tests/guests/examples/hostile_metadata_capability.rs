//! A capability whose kind and reason contain terminal control characters.

use guest::{Capability, ToolDef, definition};

guest::metadata!(|| {
    let wish = |name: &str, optional| ToolDef {
        capabilities: vec![Capability {
            kind: "root\u{1b}[2J".into(),
            target: "everything\n".into(),
            optional,
            reason: Some("please\u{1b}[2J".into()),
        }],
        ..definition(name)
    };
    vec![wish("needs", false), wish("wishes", true)]
});
