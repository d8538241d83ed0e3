//! Converts JSON arguments to component values. The arguments match the schema of [`super::schema`]. What a schema
//! cannot express (base64, 64-bit ranges in digits, the range of `float32`) is checked here, and errors have a JSON
//! pointer.
//!
//! A few bytes of JSON can expand to many values, such as `{}` for a record of a thousand options, repeated in a list.
//! The builder therefore counts the memory of the values.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};
use toolbay_core::tool::content::{ErrorCode, ToolError};
use wasmtime::component::Val;
use wasmtime::component::types::{ComponentFunc, Type, Variant};

use super::schema::is_bytes;

/// Maximum memory for the values of one call, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// Accepts missing padding, which models tend to omit.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The arguments of a call, which the pipeline has checked to be an object.
pub(super) fn arguments_object(args: &Value) -> Result<&Map<String, Value>, ToolError> {
    args.as_object()
        .ok_or_else(|| ToolError::new(ErrorCode::InputInvalid, "the arguments are not a JSON object"))
}

/// Converts the arguments to the values of the parameters, in their order.
///
/// # Errors
/// `input_invalid`, with a pointer to the value.
pub(super) fn from_arguments(func: &ComponentFunc, args: &Map<String, Value>) -> Result<Vec<Val>, ToolError> {
    let mut builder = ValueBuilder { left: MAX_BYTES };
    let values =
        func.params().map(|(name, ty)| builder.field(name, &ty, args.get(name)).map(|(_, value)| value));
    values.collect::<Result<_, ValueMismatch>>().map_err(ValueMismatch::into_error)
}

/// A value that does not match its type. The path is stored from the inside out.
#[derive(Debug)]
struct ValueMismatch {
    path: Vec<String>,
    problem: String,
}

impl ValueMismatch {
    fn new(problem: impl Into<String>) -> Self {
        Self { path: Vec::new(), problem: problem.into() }
    }

    fn in_field(mut self, step: &(impl ToString + ?Sized)) -> Self {
        self.path.push(step.to_string());
        self
    }

    fn into_error(self) -> ToolError {
        let steps =
            self.path.iter().rev().map(|step| format!("/{}", step.replace('~', "~0").replace('/', "~1")));
        let pointer: String = steps.collect();
        ToolError::new(ErrorCode::InputInvalid, format!("{pointer}: {}", self.problem)).with_subject(pointer)
    }
}

struct ValueBuilder {
    left: usize,
}

impl ValueBuilder {
    fn reserve(&mut self, bytes: usize) -> Result<(), ValueMismatch> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => {
                return Err(ValueMismatch::new(format!(
                    "the arguments expand to more than {MAX_BYTES} bytes of component values"
                )));
            }
        }
        Ok(())
    }

    fn name(&mut self, name: &str) -> Result<String, ValueMismatch> {
        self.reserve(name.len() + size_of::<String>())?;
        Ok(name.to_owned())
    }

    fn field(
        &mut self,
        name: &str,
        ty: &Type,
        given: Option<&Value>,
    ) -> Result<(String, Val), ValueMismatch> {
        let here = |mismatch: ValueMismatch| mismatch.in_field(name);
        let value = match (given, ty) {
            (Some(json), _) => self.value(ty, json).map_err(here)?,
            (None, Type::Option(_)) => self.value(ty, &Value::Null).map_err(here)?,
            (None, _) => return Err(here(ValueMismatch::new("is missing"))),
        };
        Ok((self.name(name).map_err(here)?, value))
    }

    fn boxed_value(
        &mut self,
        name: &str,
        ty: &Type,
        json: &Value,
    ) -> Result<Option<Box<Val>>, ValueMismatch> {
        self.value(ty, json).map(|value| Some(Box::new(value))).map_err(|mismatch| mismatch.in_field(name))
    }

    fn value(&mut self, ty: &Type, json: &Value) -> Result<Val, ValueMismatch> {
        self.reserve(size_of::<Val>())?;
        Ok(match (ty, json) {
            (Type::Bool, Value::Bool(value)) => Val::Bool(*value),
            (Type::S8, json) => Val::S8(integer(json)?),
            (Type::U8, json) => Val::U8(integer(json)?),
            (Type::S16, json) => Val::S16(integer(json)?),
            (Type::U16, json) => Val::U16(integer(json)?),
            (Type::S32, json) => Val::S32(integer(json)?),
            (Type::U32, json) => Val::U32(integer(json)?),
            (Type::S64, json) => Val::S64(integer(json)?),
            (Type::U64, json) => Val::U64(integer(json)?),
            (Type::Float32, json) => Val::Float32(to_f32(float(json)?)?),
            (Type::Float64, json) => Val::Float64(float(json)?),
            (Type::Char, Value::String(text)) => Val::Char(character(text)?),
            (Type::String, Value::String(text)) => {
                self.reserve(text.len())?;
                Val::String(text.clone())
            }
            (list @ Type::List(_), Value::String(text)) if is_bytes(list) => {
                // Counted before decoding: each byte becomes a value.
                self.reserve((text.len() / 4 * 3).saturating_mul(size_of::<Val>()))?;
                let bytes =
                    BASE64.decode(text).map_err(|e| ValueMismatch::new(format!("is not base64: {e}")))?;
                Val::List(bytes.into_iter().map(Val::U8).collect())
            }
            (Type::List(list), Value::Array(items)) => {
                Val::List(self.items(&mut std::iter::repeat(list.ty()), items)?)
            }
            (Type::Tuple(tuple), Value::Array(items)) => {
                if items.len() != tuple.types().len() {
                    return Err(ValueMismatch::new(format!(
                        "has {} items, not {}",
                        items.len(),
                        tuple.types().len()
                    )));
                }
                Val::Tuple(self.items(&mut tuple.types(), items)?)
            }
            (Type::Record(record), Value::Object(given)) => {
                let fields =
                    record.fields().map(|field| self.field(field.name, &field.ty, given.get(field.name)));
                Val::Record(fields.collect::<Result<_, _>>()?)
            }
            (Type::Variant(variant), json) => self.variant(variant, json)?,
            (Type::Enum(names), Value::String(name)) => {
                let known = names.names().any(|one| one == name);
                Val::Enum(
                    known
                        .then(|| self.name(name))
                        .ok_or_else(|| ValueMismatch::new("is not one of the names of the enum"))??,
                )
            }
            (Type::Flags(flags), Value::Array(items)) => {
                let mut set = Vec::new();
                for name in flags.names().filter(|name| items.iter().any(|item| item.as_str() == Some(name)))
                {
                    set.push(self.name(name)?);
                }
                Val::Flags(set)
            }
            (Type::Option(_), Value::Null) => Val::Option(None),
            (Type::Option(option), json) => self.option(&option.ty(), json)?,
            (Type::Result(result), Value::Object(given)) => {
                let mut half = |name: &str, ty: Option<Type>| match (ty, given.get(name)) {
                    (Some(ty), Some(json)) => self.boxed_value(name, &ty, json),
                    _ => Ok(None),
                };
                Val::Result(match (given.contains_key("ok"), given.contains_key("err")) {
                    (true, false) => Ok(half("ok", result.ok())?),
                    (false, true) => Err(half("err", result.err())?),
                    _ => return Err(ValueMismatch::new("is neither {\"ok\": value} nor {\"err\": value}")),
                })
            }
            _ => return Err(ValueMismatch::new("does not match the type of the parameter")),
        })
    }

    fn variant(&mut self, variant: &Variant, json: &Value) -> Result<Val, ValueMismatch> {
        let (name, payload) = variant_case(json)?;
        let case = variant
            .cases()
            .find(|case| case.name == name)
            .ok_or_else(|| ValueMismatch::new("is not one of the cases of the variant"))?;
        let value = match (&case.ty, payload) {
            (None, None) => None,
            (Some(ty), Some(json)) => self.boxed_value(name, ty, json)?,
            (Some(_), None) => return Err(ValueMismatch::new("needs a value: write {\"case\": value}")),
            (None, Some(_)) => return Err(ValueMismatch::new("takes no value: write the case as a string")),
        };
        Ok(Val::Variant(self.name(name)?, value))
    }

    /// Converts a value that is not `null`.
    fn option(&mut self, inner: &Type, json: &Value) -> Result<Val, ValueMismatch> {
        let not_wrapped = || ValueMismatch::new("is not {\"some\": value}");
        match (inner, json) {
            (Type::Option(_), Value::Object(some)) => {
                let json = some.get("some").ok_or_else(not_wrapped)?;
                Ok(Val::Option(self.boxed_value("some", inner, json)?))
            }
            (Type::Option(_), _) => Err(not_wrapped()),
            _ => Ok(Val::Option(Some(Box::new(self.value(inner, json)?)))),
        }
    }

    fn items(
        &mut self,
        types: &mut dyn Iterator<Item = Type>,
        items: &[Value],
    ) -> Result<Vec<Val>, ValueMismatch> {
        let pairs = types.zip(items).enumerate();
        pairs
            .map(|(at, (ty, json))| self.value(&ty, json).map_err(|mismatch| mismatch.in_field(&at)))
            .collect()
    }
}

/// A case of a variant: its name, or `{"name": value}`.
fn variant_case(json: &Value) -> Result<(&str, Option<&Value>), ValueMismatch> {
    match json {
        Value::String(name) => Ok((name, None)),
        Value::Object(one) if one.len() == 1 => one
            .iter()
            .next()
            .map(|(name, value)| (name.as_str(), Some(value)))
            .ok_or_else(|| ValueMismatch::new("is empty")),
        _ => Err(ValueMismatch::new("is neither a case's name nor {\"case\": value}")),
    }
}

/// A number without a fraction, or a string of digits.
fn integer<N: TryFrom<i128>>(json: &Value) -> Result<N, ValueMismatch> {
    /// Above this, a JSON number with a fraction or an exponent may have been rounded.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let number = match json {
        Value::Number(number) => {
            number.as_i64().map(i128::from).or(number.as_u64().map(i128::from)).or_else(|| {
                let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= EXACT)?;
                #[expect(clippy::cast_possible_truncation, reason = "it has no fraction and is small")]
                Some(float as i128)
            })
        }
        Value::String(digits) => digits.parse().ok(),
        _ => None,
    };
    let number = number.ok_or_else(|| ValueMismatch::new("is not a whole number"))?;
    N::try_from(number).map_err(|_| ValueMismatch::new(format!("{number} is out of range")))
}

fn float(json: &Value) -> Result<f64, ValueMismatch> {
    match json {
        Value::Number(number) => number.as_f64(),
        Value::String(name) => match name.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
    .ok_or_else(|| ValueMismatch::new("is not a number"))
}

fn to_f32(wide: f64) -> Result<f32, ValueMismatch> {
    #[expect(clippy::cast_possible_truncation, reason = "what becomes infinite by it is refused")]
    let narrow = wide as f32;
    if narrow.is_infinite() && wide.is_finite() {
        return Err(ValueMismatch::new(format!("{wide} is out of range")));
    }
    Ok(narrow)
}

fn character(text: &str) -> Result<char, ValueMismatch> {
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(one), None) => Ok(one),
        _ => Err(ValueMismatch::new("is not one character")),
    }
}
