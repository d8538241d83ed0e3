//! A capability whose target holds what ends a path.

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
