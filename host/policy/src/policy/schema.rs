//! The JSON Schema of a policy, for editors, from the parser's types and the tables of limits and kinds.
//!
//! It refuses every policy that the parser refuses for its form. It accepts mistakes that depend on another part of
//! the file or on the machine.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform as _};
use serde_json::Value;

use super::Policy;
use super::file::PolicyFile;
use crate::schema::without_links;

impl Policy {
    /// The JSON Schema (2020-12) of `toolbay.toml`.
    #[must_use]
    pub fn json_schema() -> Value {
        let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<PolicyFile>();
        RecursiveTransform(as_toml).transform(&mut schema);
        let all = schema.as_object().cloned().unwrap_or_default();
        // `$schema`, title and description come first.
        let head = ["$schema", "title", "description"].into_iter();
        let head = head.filter_map(|key| Some((key.to_owned(), all.get(key)?.clone())));
        Value::Object(head.chain(all.clone()).collect())
    }
}

/// Removes properties of Rust types that TOML does not have: `null`, unique items, number formats.
fn as_toml(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = without_links(text);
    }
    schema.remove("uniqueItems");
    schema.remove("format");
    schema.remove("default");
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|one| one != "null");
        if let [one] = types.as_slice() {
            let one = one.clone();
            schema.insert("type".to_owned(), one);
        }
    }
    if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
        choices.retain(|choice| choice.get("type").is_none_or(|one| one != "null"));
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            schema.remove("anyOf");
            only.into_iter().for_each(|(key, value)| drop(schema.insert(key, value)));
        }
    }
}
