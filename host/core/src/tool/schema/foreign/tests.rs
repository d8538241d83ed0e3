//! Tests of schemas that others wrote: dialects, keywords that are lost, and limits.

use jsonschema::Draft;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn read(schema: &Value) -> Schema {
    SchemaReader::for_plugins().input(Some(&schema.to_string()))
}

/// A schema with one property.
fn read_property(property: &Value) -> Schema {
    read(&json!({"type": "object", "properties": {"a": property}}))
}

fn dropped(schema: &Schema) -> Vec<(String, String)> {
    let listed = schema.dropped().map(DroppedKeywords::listed).unwrap_or_default();
    listed.iter().map(|one| (one.pointer.clone(), one.reason.clone())).collect()
}

fn pointers(schema: &Schema) -> Vec<String> {
    dropped(schema).into_iter().map(|(pointer, _)| pointer).collect()
}

/// Checks which arguments match.
fn check(schema: &Schema, good: &[Value], bad: &[Value]) {
    for args in good {
        assert_eq!(schema.check(args), Ok(()), "{args} {schema:?}");
    }
    for args in bad {
        assert!(schema.check(args).is_err(), "{args} {schema:?}");
    }
}

/// The schema of a case in `shared/inputs`, as it stands there.
const TUPLE: &str = r#"{"type": "object", "properties": {"corner": {"type": "array",
    "items": [{"type": "integer"}, {"type": "integer"}], "additionalItems": false, "minItems": 2}},
    "$schema": "http://json-schema.org/draft-07/schema#"}"#;

#[test]
fn a_schema_is_read_in_the_dialect_that_it_declares() {
    let tuple = SchemaReader::for_plugins().input(Some(TUPLE));
    assert_eq!(dropped(&tuple), []);
    check(
        &tuple,
        &[json!({"corner": [1, 2]}), json!({})],
        &[json!({"corner": [1, 2, 3]}), json!({"corner": ["a", 1]}), json!({"corner": [1]})],
    );
    let bound = read(&json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "object",
        "properties": {"by": {"type": "number", "minimum": 1, "exclusiveMinimum": true},
            "to": {"maximum": 9, "exclusiveMaximum": false}, "x": {"exclusiveMaximum": true}}}));
    assert_eq!(dropped(&bound), []);
    assert_eq!(bound.value()["properties"]["by"], json!({"type": "number", "exclusiveMinimum": 1}));
    assert_eq!(bound.value()["properties"]["to"], json!({"maximum": 9}));
    check(
        &bound,
        &[json!({"by": 1.5}), json!({"to": 9}), json!({"x": 5})],
        &[json!({"by": 1}), json!({"to": 10})],
    );
    let sibling = json!({"$ref": "#/definitions/word", "type": "object", "description": "d"});
    let of = |dialect: &str| {
        read(&json!({"$schema": dialect, "type": "object", "properties": {"word": sibling},
            "definitions": {"word": {"type": "string"}}}))
    };
    let old = of("http://json-schema.org/draft-07/schema#");
    assert_eq!(old.value()["properties"]["word"], json!({"$ref": "#/$defs/word", "description": "d"}));
    assert_eq!(old.value()["$defs"], json!({"word": {"type": "string"}}));
    check(&old, &[json!({"word": "x"})], &[json!({"word": {}})]);
    check(&of("https://json-schema.org/draft/2019-09/schema"), &[], &[json!({"word": "x"})]);
    for schema in [&tuple, &bound, &old] {
        assert_eq!(schema.value().get("$schema"), None, "{schema:?}");
    }
}

#[test]
fn a_schema_without_a_dialect_may_use_the_forms_of_all() {
    let schema = read(&json!({"type": "object", "properties": {
        "pair": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}], "additionalItems": false},
        "by": {"minimum": 1, "exclusiveMinimum": true},
        "n": {"exclusiveMinimum": 1},
    }, "dependencies": {"pair": ["by"], "by": {"required": ["n"]}}}));
    assert_eq!(dropped(&schema), []);
    check(
        &schema,
        &[json!({"pair": [1, "a"], "by": 2, "n": 2})],
        &[
            json!({"pair": ["a", 1], "by": 2, "n": 2}),
            json!({"by": 1, "n": 2}),
            json!({"n": 1}),
            json!({"pair": []}),
            json!({"by": 2}),
        ],
    );
    assert_eq!(schema.value()["dependentRequired"], json!({"pair": ["by"]}));
}

#[test]
fn an_empty_list_is_an_empty_object() {
    for (schema, at) in [
        (json!({"type": "object", "properties": [], "required": []}), "/properties"),
        (
            json!({"type": "object", "properties": {"filter": {"type": "object", "properties": []}}}),
            "/properties/filter/properties",
        ),
        (json!({"type": "object", "properties": {"a": {"type": "integer"}}, "$defs": []}), "/properties/a"),
        (json!({"type": "object", "properties": {"a": []}}), "/properties/a"),
        (json!({"type": "object", "patternProperties": [], "dependentRequired": []}), "/patternProperties"),
        (json!([]), "/properties"),
        (json!({"properties": {"a": {"type": "array", "items": []}}}), "/properties/a/items"),
    ] {
        let read = read(&schema);
        assert_eq!(dropped(&read), [], "{schema}");
        check(&read, &[json!({})], &[]);
        assert!(read.value().pointer(at).is_some_and(Value::is_object), "{schema}: {}", read.value());
        assert_eq!(read.value()["type"], "object");
    }
    assert_eq!(read(&json!([])).value()["properties"], json!({}));
}

#[test]
fn what_is_invalid_costs_only_its_keyword() {
    for (keyword, value, good) in [
        ("pattern", json!("^(?!admin)"), json!("admin")),
        ("pattern", json!("("), json!("x")),
        ("pattern", json!(7), json!("x")),
        ("type", json!("str"), json!(7)),
        ("type", json!(["string", "file"]), json!(7)),
        ("type", json!([]), json!(7)),
        ("type", json!("STRING"), json!(7)),
        ("type", json!({"type": "string"}), json!(7)),
        ("required", json!(true), json!(7)),
        ("required", json!("x"), json!({})),
        ("minimum", json!("1"), json!(0)),
        ("maxLength", json!("3"), json!("long")),
        ("maxLength", json!(-1), json!("long")),
        ("maxLength", json!(1.5), json!("long")),
        ("minItems", json!(null), json!([])),
        ("multipleOf", json!(0), json!(7)),
        ("uniqueItems", json!("true"), json!([1, 1])),
        ("enum", json!("a"), json!("b")),
        ("enum", json!([]), json!("b")),
        ("enum", json!(null), json!("b")),
        ("exclusiveMinimum", json!("1"), json!(0)),
        ("properties", json!("x"), json!({"x": 1})),
        ("additionalProperties", json!(null), json!({"x": 1})),
        ("additionalProperties", json!("no"), json!({"x": 1})),
        ("items", json!("string"), json!([7])),
        ("anyOf", json!([]), json!(7)),
        ("oneOf", json!({"a": {}}), json!(7)),
        ("not", json!([]), json!(7)),
        ("not", json!(null), json!(7)),
        ("$ref", json!("https://example.com/s.json"), json!(7)),
        ("$ref", json!("file:///etc/passwd"), json!(7)),
        ("$ref", json!("#/$defs/absent"), json!(7)),
        ("$ref", json!("#absent"), json!(7)),
        ("$ref", json!(7), json!(7)),
        ("dependentRequired", json!("x"), json!({})),
    ] {
        let schema = read_property(&json!({keyword: value, "description": "d"}));
        assert_eq!(pointers(&schema), [format!("/properties/a/{keyword}")], "{value}");
        check(&schema, &[json!({"a": good})], &[]);
        assert_eq!(schema.value()["properties"]["a"]["description"], "d", "{keyword}");
    }
    // Inside of a list or an object, only the part.
    let schema = read(&json!({"type": "object", "required": ["a", "a", 7, "b"], "properties": {
        "a": {"type": "string"}, "b": null, "c": "string", "d": {"type": "integer", "title": null, "examples": 7}},
        "allOf": [{"required": ["d"]}, "x"], "dependentRequired": {"b": ["a"], "c": true}}));
    let expect =
        ["/required/1", "/required/2", "/properties/b", "/properties/c", "/allOf/1", "/dependentRequired/c"];
    assert_eq!(pointers(&schema), expect);
    check(
        &schema,
        &[json!({"a": "x", "b": 1, "c": 1, "d": 1})],
        &[json!({"a": 1, "b": 1, "d": 1}), json!({"b": 1, "d": 1}), json!({"a": "x", "b": 1})],
    );
    assert_eq!(schema.value()["properties"]["d"], json!({"type": "integer"}));
}

#[test]
fn a_pattern_that_only_clients_can_read_stays_for_them() {
    let pattern = json!({"type": "string", "pattern": "^(?!admin)"});
    let schema = read_property(&pattern);
    assert_eq!(schema.value()["properties"]["a"], pattern);
    assert_eq!(schema.checked_value()["properties"]["a"], json!({"type": "string"}));
    let named =
        read_property(&json!({"patternProperties": {"^(?!x)": {"type": "string"}, "^y": {"type": "null"}},
        "additionalProperties": false}));
    assert_eq!(
        pointers(&named),
        ["/properties/a/patternProperties/^(?!x)", "/properties/a/additionalProperties"]
    );
    check(&named, &[json!({"a": {"z": 1, "y": null}})], &[json!({"a": {"y": 1}})]);
}

#[test]
fn members_that_stand_twice_are_not_checked() {
    let text = r#"{"type": "object", "properties": {
        "a": {"type": "string"}, "a": {"type": "integer"},
        "b": {"type": "string", "type": "integer", "enum": [{"x": 1, "x": 2}]},
        "c": {"type": "null"}}, "additionalProperties": false}"#;
    let schema = SchemaReader::for_plugins().input(Some(text));
    assert_eq!(pointers(&schema), ["/properties/a", "/properties/b/type", "/properties/b/enum"]);
    check(&schema, &[json!({"a": 1.5, "b": []})], &[json!({"c": 1}), json!({"d": 1})]);
}

#[test]
fn what_depends_on_a_lost_keyword_is_lost_with_it() {
    let lookahead = json!({"pattern": "^(?!x)"});
    for (property, lost, good) in [
        (json!({"not": lookahead}), &["not/pattern", "not"][..], json!("x")),
        (
            json!({"if": lookahead, "then": {"type": "string"}, "else": {"type": "null"}}),
            &["if/pattern", "if"],
            json!(7),
        ),
        (json!({"oneOf": [lookahead, {"type": "string"}]}), &["oneOf/0/pattern", "oneOf"], json!("y")),
        (
            json!({"contains": lookahead, "maxContains": 1}),
            &["contains/pattern", "maxContains"],
            json!(["x", "xx", "y"]),
        ),
        (json!({"contains": {"const": 1}, "minContains": "0"}), &["minContains", "contains"], json!([])),
        (json!({"prefixItems": "x", "items": false}), &["prefixItems", "items"], json!([1])),
        (
            json!({"properties": 7, "additionalProperties": false}),
            &["properties", "additionalProperties"],
            json!({"x": 1}),
        ),
        (
            json!({"allOf": [{"properties": {"x": {}}, "$ref": "a.json"}], "unevaluatedProperties": false}),
            &["allOf/0/$ref", "unevaluatedProperties"],
            json!({"y": 1}),
        ),
    ] {
        let schema = read_property(&property);
        let lost: Vec<String> = lost.iter().map(|step| format!("/properties/a/{step}")).collect();
        assert_eq!(pointers(&schema), lost, "{property}");
        check(&schema, &[json!({"a": good})], &[]);
    }
    // Through a reference.
    let schema = read(
        &json!({"type": "object", "properties": {"a": {"not": {"$ref": "#/$defs/x"}}, "b": {"$ref": "#/$defs/x"}},
        "$defs": {"x": {"pattern": "^(?!x)", "type": "string"}}}),
    );
    assert_eq!(pointers(&schema), ["/properties/a/not", "/$defs/x/pattern"]);
    check(&schema, &[json!({"a": "x", "b": "x"})], &[json!({"b": 7})]);
}

#[test]
fn references_lead_to_definitions_however_they_are_written() {
    for (reference, more) in [
        ("#/$defs/word", json!({"$defs": {"word": {"type": "string"}}})),
        ("#/definitions/word", json!({"definitions": {"word": {"type": "string"}}})),
        ("#/$defs/a~1b%20c", json!({"$defs": {"a/b c": {"type": "string"}}})),
        ("#/components/schemas/word", json!({"components": {"schemas": {"word": {"type": "string"}}}})),
        ("#word", json!({"$defs": {"word": {"$anchor": "word", "type": "string"}}})),
        ("#word", json!({"definitions": {"word": {"$id": "#word", "type": "string"}}})),
        (
            "word.json",
            json!({"$id": "https://a.example/x/root.json", "$defs": {"w": {"$id": "word.json", "type": "string"}}}),
        ),
        (
            "https://a.example/root.json#/definitions/word",
            json!({"$id": "https://a.example/root.json", "definitions": {"word": {"type": "string"}}}),
        ),
        ("#/properties/b/items/0", json!({})),
    ] {
        let mut schema = json!({"type": "object", "properties": {"a": {"$ref": reference},
            "b": {"items": [{"type": "string"}]}}});
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let read = read(&schema);
        assert_eq!(dropped(&read), [], "{schema}");
        check(&read, &[json!({"a": "x"})], &[json!({"a": 7})]);
        let target = read.value()["properties"]["a"]["$ref"].as_str().unwrap();
        let name = target.strip_prefix("#/$defs/").unwrap();
        assert!(read.value()["$defs"].get(name).is_some() && !name.contains(['/', '%', ' ']), "{target}");
    }
    for dynamic in [
        json!({"$recursiveRef": "#", "$schema": "https://json-schema.org/draft/2019-09/schema"}),
        json!({"$dynamicRef": "#node", "$schema": "https://json-schema.org/draft/2020-12/schema"}),
    ] {
        let mut tree = json!({"type": "object", "properties": {"v": {"type": "integer"}}, "$dynamicAnchor": "node",
            "$schema": dynamic["$schema"]});
        let mut reference = dynamic.clone();
        reference.as_object_mut().unwrap().remove("$schema");
        tree["properties"]["next"] = reference;
        let read = read(&tree);
        check(&read, &[json!({"next": {"v": 1}})], &[json!({"next": {"next": {"v": "x"}}})]);
    }
}

#[test]
fn a_reference_that_leads_back_to_itself_is_lost() {
    for (schema, lost) in [
        (json!({"type": "object", "allOf": [{"$ref": "#"}]}), "/allOf/0/$ref"),
        (
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}},
                "$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"anyOf": [{"$ref": "#/$defs/x"}]}}}),
            "/$defs/y/anyOf/0/$ref",
        ),
    ] {
        let read = read(&schema);
        assert_eq!(pointers(&read), [lost], "{schema}");
        check(&read, &[json!({"a": 1})], &[]);
    }
    let tree =
        read(&json!({"type": "object", "properties": {"in": {"$ref": "#"}, "n": {"type": "integer"}}}));
    assert_eq!(dropped(&tree), []);
    check(&tree, &[json!({"in": {"in": {"n": 1}}})], &[json!({"in": {"in": {"n": "x"}}})]);
}

#[test]
fn the_root_of_arguments_is_always_an_object() {
    for (schema, lost) in [
        (json!(null), &[][..]),
        (json!(true), &[]),
        (json!({}), &[]),
        (json!({"type": ["object", "null"]}), &[]),
        (json!({"type": "OBJECT"}), &["/type"]),
        (json!({"type": "string"}), &["/type"]),
        (json!("object"), &[""]),
        (json!([1]), &[""]),
    ] {
        let read = read(&schema);
        assert_eq!(pointers(&read), lost, "{schema}");
        assert_eq!(*read.value(), json!({"type": "object", "properties": {}}), "{schema}");
        check(&read, &[json!({"x": 1})], &[json!([])]);
    }
    let text = SchemaReader::for_plugins().input(Some("{\"type\":"));
    assert!(dropped(&text)[0].1.contains("not valid JSON"), "{:?}", dropped(&text));
}

#[test]
fn an_output_schema_that_says_nothing_is_none() {
    let reader = SchemaReader::for_servers(&definition_text::no_redaction);
    for text in [
        "null",
        " null ",
        "{}",
        "[]",
        "true",
        r#"{"description":"x","$schema":"https://json-schema.org/draft/2020-12/schema","x-own":1}"#,
        r#"{"properties":[],"required":[]}"#,
        r#"{"additionalProperties":true}"#,
    ] {
        assert_eq!(reader.output(text), Ok(None), "{text}");
    }
    for (text, part) in [
        ("\"x\"", "not an object"),
        ("7", "not an object"),
        ("false", "not an object"),
        ("[1]", "not an object"),
        ("{", "not valid JSON"),
        (r#"{"type":"nonsense"}"#, "/type"),
        (r#"{"maximum":1e400}"#, "/maximum (it cannot be read: number out of range)"),
    ] {
        let lost = reader.output(text).unwrap_err().to_string();
        assert!(lost.contains(part), "{text}: {lost}");
    }
    for text in [r#"{"type":"object"}"#, r#"{"not":{}}"#, r#"{"contains":{}}"#, r#"{"pattern":"^(?!x)"}"#] {
        assert!(reader.output(text).unwrap().is_some(), "{text}");
    }
}

#[test]
fn an_unreadable_keyword_costs_only_itself() {
    let text = r#"{"type":"object","properties":{"a":{"type":"number","maximum":1e400},"\ud83d":{},
        "b":{"type":"string","description":"cut \ud83d"}},"additionalProperties":false,
        "not":{"properties":{"a":{"const":1e400}}}}"#;
    for reader in [SchemaReader::for_plugins(), SchemaReader::for_servers(&definition_text::no_redaction)] {
        let schema = reader.input(Some(text));
        let lost = pointers(&schema);
        for pointer in ["/properties/a/maximum", "/properties/\\ud83d", "/properties/b/description", "/not"] {
            assert!(lost.iter().any(|one| one == pointer), "{pointer}: {lost:?}");
        }
        let shown = schema.value();
        assert_eq!(shown["properties"], json!({"a": {"type": "number"}, "b": {"type": "string"}}));
        // Without a name, more properties would be additional, and a negated part would refuse more.
        check(&schema, &[json!({"a": 7, "b": "x", "c": 1})], &[json!({"a": "x"}), json!({"b": 1})]);
        let deep = format!(
            r#"{{"type":"object","properties":{{"a":{}{{}}{},"b":{{"type":"string"}}}}}}"#,
            r#"{"items":"#.repeat(300),
            "}".repeat(300)
        );
        let schema = reader.input(Some(&deep));
        assert!(!schema.is_outline() && dropped(&schema)[0].1.contains("nested too deeply"));
        check(&schema, &[json!({"a": [[1]], "b": "x"})], &[json!({"b": 1}), json!({"a": [1, 2], "b": 1})]);
    }
}

#[test]
fn a_schema_over_a_limit_keeps_the_outline_of_its_members() {
    let fan: Map<String, Value> = (1..40)
        .map(|n| {
            let below = json!({"$ref": format!("#/$defs/a{}", n - 1)});
            (format!("a{n}"), json!({"allOf": [below, below]}))
        })
        .collect();
    let mut definitions = fan.clone();
    definitions.insert("a0".to_owned(), json!({}));
    let member = json!({"type": "string", "description": "d", "maxLength": 3});
    let wide = json!({"type": "object", "properties": {"m": member, "n": {"$ref": "#/$defs/a39"}}, "required": ["m"],
        "$defs": definitions});
    let long = json!({"type": "object", "properties": {"m": member, "n": {"enum": ["x".repeat(300_000)]}}, "required": ["m"]});
    for (schema, why) in [(wide, "expands to more than"), (long, "bytes; the limit is")] {
        let read = read(&schema);
        let lost = dropped(&read);
        assert!(lost.len() == 1 && lost[0].0.is_empty() && lost[0].1.contains(why), "{lost:?}");
        assert_eq!(read.value()["properties"]["m"], member);
        check(&read, &[json!({"m": "abc"})], &[json!({}), json!({"m": "abcd"})]);
    }
    let deep = (0..40).fold(json!({"type": "string"}), |inner, _| json!({"not": {"not": inner}}));
    let read = read_property(&json!({"properties": {"x": deep}, "maxProperties": 1}));
    let lost = dropped(&read);
    assert!(lost[0].1.contains("nested too deeply"), "{lost:?}");
    assert!(
        lost.iter().all(|(pointer, _)| pointer.starts_with("/properties/a/properties/x/not")),
        "{lost:?}"
    );
    check(&read, &[json!({"a": {"x": 1}})], &[json!({"a": {"x": 1, "y": 1}})]);
}

#[test]
fn ten_thousand_bad_keywords_are_counted() {
    let properties: Map<String, Value> =
        (0..10_000).map(|n| (format!("p{n}"), json!({"type": "s"}))).collect();
    let read = read(&json!({"type": "object", "properties": properties}));
    let dropped = read.dropped().unwrap();
    assert_eq!((dropped.count(), dropped.listed().len()), (10_000, 20));
    assert!(dropped.to_string().len() < 400 && dropped.to_string().ends_with("and 9997 more"), "{dropped}");
    check(&read, &[json!({"p1": []})], &[]);
}

#[test]
fn pointers_and_reasons_are_cleaned() {
    let redact = |text: &str| std::borrow::Cow::from(text.replace("hunter22", "[secret T]"));
    let redact = definition_text::redact_fn(|text| match text.contains("hunter22") {
        true => std::borrow::Cow::Owned(redact(text).into_owned()),
        false => std::borrow::Cow::Borrowed(text),
    });
    let reader = SchemaReader::for_servers(&redact);
    let schema = json!({"type": "object", "properties": {"a": {"x-odd": "hunter22", "enum": ["hunter22"], "type": "s",
        "not": {"const": "hunter22"}}}, "patternProperties": {"(\u{7}": {}}});
    let read = reader.input(Some(&schema.to_string()));
    let said = format!("{:?} {read:?}", dropped(&read));
    assert!(!said.contains("hunter22") && !said.contains('\u{7}'), "{said}");
    let mut lost = pointers(&read);
    lost.sort();
    let expect = [
        "/patternProperties/(\\u0007",
        "/properties/a/enum",
        "/properties/a/not",
        "/properties/a/not/const",
        "/properties/a/type",
        "/properties/a/x-odd",
    ];
    assert_eq!(lost, expect);
    check(&read, &[json!({"a": "x"})], &[]);
}

#[test]
fn an_argument_with_an_unclean_name_is_hidden_and_accepted() {
    let reader = SchemaReader::for_servers(&definition_text::no_redaction);
    let schema = json!({"type": "object", "additionalProperties": false, "required": ["a", "\u{feff}id"],
        "properties": {"a": {"type": "string"}, "\u{feff}id": {"type": "integer"}, "<|im_start|>": {}},
        "not": {"required": ["b\u{200b}"]}});
    let read = reader.input(Some(&schema.to_string()));
    let shown = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}});
    assert_eq!(*read.value(), shown);
    check(&read, &[json!({"a": "x", "\u{feff}id": 1}), json!({"a": "x"})], &[json!({"a": 1}), json!({})]);
    let said = pointers(&read).join(" ");
    assert!(!said.contains('\u{feff}') && !said.contains("<|"), "{said}");
    for part in ["feff", "/required/1", "/properties/[STRIPPED", "/additionalProperties"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(
        read.dropped().unwrap().unchecked_arguments().is_open("/\u{feff}id", None),
        "a rule on it refuses"
    );
    let own = SchemaReader::for_plugins().input(Some(&schema.to_string()));
    assert_eq!(own.value().get("properties"), shown.get("properties"));
    assert!(pointers(&own).iter().any(|pointer| pointer.contains("feff")), "{:?}", pointers(&own));
    assert!(own.check(&json!({"a": "x", "\u{feff}id": "x"})).is_err(), "the host still checks it");
}

/// Schemas with keywords of draft-07 that all dialects have in some form. `pattern` may need look-ahead.
fn schemas(pattern: &'static str) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!(true)),
        Just(json!(false)),
        prop::sample::select(vec!["string", "integer", "object", "array", "null"])
            .prop_map(|kind| json!({"type": kind})),
        Just(json!({"type": ["string", "null"], "maxLength": 1})),
        Just(json!({"enum": ["a", 1, null]})),
        Just(json!({"minimum": 1, "maximum": 1})),
        Just(json!({"required": ["x"], "minProperties": 1})),
        Just(json!({"dependencies": {"x": ["y"], "y": {"maxProperties": 1}}})),
        Just(json!({"$ref": "#/definitions/d", "type": "null"})),
        Just(json!({ "pattern": pattern })),
        Just(json!({"patternProperties": {pattern: {"type": "string"}}, "additionalProperties": false})),
    ];
    leaf.prop_recursive(3, 24, 3, |inner| {
        let two = prop::collection::vec(inner.clone(), 2);
        prop_oneof![
            inner.clone().prop_map(|one| json!({ "not": one })),
            inner.clone().prop_map(|one| json!({"items": one, "minItems": 1})),
            inner.clone().prop_map(|one| json!({ "contains": one })),
            two.clone().prop_map(|two| json!({"items": two, "additionalItems": false})),
            two.clone().prop_map(|two| json!({ "allOf": two })),
            two.clone().prop_map(|two| json!({ "anyOf": two })),
            two.clone().prop_map(|two| json!({ "oneOf": two })),
            two.clone().prop_map(|two| json!({"if": two[0], "then": two[1]})),
            two.clone().prop_map(|two| json!({"properties": {"x": two[0]}, "additionalProperties": two[1]})),
            two.prop_map(
                |two| json!({"properties": {"x": two[0], "y": two[1]}, "type": ["object", "string"]})
            ),
        ]
    })
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![prop::sample::select(vec![
        json!(null),
        json!(1),
        json!(2),
        json!("a"),
        json!("ab"),
        json!("x")
    ]),];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            (inner.clone(), inner.clone()).prop_map(|(x, y)| json!({"x": x, "y": y})),
            inner.prop_map(|x| json!({ "x": x })),
        ]
    })
}

fn whole(property: &Value, definition: &Value) -> Value {
    json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"a": property},
        "definitions": {"d": definition}})
}

/// Whether a value matches a schema of draft-07, with an engine that has look-ahead.
fn matches_draft7(schema: &Value, args: &Value) -> Option<bool> {
    let options = jsonschema::options().with_draft(Draft::Draft7).should_validate_formats(false);
    Some(options.build(schema).ok()?.is_valid(args))
}

proptest! {
    #[test]
    fn a_translated_schema_means_the_same(
        property in schemas("^a"), definition in schemas("^a"), value in values()
    ) {
        let (schema, args) = (whole(&property, &definition), json!({"a": value}));
        let read = read(&schema);
        // A reference that leads back to itself is lost, and its validator does not end.
        if !definition.to_string().contains("$ref") {
            prop_assert_eq!(dropped(&read), vec![], "{}", schema);
            let expect = matches_draft7(&schema, &args);
            prop_assert_eq!(Some(read.check(&args).is_ok()), expect, "{} {} {:?}", schema, args, read);
        }
    }

    #[test]
    fn a_schema_with_lost_keywords_refuses_nothing_more(
        property in schemas("^(?!x)"), definition in schemas("^(?!x)"), value in values()
    ) {
        let (schema, args) = (whole(&property, &definition), json!({"a": value}));
        let read = read(&schema);
        if !definition.to_string().contains("$ref") && matches_draft7(&schema, &args) == Some(true) {
            prop_assert_eq!(read.check(&args), Ok(()), "{} {:?}", schema, read);
        }
    }

    #[test]
    fn whatever_a_schema_holds_the_tool_stays(
        key in "type|properties|items|[$]ref|not|required|enum|if|dependencies|minimum",
        value in r##"\{\}|\[\]|null|1|"a"|\{"a":\{"[$]ref":"#/properties"\}\}|\[\[\]\]|\PC{0,20}"##,
    ) {
        for text in [format!("{{\"{key}\":{value}}}"), format!("{{\"properties\":{{\"a\":{{\"{key}\":{value}}}}}}}")] {
            let read = SchemaReader::for_plugins().input(Some(&text));
            prop_assert_eq!(&read.value()["type"], "object", "{}", text);
        }
    }
}
