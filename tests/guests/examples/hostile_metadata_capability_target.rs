//! A capability whose target contains a path terminator.

use guest::{Capability, ToolDef, definition};

guest::metadata!(|| vec![ToolDef {
    capabilities: vec![Capability {
        kind: "fs-read".into(),
        target: "$workspace/a\0b/**".into(),
        optional: true,
        reason: None,
    }],
    ..definition("reads")
}]);
