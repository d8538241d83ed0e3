//! JSON Schema of a function's types. The rules are the table in `docs/how-to/plain-components.md`; [`super::values`] and
//! [`super::text`] apply them to values.
//!
//! A component's types can be nested so that few bytes of it stand for a schema of gigabytes: a record of ten times the
//! record before, ten times over. So what a function's types come to is counted while it is gone through.

use serde_json::{Map, Value, json};
use wasmtime::component::types::{ComponentFunc, Type, Variant};

/// Most types and names that the types of one function come to, each counted where it stands.
const MAX_PARTS: usize = 2000;
/// Most bytes of all names that they come to.
const MAX_NAMES: usize = 32 << 10;
/// Deepest nesting of types.
const MAX_DEPTH: usize = 16;

/// How many times the memory that is counted a value of flags takes: wasmtime counts a byte for a name of one letter, and
/// makes a text of its own of it.
pub(super) const FLAGS_WEIGHT: usize = 32;

/// What a function answers.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    /// Nothing.
    Nothing,
    /// A text, as it is.
    Text,
    /// A record: a JSON object.
    Object(Value),
    /// Anything else, as `result` of an object.
    Wrapped(Value),
}

impl Answer {
    /// The schema of what is structured in the answer.
    pub(super) fn schema(self) -> Option<Value> {
        match self {
            Self::Nothing | Self::Text => None,
            Self::Object(schema) => Some(schema),
            Self::Wrapped(schema) => Some(object([("result".to_owned(), schema, true)])),
        }
    }
}

/// The type that a function answers with if all is well; the other half of a `result` is an error of the tool.
pub(super) fn answered(func: &ComponentFunc) -> Option<Type> {
    match func.results().next() {
        Some(Type::Result(result)) => result.ok(),
        other => other,
    }
}

/// Whether a type is a list of bytes, which JSON has as a text.
pub(super) fn is_bytes(ty: &Type) -> bool {
    matches!(ty, Type::List(list) if matches!(list.ty(), Type::U8))
}

/// Whether there are flags in a type. It has been through [`of`], so it is not large.
pub(super) fn has_flags(ty: &Type) -> bool {
    let any = |ty: Option<Type>| ty.is_some_and(|ty| has_flags(&ty));
    match ty {
        Type::Flags(_) => true,
        Type::List(list) => has_flags(&list.ty()),
        Type::Option(option) => has_flags(&option.ty()),
        Type::Tuple(tuple) => tuple.types().any(|ty| has_flags(&ty)),
        Type::Record(record) => record.fields().any(|field| has_flags(&field.ty)),
        Type::Variant(variant) => variant.cases().any(|case| any(case.ty)),
        Type::Result(result) => any(result.ok()) || any(result.err()),
        _ => false,
    }
}

/// The schema of a function's arguments, and what it answers.
///
/// # Errors
/// Why the function can be no tool.
pub(super) fn of(func: &ComponentFunc) -> Result<(Value, Answer), String> {
    if func.async_() {
        return Err("it is asynchronous".to_owned());
    }
    let mut seen = Seen::default();
    let mut fields = Vec::new();
    for (name, ty) in func.params() {
        fields.push(seen.field(name, &ty, 0).map_err(|e| format!("its parameter `{}` {e}", short(name)))?);
    }
    let input = object(fields);
    let answer = match func.results().next() {
        None => Answer::Nothing,
        Some(ty) => {
            // The error's type, too: it becomes text.
            let whole = seen.schema(&ty, 0).map_err(|e| format!("its result {e}"))?;
            match (answered(func), ty) {
                (None, _) => Answer::Nothing,
                (Some(Type::String), _) => Answer::Text,
                (Some(ok), Type::Result(_)) => {
                    let schema = seen.schema(&ok, 0).map_err(|e| format!("its result {e}"))?;
                    if matches!(ok, Type::Record(_)) {
                        Answer::Object(schema)
                    } else {
                        Answer::Wrapped(schema)
                    }
                }
                (Some(Type::Record(_)), _) => Answer::Object(whole),
                _ => Answer::Wrapped(whole),
            }
        }
    };
    Ok((input, answer))
}

/// What was gone through.
#[derive(Default)]
struct Seen {
    parts: usize,
    names: usize,
}

impl Seen {
    fn part(&mut self) -> Result<(), String> {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(format!("has types of more than {MAX_PARTS} parts"));
        }
        Ok(())
    }

    fn name(&mut self, name: &str) -> Result<(), String> {
        self.part()?;
        self.names += name.len();
        if self.names > MAX_NAMES {
            return Err(format!("has types with more than {MAX_NAMES} bytes of names"));
        }
        Ok(())
    }

    fn names<'a>(&mut self, names: impl Iterator<Item = &'a str>) -> Result<Vec<&'a str>, String> {
        names.map(|name| self.name(name).map(|()| name)).collect()
    }

    /// A named value, with its schema and whether it must be there.
    fn field(&mut self, name: &str, ty: &Type, depth: usize) -> Result<(String, Value, bool), String> {
        self.name(name)?;
        Ok((name.to_owned(), self.schema(ty, depth)?, !matches!(ty, Type::Option(_))))
    }

    fn schema(&mut self, ty: &Type, depth: usize) -> Result<Value, String> {
        self.part()?;
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
            Type::S64 => wide(i64::MIN, i64::MAX, "^-?[0-9]{1,19}$"),
            Type::U64 => wide(u64::MIN, u64::MAX, "^[0-9]{1,20}$"),
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
            Type::Enum(names) => json!({"enum": self.names(names.names())?}),
            Type::Flags(flags) => {
                let names = self.names(flags.names())?;
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
            Type::Own(_) | Type::Borrow(_) => return Err("is a resource, which JSON cannot say".to_owned()),
            Type::Future(_) | Type::Stream(_) => {
                return Err("is a future or a stream, which JSON cannot say".to_owned());
            }
            Type::ErrorContext | Type::Map(_) | Type::FixedLengthList(_) => {
                return Err("is of a type that this host does not know".to_owned());
            }
        })
    }

    fn variant(&mut self, variant: &Variant, below: usize) -> Result<Value, String> {
        let mut bare = Vec::new();
        let mut choices = Vec::new();
        for case in variant.cases() {
            match &case.ty {
                None => {
                    self.name(case.name)?;
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
        // `null` is the outer one's; the inner one's needs a name around it.
        let schema = if matches!(inner, Type::Option(_)) {
            object([("some".to_owned(), schema, true)])
        } else {
            schema
        };
        Ok(any_of(vec![schema, json!({"type": "null"})]))
    }
}

/// The beginning of a name, for a message.
fn short(name: &str) -> String {
    toolbay_policy::text::one_line(name, 80)
}

fn integer(least: impl Into<Value>, most: impl Into<Value>) -> Value {
    let (least, most): (Value, Value) = (least.into(), most.into());
    json!({"type": "integer", "minimum": least, "maximum": most})
}

/// 64 bits: a number, or its digits where a reader of JSON would round it. The bounds say something of numbers only, the
/// pattern of texts only.
fn wide(least: impl Into<Value>, most: impl Into<Value>, digits: &str) -> Value {
    let (least, most): (Value, Value) = (least.into(), most.into());
    json!({"type": ["integer", "string"], "minimum": least, "maximum": most, "pattern": digits})
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
