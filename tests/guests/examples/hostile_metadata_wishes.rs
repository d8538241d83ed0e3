//! Tools that together declare more than the host compares with a policy.

guest::metadata!(|| {
    let wish = |n: usize| guest::Capability {
        kind: "net".to_owned(),
        target: format!("https://{n:0>200}.example"),
        optional: true,
        reason: None,
    };
    let tool = |tool: usize| guest::ToolDef {
        capabilities: (0..32).map(wish).collect(),
        ..guest::definition(format!("t{tool}"))
    };
    (0..10).map(tool).collect()
});
