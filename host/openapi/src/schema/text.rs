//! Texts and values of a schema, bounded.

use serde_json::Value;
use toolbay_policy::hidden_chars::remove_hidden;

/// The longest example that is kept, in bytes.
const MAX_EXAMPLE: usize = 200;

pub(crate) fn keep_example(value: &Value) -> Option<Value> {
    keep_short(value, MAX_EXAMPLE)
}

/// Returns a value if its JSON has at most `most` bytes. It visits no more of the value.
pub(crate) fn keep_short(value: &Value, most: usize) -> Option<Value> {
    fn room(value: &Value, left: usize) -> Option<usize> {
        match value {
            Value::Array(items) => items.iter().try_fold(left.checked_sub(2)?, |left, item| room(item, left)),
            Value::Object(map) => map.iter().try_fold(left.checked_sub(2)?, |left, (key, value)| {
                room(value, left.checked_sub(key.len() + 3)?)
            }),
            Value::String(text) => left.checked_sub(text.len() + 2),
            Value::Null | Value::Bool(_) | Value::Number(_) => left.checked_sub(1),
        }
    }
    room(value, most)?;
    (value.to_string().len() <= most).then(|| value.clone())
}

/// Text for people and models: without hidden characters, and truncated.
pub(crate) fn plain_text(text: &str, most: usize) -> String {
    // Hidden characters count as well, so that the function reads a bounded part of the text.
    let end = text.char_indices().nth(most + 1).map_or(text.len(), |(at, _)| at);
    let mut out = remove_hidden(text.get(..end).unwrap_or_default()).into_owned();
    if let Some((end, _)) = out.char_indices().nth(most) {
        out.truncate(end);
        out.push('…');
    }
    out
}
