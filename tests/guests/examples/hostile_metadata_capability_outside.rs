//! File capabilities outside every folder, or that no host understands.

use guest::{Capability, ToolDef, definition};

guest::metadata!(|| {
    let target = |(number, target): (usize, &str)| ToolDef {
        capabilities: vec![Capability {
            kind: "fs-read".into(),
            target: target.into(),
            optional: true,
            reason: None,
        }],
        ..definition(format!("target_{number}"))
    };
    ["/**", "../**", "$workspace/../**", "", "**/*.rs"].into_iter().enumerate().map(target).collect()
});
