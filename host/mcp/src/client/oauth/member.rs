//! Optional members of the documents of authorization servers, as servers write them. What cannot be read counts as
//! absent, and costs nothing else of the document; so does `null`.
//!
//! | meant | also read |
//! |---|---|
//! | a list of texts | a text, as a list of one; a list with other values, without these |
//! | a text | |
//! | a boolean | `"true"`, `"false"` |
//! | a whole number | a number as a text, a number with a fraction of zero |

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A list of texts.
pub(super) fn texts<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Vec<String>>, D::Error> {
    Ok(match Value::deserialize(input)? {
        Value::String(text) => Some(vec![text]),
        Value::Array(values) => Some(values.iter().filter_map(to_text).collect()),
        _ => None,
    })
}

/// A text that is not empty.
pub(super) fn text<'de, D: Deserializer<'de>>(input: D) -> Result<Option<String>, D::Error> {
    Ok(to_text(&Value::deserialize(input)?).filter(|text| !text.is_empty()))
}

fn to_text(value: &Value) -> Option<String> {
    value.as_str().map(ToOwned::to_owned)
}

/// A boolean; `false` if it is absent.
pub(super) fn flag<'de, D: Deserializer<'de>>(input: D) -> Result<bool, D::Error> {
    let value = Value::deserialize(input)?;
    Ok(value == true || value == "true")
}

/// A whole number that is not negative.
pub(super) fn number<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    Ok(match Value::deserialize(input)? {
        Value::Number(number) => whole(&number.to_string()),
        Value::String(text) => whole(text.trim()),
        _ => None,
    })
}

/// A number without a sign and exponent; `3600.0` is 3600.
fn whole(text: &str) -> Option<u64> {
    let (number, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_whole = !fraction.is_empty() && fraction.bytes().all(|byte| byte == b'0');
    number.parse().ok().filter(|_| is_whole && !number.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_odd_member_counts_as_absent_and_a_clear_one_is_read() {
        for (value, expect) in [
            (json!(["a", "b"]), Some(vec!["a", "b"])),
            (json!(["a", 1, null]), Some(vec!["a"])),
            (json!("a"), Some(vec!["a"])),
            (json!([]), Some(vec![])),
            (json!(null), None),
            (json!({"a": 1}), None),
        ] {
            let expect = expect.map(|texts| texts.into_iter().map(str::to_owned).collect());
            assert_eq!(texts(&value).unwrap(), expect, "{value}");
        }
        for (value, expect) in
            [(json!("a"), Some("a")), (json!(""), None), (json!(null), None), (json!(1), None)]
        {
            assert_eq!(text(&value).unwrap().as_deref(), expect, "{value}");
        }
        for (value, expect) in
            [(json!(true), true), (json!("true"), true), (json!("x"), false), (json!(null), false)]
        {
            assert_eq!(flag(&value).unwrap(), expect, "{value}");
        }
        for (value, expect) in [
            (json!(3600), Some(3600)),
            (json!(3600.0), Some(3600)),
            (json!("3600"), Some(3600)),
            (json!(u64::MAX), Some(u64::MAX)),
            (json!(0), Some(0)),
            (json!(1.5), None),
            (json!(-1), None),
            (json!("+1"), None),
            (json!("1."), None),
            (json!("x"), None),
            (json!(null), None),
        ] {
            assert_eq!(number(&value).unwrap(), expect, "{value}");
        }
    }
}
