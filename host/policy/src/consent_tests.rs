use proptest::prelude::*;

use super::*;
use crate::capability::CapabilityKind;

const W: &str = "/w";

fn decide_newest(
    known: Option<&Consent>,
    digest: &str,
    pinned: bool,
    granted: &Authority,
) -> ConsentDecision {
    evaluate_consent(known, digest, AskingVersion::Newest, pinned, granted, Path::new(W))
}

/// `tool: key line; [profile] tool: key line; …`
fn authority(text: &str) -> Authority {
    let mut all = Authority::default();
    for entry in text.split(';').map(str::trim).filter(|entry| !entry.is_empty()) {
        match entry.split_once(": ") {
            Some((tool, rest)) => {
                let (key, line) = rest.split_once(' ').unwrap();
                let lines = GrantLines::from([(key.to_owned(), BTreeSet::from([line.to_owned()]))]);
                match tool.strip_prefix('[').and_then(|tool| tool.split_once("] ")) {
                    Some((profile, tool)) => {
                        add(all.profiles.entry(profile.to_owned()).or_default(), tool, lines);
                    }
                    None => add(&mut all.tools, tool, lines),
                }
            }
            None => _ = all.reduce.insert(entry.strip_prefix("reduce ").unwrap().to_owned()),
        }
    }
    all
}

fn consent(digest: &str, granted: &str) -> Consent {
    Consent {
        digest: digest.to_owned(),
        version: None,
        granted: authority(granted),
        at: String::new(),
        by: String::new(),
    }
}

#[test]
fn a_record_and_the_new_grants_decide() {
    let held =
        |lines: &[&str]| ConsentDecision::NeedsConsent(lines.iter().map(ToString::to_string).collect());
    let follow = |text: &str| ConsentDecision::UpdateRecord(authority(text));
    let read = "a: fs_read $workspace";
    let known = Some(("old", "a: fs_read $workspace"));
    let in_profile = Some(("old", "[p] a: kv agent"));
    for (known, digest, pinned, granted, expect) in [
        (None, "new", false, read, ConsentDecision::FirstConsent),
        (known, "old", false, read, ConsentDecision::Unchanged),
        (known, "old", false, "a: fs_read $workspace/in", ConsentDecision::Unchanged),
        (known, "old", false, "a: env TZ", follow("a: fs_read $workspace; a: env TZ")),
        (known, "new", false, read, follow(read)),
        (known, "new", false, "", follow("")),
        (known, "new", false, "a: fs_read $workspace/in", follow("a: fs_read $workspace/in")),
        (known, "new", false, "a: fs_read /w/in", follow("a: fs_read /w/in")),
        (known, "new", false, "a: fs_read **", held(&["a: fs_read **"])),
        (known, "new", false, "a: fs_read /", held(&["a: fs_read /"])),
        (known, "new", false, "a: fs_read $workspace/../x", held(&["a: fs_read $workspace/../x"])),
        (known, "new", false, "a: fs_write $workspace", held(&["a: fs_write $workspace"])),
        (known, "new", false, "b: fs_read $workspace", held(&["b: fs_read $workspace"])),
        (known, "new", false, "a: clock true", held(&["a: clock true"])),
        (known, "new", false, "a: net_private 10.0.0.0/8", held(&["a: net_private 10.0.0.0/8"])),
        (known, "new", false, "reduce x__y", held(&["reduce x__y"])),
        (known, "new", false, "a: from_the_future x", held(&["a: from_the_future x"])),
        (known, "new", false, "[p] a: fs_read $workspace/in", follow("[p] a: fs_read $workspace/in")),
        (known, "new", false, "[p] a: kv agent", held(&["a: kv agent in profile p"])),
        (in_profile, "new", false, "[p] a: kv agent", follow("[p] a: kv agent")),
        (in_profile, "new", false, "[q] a: kv agent", held(&["a: kv agent in profile q"])),
        (in_profile, "new", false, "a: kv agent", held(&["a: kv agent"])),
        (in_profile, "old", false, "a: kv agent", follow("[p] a: kv agent; a: kv agent")),
        (known, "new", true, "a: fs_read **; b: kv agent", follow("a: fs_read **; b: kv agent")),
        (Some(("old", "a: env TZ")), "new", false, "a: env TZ=UTC", follow("a: env TZ=UTC")),
        (Some(("old", "a: env TZ=UTC")), "new", false, "a: env TZ", held(&["a: env TZ"])),
        (Some(("old", "a: what is this")), "new", false, "a: what is this", follow("a: what is this")),
        // A host allowed as one of all is at a public address. A named host may be private.
        (
            Some(("old", "a: net https://*")),
            "new",
            false,
            "a: net https://x.org",
            held(&["a: net https://x.org"]),
        ),
        (
            Some(("old", "a: net https://*")),
            "new",
            false,
            "a: net https://x.org public",
            follow("a: net https://x.org public"),
        ),
        (
            Some(("old", "a: net https://x.org")),
            "new",
            false,
            "a: net https://x.org public",
            follow("a: net https://x.org public"),
        ),
        (
            Some(("old", "a: net https://x.org public")),
            "new",
            false,
            "a: net https://x.org",
            held(&["a: net https://x.org"]),
        ),
        (
            Some(("old", "a: net PUBLIC https://x.org")),
            "new",
            false,
            "a: net https://x.org public",
            held(&["a: net https://x.org public"]),
        ),
    ] {
        let known = known.map(|(digest, granted)| consent(digest, granted));
        let verdict = decide_newest(known.as_ref(), digest, pinned, &authority(granted));
        assert_eq!(verdict, expect, "{known:?} {digest} {granted}");
    }
}

#[test]
fn an_authority_includes_the_grants_of_all_profiles() {
    let policy = r#"
        version = 1
        [plugins.p.grant]
        fs_read = ["$workspace"]
        kv = ["tool", "agent"]
        clock = true
        reduce = ["q__t"]
        [profile.x]
        kv = ["agent"]
        fs_read = []
    "#;
    let policy = Policy::parse(policy, Path::new(W), None).unwrap();
    let wish = |kind: CapabilityKind, target: &str| Capability {
        kind,
        target: target.to_owned(),
        optional: true,
        reason: None,
    };
    let id = PluginId::new("p").unwrap();
    let (one, two) = (ToolName::new("one").unwrap(), ToolName::new("two").unwrap());
    let first = [wish(CapabilityKind::FsRead, "**"), wish(CapabilityKind::Kv, "from-profile")];
    let second = [wish(CapabilityKind::Clock, ""), wish(CapabilityKind::Net, "https://*")];
    let all = Authority::from_policy(&policy, &id, [(&one, &first[..]), (&two, &second[..])].into_iter());
    assert_eq!(all, authority("one: fs_read $workspace; [x] one: kv agent; two: clock true; reduce q__t"));
    let nobody = PluginId::new("nobody").unwrap();
    assert!(Authority::from_policy(&policy, &nobody, [(&one, &first[..])].into_iter()).is_empty());
}

/// A consent for a profile is no consent outside it.
#[test]
fn a_profiles_consent_does_not_apply_outside_it() {
    let policy = r#"
        version = 1
        [plugins.p.grant]
        net = ["https://*.example"]
        [profile.dev]
        net = ["https://api.example"]
        [profile.all]
    "#;
    let policy = Policy::parse(policy, Path::new(W), None).unwrap();
    let (id, tool) = (PluginId::new("p").unwrap(), ToolName::new("fetch").unwrap());
    let of = |target: &str| {
        let wish =
            Capability { kind: CapabilityKind::Net, target: target.to_owned(), optional: true, reason: None };
        Authority::from_policy(&policy, &id, [(&tool, &[wish][..])].into_iter())
    };
    let first = of("from-profile");
    assert_eq!(first, authority("[dev] fetch: net https://api.example"));
    let known = Consent { granted: first, ..consent("v1", "") };
    let verdict = evaluate_consent(
        Some(&known),
        "v2",
        AskingVersion::Newest,
        false,
        &of("https://api.example"),
        Path::new(W),
    );
    assert_eq!(verdict, ConsentDecision::NeedsConsent(vec!["fetch: net https://api.example".to_owned()]));
    assert_eq!(of("https://*.example"), authority("fetch: net https://*.example"));
}

#[test]
fn a_record_parses_back_and_unknown_fields_are_refused() {
    let one = consent("d", "a: fs_read $workspace; [p] a: kv tool; reduce x__y");
    let text = serde_json::to_string(&one).unwrap();
    assert_eq!(serde_json::from_str::<Consent>(&text).unwrap(), one);
    for bad in [
        text.replace("\"digest\"", "\"digset\""),
        text.replace("\"granted\":{", "\"granted\":{\"more\":1,"),
        text.replace("\"at\":\"\",", ""),
    ] {
        assert!(serde_json::from_str::<Consent>(&bad).is_err(), "{bad}");
    }
}

/// Lines of several keys. Some lines cover others.
fn some_authority() -> impl Strategy<Value = Authority> {
    let entry = prop::sample::select(vec![
        "a: fs_read $workspace",
        "a: fs_read $workspace/in",
        "a: fs_read /srv",
        "a: fs_read **",
        "b: fs_read $workspace",
        "a: kv tool",
        "a: kv agent",
        "b: env TZ",
        "b: env TZ=UTC",
        "a: attachments read",
        "a: attachments read image/*",
        "a: net https://*",
        "a: net https://x.org",
        "a: net https://x.org public",
        "a: net_private 10.0.0.0/8",
        "a: net_private 10.1.0.0/16",
        "b: clock true",
        "[p] a: kv tool",
        "[p] a: fs_read $workspace/in",
        "[q] a: kv tool",
        "reduce x__y",
        "reduce x__z",
    ]);
    prop::collection::vec(entry, 0..6).prop_map(|entries| authority(&entries.join(";")))
}

proptest! {
    /// Without the operator, new bytes under an id never get more than the record covers.
    #[test]
    fn no_update_gets_more_than_the_consent_covers(
        agreed in some_authority(),
        updates in prop::collection::vec((some_authority(), any::<u8>()), 0..8),
    ) {
        let workspace = Path::new(W);
        let mut known = Consent { granted: agreed.clone(), ..consent("0", "") };
        for (number, (granted, _)) in updates.iter().enumerate() {
            let digest = format!("{}", number + 1);
            match evaluate_consent(Some(&known), &digest, AskingVersion::Newest, false, granted, workspace) {
                ConsentDecision::NeedsConsent(lines) => prop_assert!(!lines.is_empty()),
                ConsentDecision::UpdateRecord(now) => {
                    prop_assert!(granted.lines_not_in(&agreed, workspace).is_empty(), "{granted:?} in {agreed:?}");
                    prop_assert_eq!(&now, granted);
                    known = Consent { digest, granted: now, ..known };
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }

    #[test]
    fn grants_with_consent_are_never_held(agreed in some_authority(), digest in "[ab]") {
        let known = Consent { granted: agreed.clone(), ..consent("a", "") };
        let verdict = evaluate_consent(Some(&known), &digest, AskingVersion::Newest, false, &agreed, Path::new(W));
        prop_assert!(matches!(verdict, ConsentDecision::Unchanged | ConsentDecision::UpdateRecord(_)), "{verdict:?}");
    }

    #[test]
    fn a_union_covers_both_parts(a in some_authority(), b in some_authority()) {
        let both = a.clone().union(&b);
        prop_assert!(a.lines_not_in(&both, Path::new(W)).is_empty());
        prop_assert!(b.lines_not_in(&both, Path::new(W)).is_empty());
        let mut none = both;
        none.remove(&[]);
        prop_assert!(none.is_empty());
    }
}

#[test]
fn a_running_version_does_not_take_the_consent_for_a_waiting_one() {
    let granted = |line: &str| Authority {
        tools: BTreeMap::from([(
            "t".to_owned(),
            GrantLines::from([("kv".to_owned(), BTreeSet::from([line.to_owned()]))]),
        )]),
        ..Authority::default()
    };
    let known = Consent {
        digest: "waiting".to_owned(),
        version: None,
        granted: granted("tool"),
        at: String::new(),
        by: String::new(),
    };
    let decide = |asking, granted: &Authority| {
        evaluate_consent(Some(&known), "running", asking, false, granted, Path::new("/"))
    };
    let nothing = Authority::default();
    assert_eq!(decide(AskingVersion::Running, &nothing), ConsentDecision::Unchanged);
    assert_eq!(decide(AskingVersion::Newest, &nothing), ConsentDecision::UpdateRecord(nothing.clone()));
    let more = decide(AskingVersion::Running, &granted("agent"));
    assert!(matches!(more, ConsentDecision::NeedsConsent(_)), "{more:?}");
}

#[test]
fn an_update_that_names_a_host_is_compared_by_address_scope() {
    let text = r#"
        version = 1
        [plugins.web.grant]
        net = ["https://*", "https://wiki.corp.example"]
        net_private = ["10.0.0.0/8"]
        [plugins.all.grant]
        net = ["https://*"]
    "#;
    let policy = Policy::parse(text, Path::new(W), None).unwrap();
    let web = PluginId::new("web").unwrap();
    let tool = ToolName::new("fetch").unwrap();
    let net = |target: &str| Capability {
        kind: CapabilityKind::Net,
        target: target.to_owned(),
        optional: true,
        reason: None,
    };
    let of = |plugin: &PluginId, target: &str| {
        Authority::from_policy(&policy, plugin, [(&tool, &[net(target)][..])].into_iter())
    };
    let before = of(&PluginId::new("all").unwrap(), "https://*");
    let beyond = |target: &str, known: &Authority| of(&web, target).lines_not_in(known, Path::new(W));
    let private = "fetch: net_private 10.0.0.0/8";
    // One of all hosts with the same scope is covered by the consent.
    assert_eq!(beyond("https://vault.corp", &before), [private]);
    assert_eq!(
        beyond("https://wiki.corp.example", &before),
        ["fetch: net https://wiki.corp.example", private]
    );
    // An old record without the word `public` covers the host itself, which is the wider scope.
    let old = of(&web, "https://wiki.corp.example");
    assert_eq!(beyond("https://wiki.corp.example public", &old), [""; 0]);
}
