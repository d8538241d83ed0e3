//! Descriptions and examples of parameters and bodies, in the schemas of arguments.

use serde_json::{Map, Value};

use crate::document::OpenApiDocument;
use crate::scalar::scalar_text;
use crate::schema::{MAX_DESCRIPTION, keep_example, plain_text};

/// The most examples that are kept.
const MAX_EXAMPLES: usize = 3;
/// The most examples that are visited.
const MAX_VISITED: usize = 20;

/// The examples of a Parameter or Media Type Object: `example`, or the values of `examples`. Examples that are long, or
/// that other documents hold, are left out. `lose` names one whose reference leads nowhere.
///
/// # Errors
/// The budget of the document is used up.
pub(crate) fn read(
    document: &OpenApiDocument,
    map: &Map<String, Value>,
    mut lose: impl FnMut(&str),
) -> Result<Vec<Value>, String> {
    if let Some(example) = map.get("example") {
        return Ok(keep_example(example).into_iter().collect());
    }
    let named = map.get("examples").and_then(Value::as_object);
    let mut found = Vec::new();
    for example in named.into_iter().flat_map(Map::values).take(MAX_VISITED) {
        document.work.spend(1)?;
        let example = match document.resolve(example) {
            Ok(example) => example,
            Err(why) => {
                document.work.spend(0)?;
                lose(&format!("an example is left out: it is {why}"));
                continue;
            }
        };
        // `dataValue` is new in OpenAPI 3.2.
        let value = example.get("value").or_else(|| example.get("dataValue"));
        found.extend(value.and_then(keep_example));
        if found.len() == MAX_EXAMPLES {
            break;
        }
    }
    Ok(found)
}

/// Adds a description and examples to the schema of an argument. The schema's own description stays; its own examples are
/// replaced (Parameter Object and Media Type Object, `example`).
pub(crate) fn annotate(schema: Value, description: Option<&Value>, examples: Vec<Value>) -> Value {
    let mut schema = match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    if let Some(text) = description.and_then(scalar_text) {
        schema.entry("description").or_insert_with(|| Value::from(plain_text(&text, MAX_DESCRIPTION)));
    }
    if !examples.is_empty() {
        schema.insert("examples".to_owned(), Value::Array(examples));
    }
    Value::Object(schema)
}
