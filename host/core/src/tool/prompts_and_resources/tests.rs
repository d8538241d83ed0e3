use serde_json::{Value, json};

use super::*;

fn parse(document: &Value) -> Result<PromptsAndResourcesDocument, String> {
    PromptsAndResourcesDocument::parse(&document.to_string())
}

fn prompt(text: &str) -> Value {
    json!({"version": 1, "prompts": [{
        "name": "p", "description": "A prompt.",
        "arguments": [{"name": "a", "required": true, "values": ["paris", "Park", "spar"]}, {"name": "b"}],
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }]})
}

fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn filled(text: &str, pairs: &[(&str, &str)]) -> Result<String, FillError> {
    let document = parse(&prompt(text)).unwrap();
    let messages = document.prompts[0].fill(&given(pairs))?;
    let MessageContent::Text { text } = &messages[0].content else { panic!("{messages:?}") };
    Ok(text.clone())
}

#[test]
fn placeholders_are_filled_once() {
    for (text, expect) in [
        ("{{a}}!", "{{b}}!"),
        ("{{a}}{{b}}", "{{b}}B"),
        ("{{{a}}}", "{{{b}}}"),
        ("{a} {{ a }} {{}} {{1}} {{a", "{a} {{ a }} {{}} {{1}} {{a"),
        ("ä{{a}}ö", "ä{{b}}ö"),
    ] {
        assert_eq!(filled(text, &[("a", "{{b}}"), ("b", "B")]).as_deref(), Ok(expect));
    }
    assert_eq!(
        filled("[{{b}}]", &[("a", "x")]).as_deref(),
        Ok("[]"),
        "an absent optional argument leaves its placeholder empty"
    );
}

#[test]
fn invalid_arguments_are_refused() {
    let long = "x".repeat(MAX_ARGUMENT_BYTES + 1);
    assert_eq!(filled("{{a}}", &[]), Err(FillError::Missing("a".to_owned())));
    assert_eq!(filled("{{a}}", &[("a", ""), ("c", "")]), Err(FillError::Unknown("c".to_owned())));
    assert_eq!(filled("{{a}}", &[("a", &long)]), Err(FillError::Long("a".to_owned())));
    assert_eq!(filled(&"{{a}}".repeat(17), &[("a", &long[1..])]), Err(FillError::Large));
    assert!(filled(&"{{a}}".repeat(16), &[("a", &long[1..])]).is_ok());
}

#[test]
fn many_braces_are_scanned_in_linear_time() {
    let start = std::time::Instant::now();
    assert!(fill::placeholders(&"{".repeat(MAX_DOCUMENT_BYTES)).is_empty());
    assert!(fill::placeholders(&"{{a".repeat(MAX_DOCUMENT_BYTES / 3)).is_empty());
    // Quadratic time would be many minutes.
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

#[test]
fn values_are_suggested_for_a_partial_input() {
    let document = parse(&prompt("{{a}}")).unwrap();
    let argument = &document.prompts[0].arguments[0];
    assert_eq!(complete(argument, "PAR"), ["paris", "Park", "spar"]);
    assert_eq!(complete(argument, "s"), ["spar", "paris"]);
    assert_eq!(complete(argument, "x"), [] as [&str; 0]);
    assert_eq!(complete(argument, "").len(), 3);
}

#[test]
fn names_and_addresses_are_prefixed_with_the_plugins_id() {
    let document = parse(&json!({"version": 1,
        "prompts": [{"name": "p", "description": "d", "messages": [
            {"role": "assistant", "content": {"type": "resource", "path": "a/b.md"}}]}],
        "resources": [{"path": "a/b.md", "name": "B", "text": "hello"}, {"path": "c", "name": "C", "blob": "AAE="}],
        "templates": [{"path": "u/{id}/x", "name": "U", "mime_type": "application/json", "text": "{\"id\":\"{{id}}\"}"}],
        "icons": {"*": [{"src": "data:image/png;base64,AAAA", "sizes": ["48x48"]}], "t": []},
    }))
    .unwrap();
    let offers = PromptsAndResources::from_plugin(&PluginId::new("p-1_x").unwrap(), &document).unwrap();
    assert_eq!(offers.prompts.keys().collect::<Vec<_>>(), ["p-1_x__p"]);
    assert_eq!(
        offers.resources.keys().collect::<Vec<_>>(),
        ["toolbay://plugin/p-1_x/a/b.md", "toolbay://plugin/p-1_x/c"]
    );
    assert_eq!(offers.resource_at("c").unwrap().1.size(), 2);
    assert!(offers.resource_at("d").is_none());
    assert_eq!((offers.icons("t").len(), offers.icons("other").len()), (0, 1));
    let (_, text) = offers.expand_template("toolbay://plugin/p-1_x/u/7%22%5c%20%C3%A4/x").unwrap();
    assert_eq!(text.as_deref(), Ok(r#"{"id":"7\"\\ ä"}"#), "a value cannot leave its string");
    assert!(offers.expand_template("toolbay://plugin/p-1_x/u/7/x/x").is_none());
    assert!(!offers.is_empty() && PromptsAndResources::default().is_empty());
    let native = PromptsAndResources::from_native(&document, "test://").unwrap();
    assert_eq!(native.expand_template("test://u/1/x").unwrap().1.as_deref(), Ok(r#"{"id":"1"}"#));
}

#[test]
fn an_address_matches_a_pattern_or_not() {
    for (pattern, address, expect) in [
        ("a/{x}", "a/1", Some(vec![("x", "1")])),
        ("a/{x}", "a/", None),
        ("a/{x}", "a/1/2", None),
        ("a/{x}", "a/1%2F2", Some(vec![("x", "1/2")])),
        ("a/{x}", "a/%ff", None),
        ("a/{x}", "a/%4", None),
        ("a/{x}", "a/%zz", None),
        ("a/{x}", "a/%+1", None),
        ("{x}.{y}", "a.b.c", Some(vec![("x", "a"), ("y", "b.c")])),
        ("{x}/data", "a/data", Some(vec![("x", "a")])),
        ("{x}/data", "a/data/data", None),
        ("{x}/d/{y}", "a/d/b", Some(vec![("x", "a"), ("y", "b")])),
        ("{x}b", "abb", Some(vec![("x", "ab")])),
    ] {
        let found = PathPattern::parse(pattern).unwrap().matches(address);
        assert_eq!(found, expect.map(|pairs| given(&pairs)), "{pattern} {address}");
    }
    for bad in ["{", "}", "{a", "a}", "{}", "{a b}", "{a}{b}", "{a}/{a}", "{a{b}}"] {
        assert!(PathPattern::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn an_invalid_document_is_refused() {
    let resource = |fields: Value| {
        let mut one = json!({"path": "a", "name": "A", "text": ""});
        one.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"version": 1, "resources": [one]})
    };
    let template = |path: &str, text: &str| json!({"version": 1, "templates": [{"path": path, "name": "T", "text": text}]});
    let message = |content: Value| {
        json!({"version": 1, "prompts": [{"name": "p", "description": "d",
            "messages": [{"role": "user", "content": content}]}]})
    };
    for (document, part) in [
        (json!([]), "invalid type"),
        (json!({}), "missing field `version`"),
        (json!({"version": 2}), "version 2"),
        (json!({"version": 1, "tools": []}), "unknown field `tools`"),
        (prompt("{{c}}"), "`{{c}}`, which is not one of its arguments"),
        (prompt("a\u{202e}"), "U+202E"),
        (message(json!({"type": "text", "text": "", "path": "a"})), "unknown field"),
        (message(json!({"type": "resource", "path": "a"})), "`a`, which is not a resource"),
        (message(json!({"type": "image", "data": "a", "mime_type": "image/png"})), "base64"),
        (message(json!({"type": "image", "data": "", "mime_type": "png"})), "not a media type"),
        (json!({"version": 1, "prompts": [{"name": "a b", "description": "d", "messages": []}]}), "its name"),
        (
            json!({"version": 1, "prompts": [{"name": "a", "description": " ", "messages": []}]}),
            "no description",
        ),
        (
            json!({"version": 1, "prompts": [{"name": "a", "description": "d", "messages": []}]}),
            "no messages",
        ),
        (resource(json!({"path": "../a"})), "its path"),
        (resource(json!({"path": "/a"})), "its path"),
        (resource(json!({"path": "a//b"})), "its path"),
        (resource(json!({"path": "a b"})), "its path"),
        (resource(json!({"path": "{a}"})), "its path"),
        (resource(json!({"path": "a".repeat(MAX_PATH + 1)})), "its path"),
        (resource(json!({"blob": "AAAA"})), "either `text` or `blob`"),
        (resource(json!({"name": "a\nb"})), "its name"),
        (resource(json!({"mime_type": "a"})), "not a media type"),
        (template("a", ""), "no placeholder"),
        (template("{a}{b}", ""), "without a text between"),
        (template("{a}", "{{b}}"), "`{{b}}`"),
        (
            json!({"version": 1, "resources": vec![json!({"path": "a", "name": "A", "text": ""}); 2]}),
            "the name is used twice",
        ),
        (
            json!({"version": 1, "resources": vec![json!({"path": "a", "name": "A", "text": ""}); MAX_RESOURCES + 1]}),
            "the limit is 500",
        ),
    ] {
        let error = parse(&document).unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
    let large = json!({"version": 1, "resources": [{"path": "a", "name": "A", "text": "x".repeat(MAX_DOCUMENT_BYTES)}]});
    assert!(parse(&large).unwrap_err().contains("bytes; the limit is"));
    assert!(
        PromptsAndResourcesDocument::parse("{\"version\":1,\"version\":1}")
            .unwrap_err()
            .contains("not valid JSON")
    );
}

#[test]
fn icons_are_small_images() {
    let check = |icons: Value, tools: &[&str]| {
        parse(&json!({"version": 1, "icons": icons})).unwrap().check_icons(tools.iter().copied())
    };
    let src = |src: &str| json!({"*": [{"src": src}]});
    assert_eq!(check(src("data:image/png;base64,AAAA"), &["t"]), Ok(()));
    for bad in [
        "https://example.com/a.png",
        "data:image/svg+xml;base64,AAAA",
        "data:text/html;base64,AAAA",
        "data:image/png,AAAA",
        "data:image/png;base64,",
        "data:image/png;base64,A",
        "javascript:alert(1)",
    ] {
        assert!(check(src(bad), &["t"]).unwrap_err().contains("data:TYPE"), "{bad}");
    }
    assert!(check(json!({"u": []}), &["t"]).unwrap_err().contains("`u`, but no tool"));
    let sized = json!({"*": [{"src": "data:image/png;base64,AAAA", "sizes": ["big"]}]});
    assert!(check(sized, &["t"]).unwrap_err().contains("`big`"));
    let many = json!({"*": vec![json!({"src": "data:image/png;base64,AAAA"}); 5]});
    assert!(check(many, &["t"]).unwrap_err().contains("icons of one tool"));
    let large = format!("data:image/png;base64,{}", "A".repeat(MAX_ICON_BYTES / 2));
    assert_eq!(check(src(&large), &["t"]), Ok(()));
    assert!(
        check(src(&large), &["t", "u"]).unwrap_err().contains("add"),
        "the icon counts once for each tool"
    );
}
