//! Messages for a value that matches no variant of an `anyOf` or `oneOf`: the intended variant and its findings.
//!
//! The intended variant is the one whose discriminator (a property with a `const` or an `enum`) matches the value.
//! Without a discriminator it is the nearest variant: of the same type, with the fewest findings.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind as Kind;
use serde_json::Value;
use toolbay_policy::similar::TypedName;

use super::{cut, cut_value, pattern};

/// Most levels of nested variants that are described.
const MAX_NESTED: usize = 3;
/// Most findings of the intended variant.
const MAX_FINDINGS: usize = 2;
/// Most values or variants that a finding lists.
const MAX_LISTED: usize = 10;
/// Most values of a discriminator that are looked at.
const MAX_KNOWN: usize = 1000;
/// Distances of variants with a different type, a different discriminator or different properties.
const OTHER_TYPE: usize = 10_000;
const OTHER_DISCRIMINATOR: usize = 1000;
const OTHER_PROPERTIES: usize = 20;

type Variant = Vec<ValidationError<'static>>;

/// A problem and its place in the value.
pub(super) struct VariantFinding {
    pub(super) pointer: String,
    pub(super) text: String,
}

/// Describes a validation error for a model. `root` is the whole schema.
pub(super) fn describe_error(error: &ValidationError<'_>, root: &Value) -> VariantFinding {
    describe_nested(error, root, 0)
}

fn describe_nested(error: &ValidationError<'_>, root: &Value, level: usize) -> VariantFinding {
    let pointer = error.instance_path().to_string();
    let plain = |text: String| VariantFinding { pointer: pointer.clone(), text };
    let (Kind::AnyOf { context } | Kind::OneOfNotValid { context }) = error.kind() else {
        return plain(pattern::as_written(&cut_value(error)));
    };
    let Some((index, intended, distance)) = nearest_variant(context, &pointer) else {
        return plain(cut_value(error));
    };
    if distance >= OTHER_TYPE {
        return plain(format!("matches none of its variants: {}", list_variants(context)));
    }
    if distance >= OTHER_DISCRIMINATOR
        && let Some(text) = unknown_discriminator(context, intended, &pointer)
    {
        return plain(text);
    }
    let schema = variant_schema(root, error.schema_path().as_str(), index);
    let name = variant_name(schema, error.instance(), index, context.len());
    if level >= MAX_NESTED {
        return plain(format!("does not match {name}"));
    }
    let found: Vec<VariantFinding> =
        intended.iter().take(MAX_FINDINGS).map(|error| describe_nested(error, root, level + 1)).collect();
    let texts: Vec<String> =
        found.iter().map(|one| format!("{}: {}", shown_pointer(&one.pointer), one.text)).collect();
    let at = found.into_iter().next().map_or(pointer, |first| first.pointer);
    VariantFinding { pointer: at, text: format!("does not match {name}: {}", texts.join("; ")) }
}

/// The pointer as messages show it.
pub(super) fn shown_pointer(pointer: &str) -> String {
    cut(if pointer.is_empty() { "(root)" } else { pointer })
}

/// The nearest variant with its index and its distance.
fn nearest_variant<'c>(context: &'c [Variant], at: &str) -> Option<(usize, &'c Variant, usize)> {
    let total = |errors: &Variant| errors.iter().map(|error| distance(error, at)).sum();
    let all = context.iter().enumerate().map(|(index, errors)| (index, errors, total(errors)));
    // The first of equally near variants.
    all.min_by_key(|(index, _, distance)| (*distance, *index))
}

fn distance(error: &ValidationError<'_>, at: &str) -> usize {
    let path = error.instance_path().as_str();
    match error.kind() {
        Kind::Type { .. } | Kind::FalseSchema if path == at => OTHER_TYPE,
        Kind::Constant { .. } | Kind::Enum { .. } if path == at || child_property(path, at).is_some() => {
            OTHER_DISCRIMINATOR
        }
        Kind::Required { .. } if path == at => OTHER_PROPERTIES,
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected }
            if path == at =>
        {
            OTHER_PROPERTIES.saturating_mul(unexpected.len())
        }
        _ => 1,
    }
}

/// The name of the direct property of `at` that `path` points to.
fn child_property<'p>(path: &'p str, at: &str) -> Option<&'p str> {
    path.strip_prefix(at)?.strip_prefix('/').filter(|name| !name.contains('/'))
}

/// The message for an unknown discriminator: the valid values and the most similar one.
fn unknown_discriminator(context: &[Variant], variant: &Variant, at: &str) -> Option<String> {
    let first = variant.iter().find(|error| {
        child_property(error.instance_path().as_str(), at).is_some() && !valid_values(error).is_empty()
    })?;
    let path = first.instance_path().as_str();
    let wrong = first.instance();
    let known: Vec<&Value> = (context.iter().flatten())
        .filter(|error| error.instance_path().as_str() == path)
        .flat_map(valid_values)
        .take(MAX_KNOWN)
        .collect();
    let mut listed: Vec<&Value> = Vec::new();
    for value in known.iter().copied() {
        if listed.len() < MAX_LISTED && !listed.contains(&value) {
            listed.push(value);
        }
    }
    let texts: Vec<String> = listed.into_iter().map(|value| cut_value(value)).collect();
    let like = wrong.as_str().and_then(|wrong| {
        let texts = known.iter().filter_map(|value| value.as_str());
        TypedName::new(wrong).nearest(texts).first().copied()
    });
    let like =
        like.map(|text| format!("; did you mean `{}`?", cut_value(&Value::from(text)))).unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    Some(format!(
        "no variant has `{}` = {}; valid values are {}{like}",
        cut(name),
        cut_value(&**wrong),
        cut(&texts.join(", "))
    ))
}

/// The values that a mismatch with a `const` or an `enum` names.
fn valid_values<'e>(error: &'e ValidationError<'_>) -> &'e [Value] {
    match error.kind() {
        Kind::Constant { expected_value } => std::slice::from_ref(&**expected_value),
        Kind::Enum { options } => options.as_array().map(Vec::as_slice).unwrap_or_default(),
        _ => &[],
    }
}

/// The first problem of each variant.
fn list_variants(context: &[Variant]) -> String {
    let first = |(n, errors): (usize, &Variant)| Some(format!("({}) {}", n + 1, cut_value(errors.first()?)));
    let all: Vec<String> = context.iter().enumerate().filter_map(first).take(MAX_LISTED).collect();
    cut(&all.join(", "))
}

/// The schema of a variant, by the path of its `anyOf` or `oneOf`; `None` if the path cannot be followed.
fn variant_schema<'s>(root: &'s Value, path: &str, index: usize) -> Option<&'s Value> {
    let mut schema = root.pointer(path)?.as_array()?.get(index)?;
    for _ in 0..MAX_NESTED {
        let Some(target) = schema.get("$ref").and_then(Value::as_str) else { break };
        schema = root.pointer(target.strip_prefix('#')?)?;
    }
    Some(schema)
}

/// The name of a variant: its discriminator, its title, its only property, or its position.
fn variant_name(schema: Option<&Value>, value: &Value, index: usize, count: usize) -> String {
    let by_place = format!("variant {} of {count}", index + 1);
    let Some(schema) = schema else { return by_place };
    let properties = schema.get("properties").and_then(Value::as_object);
    let is_value = |schema: &Value, own: &Value| {
        let options = schema.get("enum").and_then(Value::as_array);
        schema.get("const") == Some(own) || options.is_some_and(|options| options.contains(own))
    };
    let discriminator = properties.into_iter().flatten().find_map(|(name, schema)| {
        let discriminator = value.get(name).filter(|discriminator| is_value(schema, discriminator))?;
        Some(format!("the variant with `{}` = {}", cut(name), cut_value(discriminator)))
    });
    let title = || {
        let title = schema.get("title").and_then(Value::as_str)?;
        Some(format!("the variant `{}`", cut(title)))
    };
    let only_property = || {
        let mut names = properties?.keys();
        let first = names.next().filter(|_| names.next().is_none())?;
        Some(format!("the variant with `{}`", cut(first)))
    };
    discriminator.or_else(title).or_else(only_property).unwrap_or(by_place)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tool::schema::Schema;

    #[test]
    fn the_intended_variant_is_named_with_its_findings() {
        let tagged = json!({"oneOf": [
            {"type": "object", "required": ["kind", "radius"], "additionalProperties": false,
             "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}},
            {"$ref": "#/$defs/square"},
        ]});
        let keyed = json!({"anyOf": [
            {"enum": ["empty"]},
            {"type": "object", "properties": {"circle": {"type": "number"}}, "required": ["circle"], "additionalProperties": false},
            {"type": "object", "properties": {"line": {"type": "array"}}, "required": ["line"], "additionalProperties": false},
        ]});
        let nullable = json!({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]});
        let square = json!({"type": "object", "required": ["kind", "side"], "additionalProperties": false,
            "properties": {"kind": {"enum": ["square"]}, "side": {"type": "number"}}});
        for (schema, value, pointer, parts) in [
            (
                &tagged,
                json!({"kind": "circle", "radius": "x"}),
                "/a/radius",
                &["does not match the variant with `kind` = \"circle\"", "\"number\""][..],
            ),
            (
                &tagged,
                json!({"kind": "square", "radius": 1}),
                "/a",
                &["does not match the variant with `kind` = \"square\"", "side"],
            ),
            (
                &tagged,
                json!({"kind": "circl", "radius": 1}),
                "/a",
                &["valid values are \"circle\", \"square\"", "did you mean `\"circle\"`?"],
            ),
            (&tagged, json!(5), "/a", &["matches none of its variants", "\"object\""]),
            (&tagged, json!({"radius": "x"}), "/a", &["does not match", "kind"]),
            (
                &keyed,
                json!({"circle": "x"}),
                "/a/circle",
                &["does not match the variant with `circle`", "\"number\""],
            ),
            (&nullable, json!("long"), "/a", &["does not match variant 1 of 2", "3"]),
        ] {
            let whole = json!({"type": "object", "properties": {"a": schema}, "$defs": {"square": square}});
            let mismatch =
                Schema::input(&whole.to_string()).unwrap().check(&json!({"a": value})).unwrap_err();
            assert_eq!(mismatch.pointer, pointer, "{mismatch:?}");
            assert!(parts.iter().all(|part| mismatch.message.contains(part)), "{mismatch:?}");
        }
    }

    #[test]
    fn messages_of_nested_variants_and_long_values_are_short() {
        let mut schema = json!({"type": "object", "properties": {"x": {"const": 1}}, "required": ["x"]});
        let mut value = json!({"x": "y".repeat(10_000)});
        for _ in 0..10 {
            let wrapped = json!({"type": "object", "properties": {"in": schema}, "required": ["in"]});
            schema = json!({"oneOf": [{"type": "null"}, wrapped]});
            value = json!({"in": value});
        }
        let whole = json!({"type": "object", "properties": {"a": schema}});
        let mismatch = Schema::input(&whole.to_string()).unwrap().check(&json!({"a": value})).unwrap_err();
        assert!(mismatch.message.chars().count() < 3000, "{}", mismatch.message);
        assert!(mismatch.message.contains("does not match"), "{}", mismatch.message);
    }
}
