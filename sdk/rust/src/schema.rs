//! JSON Schemas (2020-12) as the contract wants them: one object, no noise.
//!
//! schemars knows the types, which a macro alone would not. What it writes beyond the meaning (`$schema`, the title of
//! the hidden argument struct, formats such as `uint32` that no validator knows) is taken out: each byte of it would
//! stand in every prompt. Properties keep the order of the arguments, which is the order models fill them in.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Map, Value, json};

use crate::IntoOutput;

/// Returns the schema of the arguments, whose names are given in the order of the function.
pub fn input_schema<T: JsonSchema>(names: &[&str]) -> String {
    let mut schema = bare(SchemaSettings::draft2020_12().for_deserialize(), T::json_schema_root);
    if let Some(root) = schema.as_object_mut() {
        // A function without arguments has no properties as far as schemars is concerned.
        root.entry("properties").or_insert_with(|| json!({}));
        root.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    let mut text = Vec::new();
    let written = ordered(&schema, names, &mut serde_json::Serializer::new(&mut text));
    debug_assert!(written.is_ok(), "a schema is plain JSON");
    String::from_utf8(text).unwrap_or_default()
}

/// Returns the output schema of a return type, if it has one.
pub fn output_schema<T: IntoOutput>() -> Option<String> {
    T::output_schema()
}

/// Returns the schema of `T` as structured output.
///
/// It mirrors what happens to the value: an object stays, anything else comes under `result`. Where the type alone
/// does not tell (an `Option`, an untagged enum), both shapes are allowed.
pub(crate) fn output_schema_of<T: JsonSchema>() -> String {
    let mut schema = bare(SchemaSettings::draft2020_12().for_serialize(), T::json_schema_root);
    let definitions = schema.as_object_mut().and_then(|root| root.remove("$defs"));
    let wrapped =
        |inner: &Value| json!({"type": "object", "properties": {"result": inner}, "required": ["result"]});
    let mut schema = match schema.get("type") {
        Some(Value::String(ty)) if ty == "object" => schema,
        Some(Value::String(_)) => wrapped(&schema),
        _ => json!({"type": "object", "anyOf": [schema, wrapped(&schema)]}),
    };
    if let (Some(definitions), Some(root)) = (definitions, schema.as_object_mut()) {
        root.insert("$defs".to_owned(), definitions);
    }
    schema.to_string()
}

/// The one call that needs the type; everything else is compiled once for all tools.
trait RootSchema: JsonSchema {
    fn json_schema_root(settings: SchemaSettings) -> Schema {
        settings.into_generator().into_root_schema_for::<Self>()
    }
}

impl<T: JsonSchema + ?Sized> RootSchema for T {}

fn bare(settings: SchemaSettings, root_schema: fn(SchemaSettings) -> Schema) -> Value {
    let settings = settings.with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = root_schema(settings);
    schema.remove("title");
    RecursiveTransform(drop_rust_formats).transform(&mut schema);
    schema.to_value()
}

/// Removes `format` where it is only the name of a Rust number type.
fn drop_rust_formats(schema: &mut Schema) {
    let is_rust = |format: &str| {
        matches!(format, "float" | "double") || format.trim_start_matches('u').starts_with("int")
    };
    if schema.get("format").and_then(Value::as_str).is_some_and(is_rust) {
        schema.remove("format");
    }
}

/// Writes the schema with its properties in the order of `names`.
fn ordered<S: Serializer>(schema: &Value, names: &[&str], serializer: S) -> Result<S::Ok, S::Error> {
    /// The value of `properties`.
    struct Properties<'a>(&'a Map<String, Value>, &'a [&'a str]);
    impl serde::Serialize for Properties<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let known = self.1.iter().filter_map(|name| self.0.get_key_value(*name));
            serializer.collect_map(known)
        }
    }

    let mut map = serializer.serialize_map(None)?;
    // `type` first: people read this too.
    map.serialize_entry("type", "object")?;
    for (key, value) in schema.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("type", _) => {}
            ("properties", Value::Object(properties)) => {
                map.serialize_entry(key, &Properties(properties, names))?;
            }
            _ => map.serialize_entry(key, value)?,
        }
    }
    map.end()
}
