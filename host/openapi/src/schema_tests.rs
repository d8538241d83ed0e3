use toolbay_core::tool::definition_text;
use toolbay_core::tool::schema::{Schema, SchemaReader};

use super::*;

fn document(version: &str, schemas: &Value) -> OpenApiDocument {
    let text = json!({"openapi": version, "paths": {}, "components": {"schemas": schemas}}).to_string();
    OpenApiDocument::parse(&text).unwrap()
}

fn definitions(schemas: &mut SchemaConverter<'_>) -> Result<Map<String, Value>, String> {
    let mut arguments = Map::new();
    schemas.add_definitions(&mut arguments)?;
    Ok(arguments.remove("$defs").and_then(|all| all.as_object().cloned()).unwrap_or_default())
}

fn converted(version: &str, schema: &Value) -> Value {
    let document = document(version, &json!({}));
    SchemaConverter::new(&document, MAX_DEPTH, &mut SchemaTotals::default()).convert("body", schema).unwrap()
}

#[test]
fn the_dialect_of_3_0_is_translated() {
    for (schema, expected) in [
        (json!({"type": "string", "nullable": true}), json!({"type": ["string", "null"]})),
        (
            json!({"type": "string", "nullable": true, "enum": ["a"]}),
            json!({"type": ["string", "null"], "enum": ["a", null]}),
        ),
        (
            json!({"nullable": true, "description": "d", "allOf": [{"type": "object"}]}),
            json!({"description": "d", "anyOf": [{"allOf": [{"type": "object"}]}, {"type": "null"}]}),
        ),
        (
            json!({"type": "integer", "minimum": 3, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false}),
            json!({"type": "integer", "exclusiveMinimum": 3, "maximum": 9}),
        ),
        (
            json!({"type": "string", "example": "cat", "xml": {"name": "x"}, "x-y": 1, "format": "date"}),
            json!({"type": "string", "format": "date", "examples": ["cat"]}),
        ),
        (json!({"type": "string", "pattern": "^a+$"}), json!({"type": "string", "pattern": "^a+$"})),
        (
            json!({"type": "object", "required": ["id", "name"], "properties": {
                "id": {"type": "integer", "readOnly": true}, "name": {"type": "string"}}}),
            json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}),
        ),
        (json!({"exclusiveMinimum": 3}), json!({"exclusiveMinimum": 3})),
        (json!(true), json!(true)),
    ] {
        assert_eq!(converted("3.0.3", &schema), expected, "{schema}");
    }
}

#[test]
fn references_become_definitions_and_stay_recursive() {
    let document = document(
        "3.1.0",
        &json!({
            "Node": {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"},
                "other": {"$ref": "#/components/schemas/a~1b"}}},
            "a/b": {"type": "string"}, "b": {"type": "integer"}}),
    );
    let mut known = SchemaTotals::default();
    let mut schemas = SchemaConverter::new(&document, MAX_DEPTH, &mut known);
    let root = schemas
        .convert(
            "body",
            &json!({"type": "object", "properties": {
            "n": {"$ref": "#/components/schemas/Node", "description": "kept"},
            "b": {"$ref": "#/components/schemas/b"}}}),
        )
        .unwrap();
    assert_eq!(root.pointer("/properties/n/$ref"), Some(&json!("#/$defs/Node")));
    assert_eq!(root.pointer("/properties/n/description"), Some(&json!("kept")));
    let definitions = definitions(&mut schemas).unwrap();
    assert_eq!(definitions.keys().collect::<Vec<_>>(), ["Node", "b", "a_1b"]);
    let whole = json!({"type": "object", "properties": root.get("properties"), "$defs": definitions});
    let schema = Schema::input(&whole.to_string()).unwrap();
    assert!(schema.check(&json!({"n": {"next": {"other": "x"}}})).is_ok());
    assert!(schema.check(&json!({"n": {"next": {"other": 7}}})).is_err());
}

#[test]
fn a_hostile_schema_is_converted_cheaply() {
    // Many references with the same last segment: each gets a unique name without a search.
    let many = 15_000;
    let schemas: Map<String, Value> =
        (0..many).map(|n| (n.to_string(), json!({"x": {"type": "string"}}))).collect();
    let hostile = document("3.1.0", &Value::Object(schemas));
    let fields: Map<String, Value> = (0..many)
        .map(|n| (format!("f{n}"), json!({"$ref": format!("#/components/schemas/{n}/x")})))
        .collect();
    let mut known = SchemaTotals::default();
    let mut schemas = SchemaConverter::new(&hostile, MAX_DEPTH, &mut known);
    schemas.convert("body", &json!({"properties": fields})).unwrap();
    assert!(definitions(&mut schemas).is_err(), "it is more than one operation may have");
    let long = "x".repeat(100_000);
    let values: Vec<String> = (0..5000).map(|n| format!("value {n}")).collect();
    let kept = converted(
        "3.1.0",
        &json!({"type": "string", "enum": values, "default": long, "description": long,
            "const": long, "pattern": long, "unknown": {"a": [1]}, "title": "a\u{202e}b"}),
    );
    assert_eq!(kept["description"].as_str().unwrap().chars().count(), MAX_DESCRIPTION + 1);
    assert_eq!(kept["title"], "ab");
    assert_eq!(kept.as_object().unwrap().len(), 3, "{kept}");
    // A schema with many parts that is referenced repeatedly.
    let big: Map<String, Value> = (0..10_000).map(|n| (format!("f{n}"), json!({"type": "string"}))).collect();
    let again = document("3.1.0", &json!({"Big": {"properties": big}}));
    let mut known = SchemaTotals::default();
    let mut refused = None;
    for _ in 0..200 {
        let mut schemas = SchemaConverter::new(&again, MAX_DEPTH, &mut known);
        let converted = schemas.convert("body", &json!({"$ref": "#/components/schemas/Big"}));
        refused = refused.or(converted.err()).or(definitions(&mut schemas).err());
    }
    assert!(refused.unwrap().contains("choose some operations"));
}

#[test]
fn a_deep_schema_is_cut_and_a_large_one_refused() {
    let deep = (0..100).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
    let document = document("3.1.0", &json!({}));
    let cut =
        SchemaConverter::new(&document, 3, &mut SchemaTotals::default()).convert("body", &deep).unwrap();
    assert_eq!(
        cut,
        json!({"type": "array", "items": {"type": "array", "items": {"type": "array", "items": {"type": "array"}}}})
    );
    let many: Map<String, Value> =
        (0..=MAX_PARTS).map(|n| (n.to_string(), json!({"type": "string"}))).collect();
    let error = SchemaConverter::new(&document, 9, &mut SchemaTotals::default())
        .convert("body", &json!({"properties": many}))
        .unwrap_err();
    assert!(error.contains("more than 20000 parts"), "{error}");
}

/// The schema of an argument `body`, with its definitions.
fn argument_schema(version: &str, schema: &Value, schemas: &Value) -> (Schema, Value) {
    let document = document(version, schemas);
    let mut known = SchemaTotals::default();
    let mut converter = SchemaConverter::new(&document, MAX_DEPTH, &mut known);
    let body = converter.convert("body", schema).unwrap();
    let mut arguments = Map::new();
    arguments.insert("type".to_owned(), json!("object"));
    arguments.insert("properties".to_owned(), json!({ "body": body }));
    converter.add_definitions(&mut arguments).unwrap();
    let value = Value::Object(arguments);
    let reader = SchemaReader::for_servers(&definition_text::no_redaction);
    (reader.input(Some(&value.to_string())), value)
}

/// Checks which bodies a schema accepts, and which it refuses.
fn check_bodies(version: &str, schema: &Value, schemas: &Value, good: &[Value], bad: &[Value]) -> Value {
    let (checked, value) = argument_schema(version, schema, schemas);
    for body in good {
        let found = checked.check(&json!({ "body": body }));
        assert!(found.is_ok(), "{body} does not fit {value}: {found:?}");
    }
    for body in bad {
        assert!(checked.check(&json!({ "body": body })).is_err(), "{body} fits {value}");
    }
    value
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

#[test]
fn a_read_only_property_is_never_required() {
    let read_only = json!({"type": "object", "properties": {"key": {"type": "string", "readOnly": true}}});
    let requiring =
        json!({"type": "object", "required": ["key", "text"], "properties": {"text": {"type": "string"}}});
    let schemas = json!({"Saved": read_only, "Requiring": requiring, "Id": {"type": "string", "readOnly": true},
        "Base": {"required": ["key"], "properties": {"key": {"type": "string"}, "text": {"type": "string"}}},
        "Deep": {"allOf": [reference("Saved")]},
        "Loop": {"allOf": [reference("Loop"), read_only, requiring]}});
    let (good, bad) = ([json!({"text": "a"})], [json!({})]);
    for schema in [
        json!({"allOf": [reference("Saved"), requiring]}),
        json!({"allOf": [requiring, read_only]}),
        json!({"allOf": [reference("Requiring"), reference("Deep")]}),
        json!({"allOf": [{"allOf": [reference("Deep")]}, {"allOf": [{"allOf": [reference("Requiring")]}]}]}),
        json!({"required": ["key", "text"], "allOf": [reference("Saved")]}),
        json!({"required": ["key", "text"], "properties": {"key": reference("Id")}}),
        json!({"required": ["key", "text"], "properties": {"key": {"allOf": [reference("Id")]}}}),
        json!({"required": ["text"], "allOf": [reference("Base")], "properties": {"key": {"readOnly": true}}}),
        json!({"required": ["key", "text"], "oneOf": [reference("Saved"), {"required": ["text"]}]}),
        json!({"anyOf": [{"allOf": [reference("Saved"), requiring]}]}),
    ] {
        let value = check_bodies("3.0.3", &schema, &schemas, &good, &bad).to_string();
        let is_offered =
            value.contains(r#""key":{"type":"string"#) && !value.contains("\"required\":[\"key\"");
        assert!(!is_offered || schema.to_string().contains("Base"), "{value}");
    }
    // A list of such objects, and a use of the schema alone.
    let list = json!({"type": "object", "properties": {
        "one": {"allOf": [reference("Base"), read_only]}, "all": {"type": "array", "items": reference("Base")}}});
    check_bodies(
        "3.1.0",
        &list,
        &schemas,
        &[json!({"one": {}}), json!({"all": [{"key": "a"}]})],
        &[json!({"all": [{}]})],
    );
    // The branch that declares it as an argument still requires it.
    let union =
        json!({"oneOf": [read_only, {"required": ["key"], "properties": {"key": {"type": "integer"}}}]});
    let value = check_bodies("3.1.0", &union, &schemas, &[json!({"key": 1})], &[]);
    assert_eq!(value.pointer("/properties/body/anyOf/1/required/0"), Some(&json!("key")));
    // Circles end.
    let document = document("3.0.3", &schemas);
    let mut known = SchemaTotals::default();
    let mut converter = SchemaConverter::new(&document, MAX_DEPTH, &mut known);
    converter.convert("body", &reference("Loop")).unwrap();
    assert_eq!(definitions(&mut converter).unwrap().len(), 1);
}

/// Beside a reference, 3.0 ignores keywords and 3.1 does not.
#[test]
fn keywords_beside_a_reference_follow_the_version() {
    let schemas = json!({"Id": {"type": "string"}});
    let beside = |keyword: &str| {
        let mut property = reference("Id");
        property[keyword] = json!(true);
        json!({"type": "object", "required": ["id"], "properties": {"id": property}})
    };
    // The author meant it, so nothing is required, and the property stays an argument.
    let value = check_bodies(
        "3.0.3",
        &beside("readOnly"),
        &schemas,
        &[json!({}), json!({"id": "a"})],
        &[json!({"id": 7})],
    );
    assert!(value.pointer("/properties/body/properties/id").is_some());
    let value = check_bodies("3.1.0", &beside("readOnly"), &schemas, &[json!({})], &[]);
    assert!(value.pointer("/properties/body/properties/id").is_none());
    check_bodies(
        "3.1.0",
        &beside("writeOnly"),
        &schemas,
        &[json!({"id": "a"})],
        &[json!({}), json!({"id": 7})],
    );
    check_bodies(
        "3.0.3",
        &beside("writeOnly"),
        &schemas,
        &[json!({"id": "a"})],
        &[json!({}), json!({"id": 7})],
    );
    check_bodies("3.0.3", &beside("nullable"), &schemas, &[json!({"id": "a"})], &[json!({"id": null})]);
    let short =
        json!({"$ref": "#/components/schemas/Id", "maxLength": 2, "examples": ["ab"], "default": "a"});
    let value = check_bodies("3.1.0", &short, &schemas, &[json!("ab")], &[json!("abc")]);
    assert_eq!(value.pointer("/properties/body/examples"), Some(&json!(["ab"])));
    check_bodies("3.0.3", &short, &schemas, &[json!("abc")], &[json!(7)]);
}

#[test]
fn the_service_judges_overlapping_branches_and_a_discriminator_chooses_one() {
    let branch = |name: &str, kind: &str| json!({"type": "object", "required": ["by"], "properties": {"by": {"type": "string"}, name: {"type": kind}}});
    let schemas = json!({"Card": branch("number", "string"), "Bank": branch("iban", "string"),
        "Cash": {"allOf": [branch("coins", "integer")]},
        "Upper": {"type": "object", "properties": {"by": {"type": "string", "enum": ["UPPER"]}, "up": {"type": "string"}}},
        "Numbered": {"type": "object", "properties": {"by": {"type": "integer"}}},
        "Nested": {"oneOf": [reference("Card"), reference("Bank")], "discriminator": {"propertyName": "by"}}});
    // Without a discriminator.
    let marks = |items: &str| json!({"type": "object", "properties": {"marks": {"type": "array", "items": {"type": items}}}});
    let overlap = json!({"oneOf": [marks("string"), marks("object")]});
    check_bodies(
        "3.0.3",
        &overlap,
        &schemas,
        &[json!({"marks": []}), json!({"marks": ["a"]}), json!({"marks": [{}]})],
        &[json!({"marks": [7]}), json!([])],
    );
    // With one, with and without a mapping.
    let union = |branches: &[&str], mapping: Value| {
        let branches: Vec<Value> = branches.iter().map(|name| reference(name)).collect();
        json!({"oneOf": branches, "discriminator": {"propertyName": "by", "mapping": mapping}})
    };
    let mapping =
        json!({"card": "#/components/schemas/Card", "credit": "Card", "bank": "Bank", "cash": "Cash"});
    check_bodies(
        "3.0.3",
        &union(&["Card", "Bank", "Cash"], mapping),
        &schemas,
        &[
            json!({"by": "bank", "iban": "X1"}),
            json!({"by": "credit", "number": "1"}),
            json!({"by": "cash", "coins": 3, "iban": 7}),
            // The name of a schema stays a value.
            json!({"by": "Bank", "iban": "X1"}),
            json!({"by": "Card", "number": "1"}),
        ],
        &[
            json!({"by": "Bank", "iban": 7}),
            json!({"by": "bank", "iban": 7}),
            json!({"by": "card", "number": 7}),
            json!({"by": "cash", "coins": "x"}),
            json!({"by": "BANK"}),
            json!({"iban": "X1"}),
        ],
    );
    // Unless the mapping gives it to another schema, or the schema itself does not allow it.
    check_bodies(
        "3.1.0",
        &union(&["Card", "Bank", "Upper"], json!({"Card": "Bank", "card": "Card", "UPPER": "Upper"})),
        &schemas,
        &[json!({"by": "Card", "iban": "X1", "number": 7}), json!({"by": "UPPER", "up": "a"})],
        &[json!({"by": "Card", "iban": 7}), json!({"by": "Upper", "up": "a"})],
    );
    check_bodies(
        "3.1.0",
        &union(&["Card", "Bank"], json!({})),
        &schemas,
        &[json!({"by": "Bank", "iban": "X1"})],
        &[json!({"by": "Bank", "iban": 7}), json!({"by": "bank", "iban": "X1"})],
    );
    // What a branch says of the property itself wins over the name of the branch.
    check_bodies(
        "3.1.0",
        &union(&["Upper", "Numbered", "Nested"], json!({})),
        &schemas,
        &[json!({"by": "UPPER", "up": "a"}), json!({"by": 7}), json!({"by": "Card", "number": "1"})],
        &[json!({"by": "UPPER", "up": 7}), json!({"by": "Card", "number": 7})],
    );
    // Branches without a name are not chosen.
    let inline = json!({"oneOf": [branch("a", "string"), branch("b", "string")], "discriminator": {"propertyName": "by"}});
    check_bodies("3.1.0", &inline, &schemas, &[json!({"by": "x", "a": "1", "b": "2"})], &[json!({})]);
    // Two unions of one schema.
    let both = json!({"anyOf": [{"type": "string"}, {"type": "integer"}], "oneOf": [{"minLength": 2}, {"maximum": 5}]});
    check_bodies("3.1.0", &both, &schemas, &[json!("ab"), json!(3)], &[json!(true)]);
}

#[test]
fn a_number_counts_as_text_where_a_text_is_meant() {
    for (schema, expected) in [
        (
            json!({"type": "string", "enum": [1, true, "a", null], "default": 2, "example": 3}),
            json!({"type": "string", "enum": ["1", "true", "a", null], "default": "2", "examples": ["3"]}),
        ),
        (json!({"type": ["string", "null"], "const": 7}), json!({"type": ["string", "null"], "const": "7"})),
        (json!({"type": "integer", "enum": [1, 2]}), json!({"type": "integer", "enum": [1, 2]})),
        (
            json!({"type": "string", "enum": [1.5, "a"], "default": 1.5}),
            json!({"type": "string", "enum": ["1.5", "a"], "default": "1.5"}),
        ),
        (json!({"description": 2024, "title": true}), json!({"description": "2024", "title": "true"})),
        (json!({"required": [1, "a"]}), json!({"required": ["1", "a"]})),
    ] {
        assert_eq!(converted("3.1.0", &schema), expected, "{schema}");
    }
}

/// The converted schema, and the lines about it.
fn converted_with_lines(text: &str, schema: &Value) -> (Value, Vec<String>) {
    let document = OpenApiDocument::parse(text).unwrap();
    let mut totals = SchemaTotals::default();
    let mut converter = SchemaConverter::new(&document, MAX_DEPTH, &mut totals);
    let converted = converter.convert("body", schema).unwrap();
    definitions(&mut converter).unwrap();
    (converted, converter.into_losses())
}

const EMPTY: &str = "openapi: 3.1.0\npaths: {}\n";

#[test]
fn a_value_becomes_one_of_the_declared_type_or_is_named() {
    for (schema, expected) in [
        (
            json!({"type": "integer", "enum": ["10", "20"], "default": "10"}),
            json!({"type": "integer", "enum": [10, 20], "default": 10}),
        ),
        (json!({"type": "number", "enum": ["1.5", 2]}), json!({"type": "number", "enum": [1.5, 2]})),
        (
            json!({"type": ["boolean", "null"], "const": "True"}),
            json!({"type": ["boolean", "null"], "const": true}),
        ),
        (json!({"type": "integer", "enum": [1.0]}), json!({"type": "integer", "enum": [1.0]})),
        (
            json!({"type": "array", "enum": [[1]], "default": []}),
            json!({"type": "array", "enum": [[1]], "default": []}),
        ),
        (
            json!({"type": "integer", "minimum": "3", "exclusiveMaximum": true, "maximum": "9"}),
            json!({"type": "integer", "minimum": 3, "exclusiveMaximum": 9}),
        ),
        (json!({"type": "string", "maxLength": "4"}), json!({"type": "string", "maxLength": 4})),
        (json!({"type": "strange", "enum": ["a"]}), json!({"type": "strange", "enum": ["a"]})),
        (json!({"type": "string", "default": null}), json!({"type": "string", "default": null})),
    ] {
        assert_eq!(converted_with_lines(EMPTY, &schema), (expected, vec![]), "{schema}");
    }
    for (schema, expected) in [
        (json!({"type": "array", "enum": ["a", "b"]}), json!({"type": "array"})),
        (json!({"type": "boolean", "enum": ["yes", "no"]}), json!({"type": "boolean"})),
        (json!({"type": "integer", "const": "x"}), json!({"type": "integer"})),
        (json!({"type": "integer", "default": []}), json!({"type": "integer"})),
        (json!({"type": "integer", "minimum": "low"}), json!({"type": "integer"})),
        (json!({"type": "integer", "enum": []}), json!({"type": "integer"})),
        (json!({"type": "string", "enum": [null]}), json!({"type": "string"})),
        (json!({"type": "integer", "enum": [1, "two"]}), json!({"type": "integer", "enum": [1]})),
    ] {
        let (converted, lines) = converted_with_lines(EMPTY, &json!({"properties": {"n": schema}}));
        assert_eq!(converted["properties"]["n"], expected, "{schema}");
        assert!(lines.len() == 1 && lines[0].starts_with("`body.n`: its `"), "{lines:?}");
    }
    // 1.1 may be 1.10, so the other values alone would refuse what the document allows.
    let text = "openapi: 3.1.0\npaths: {}\nx-a: [1.10, 1e3]\n";
    for value in [1.1, 1000.0] {
        let schema = json!({"type": "string", "enum": ["NO", value]});
        let (converted, lines) = converted_with_lines(text, &schema);
        assert_eq!((converted, lines.len()), (json!({"type": "string"}), 1));
    }
    let many: Map<String, Value> =
        (0..100).map(|n| (n.to_string(), json!({"type": "integer", "enum": []}))).collect();
    let (_, lines) = converted_with_lines(EMPTY, &json!({"properties": many}));
    assert!(lines.len() == 11 && lines[10].starts_with("90 more"), "{lines:?}");
}

#[test]
fn a_reference_without_a_target_may_be_anything() {
    for target in ["#/components/schemas/Gone", "common.yaml#/X", "https://a.example/b.json"] {
        let schema = json!({"properties": {"a": {"type": "string"}, "b": {"$ref": target}}});
        for version in ["3.0.3", "3.1.0"] {
            let text = format!("openapi: {version}\npaths: {{}}\n");
            let (converted, lines) = converted_with_lines(&text, &schema);
            assert_eq!(converted, json!({"properties": {"a": {"type": "string"}, "b": {}}}));
            assert!(lines.len() == 1 && lines[0].starts_with("`body.b`: it may be anything"), "{lines:?}");
        }
        // A negation of it would refuse more.
        let negated = json!({"not": {"$ref": target}});
        assert_eq!(converted_with_lines(EMPTY, &negated).0, json!({}));
    }
    let schemas = json!({"Half": {"properties": {"x": reference("Gone")}, "required": ["y"]}});
    check_bodies("3.1.0", &reference("Half"), &schemas, &[json!({"x": 1, "y": 2})], &[json!({})]);
}

#[test]
fn a_read_only_property_is_not_required_by_another() {
    let key = json!({"key": {"type": "string", "readOnly": true}, "k": {"type": "string"}});
    let schemas =
        json!({"Key": {"properties": key}, "Dependent": {"dependentRequired": {"k": ["key", "other"]}}});
    for schema in [
        json!({"dependentRequired": {"k": ["key", "other"]}, "properties": key}),
        json!({"allOf": [reference("Key"), {"dependentRequired": {"k": ["key", "other"]}}]}),
        json!({"allOf": [reference("Key"), reference("Dependent")]}),
        json!({"dependentSchemas": {"k": {"required": ["key", "other"]}}, "properties": key}),
        json!({"allOf": [reference("Key"), {"dependentSchemas": {"k": {"required": ["key", "other"]}}}]}),
        json!({"allOf": [reference("Key"), {"if": {"required": ["k"]}, "then": {"required": ["key", "other"]}}]}),
    ] {
        check_bodies(
            "3.1.0",
            &schema,
            &schemas,
            &[json!({"k": "a", "other": 1}), json!({})],
            &[json!({"k": "a"})],
        );
    }
    let old = json!({"dependencies": {"k": ["key"]}, "properties": key});
    check_bodies("3.1.0", &old, &schemas, &[json!({"k": "a"})], &[]);
}

#[test]
fn a_broken_entry_of_a_mapping_leaves_the_other_branches_open() {
    let branch = |name: &str| json!({"type": "object", "properties": {"t": {"type": "string"}, name: {"type": "string"}}});
    let schemas = json!({"A": branch("a"), "B": branch("b"), "C": branch("c")});
    let union = |mapping: Value| json!({"oneOf": [reference("A"), reference("B")], "discriminator": {"propertyName": "t", "mapping": mapping}});
    for target in ["#/components/schemas/Bee", "Bee", "bee.yaml#/B"] {
        let schema = union(json!({"a": "#/components/schemas/A", "b": target}));
        check_bodies(
            "3.1.0",
            &schema,
            &schemas,
            &[json!({"t": "b", "b": "x"}), json!({"t": "a", "a": "x"})],
            &[json!({"t": "b", "b": 7})],
        );
        let text = json!({"openapi": "3.1.0", "paths": {}, "components": {"schemas": schemas}}).to_string();
        let (_, lines) = converted_with_lines(&text, &schema);
        assert!(lines.len() == 1 && lines[0].contains("no schema for `b`"), "{lines:?}");
    }
    // A schema that is no branch may be meant for one, and is not missing.
    let other = union(json!({"a": "A", "c": "C"}));
    check_bodies(
        "3.1.0",
        &other,
        &schemas,
        &[json!({"t": "c"}), json!({"t": "B"})],
        &[json!({"t": "c", "b": 7})],
    );
    // More values than are kept, or longer ones.
    let long = "x".repeat(300);
    let mut many: Map<String, Value> = (0..150).map(|n| (n.to_string(), json!("A"))).collect();
    many.insert(long.clone(), json!("B"));
    let (good, bad) = ([json!({"t": "149"}), json!({"t": long})], [json!({"t": 7})]);
    check_bodies("3.1.0", &union(Value::Object(many)), &schemas, &good, &bad);
}

/// A weaker schema below `not` would refuse more.
#[test]
fn a_negation_that_cannot_be_kept_whole_is_dropped() {
    let unsupported = json!({"type": "string", "pattern": "(?=a)b"});
    let schemas = json!({"Odd": unsupported, "Text": {"type": "string"}});
    for (schema, kept) in [
        (json!({"not": {"type": "string"}}), true),
        (json!({"not": reference("Text")}), true),
        (json!({"not": unsupported}), false),
        (json!({"not": reference("Odd")}), false),
        (json!({"if": unsupported, "then": {"type": "integer"}}), false),
        (json!({"if": {"type": "string"}, "then": {"minLength": 2}}), true),
        (json!({"not": {"allOf": [{"not": unsupported}]}}), false),
    ] {
        let (read, _) = argument_schema("3.1.0", &schema, &schemas);
        let body = read.checked_value().pointer("/properties/body").unwrap();
        assert_eq!(body.get("not").or_else(|| body.get("if")).is_some(), kept, "{schema}: {body}");
    }
    // `oneOf` stays below `not`: `anyOf` would refuse more.
    let both = json!({"not": {"oneOf": [{"type": "string"}, {"minLength": 3}]}});
    check_bodies("3.1.0", &both, &schemas, &[json!("abc")], &[json!("a")]);
    // A read-only property below `not` is no argument that is required.
    let none = json!({"properties": {"id": {"readOnly": true}}, "not": {"required": ["id"]}});
    check_bodies("3.1.0", &none, &schemas, &[json!({"a": 1})], &[json!({"id": 1})]);
    // Properties of these names are no keywords.
    let named = json!({"properties": {"not": {"type": "string"}, "if": {"not": reference("Odd")}}});
    let (_, value) = argument_schema("3.1.0", &named, &schemas);
    assert_eq!(value.pointer("/properties/body/properties/not"), Some(&json!({"type": "string"})));
    // Nothing is left of what a lost part described.
    let open =
        json!({"allOf": [{"pattern": "(?=a)", "properties": {"a": {}}}], "unevaluatedProperties": false});
    check_bodies("3.1.0", &open, &schemas, &[json!({"a": 1, "b": 2})], &[]);
}

/// The work for one schema stays bounded, however often its parts refer to each other.
#[test]
fn many_read_only_names_and_branches_are_converted_cheaply() {
    let names: Map<String, Value> =
        (0..500).map(|n| (format!("p{n}"), json!({"type": "string", "readOnly": true}))).collect();
    let required: Vec<String> = (0..500).map(|n| format!("p{n}")).collect();
    let branches: Vec<Value> = (0..100).map(|n| reference(&format!("B{n}"))).collect();
    let mut schemas: Map<String, Value> =
        (0..100).map(|n| (format!("B{n}"), json!({"required": required}))).collect();
    schemas.insert("All".to_owned(), json!({"properties": names}));
    let document = document("3.1.0", &Value::Object(schemas));
    let schema = json!({"allOf": [reference("All"), {"allOf": branches}]});
    let mut known = SchemaTotals::default();
    let mut converter = SchemaConverter::new(&document, MAX_DEPTH, &mut known);
    let mut arguments = Map::new();
    let result = converter.convert("body", &schema).and_then(|_| converter.add_definitions(&mut arguments));
    assert!(result.unwrap_err().contains("parts"));
}
