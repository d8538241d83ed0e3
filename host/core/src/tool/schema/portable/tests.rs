//! Tests of the portable form: how each keyword is rewritten, and that the meaning stays the same.

use super::*;
use crate::tool::schema::Schema;

/// Checks the form of a property.
fn check(written: &Value, expect: &Value) {
    let root = |property: &Value| json!({"type": "object", "properties": {"a": property}});
    let form = to_portable_form(root(written));
    assert_eq!(form, root(expect), "{written}");
    assert_eq!(to_portable_form(form.clone()), form, "a second pass changes nothing");
}

#[test]
fn several_types_become_alternatives() {
    check(
        &json!({"type": ["string", "null"], "description": "d", "minLength": 2, "default": null}),
        &json!({"anyOf": [{"type": "string", "minLength": 2}, {"type": "null"}], "description": "d", "default": null}),
    );
    check(
        &json!({"type": ["string", "null"], "enum": ["a", "b", null]}),
        &json!({"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}]}),
    );
    check(&json!({"type": ["string", "null"], "enum": ["a"]}), &json!({"type": "string", "enum": ["a"]}));
    check(
        &json!({"type": ["array", "null"], "items": {"type": ["integer", "null"]}, "maxItems": 3}),
        &json!({"anyOf": [
            {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "maxItems": 3},
            {"type": "null"},
        ]}),
    );
    check(
        &json!({"type": ["array", "string"]}),
        &json!({"anyOf": [{"type": "array", "items": {}}, {"type": "string"}]}),
    );
    check(
        &json!({"type": ["integer", "number"], "minimum": 1, "format": "double"}),
        &json!({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "number", "minimum": 1}], "format": "double"}),
    );
    check(
        &json!({"type": ["string", "integer"], "anyOf": [{"minLength": 1}]}),
        &json!({"anyOf": [{"minLength": 1}], "allOf": [{"anyOf": [{"type": "string"}, {"type": "integer"}]}]}),
    );
}

#[test]
fn the_alternative_to_null_is_found() {
    let text = json!({"type": "string"});
    for (schema, expect) in [
        (json!({"anyOf": [text, {"type": "null"}]}), &text),
        (json!({"anyOf": [{"type": "null"}, text]}), &text),
        (text.clone(), &text),
    ] {
        assert_eq!(without_null(&schema), expect);
    }
    for schema in [json!({"anyOf": [text, {"type": "integer"}]}), json!({"anyOf": [text]}), json!(true)] {
        assert_eq!(without_null(&schema), &schema);
    }
}

#[test]
fn booleans_and_bare_lists_become_objects() {
    check(&json!(true), &json!({}));
    check(&json!({"type": "array", "items": true}), &json!({"type": "array", "items": {}}));
    check(&json!({"type": "array"}), &json!({"type": "array", "items": {}}));
    check(&json!({"anyOf": [false, {"type": "null"}]}), &json!({"anyOf": [{"not": {}}, {"type": "null"}]}));
    for kept in [
        json!({"type": "object", "additionalProperties": false}),
        json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": false}),
        json!({"enum": [true, false], "default": true}),
        json!({"type": "object", "properties": {"type": {"type": "string"}, "items": {"type": "string"}}}),
    ] {
        check(&kept, &kept);
    }
}

#[test]
fn a_tuple_of_one_kind_becomes_a_list_of_fixed_length() {
    let number = json!({"type": "number"});
    check(
        &json!({"type": "array", "prefixItems": [number, number], "items": false, "minItems": 2}),
        &json!({"type": "array", "items": number, "minItems": 2, "maxItems": 2}),
    );
    check(
        &json!({"type": "array", "prefixItems": [number, number], "maxItems": 1}),
        &json!({"type": "array", "items": number, "maxItems": 1}),
    );
    let open = json!({"type": "array", "prefixItems": [number, number]});
    check(&open, &open);
}

#[test]
fn parts_of_the_root_become_members_if_nothing_is_in_two() {
    let definition = json!({"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}, "required": ["n"]});
    let referring =
        json!({"type": "object", "properties": {}, "$ref": "#/$defs/N", "$defs": {"N": definition}});
    let mut expect = definition.clone();
    expect["$defs"] = json!({"N": definition});
    assert_eq!(to_portable_form(referring), expect);
    let parts = json!({"type": "object", "properties": {"a": {"type": "string"}}, "allOf": [
        {"properties": {"b": {"type": "string"}}, "required": ["b"]},
        {"$ref": "#/$defs/C"},
    ], "$defs": {"C": {"type": "object", "properties": {"c": {"type": "null"}}, "required": ["c"]}}});
    let merged = to_portable_form(parts);
    assert!(merged.get("allOf").is_none(), "{merged}");
    assert_eq!(
        merged["properties"],
        json!({"a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "null"}})
    );
    assert_eq!(merged["required"], json!(["b", "c"]));
    for kept in [
        json!({"type": "object", "properties": {"a": {}}, "allOf": [{"properties": {"a": {"type": "string"}}}]}),
        json!({"type": "object", "additionalProperties": false, "allOf": [{"properties": {"a": {}}}]}),
        json!({"type": "object", "allOf": [{"not": {}}]}),
        json!({"type": "object", "$ref": "#/$defs/N", "required": ["x"], "$defs": {"N": {"required": ["n"]}}}),
        json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
    ] {
        assert_eq!(to_portable_form(kept.clone()), kept);
    }
}

#[test]
fn nothing_moves_where_other_keywords_look() {
    for kept in [
        json!({"type": "object", "properties": {"a": {"type": ["object", "null"], "unevaluatedProperties": false}}}),
        json!({"type": "object", "properties": {"a": {"type": ["array", "null"], "items": {"type": "string"}},
            "b": {"$ref": "#/properties/a/items"}}}),
    ] {
        assert_eq!(to_portable_form(kept.clone()), kept);
    }
}

#[test]
fn the_form_accepts_the_same_values() {
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(1.5),
        json!("a"),
        json!("long"),
        json!([]),
        json!([1]),
        json!([1, "a"]),
        json!({}),
        json!({"x": 1}),
        json!({"x": "a"}),
    ];
    for schema in [
        json!({"type": ["string", "null"], "maxLength": 2}),
        json!({"type": ["string", "integer", "null"], "enum": ["a", 1, null]}),
        json!({"type": ["integer", "number"], "enum": [1, 1.5]}),
        json!({"type": ["array", "object"], "items": {"type": ["string", "integer"]}, "minItems": 1, "required": ["x"]}),
        json!({"type": ["object", "null"], "properties": {"x": {"type": ["string", "null"]}}, "additionalProperties": false}),
        json!({"type": "array", "prefixItems": [true, true], "items": false}),
        json!({"type": ["number", "string"], "minimum": 1, "not": {"type": ["string", "null"], "minLength": 2}}),
    ] {
        let root = json!({"type": "object", "properties": {"a": schema}});
        let (before, after) = (root.to_string(), to_portable_form(root).to_string());
        let (before, after) = (Schema::input(&before).unwrap(), Schema::input(&after).unwrap());
        for value in &values {
            let args = json!({"a": value});
            assert_eq!(
                before.check(&args).is_ok(),
                after.check(&args).is_ok(),
                "{schema} {value}: {after:?}"
            );
        }
    }
}

#[test]
fn a_tuple_becomes_a_list_with_a_note_for_clients_of_plugins() {
    for (written, expect) in [
        (
            json!({"type": "array", "prefixItems": [{"type": "string", "description": "the name"}, {"type": "integer"},
                {"type": "integer"}], "items": false, "minItems": 3, "description": "d"}),
            json!({"type": "array", "minItems": 3, "description": "d Items in this order: string (the name), integer, integer.",
                "maxItems": 3, "items": {"anyOf": [{"type": "string", "description": "the name"}, {"type": "integer"}]}}),
        ),
        (
            json!({"prefixItems": [{"type": "string"}, {"enum": [1]}], "maxItems": 2}),
            json!({"maxItems": 2, "items": {"anyOf": [{"type": "string"}, {"enum": [1]}]},
                "description": "Items in this order: string, any."}),
        ),
        (
            json!({"prefixItems": [{"type": "string"}], "items": {"type": "null"}}),
            json!({"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "description": "Items in this order: string."}),
        ),
        (
            json!({"prefixItems": [{"type": "string"}]}),
            json!({"items": {}, "description": "Items in this order: string."}),
        ),
    ] {
        let root = |property: &Value| json!({"type": "object", "properties": {"a": {"anyOf": [property]}}});
        let mut loose = root(&written);
        loosen_tuples(&mut loose);
        assert_eq!(loose, root(&expect));
    }
    let exact = json!({"type": "object", "properties": {"a": {"prefixItems": [{"type": "string"}, {"type": "null"}], "items": false}}});
    let schema = crate::tool::schema::SchemaReader::for_plugins().input(Some(&exact.to_string()));
    assert!(!schema.value().to_string().contains("prefixItems") && schema.dropped().is_none());
    assert!(
        schema.check(&json!({"a": ["x", null]})).is_ok() && schema.check(&json!({"a": [null, "x"]})).is_err()
    );
}
