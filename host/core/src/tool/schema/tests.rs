//! Tests of validation, refused schemas and messages.

use super::*;
use serde_json::json;

const COUNT: &str = r#"{"type":"object","properties":{"text":{"type":"string"},"top":{"type":"integer","minimum":1}},
    "required":["text"],"additionalProperties":false}"#;

#[test]
fn a_mismatch_names_its_place() {
    let schema = Schema::input(COUNT).unwrap();
    assert_eq!(schema.check(&json!({"text": "a", "top": 3})), Ok(()));
    for (args, pointer, part) in [
        (json!({"text": 5}), "/text", "string"),
        (json!({}), "", "required"),
        (json!({"text": "a", "top": 0}), "/top", "minimum"),
        (json!({"text": "a", "x": 1}), "", "'x'"),
        (json!([]), "", "object"),
    ] {
        let mismatch = schema.check(&args).unwrap_err();
        assert_eq!(mismatch.pointer, pointer, "{mismatch:?}");
        assert!(mismatch.message.contains(part), "{mismatch:?}");
    }
}

#[test]
fn a_finding_never_repeats_a_long_value() {
    let schema = Schema::input(COUNT).unwrap();
    let mismatch = schema.check(&json!({"text": vec!["x".repeat(1000); 100]})).unwrap_err();
    assert!(mismatch.message.chars().count() < 300, "{}", mismatch.message.len());
}

#[test]
fn bad_schemas_are_refused_with_the_reason() {
    let fan: Vec<String> = (1..40)
        .map(|n| {
            format!(r##""a{n}":{{"allOf":[{{"$ref":"#/$defs/a{0}"}},{{"$ref":"#/$defs/a{0}"}}]}}"##, n - 1)
        })
        .collect();
    let fan =
        format!(r##"{{"type":"object","$ref":"#/$defs/a39","$defs":{{"a0":{{}},{}}}}}"##, fan.join(","));
    let deep = format!(r#"{{"type":"object","not":{}{{}}{}}}"#, r#"{"not":"#.repeat(100), "}".repeat(100));
    for (schema, part) in [
        ("", "not valid JSON"),
        ("[]", "not a JSON object"),
        ("true", "not a JSON object"),
        (r#"{"type":"string"}"#, "must have `\"type\": \"object\"`"),
        (
            r#"{"type":"object","properties":{"a":{"$ref":"https://example.com/s.json"}}}"#,
            "leaves the schema",
        ),
        (r#"{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}"#, "leaves the schema"),
        (r##"{"type":"object","allOf":[{"$ref":"#"}]}"##, "leads back to itself"),
        (
            r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"$ref":"#/$defs/y"},"y":{"anyOf":[{"$ref":"#/$defs/x"}]}}}"##,
            "leads back to itself",
        ),
        (r#"{"type":"object","properties":{"a":{"type":"nonsense"}}}"#, "the schema is invalid"),
        (r#"{"type":"object","properties":{"a":{"pattern":"("}}}"#, "the schema is invalid"),
        (&fan, "expands to more than"),
        (&deep, "nested deeper"),
    ] {
        let error = Schema::input(schema).unwrap_err().to_string();
        assert!(error.contains(part), "{schema:.80}: {error}");
    }
}

#[test]
fn a_recursive_schema_is_allowed() {
    let tree = r##"{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"}}},"additionalProperties":false}"##;
    let schema = Schema::input(tree).unwrap();
    assert!(schema.check(&json!({"children": [{"children": []}]})).is_ok());
    assert!(schema.check(&json!({"children": [{"child": []}]})).is_err());
}

#[test]
fn a_mismatch_of_a_long_text_is_explained_or_named_as_too_large() {
    let variant = |n| json!({"properties": {"k": {"const": format!("value {n}")}}, "required": ["k"]});
    let all: Vec<Value> = (0..300).map(variant).collect();
    let schema = json!({"type": "object", "properties": {"a": {"oneOf": all}}});
    let schema = Schema::input(&schema.to_string()).unwrap();
    for (text, part) in [
        ("valu 7".to_owned(), "did you mean `\"value 7\"`?"),
        ("x".repeat(50_000), "valid values are"),
        ("x".repeat(4_000_000), "too large to find the place"),
    ] {
        let mismatch = schema.check(&json!({ "a": { "k": text } })).unwrap_err();
        assert!(mismatch.message.contains(part), "{mismatch:?}");
        assert!(mismatch.message.len() < 8 * MAX_MESSAGE_CHARS, "{}", mismatch.message.len());
    }
}

#[test]
fn patterns_are_bounded_in_all() {
    let with = |count: usize| {
        let all: serde_json::Map<String, Value> =
            (0..count).map(|n| (format!("p{n}"), json!({"pattern": format!("^\\w{{1,30}}-{n}$")}))).collect();
        json!({"type": "object", "properties": all}).to_string()
    };
    assert!(Schema::input(&with(80)).is_ok());
    let error = Schema::input(&with(2000)).unwrap_err();
    assert!(error.to_string().contains("patterns are too large in all"), "{error}");
    // In a schema of somebody else, only the patterns beyond the limit are lost.
    let schema = SchemaReader::for_plugins().input(Some(&with(2000)));
    assert!(schema.dropped().is_some() && schema.value()["properties"].as_object().unwrap().len() == 2000);
    assert_eq!(schema.check(&json!({"p1999": "?"})), Ok(()), "a pattern beyond the limit is not checked");
}

#[test]
fn exact_divisions_are_bounded() {
    let with = |divisor: &str, count: usize| {
        let all = vec![format!("{{\"multipleOf\": {divisor}}}"); count].join(",");
        let text = format!(
            "{{\"type\": \"object\", \"properties\": {{\"a\": {{\"items\": {{\"allOf\": [{all}]}}}}}}}}"
        );
        Schema::input(&text).unwrap()
    };
    let prices = json!({"a": vec![json!(19.99); 2000]});
    assert_eq!(with("0.01", 20).check(&prices), Ok(()));
    let huge = json!({"a": vec![json!(1.1e308); 9000]});
    let error = with("1e-300", 300).check(&huge).unwrap_err();
    assert!(error.message.contains("too many for a schema"), "{}", error.message);
}
