//! A profile never widens a grant, whatever the policy and the declarations say.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::capability::{Capability, CapabilityKind};
use crate::rule::{GrantRule, covers};

const W: &str = "/w";

fn covers_all<R: GrantRule>(outer: &[R], inner: &[R]) -> bool {
    inner.iter().all(|inner| outer.iter().any(|outer| covers(outer, inner)))
}

/// Lists of a section; some are absent, some empty.
fn lists() -> impl Strategy<Value = String> {
    let some = |key: &'static str, lines: &'static [&'static str]| {
        let lines = prop::sample::subsequence(lines, 0..=lines.len());
        prop::option::of(lines).prop_map(move |lines| match lines {
            Some(lines) => format!("{key} = {}\n", serde_json::to_string(&lines).unwrap()),
            None => String::new(),
        })
    };
    let switch = |key: &'static str| {
        prop::option::of(any::<bool>())
            .prop_map(move |on| on.map_or_else(String::new, |on| format!("{key} = {on}\n")))
    };
    (
        some("fs_read", &["$workspace", "$workspace/in", "$workspace/in/deep", "/srv", "**"]),
        some("fs_write", &["$workspace/out", "/srv/x", "**"]),
        some("kv", &["tool", "plugin", "session", "agent"]),
        some("env", &["TZ", "TZ=UTC", "LANG"]),
        some("attachments", &["read", "read image/*", "read image/png", "create"]),
        switch("clock"),
        switch("random"),
    )
        .prop_map(|(a, b, c, d, e, f, g)| a + &b + &c + &d + &e + &f + &g)
}

fn declared() -> impl Strategy<Value = Vec<Capability>> {
    let wish = prop::sample::select(vec![
        ("fs-read", "**"),
        ("fs-read", "$workspace/in"),
        ("fs-write", "**"),
        ("fs-write", "/srv"),
        ("kv", "tool"),
        ("kv", "agent"),
        ("env", "TZ"),
        ("attachments", "read"),
        ("attachments", "create image/png"),
        ("clock", ""),
        ("random", ""),
        ("fs-read", "from-profile"),
        ("kv", "from-profile"),
        ("env", "from-profile"),
    ]);
    let wish = wish.prop_map(|(kind, target)| Capability {
        kind: CapabilityKind::parse(kind),
        target: target.to_owned(),
        optional: true,
        reason: None,
    });
    prop::collection::vec(wish, 0..6)
}

/// Whether `outer` covers all of `inner`.
fn is_within(inner: &Grants, outer: &Grants) -> bool {
    covers_all(&outer.fs_read, &inner.fs_read)
        && covers_all(&outer.fs_write, &inner.fs_write)
        && covers_all(&outer.net, &inner.net)
        && covers_all(&outer.process, &inner.process)
        && covers_all(&outer.secrets, &inner.secrets)
        && covers_all(&outer.kv, &inner.kv)
        && covers_all(&outer.env, &inner.env)
        && covers_all(&outer.attachments, &inner.attachments)
        && covers_all(&outer.clock, &inner.clock)
        && covers_all(&outer.random, &inner.random)
}

/// All rules in a section's lists, as if a tool had declared everything.
fn all_rules(rules: &RuleLists) -> Grants {
    Grants {
        fs_read: rules.fs_read.clone().unwrap_or_default(),
        fs_write: rules.fs_write.clone().unwrap_or_default(),
        kv: rules.kv.clone().unwrap_or_default(),
        env: rules.env.clone().unwrap_or_default(),
        attachments: rules.attachments.clone().unwrap_or_default(),
        clock: rules.clock.clone().unwrap_or_default(),
        random: rules.random.clone().unwrap_or_default(),
        ..Grants::default()
    }
}

proptest! {
    #[test]
    fn a_profile_never_widens_a_grant(plugin in lists(), tool in lists(), profile in lists(), declared in declared()) {
        let text = format!(
            "version = 1\n[plugins.p.grant]\n{plugin}[plugins.p.tools.t]\n{tool}[profile.x]\n{profile}"
        );
        let policy = Policy::parse(&text, Path::new(W), None).unwrap();
        let (id, name) = (PluginId::new("p").unwrap(), ToolName::new("t").unwrap());
        let under = policy.grant(&id, &name, &declared, Some("x"));
        prop_assert!(is_within(&under, &all_rules(policy.plugin_rules(&id).unwrap())), "beyond the plugin: {under:?}");
        // A `from-profile` declaration gets nothing without a profile. Any other gets no more with a profile than
        // without.
        let (asks_profile, plain): (Vec<_>, Vec<_>) =
            declared.iter().cloned().partition(|wish| wish.target == "from-profile");
        let without = policy.grant(&id, &name, &plain, None);
        prop_assert!(is_within(&policy.grant(&id, &name, &plain, Some("x")), &without));
        prop_assert!(is_within(&policy.grant(&id, &name, &asks_profile, None), &Grants::default()));
        prop_assert!(is_within(&policy.grant(&id, &name, &declared, Some("unknown")), &Grants::default()));
    }
}
