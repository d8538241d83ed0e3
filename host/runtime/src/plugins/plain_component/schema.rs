//! Derives JSON Schemas from a function's types. The table in `docs/how-to/plain-components.md` has the rules;
//! [`super::values`] and [`super::text`] apply them to values.
//!
//! Nested types can expand a few bytes to a schema of gigabytes: a record of ten fields of the previous record, ten
//! times over. The builder therefore counts the expanded types of a function.

use serde_json::{Map, Value, json};
use toolbay_policy::excerpt::one_line;
use wasmtime::component::types::{ComponentFunc, Type, Variant};

/// Maximum number of types and names of one function, each counted at each use.
const MAX_PARTS: usize = 2000;
/// Maximum total length of these names, in bytes.
const MAX_NAMES: usize = 32 << 10;
/// Maximum nesting of types.
const MAX_DEPTH: usize = 16;

/// How much more memory a `flags` value takes than wasmtime counts: for a one-letter name it counts one byte, but
/// allocates a string.
pub(super) const FLAGS_WEIGHT: usize = 32;

/// The form of a function's result.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ResultShape {
    /// No result.
    Nothing,
    /// A string.
    Text,
    /// A record: a JSON object.
    Object(Value),
    /// Any other type, as member `result` of an object.
    Wrapped(Value),
}

impl ResultShape {
    /// The schema of the structured result.
    pub(super) fn schema(self) -> Option<Value> {
        match self {
            Self::Nothing | Self::Text => None,
            Self::Object(schema) => Some(schema),
            Self::Wrapped(schema) => Some(object([("result".to_owned(), schema, true)])),
        }
    }
}

/// The type of a successful result. The `err` of a `result` becomes an error of the tool.
pub(super) fn ok_type(func: &ComponentFunc) -> Option<Type> {
    match func.results().next() {
        Some(Type::Result(result)) => result.ok(),
        other => other,
    }
}

/// Whether a type is a list of bytes, which JSON represents as a base64 string.
pub(super) fn is_bytes(ty: &Type) -> bool {
    matches!(ty, Type::List(list) if matches!(list.ty(), Type::U8))
}

/// Whether a type contains flags. [`function_schemas`] has checked the type, so it is small.
pub(super) fn contains_flags(ty: &Type) -> bool {
    let any = |ty: Option<Type>| ty.is_some_and(|ty| contains_flags(&ty));
    match ty {
        Type::Flags(_) => true,
        Type::List(list) => contains_flags(&list.ty()),
        Type::Option(option) => contains_flags(&option.ty()),
        Type::Tuple(tuple) => tuple.types().any(|ty| contains_flags(&ty)),
        Type::Record(record) => record.fields().any(|field| contains_flags(&field.ty)),
        Type::Variant(variant) => variant.cases().any(|case| any(case.ty)),
        Type::Result(result) => any(result.ok()) || any(result.err()),
        _ => false,
    }
}

/// The schema of a function's arguments, and the form of its result.
///
/// # Errors
/// The reason why the function cannot be a tool.
pub(super) fn function_schemas(func: &ComponentFunc) -> Result<(Value, ResultShape), String> {
    let mut builder = SchemaBuilder::default();
    let mut fields = Vec::new();
    for (name, ty) in func.params() {
        fields.push(
            builder.field(name, &ty, 0).map_err(|e| format!("its parameter `{}` {e}", one_line(name, 80)))?,
        );
    }
    let input = object(fields);
    let answer = match func.results().next() {
        None => ResultShape::Nothing,
        Some(ty) => {
            // Includes the error type, which becomes text.
            let whole = builder.schema(&ty, 0).map_err(|e| format!("its result {e}"))?;
            match (ok_type(func), ty) {
                (None, _) => ResultShape::Nothing,
                (Some(Type::String), _) => ResultShape::Text,
                (Some(ok), Type::Result(_)) => {
                    let schema = builder.schema(&ok, 0).map_err(|e| format!("its result {e}"))?;
                    if matches!(ok, Type::Record(_)) {
                        ResultShape::Object(schema)
                    } else {
                        ResultShape::Wrapped(schema)
                    }
                }
                (Some(Type::Record(_)), _) => ResultShape::Object(whole),
                _ => ResultShape::Wrapped(whole),
            }
        }
    };
    Ok((input, answer))
}

/// Builds schemas, and counts the expanded types.
#[derive(Default)]
struct SchemaBuilder {
    parts: usize,
    names: usize,
}

impl SchemaBuilder {
    fn count_part(&mut self) -> Result<(), String> {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(format!("has types of more than {MAX_PARTS} parts"));
        }
        Ok(())
    }

    fn count_name(&mut self, name: &str) -> Result<(), String> {
        self.count_part()?;
        self.names += name.len();
        if self.names > MAX_NAMES {
            return Err(format!("has types with more than {MAX_NAMES} bytes of names"));
        }
        Ok(())
    }

    fn count_names<'a>(&mut self, names: impl Iterator<Item = &'a str>) -> Result<Vec<&'a str>, String> {
        names.map(|name| self.count_name(name).map(|()| name)).collect()
    }

    /// A field with its schema, and whether it is required.
    fn field(&mut self, name: &str, ty: &Type, depth: usize) -> Result<(String, Value, bool), String> {
        self.count_name(name)?;
        Ok((name.to_owned(), self.schema(ty, depth)?, !matches!(ty, Type::Option(_))))
    }

    fn schema(&mut self, ty: &Type, depth: usize) -> Result<Value, String> {
        self.count_part()?;
        if depth >= MAX_DEPTH {
            return Err(format!("has types that are nested deeper than {MAX_DEPTH}"));
        }
        let below = depth + 1;
        Ok(match ty {
            Type::Bool => json!({"type": "boolean"}),
            Type::S8 => integer(i8::MIN, i8::MAX),
            Type::U8 => integer(u8::MIN, u8::MAX),
            Type::S16 => integer(i16::MIN, i16::MAX),
            Type::U16 => integer(u16::MIN, u16::MAX),
            Type::S32 => integer(i32::MIN, i32::MAX),
            Type::U32 => integer(u32::MIN, u32::MAX),
            Type::S64 => integer_64(i64::MIN, i64::MAX, "^-?[0-9]{1,19}$"),
            Type::U64 => integer_64(u64::MIN, u64::MAX, "^[0-9]{1,20}$"),
            Type::Float32 | Type::Float64 => {
                json!({"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]})
            }
            Type::Char => json!({"type": "string", "minLength": 1, "maxLength": 1}),
            Type::String => json!({"type": "string"}),
            list @ Type::List(_) if is_bytes(list) => json!({"type": "string", "contentEncoding": "base64"}),
            Type::List(list) => json!({"type": "array", "items": self.schema(&list.ty(), below)?}),
            Type::Record(record) => {
                let fields = record.fields().map(|field| self.field(field.name, &field.ty, below));
                object(fields.collect::<Result<Vec<_>, _>>()?)
            }
            Type::Tuple(tuple) => {
                let items = tuple.types().map(|ty| self.schema(&ty, below)).collect::<Result<Vec<_>, _>>()?;
                let count = items.len();
                json!({"type": "array", "prefixItems": items, "items": false, "minItems": count, "maxItems": count})
            }
            Type::Variant(variant) => self.variant(variant, below)?,
            Type::Enum(names) => json!({"enum": self.count_names(names.names())?}),
            Type::Flags(flags) => {
                let names = self.count_names(flags.names())?;
                json!({"type": "array", "items": {"enum": names}, "maxItems": names.len()})
            }
            Type::Option(option) => self.option(&option.ty(), below)?,
            Type::Result(result) => {
                let mut half = |name: &str, ty: Option<Type>| {
                    let schema = match ty {
                        Some(ty) => self.schema(&ty, below)?,
                        None => json!({"type": "null"}),
                    };
                    Ok::<_, String>(object([(name.to_owned(), schema, true)]))
                };
                any_of(vec![half("ok", result.ok())?, half("err", result.err())?])
            }
            Type::Own(_) | Type::Borrow(_) => return Err("is a resource, which has no JSON form".to_owned()),
            Type::Future(_) | Type::Stream(_) => {
                return Err("is a future or a stream, which has no JSON form".to_owned());
            }
            Type::ErrorContext | Type::Map(_) | Type::FixedLengthList(_) => {
                return Err("has a type that this host does not support".to_owned());
            }
        })
    }

    fn variant(&mut self, variant: &Variant, below: usize) -> Result<Value, String> {
        let mut bare = Vec::new();
        let mut choices = Vec::new();
        for case in variant.cases() {
            match &case.ty {
                None => {
                    self.count_name(case.name)?;
                    bare.push(json!(case.name));
                }
                Some(ty) => {
                    let (name, schema, _) = self.field(case.name, ty, below)?;
                    choices.push(object([(name, schema, true)]));
                }
            }
        }
        if !bare.is_empty() {
            choices.insert(0, json!({"enum": bare}));
        }
        Ok(any_of(choices))
    }

    fn option(&mut self, inner: &Type, below: usize) -> Result<Value, String> {
        let schema = self.schema(inner, below)?;
        // `null` means that the outer option is empty, so a value of the inner option needs a wrapper.
        let schema = if matches!(inner, Type::Option(_)) {
            object([("some".to_owned(), schema, true)])
        } else {
            schema
        };
        Ok(any_of(vec![schema, json!({"type": "null"})]))
    }
}

fn integer(min: impl Into<Value>, max: impl Into<Value>) -> Value {
    let (min, max): (Value, Value) = (min.into(), max.into());
    json!({"type": "integer", "minimum": min, "maximum": max})
}

/// A 64-bit integer: a number, or a string of digits where JSON readers would round. The bounds apply to numbers only,
/// the pattern to strings only.
fn integer_64(min: impl Into<Value>, max: impl Into<Value>, digits: &str) -> Value {
    let (min, max): (Value, Value) = (min.into(), max.into());
    json!({"type": ["integer", "string"], "minimum": min, "maximum": max, "pattern": digits})
}

fn any_of(mut choices: Vec<Value>) -> Value {
    match choices.len() {
        1 => choices.swap_remove(0),
        _ => json!({"anyOf": choices}),
    }
}

fn object(fields: impl IntoIterator<Item = (String, Value, bool)>) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for (name, schema, must) in fields {
        if must {
            required.push(Value::from(name.as_str()));
        }
        properties.insert(name, schema);
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
