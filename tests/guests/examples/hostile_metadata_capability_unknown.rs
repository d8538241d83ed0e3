//! An unknown capability: required by one tool, optional for another.

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
