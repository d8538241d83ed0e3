//! Advice permits the use and nothing more. Advice that would not help is not given.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::capability::CapabilityKind;
use crate::capability::net::NetRule;
use crate::capability::net::address::check_address;
use crate::capability::path_rule::PathRule;
use crate::policy::Grants;

const W: &str = "/w";

/// The tables of a policy, each with its lists as TOML.
type Tables = BTreeMap<String, BTreeMap<String, String>>;

fn to_toml(tables: &Tables) -> String {
    let mut text =
        "version = 1\n[programs.git]\npath = \"/usr/bin/git\"\n[secrets.KEY]\nfrom = \"env:KEY\"\n\
                    headers = [\"authorization\"]\norigins = [\"https://a.example\"]\n"
            .to_owned();
    for (table, lists) in tables {
        text += &format!("{table}\n");
        for (key, list) in lists {
            text += &format!("{key} = {list}\n");
        }
    }
    text
}

/// Replaces lists of the tables by the advised ones.
fn with_advice(mut tables: Tables, lists: &[PolicyLine]) -> Tables {
    for list in lists {
        tables.entry(list.table.clone()).or_default().insert(list.key.clone(), list.value.to_string());
    }
    tables
}

/// A kind of capability: lines for lists, and uses, each with a neighbor that must stay refused.
struct AdviceCase {
    kind: &'static str,
    key: GrantKey,
    target: &'static str,
    lines: &'static [&'static str],
    uses: &'static [(&'static str, &'static str)],
}

const KINDS: [AdviceCase; 6] = [
    AdviceCase {
        kind: "fs-read",
        key: GrantKey::FsRead,
        target: "**",
        lines: &["$workspace/in", "/srv/*.csv", "$workspace/**/*.rs", "!**/.env", "!$workspace/in/private"],
        uses: &[
            ("$workspace/notes.txt", "$workspace/other.txt"),
            ("$workspace/in/a", "$workspace/out/a"),
            ("/srv/a.txt", "/srv/b.txt"),
            ("$workspace/.env", "$workspace/x"),
            ("$workspace/in/private/a", "/etc/passwd"),
        ],
    },
    AdviceCase {
        kind: "fs-write",
        key: GrantKey::FsWrite,
        target: "$workspace/**",
        lines: &["$workspace/out", "$workspace"],
        uses: &[("$workspace/out/a", "/srv/a"), ("/srv/a", "/srv/b")],
    },
    AdviceCase {
        kind: "net",
        key: GrantKey::Net,
        target: "https://*",
        lines: &[
            "GET https://a.example",
            "https://*.example",
            "https://b.example/v1",
            "!a.example",
            "!*.test",
        ],
        uses: &[
            ("GET https://c.test", "GET https://d.test"),
            ("POST https://a.example", "DELETE https://c.test"),
        ],
    },
    AdviceCase {
        kind: "process",
        key: GrantKey::Process,
        target: "git *",
        lines: &["git status *", "git log"],
        uses: &[("git push origin", "git push other"), ("git status -s", "git gc")],
    },
    AdviceCase {
        kind: "kv",
        key: GrantKey::Kv,
        target: "tool",
        lines: &["tool", "plugin"],
        uses: &[("tool", "agent"), ("session", "agent")],
    },
    AdviceCase {
        kind: "invoke",
        key: GrantKey::Invoke,
        target: "*",
        lines: &["text__*", "files__read_file"],
        uses: &[("files__write_file", "files__remove"), ("text__a", "other__b")],
    },
];

/// An absent list, or some of the lines. A list of exclusions alone is invalid.
fn list(lines: &'static [&'static str]) -> impl Strategy<Value = Option<String>> {
    let some = prop::sample::subsequence(lines, 0..=lines.len());
    prop::option::of(some).prop_map(|lines| {
        let lines = lines?;
        let only_excludes = !lines.is_empty() && lines.iter().all(|line| line.starts_with('!'));
        (!only_excludes).then(|| serde_json::to_string(&lines).unwrap())
    })
}

fn case() -> impl Strategy<Value = (usize, usize, Tables, bool, bool)> {
    (0..KINDS.len()).prop_flat_map(|kind| {
        let AdviceCase { key, lines, uses, .. } = &KINDS[kind];
        let tables = (list(lines), list(lines), list(lines)).prop_map(|(grant, tool, profile)| {
            let tables =
                [("[plugins.p.grant]", grant), ("[plugins.p.tools.t]", tool), ("[profile.q]", profile)];
            let lists = |list: Option<String>| list.into_iter().map(|list| (key.name().to_owned(), list));
            tables.map(|(table, list)| (table.to_owned(), lists(list).collect())).into()
        });
        (Just(kind), 0..uses.len(), tables, any::<bool>(), any::<bool>())
    })
}

fn covered(grants: &Grants, key: GrantKey, wish: &str) -> bool {
    fn any<R: GrantRule>(rules: &[R], wish: &str) -> bool {
        let wish = R::parse(wish, Path::new(W)).unwrap();
        rules.iter().any(|rule| rule::covers(rule, &wish))
    }
    let reached = |reaches: &[PathRule], wish: &str| {
        let path = PathRule::parse(wish, Path::new(W)).unwrap();
        reaches.iter().any(|reach| reach.allows(path.folder()))
    };
    match key {
        GrantKey::FsRead => reached(&grants.fs_read, wish),
        GrantKey::FsWrite => reached(&grants.fs_write, wish),
        GrantKey::Net => {
            let wish = NetRule::parse(wish, Path::new(W)).unwrap();
            grants.net.iter().any(|rule| rule.permits(&wish))
        }
        GrantKey::Process => any(&grants.process, wish),
        GrantKey::Kv => any(&grants.kv, wish),
        _ => any(&grants.invoke, wish),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn advice_permits_the_use_and_nothing_more(
        (kind, at, tables, under_profile, declares) in case()
    ) {
        let AdviceCase { kind, key, target, uses, .. } = KINDS[kind];
        let (wish, neighbour) = uses[at];
        let (plugin, tool) = (PluginId::new("p").unwrap(), ToolName::new("t").unwrap());
        let profile = under_profile.then_some("q");
        let declared = declares.then(|| Capability {
            kind: CapabilityKind::parse(kind),
            target: target.to_owned(),
            optional: true,
            reason: None,
        });
        let declared: Vec<Capability> = declared.into_iter().collect();
        let parse = |tables: &Tables| Policy::parse(&to_toml(tables), Path::new(W), None);
        // An exclusion can cover a whole line, which makes the policy invalid.
        let Ok(policy) = parse(&tables) else { return Ok(()) };
        let grants = |policy: &Policy| policy.grant(&plugin, &tool, &declared, profile);
        let before = grants(&policy);
        let of = AccessQuery { plugin: &plugin, tool: &tool, profile, key, line: wish };
        match policy.advise(of, &declared) {
            Advice::AlreadyGranted => prop_assert!(covered(&before, key, wish), "nothing is missing, and it is refused"),
            Advice::Write { prerequisite, lists } => {
                prop_assert_eq!(prerequisite, None);
                prop_assert!(!covered(&before, key, wish), "advice for what is granted");
                for list in &lists {
                    let LineValue::List(texts) = &list.value else { continue };
                    let lines: std::collections::BTreeSet<&String> = texts.iter().collect();
                    prop_assert_eq!(lines.len(), texts.len(), "a line stands there twice: {:?}", list);
                }
                let policy = parse(&with_advice(tables, &lists));
                prop_assert!(policy.is_ok(), "{:?} is not valid: {:?}", lists, policy.err());
                let after = grants(&policy.unwrap());
                prop_assert!(covered(&after, key, wish), "{:?} does not help", lists);
                prop_assert_eq!(covered(&after, key, neighbour), covered(&before, key, neighbour), "{:?}", lists);
            }
            Advice::Impossible(why) => {
                prop_assert!(!covered(&before, key, wish), "{}", why);
                let excluded = why.contains('!');
                prop_assert!(excluded || why.contains("does not declare"), "{}", why);
            }
        }
    }
}

#[test]
fn advice_names_a_missing_definition_first() {
    let policy = Policy::parse("version = 1", Path::new(W), None).unwrap();
    let (plugin, tool) = (PluginId::new("p").unwrap(), ToolName::new("t").unwrap());
    for (kind, key, wish, first) in [
        ("process", GrantKey::Process, "git status", "[programs.git]"),
        ("secret", GrantKey::Secrets, "KEY", "[secrets.\"KEY\"]"),
    ] {
        let declared = Capability {
            kind: CapabilityKind::parse(kind),
            target: wish.to_owned(),
            optional: true,
            reason: None,
        };
        let of = AccessQuery { plugin: &plugin, tool: &tool, profile: None, key, line: wish };
        let hint = policy.advise(of, [&declared]).hint().to_string();
        assert!(hint.contains(first) && hint.contains("[plugins.p.grant]"), "{hint}");
    }
    // A use that no policy line can express.
    let long = "x".repeat(5000);
    let of = AccessQuery { plugin: &plugin, tool: &tool, profile: None, key: GrantKey::FsRead, line: &long };
    assert!(matches!(policy.advise(of, []), Advice::Impossible(_)));
}

/// The address of a metadata service is allowed only by itself, so the lines are offered at each level that has a wider
/// network, and they are enough.
#[test]
fn advice_names_the_exact_address_of_a_metadata_service() {
    let text = "version = 1\n[plugins.p.grant]\nnet = [\"https://*\"]\nnet_private = [\"169.254.0.0/16\"]\n[profile.q]\n\
                net_private = [\"169.254.0.0/16\"]\n";
    let policy = Policy::parse(text, Path::new(W), None).unwrap();
    let (plugin, tool) = (PluginId::new("p").unwrap(), ToolName::new("t").unwrap());
    let of = |line| AccessQuery {
        plugin: &plugin,
        tool: &tool,
        profile: Some("q"),
        key: GrantKey::NetPrivate,
        line,
    };
    assert_eq!(policy.advise(of("169.254.1.1/32"), []), Advice::AlreadyGranted);
    let hint = policy.advise(of("169.254.169.254/32"), []).hint().to_string();
    let (_, lines) = hint.split_once(":\n").unwrap();
    let policy = Policy::parse(
        &format!("version = 1\n{}", lines.replacen("grant]\n", "grant]\nnet = [\"https://*\"]\n", 1)),
        Path::new(W),
        None,
    );
    let policy = policy.unwrap();
    let net = Capability {
        kind: CapabilityKind::parse("net"),
        target: "https://*".to_owned(),
        optional: false,
        reason: None,
    };
    let granted = policy.grant(&plugin, &tool, &[net], Some("q"));
    let ip = "169.254.169.254".parse().unwrap();
    assert_eq!(check_address("169.254.169.254", ip, &granted.net_private), Ok(()), "{hint}");
}

#[test]
fn the_hint_for_several_uses_is_one_block() {
    let list = |table: &str, key: GrantKey, line: &str| {
        let lines = LineValue::List(vec!["a".to_owned(), line.to_owned()]);
        Advice::Write { prerequisite: None, lists: vec![PolicyLine::new(table, key.name(), lines)] }
    };
    let parts = [
        list("[x]", GrantKey::FsWrite, "b"),
        list("[y]", GrantKey::Net, "c"),
        list("[x]", GrantKey::FsRead, "d"),
        Advice::AlreadyGranted,
        list("[x]", GrantKey::FsWrite, "e"),
        Advice::Impossible("No.".to_owned()),
    ];
    assert_eq!(
        Advice::joint_hint(&parts).to_string(),
        "No. To allow it, write in the policy:\n[x]\nfs_write = [\"a\", \"b\", \"e\"]\nfs_read = [\"a\", \"d\"]\n[y]\n\
         net = [\"a\", \"c\"]"
    );
    assert_eq!(Advice::joint_hint([]), Advice::AlreadyGranted.hint());
}

#[test]
fn an_exclusion_is_named_with_its_tables() {
    let text = "version = 1\n[plugins.p.grant]\nfs_read = [\"$workspace\", \"!**/b\"]\n[profile.q]\n\
                fs_read = [\"$workspace\", \"!**/a\", \"!**/b\"]\n";
    let policy = Policy::parse(text, Path::new(W), None).unwrap();
    let (plugin, tool) = (PluginId::new("p").unwrap(), ToolName::new("t").unwrap());
    let of =
        |line| AccessQuery { plugin: &plugin, tool: &tool, profile: Some("q"), key: GrantKey::FsRead, line };
    for (line, expected) in
        [("!**/a", "[profile.q]"), ("!**/b", "[plugins.p.grant] and [profile.q]"), ("!**/c", "the policy")]
    {
        assert_eq!(policy.tables_with_line(of(line)), expected);
    }
}

#[test]
fn a_refusal_names_the_list_that_refuses() {
    let policy = r#"
        version = 1
        [plugins.f.grant]
        fs_read = ["$workspace", "!**/.env"]
        [plugins.f.tools.t]
        fs_read = ["$workspace/out", "$workspace/in"]
        [profile.careful]
        fs_read = ["$workspace/in"]
        [profile.other]
        fs_write = []
    "#;
    let policy = Policy::parse(policy, Path::new(W), None).unwrap();
    let (plugin, tool) = (PluginId::new("f").unwrap(), ToolName::new("t").unwrap());
    let of_tool = r#"[plugins.f.tools.t] fs_read = ["$workspace/out", "$workspace/in", "$workspace/notes"]"#;
    let both = format!(r#"{of_tool} [profile.careful] fs_read = ["$workspace/in", "$workspace/notes"]"#);
    let of_plugin = r#"[plugins.f.grant] fs_read = ["$workspace", "!**/.env", "/srv"]"#;
    let of_both =
        format!(r#"{of_plugin} [plugins.f.tools.t] fs_read = ["$workspace/out", "$workspace/in", "/srv"]"#);
    let declared =
        Capability { kind: CapabilityKind::FsRead, target: "**".to_owned(), optional: true, reason: None };
    for (profile, wish, expected) in [
        (None, "$workspace/notes", of_tool),
        (None, "/srv", &of_both),
        // Only the profile refuses.
        (
            Some("careful"),
            "$workspace/out",
            r#"[profile.careful] fs_read = ["$workspace/in", "$workspace/out"]"#,
        ),
        // Both the tool's section and the profile refuse.
        (Some("careful"), "$workspace/notes", &both),
        (Some("other"), "$workspace/notes", of_tool),
        (
            Some("gone"),
            "$workspace/notes",
            "The policy has no profile `gone`, so nothing is granted under it.",
        ),
        (
            None,
            "$workspace/.env",
            "`!**/.env` in `fs_read` of [plugins.f.grant] excludes `$workspace/.env`, so no further line would help.",
        ),
    ] {
        let of = AccessQuery { plugin: &plugin, tool: &tool, profile, key: GrantKey::FsRead, line: wish };
        let hint = policy.advise(of, [&declared]).hint().to_string().replace('\n', " ");
        assert_eq!(
            hint.trim_start_matches("To allow it, write in the policy: "),
            expected,
            "{profile:?} {wish}"
        );
    }
}
