//! Scalars that stand where a text is meant. YAML reads an unquoted `1.0` or `true` as a number or a truth value, and
//! converters write it as one into JSON.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The text of a scalar. `None` for `null`, a list and an object.
pub(crate) fn scalar_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Bool(truth) => Some(Cow::Owned(truth.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The text of a member. An absent one is empty.
pub(crate) fn member_text<'a>(map: &'a Map<String, Value>, key: &str) -> Cow<'a, str> {
    map.get(key).and_then(scalar_text).unwrap_or_default()
}

/// A truth value, or the text of one.
pub(crate) fn member_flag(map: &Map<String, Value>, key: &str) -> Option<bool> {
    match map.get(key)? {
        Value::Bool(truth) => Some(*truth),
        Value::String(text) => text.parse().ok(),
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether nothing is written: `null`, or the empty list that PHP writes for an empty object.
pub(crate) fn is_absent(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_scalar_is_its_text_and_nothing_else_is() {
        for (value, text) in [
            (json!("a"), Some("a")),
            (json!(46012), Some("46012")),
            (json!(3.0), Some("3.0")),
            (json!(true), Some("true")),
            (json!(null), None),
            (json!([]), None),
            (json!({}), None),
        ] {
            assert_eq!(scalar_text(&value).as_deref(), text, "{value}");
        }
        let flags = json!({"a": true, "b": "false", "c": "yes", "d": 1});
        let flags = ["a", "b", "c", "d", "e"].map(|key| member_flag(flags.as_object().unwrap(), key));
        assert_eq!(flags, [Some(true), Some(false), None, None, None]);
        assert!(
            [json!(null), json!([])].iter().all(is_absent)
                && !is_absent(&json!({}))
                && !is_absent(&json!([1]))
        );
    }
}
