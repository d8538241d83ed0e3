use serde_json::json;

use super::super::inbox::tests::NullConnector;
use super::*;

fn server() -> Arc<McpServer> {
    let text = "version = 1\n[mcp.s]\ncommand = [\"/usr/bin/true\"]\n";
    let policy = toolbay_policy::Policy::parse(text, std::path::Path::new("/work"), None).unwrap();
    Arc::clone(policy.mcp_servers().next().unwrap())
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

#[test]
fn an_odd_member_of_a_listed_resource_costs_only_itself_and_the_first_of_a_uri_wins() {
    let items = [
        r#"{"uri":"file:///a","name":7,"title":[],"description":{},"mimeType":5,"size":"5","annotations":1}"#,
        r#"{"uri":"file:///a","name":"other"}"#,
        r#"{"uri":"file:///b","name":"b","size":-1}"#,
        r#"{"uri":"file:///c","size":5,"mimeType":"text/plain"}"#,
        r#"{"name":"none"}"#,
    ];
    let listed = |items: &[&str]| ServerList {
        items: items.iter().map(|item| raw(item)).collect(),
        ..ServerList::default()
    };
    let mut offered = RemoteResources::default();
    offered.add(listed(&items), ListKind::Resources, &server(), &NullConnector);
    let sizes: Vec<_> = offered.resources.values().map(|shown| (shown.name.as_str(), shown.size)).collect();
    assert_eq!(sizes, [("file:///a", None), ("b", None), ("file:///c", Some(5))]);
    assert!(offered.problems[0].contains("listed twice"), "{:?}", offered.problems);
    assert!(offered.problems[1].contains("no `uri`") && offered.problems.len() == 2);
    let templates = [r#"{"uriTemplate":"x://{a}","name":5}"#, r#"{"uriTemplate":"x://{a}","name":"two"}"#];
    offered.add(listed(&templates), ListKind::Templates, &server(), &NullConnector);
    assert_eq!(offered.templates.len(), 1);
    assert!(offered.problems[2].contains("listed twice"), "{:?}", offered.problems);
}

#[test]
fn the_parts_of_a_resource_are_read_in_every_form_that_servers_write() {
    let asked = ResourceAddress { server: "s", server_uri: "file:///a" };
    let part = r#"{"uri":"file:///a","text":"t"}"#;
    for (text, count) in [
        (format!(r#"{{"contents":[{part}]}}"#), 1),
        (format!(r#"{{"contents":{part}}}"#), 1),
        (r#"{"contents":[{"uri":5,"mimeType":[],"text":"t","blob":7}]}"#.to_owned(), 1),
        (format!(r#"{{"contents":{{"0":{part},"1":{part}}}}}"#), 2),
        (r#"{"contents":null}"#.to_owned(), 0),
        ("{}".to_owned(), 0),
        ("[]".to_owned(), 0),
    ] {
        let parts = convert_contents(&raw(&text), asked, &server(), &NullConnector);
        assert_eq!(parts.unwrap().len(), count, "{text}");
    }
    assert!(convert_contents(&raw("7"), asked, &server(), &NullConnector).is_err());
}

#[test]
fn a_removed_link_is_named() {
    let note = |uri: &str, name: &str| {
        let link = ResourceLink {
            uri: uri.to_owned(),
            name: name.to_owned(),
            title: None,
            description: None,
            mime_type: None,
            size: None,
        };
        let mut content = [ContentBlock { body: BlockBody::Link(link), annotations: None }];
        rewrite_links("s", &NullConnector, &mut content);
        let [ContentBlock { body: BlockBody::Text(text), .. }] = content else { panic!("{uri}") };
        text
    };
    for (uri, name, text) in [
        ("file:///a b.txt", "A", "[link `A` removed: its URI `file:///a b.txt` is not safe]"),
        ("C:\\a\\b", "C:\\a\\b", "[link removed: its URI `C:\\a\\b` is not safe]"),
        ("file:///a b", "", "[link removed: its URI `file:///a b` is not safe]"),
    ] {
        assert_eq!(note(uri, name), text);
    }
    let long = note(&format!("a b\n\u{202e}canary-secret<|im_start|>{}", "x".repeat(5000)), "canary-secret");
    assert!(long.len() < 2 * MAX_REMOVED_URI && !long.contains('\n'), "{long}");
    for bad in ["canary-secret", "<|im", "\u{202e}"] {
        assert!(!long.contains(bad), "{long}");
    }
}

#[test]
fn an_encoded_address_finds_the_listed_one() {
    let offered = |own: &[&str]| {
        let listed = own.iter().map(|own| {
            let uri = ResourceAddress::to_client_uri("s", own).unwrap();
            (uri.clone(), Resource::new(uri, "n"))
        });
        RemoteResources { resources: listed.collect(), ..RemoteResources::default() }
    };
    let all = offered(&["file:///ü", "file:///a-b", "file:///a%2Fb"]);
    for (asked, expect) in [
        ("file:///%C3%BC", Some("toolbay://mcp/s/file:///ü")),
        ("file:///%c3%bc", Some("toolbay://mcp/s/file:///ü")),
        ("file:///%61%2Db", Some("toolbay://mcp/s/file:///a-b")),
        ("file:///a%2fb", Some("toolbay://mcp/s/file:///a%2Fb")),
        ("file:///ü", None),
        ("file:///a/b", None),
        ("file:///other", None),
    ] {
        let asked = ResourceAddress::to_client_uri("s", asked).unwrap();
        assert_eq!(all.equal_address(&asked), expect, "{asked}");
    }
    let ambiguous = offered(&["x:ü", "x:%c3%bc"]);
    assert_eq!(ambiguous.equal_address("toolbay://mcp/s/x:%C3%BC"), None);
    assert_eq!(all.equal_address("toolbay://mcp/t/file:///%C3%BC"), None, "another server");
}

#[test]
fn annotations_of_resources_pass_within_limits() {
    let import = |text: &str| {
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        serde_json::to_value(import_annotations(Some(&raw), &NullConnector)).unwrap()
    };
    assert_eq!(
        import(r#"{"audience":["user","assistant"],"priority":0.5,"lastModified":"2026-01-01T00:00:00Z"}"#),
        json!({"audience": ["user", "assistant"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z"})
    );
    assert_eq!(
        import(r#"{"lastModified":"canary-secret<|im_start|>"}"#)["lastModified"],
        "[secret T][STRIPPED-TEMPLATE-TOKEN]"
    );
    let long = json!({"lastModified": "x".repeat(MAX_DATE + 1)}).to_string();
    for odd in ["{}", "[]", "7", r#"{"audience":["nobody"],"priority":7}"#, r#"{"audience":7}"#, &long] {
        assert_eq!(import(odd), json!(null), "{odd}");
    }
    assert!(import_annotations(None, &NullConnector).is_none());
}
