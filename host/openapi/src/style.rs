//! Serialization of parameters: the styles of the specification (OpenAPI 3.1, Parameter Object, Style Examples).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

/// Everything except the unreserved characters of RFC 3986.
const STRICT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// With `allowReserved`: reserved characters stay, except those that would end the value; some servers split at `;`.
const RESERVED: &AsciiSet = &STRICT
    .remove(b':')
    .remove(b'/')
    .remove(b'?')
    .remove(b'[')
    .remove(b']')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b',')
    .remove(b'=');

/// The styles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterStyle {
    Simple,
    Label,
    Matrix,
    Form,
    SpaceDelimited,
    PipeDelimited,
    DeepObject,
}

impl ParameterStyle {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "simple" => Self::Simple,
            "label" => Self::Label,
            "matrix" => Self::Matrix,
            "form" => Self::Form,
            "spaceDelimited" => Self::SpaceDelimited,
            "pipeDelimited" => Self::PipeDelimited,
            "deepObject" => Self::DeepObject,
            _ => return None,
        })
    }
}

/// The encoding of a value's characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EscapeMode {
    /// Everything except letters, digits and `-._~`.
    Strict,
    /// Reserved characters stay.
    Reserved,
    /// Unchanged, for header fields.
    None,
}

impl EscapeMode {
    pub(crate) fn escape(self, text: &str) -> String {
        match self {
            Self::Strict => utf8_percent_encode(text, STRICT).to_string(),
            Self::Reserved => utf8_percent_encode(text, RESERVED).to_string(),
            Self::None => text.to_owned(),
        }
    }

    fn escape_value(self, value: &Value) -> String {
        self.escape(&value_as_text(value))
    }
}

/// A value as text: a string unchanged, `null` as the empty text, nested values as JSON.
pub(crate) fn value_as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Whether a value is undefined, and its parameter is left out: a list or an object without defined members (RFC 6570,
/// section 2.3).
pub(crate) fn is_undefined(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().all(Value::is_null),
        Value::Object(map) => map.values().all(Value::is_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The defined members of a list.
fn defined_items(items: &[Value]) -> impl Iterator<Item = &Value> {
    items.iter().filter(|item| !item.is_null())
}

/// The defined members of an object.
fn defined_members(map: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    map.iter().filter(|(_, value)| !value.is_null())
}

/// A value as a single text, for paths and header fields.
pub(crate) fn serialize_single(
    style: ParameterStyle,
    explode: bool,
    name: &str,
    value: &Value,
    escape: EscapeMode,
) -> String {
    let pairs = |value: &Value, between: &str| -> Option<Vec<String>> {
        let map = value.as_object()?;
        Some(
            defined_members(map)
                .map(|(k, v)| format!("{}{between}{}", escape.escape(k), escape.escape_value(v)))
                .collect(),
        )
    };
    let items = |value: &Value| -> Option<Vec<String>> {
        Some(defined_items(value.as_array()?).map(|item| escape.escape_value(item)).collect())
    };
    let between = if explode { "=" } else { "," };
    match style {
        ParameterStyle::Label => {
            let join = if explode { "." } else { "," };
            let parts = pairs(value, between).or_else(|| items(value));
            format!(".{}", parts.map_or_else(|| escape.escape_value(value), |parts| parts.join(join)))
        }
        ParameterStyle::Matrix => {
            let name = escape.escape(name);
            match (pairs(value, between), items(value)) {
                (Some(pairs), _) if explode => pairs.iter().map(|pair| format!(";{pair}")).collect(),
                (Some(pairs), _) => format!(";{name}={}", pairs.join(",")),
                (_, Some(items)) if explode => items.iter().map(|item| format!(";{name}={item}")).collect(),
                (_, Some(items)) => format!(";{name}={}", items.join(",")),
                _ => format!(";{name}={}", escape.escape_value(value)),
            }
        }
        _ => {
            let parts = pairs(value, between).or_else(|| items(value));
            parts.map_or_else(|| escape.escape_value(value), |parts| parts.join(","))
        }
    }
}

/// A value as encoded `name=value` pairs, for queries, cookies and forms. An undefined value has none.
pub(crate) fn serialize_pairs(
    style: ParameterStyle,
    explode: bool,
    name: &str,
    value: &Value,
    escape: EscapeMode,
) -> Vec<(String, String)> {
    if is_undefined(value) {
        return Vec::new();
    }
    let key = EscapeMode::Strict.escape(name);
    let joined = |with: &str| match value {
        Value::Array(items) => {
            defined_items(items).map(|v| escape.escape_value(v)).collect::<Vec<_>>().join(with)
        }
        Value::Object(map) => defined_members(map)
            .flat_map(|(k, v)| [escape.escape(k), escape.escape_value(v)])
            .collect::<Vec<_>>()
            .join(with),
        other => escape.escape_value(other),
    };
    match (style, value) {
        (ParameterStyle::SpaceDelimited, _) => vec![(key, joined("%20"))],
        (ParameterStyle::PipeDelimited, _) => vec![(key, joined("%7C"))],
        (ParameterStyle::DeepObject, Value::Object(_)) => {
            let mut out = Vec::new();
            serialize_deep_object(&key, value, escape, &mut out);
            out
        }
        (_, Value::Array(items)) if explode => {
            defined_items(items).map(|item| (key.clone(), escape.escape_value(item))).collect()
        }
        (_, Value::Object(map)) if explode => defined_members(map)
            .map(|(k, v)| (EscapeMode::Strict.escape(k), escape.escape_value(v)))
            .collect(),
        _ => vec![(key, joined(","))],
    }
}

/// `name[a]=1` with escaped brackets, which some servers require. The specification does not define deeper nesting;
/// servers accept `name[a][b]=1` and repeated keys.
fn serialize_deep_object(key: &str, value: &Value, escape: EscapeMode, out: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            for (name, inner) in defined_members(map) {
                serialize_deep_object(
                    &format!("{key}%5B{}%5D", EscapeMode::Strict.escape(name)),
                    inner,
                    escape,
                    out,
                );
            }
        }
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            out.extend(defined_items(items).map(|item| (key.to_owned(), escape.escape_value(item))));
        }
        other => out.push((key.to_owned(), escape.escape_value(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The table of the specification with its values.
    #[test]
    fn values_are_serialized_as_in_the_specification() {
        let (text, list) = (json!("blue"), json!(["blue", "black", "brown"]));
        let object = json!({"R": 100, "G": 200, "B": 150});
        for (style, explode, of_text, of_list, of_object) in [
            (
                ParameterStyle::Matrix,
                false,
                ";color=blue",
                ";color=blue,black,brown",
                ";color=R,100,G,200,B,150",
            ),
            (
                ParameterStyle::Matrix,
                true,
                ";color=blue",
                ";color=blue;color=black;color=brown",
                ";R=100;G=200;B=150",
            ),
            (ParameterStyle::Label, false, ".blue", ".blue,black,brown", ".R,100,G,200,B,150"),
            (ParameterStyle::Label, true, ".blue", ".blue.black.brown", ".R=100.G=200.B=150"),
            (ParameterStyle::Simple, false, "blue", "blue,black,brown", "R,100,G,200,B,150"),
            (ParameterStyle::Simple, true, "blue", "blue,black,brown", "R=100,G=200,B=150"),
        ] {
            for (value, expected) in [(&text, of_text), (&list, of_list), (&object, of_object)] {
                assert_eq!(
                    serialize_single(style, explode, "color", value, EscapeMode::Strict),
                    expected,
                    "{style:?} {explode}"
                );
            }
        }
        let query = |style, explode, value| {
            let pairs = serialize_pairs(style, explode, "color", value, EscapeMode::Strict);
            pairs.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join("&")
        };
        for (style, explode, value, expected) in [
            (ParameterStyle::Form, false, &text, "color=blue"),
            (ParameterStyle::Form, false, &list, "color=blue,black,brown"),
            (ParameterStyle::Form, false, &object, "color=R,100,G,200,B,150"),
            (ParameterStyle::Form, true, &list, "color=blue&color=black&color=brown"),
            (ParameterStyle::Form, true, &object, "R=100&G=200&B=150"),
            (ParameterStyle::SpaceDelimited, false, &list, "color=blue%20black%20brown"),
            (ParameterStyle::SpaceDelimited, false, &object, "color=R%20100%20G%20200%20B%20150"),
            (ParameterStyle::PipeDelimited, false, &list, "color=blue%7Cblack%7Cbrown"),
            (ParameterStyle::DeepObject, true, &object, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
            (
                ParameterStyle::DeepObject,
                true,
                &json!({"a": {"b": 1}, "c": [1, 2]}),
                "color%5Ba%5D%5Bb%5D=1&color%5Bc%5D=1&color%5Bc%5D=2",
            ),
            (ParameterStyle::Form, true, &json!(""), "color="),
            (ParameterStyle::Form, true, &json!([]), ""),
            (ParameterStyle::Form, false, &json!([]), ""),
            (ParameterStyle::SpaceDelimited, false, &json!([]), ""),
            (ParameterStyle::PipeDelimited, false, &json!([]), ""),
            (ParameterStyle::DeepObject, true, &json!({"a": {}, "b": [], "c": null}), ""),
            (ParameterStyle::Form, false, &json!({}), ""),
            (ParameterStyle::Form, false, &json!([""]), "color="),
            (ParameterStyle::Form, false, &json!(["a", null, "b"]), "color=a,b"),
        ] {
            assert_eq!(query(style, explode, value), expected, "{style:?} {explode} {value}");
        }
    }

    #[test]
    fn a_value_cannot_leave_its_location() {
        let nasty = json!("a/b?c=d&e#f,g;h\r\n%2e ü\"");
        let strict = serialize_single(ParameterStyle::Simple, false, "x", &nasty, EscapeMode::Strict);
        assert_eq!(strict, "a%2Fb%3Fc%3Dd%26e%23f%2Cg%3Bh%0D%0A%252e%20%C3%BC%22");
        let reserved = serialize_pairs(ParameterStyle::Form, true, "a&b", &nasty, EscapeMode::Reserved);
        assert_eq!(
            reserved,
            [("a%26b".to_owned(), "a/b?c=d%26e%23f,g%3Bh%0D%0A%252e%20%C3%BC%22".to_owned())]
        );
    }
}
