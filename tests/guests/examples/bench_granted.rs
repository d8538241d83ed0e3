//! Like `bench_echo`, but declares every capability and uses none, to measure the cost of unused grants.

use guest::{Capability, ToolDef, definition, text};

const WISHES: &[(&str, &str)] = &[
    ("fs-read", "$workspace/**"),
    ("fs-write", "$workspace/**"),
    ("net", "https://api.example.com"),
    ("process", "git"),
    ("secret", "token"),
    ("kv", "plugin"),
    ("env", "LANG"),
    ("attachments", "read"),
    ("clock", ""),
    ("random", ""),
];

guest::tools_by!(
    || {
        let wish = |&(kind, target): &(&str, &str)| Capability {
            kind: kind.into(),
            target: target.into(),
            optional: true,
            reason: None,
        };
        vec![ToolDef { capabilities: WISHES.iter().map(wish).collect(), ..definition("echo") }]
    },
    |_, args| text(args)
);
