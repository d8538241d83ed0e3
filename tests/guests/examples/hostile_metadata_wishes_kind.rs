//! A tool that declares more of one kind than the host compares with a policy.

guest::metadata!(|| {
    let wish = |n: usize| guest::Capability {
        kind: "env".to_owned(),
        target: format!("V{n}"),
        optional: true,
        reason: None,
    };
    vec![guest::ToolDef { capabilities: (0..33).map(wish).collect(), ..guest::definition("t") }]
});
