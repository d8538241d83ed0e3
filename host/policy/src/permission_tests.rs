use super::*;
use serde_json::json;

fn tool<'a>(source: &'a str, name: &'a str, tags: &'a [&'a str]) -> PermissionSubject<'a> {
    let source = match source {
        "" => SourceLabel { kind: "builtin", name: "" },
        plugin => SourceLabel { kind: "plugin", name: plugin },
    };
    PermissionSubject { name, full_name: name, source, tags, needs_approval: false, unchecked: None }
}

fn rules(text: &str) -> Permissions {
    #[derive(Deserialize)]
    struct File {
        rule: Vec<PermissionRule>,
    }
    Permissions::new(toml::from_str::<File>(text).unwrap().rule, Action::Deny)
}

#[test]
fn a_rule_matches_an_argument_in_any_of_its_spellings() {
    let permissions = rules(
        r#"
        [[rule]]
        args = { "/uri" = "x:~secret*" }
        action = "deny"
        [[rule]]
        args = { "/uri" = "x:~*" }
        action = "allow"
        [[rule]]
        args = { "/uri" = "x:%7*" }
        action = "deny"
        "#,
    );
    for (spelled, action) in [
        (&["x:%7Eopen", "x:~open"][..], Action::Allow),
        (&["x:%7Esecret", "x:~secret"], Action::Deny),
        (&["x:~open", "x:~secret"], Action::Deny),
        (&["x:%7Fopen"], Action::Deny),
        (&["y:"], Action::Deny),
        (&[], Action::Deny),
    ] {
        let all: Vec<_> = spelled.iter().map(|uri| json!({"uri": uri})).collect();
        assert_eq!(permissions.decide_spelled(tool("p", "read", &[]), &all), action, "{spelled:?}");
    }
}

#[test]
fn the_first_matching_rule_decides() {
    let permissions = rules(
        r#"
        [[rule]]
        tool = "files__write_*"
        args = { "/path" = "/etc/*" }
        action = "deny"
        reason = "not there"
        [[rule]]
        tool = "files__*"
        action = "allow"
        [[rule]]
        tag = "network"
        action = "ask"
        [[rule]]
        source = "builtin"
        action = "allow"
        [[rule]]
        source = "plugin:text*"
        action = "allow"
        "#,
    );
    let etc = json!({"path": "/etc/hosts"});
    for (tool, args, action, rule) in [
        (tool("files", "files__write_file", &[]), &etc, Action::Deny, Some(1)),
        (tool("files", "files__write_file", &[]), &json!({"path": "/tmp/x"}), Action::Allow, Some(2)),
        (tool("files", "files__write_file", &[]), &json!({}), Action::Allow, Some(2)),
        (tool("files", "files__read_file", &["network"]), &etc, Action::Allow, Some(2)),
        (tool("web", "web__fetch", &["network"]), &etc, Action::Ask, Some(3)),
        (tool("", "now", &[]), &etc, Action::Allow, Some(4)),
        (tool("text", "text__grep", &[]), &etc, Action::Allow, Some(5)),
        (tool("text2", "text2__grep", &[]), &etc, Action::Allow, Some(5)),
        (tool("other", "other__x", &[]), &etc, Action::Deny, None),
    ] {
        let outcome = permissions.decide(tool, args);
        let position = outcome.rule.map(|(position, _)| position);
        assert_eq!((outcome.action, position), (action, rule), "{} {args}", tool.name);
    }
    let refused = tool("files", "files__write_file", &[]);
    let outcome = permissions.decide(refused, &etc);
    assert_eq!(outcome.rule.unwrap().1.reason.as_deref(), Some("not there"));
}

#[test]
fn a_rule_on_an_argument_that_is_not_checked_refuses() {
    let permissions = rules(
        r#"
        [[rule]]
        tool = "files__read"
        args = { "/path" = "/etc/*", "/mode" = "raw" }
        action = "ask"
        [[rule]]
        tool = "files__*"
        action = "allow"
        "#,
    );
    let mut unchecked = UncheckedArguments::default();
    unchecked.add("/properties/path/type");
    let weak = PermissionSubject { unchecked: Some(&unchecked), ..tool("files", "files__read", &[]) };
    for (tool, args, action, open) in [
        (weak, json!({"path": ["/etc/passwd"], "mode": "raw"}), Action::Deny, Some("/path")),
        (weak, json!({"path": {"a": "/etc"}, "mode": "raw"}), Action::Deny, Some("/path")),
        (weak, json!({"path": "/etc/passwd", "mode": "raw"}), Action::Ask, None),
        (weak, json!({"path": "/tmp/a", "mode": "raw"}), Action::Allow, None),
        // Another condition of the rule does not match.
        (weak, json!({"path": ["/etc/passwd"], "mode": "text"}), Action::Allow, None),
        (PermissionSubject { name: "files__list", ..weak }, json!({"path": []}), Action::Allow, None),
        (PermissionSubject { unchecked: None, ..weak }, json!({"path": []}), Action::Allow, None),
    ] {
        let outcome = permissions.decide(tool, &args);
        assert_eq!(
            (outcome.action, outcome.uncompared),
            (action, open.map(UncomparedArgument::Open)),
            "{args}"
        );
    }
}

#[test]
fn without_a_matching_rule_the_fallback_applies() {
    let tool = tool("p", "p__t", &[]);
    assert_eq!(Permissions::default().decide(tool, &json!({})).action, Action::Allow);
    for action in [Action::Allow, Action::Deny, Action::Ask] {
        assert_eq!(Permissions::new(vec![], action).decide(tool, &json!({})).action, action);
    }
}

#[test]
fn a_preset_matches_its_tag() {
    let tool = tool("p", "p__t", &[]);
    for (name, tag, action) in [
        ("allow-read-only", "read_only", Action::Allow),
        ("ask-destructive", "destructive", Action::Ask),
        ("deny-privileged", "privileged", Action::Deny),
        ("ask-network", "network", Action::Ask),
        ("ask-file-system", "file_system", Action::Ask),
    ] {
        let permissions = Permissions::new(vec![Permissions::preset(name).unwrap()], Action::Deny);
        assert_eq!(permissions.decide(PermissionSubject { tags: &[tag], ..tool }, &json!({})).action, action);
        assert_eq!(permissions.decide(PermissionSubject { tags: &["slow"], ..tool }, &json!({})).rule, None);
    }
    assert_eq!(Permissions::preset("allow-all"), None);
}

#[test]
fn arguments_are_compared_as_text() {
    let long = "x".repeat(MAX_ARGUMENT + 1);
    let too_long = Some(UncomparedArgument::TooLong("/a"));
    for (pattern, action, argument, applies, uncompared) in [
        ("*", Action::Allow, json!(long), true, None),
        ("x*", Action::Allow, json!(long), false, None),
        // A long argument does not bypass a refusal.
        ("/etc/*", Action::Deny, json!(long), true, too_long),
        ("/etc/*", Action::Ask, json!(long), true, too_long),
        ("*", Action::Deny, json!(long), true, None),
        ("x*", Action::Deny, json!(long[1..]), true, None),
        ("7", Action::Ask, json!(7), true, None),
        ("[1,*", Action::Ask, json!([1, 2]), true, None),
    ] {
        let rule = PermissionRule {
            action,
            tag: None,
            args: [("/a".to_owned(), pattern.to_owned())].into(),
            ..Permissions::preset("ask-network").unwrap()
        };
        let permissions = Permissions::new(vec![rule], Action::Allow);
        let arguments = json!({"a": argument});
        let outcome = permissions.decide(tool("p", "p__t", &[]), &arguments);
        let found = (outcome.rule.is_some(), outcome.uncompared);
        assert_eq!(found, (applies, uncompared), "{pattern} {action:?}");
    }
}

#[test]
fn needs_approval_asks_unless_a_rule_matches() {
    let mut tool = tool("p", "p__t", &[]);
    tool.needs_approval = true;
    let allowing = rules("[[rule]]\ntool = \"p__*\"\naction = \"allow\"");
    for (permissions, action, by_author) in [
        (Permissions::default(), Action::Ask, true),
        (Permissions { needs_approval: Action::Allow, ..Permissions::default() }, Action::Allow, false),
        (Permissions { needs_approval: Action::Deny, ..Permissions::default() }, Action::Deny, true),
        (Permissions::new(vec![], Action::Deny), Action::Deny, false),
        (allowing, Action::Allow, false),
    ] {
        let outcome = permissions.decide(tool, &json!({}));
        assert_eq!((outcome.action, outcome.by_author), (action, by_author));
    }
}

#[test]
fn the_decisions_for_a_tool_are_described() {
    let permissions = rules(
        "[[rule]]\ntool = \"q__*\"\naction = \"deny\"\n\
         [[rule]]\nargs = { \"/a\" = \"x*\", \"/b\" = \"*\" }\naction = \"ask\"\nreason = \"why\"\n\
         [[rule]]\ntag = \"network\"\naction = \"allow\"",
    );
    let tool = tool("p", "p__t", &[]);
    let ask = "ask where /a is x* and where /b is * by rule 2 of the policy (why)";
    assert_eq!(
        permissions.describe(tool, "the policy"),
        [ask.to_owned(), "deny by `default` of the policy".to_owned()]
    );
    let last = permissions.describe(PermissionSubject { tags: &["network"], ..tool }, "the policy").pop();
    assert_eq!(last.as_deref(), Some("allow by rule 3 of the policy"));
}

#[test]
fn an_invalid_rule_is_refused() {
    for (text, part) in [
        ("tool = \"a\"", "`action` is missing"),
        ("preset = \"ask-all\"", "there is no preset `ask-all`; use one of `allow-read-only`"),
        ("preset = \"ask-network\"\naction = \"deny\"", "excludes all other keys"),
        ("preset = \"ask-network\"\ntool = \"a\"", "excludes all other keys"),
        ("source = \"plugins:a\"\naction = \"deny\"", "`plugins:a`"),
        ("source = \"builtin:a\"\naction = \"deny\"", "`builtin:a`"),
        ("source = \"plugin:\"\naction = \"deny\"", "`plugin:`"),
        ("args = { path = \"a\" }\naction = \"deny\"", "`/path`"),
        ("tols = \"a\"\naction = \"deny\"", "unknown field `tols`"),
        ("action = \"never\"", "unknown variant"),
    ] {
        let error = toml::from_str::<PermissionRule>(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    let rule: PermissionRule = toml::from_str("preset = \"ask-network\"\nreason = \"why\"").unwrap();
    assert_eq!((rule.action, rule.reason.as_deref()), (Action::Ask, Some("why")));
}

#[test]
fn a_pattern_matches_one_source_or_several() {
    let label = |kind, name| SourceLabel { kind, name };
    let sources = [label("plugin", "text"), label("mcp", "gh"), label("builtin", "")];
    assert_eq!(sources.map(|source| source.to_string()), ["plugin:text", "mcp:gh", "builtin"]);
    for (pattern, fits) in [
        ("plugin", [true, false, false]),
        ("plugin:text", [true, false, false]),
        ("plugin:te*", [true, false, false]),
        ("plugin:other", [false, false, false]),
        ("mcp", [false, true, false]),
        ("mcp:gh", [false, true, false]),
        ("builtin", [false, false, true]),
        ("builtin:*", [false, false, false]),
        ("*", [false, false, false]),
        ("", [false, false, false]),
    ] {
        assert_eq!(sources.map(|source| source.matches(pattern)), fits, "{pattern}");
    }
}
