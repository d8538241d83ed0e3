//! Converts the values of a function, or the output of a program, to a tool result.
//!
//! `host_call_bytes` bounds the number of values, because wasmtime counts what it copies out of a guest. The same
//! number bounds the length of the text here.

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use toolbay_capabilities::bindings::types::{ErrorCode, ToolError, ToolOutput, ToolResult};
use toolbay_sandbox::instance::ProgramOutputTooLong;
use wasmtime::component::Val;
use wasmtime::component::types::{ComponentFunc, Type};

use super::schema::{is_bytes, ok_type};

/// Largest integer that every JSON reader represents exactly (RFC 8259, section 6).
const EXACT: u64 = (1 << 53) - 1;

/// The result of a function without a result type.
const DONE: &str = "done";

/// The tool result for the values that a function returned. An `err` is an error of the tool.
///
/// # Errors
/// The text would be longer than `max` bytes.
pub(super) fn result_from_values(
    func: &ComponentFunc,
    results: &[Val],
    max: usize,
) -> wasmtime::Result<ToolResult> {
    let (returned, ty) = match (results.first(), func.results().next()) {
        (Some(Val::Result(Err(error))), Some(Type::Result(result))) => {
            let message = match (error, result.err()) {
                (Some(error), Some(ty)) => display_text(&ty, error, max)?,
                _ => "it failed without a message".to_owned(),
            };
            let code = ErrorCode::ExecutionFailed;
            return Ok(Err(ToolError { code, message, subject: None, cost_usd: None }));
        }
        (Some(Val::Result(Ok(value))), Some(Type::Result(_))) => (value.as_deref(), ok_type(func)),
        (value, ty) => (value, ty),
    };
    let (Some(value), Some(ty)) = (returned, ty) else { return Ok(Ok(output(DONE.to_owned(), None))) };
    let text = display_text(&ty, value, max)?;
    let structured = match &ty {
        Type::String => None,
        Type::Record(_) => Some(json(&ty, value, max)?),
        _ => Some(format!("{{\"result\":{}}}", json(&ty, value, max)?)),
    };
    Ok(Ok(output(text, structured)))
}

/// The tool result for the output of a program.
pub(super) fn result_from_stdout(printed: String, is_json: bool) -> ToolOutput {
    if !is_json {
        return output(printed, None);
    }
    let text = printed.trim();
    let structured = if text.starts_with('{') { text.to_owned() } else { format!("{{\"result\":{text}}}") };
    output(text.to_owned(), Some(structured))
}

fn output(value: String, structured: Option<String>) -> ToolOutput {
    ToolOutput { value, structured, content: Vec::new(), cost_usd: None, meta: None }
}

/// A value as text for a model: JSON, but without quotes around a single string.
fn display_text(ty: &Type, value: &Val, max: usize) -> wasmtime::Result<String> {
    match value {
        Val::String(text) => Ok(text.clone()),
        Val::Char(one) => Ok(one.to_string()),
        value => {
            let text = json(ty, value, max)?;
            // Digits, base64 and names contain no escapes.
            let inside = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            Ok(inside.map(str::to_owned).unwrap_or(text))
        }
    }
}

fn json(ty: &Type, value: &Val, max: usize) -> wasmtime::Result<String> {
    let mut writer = JsonWriter { text: Vec::new(), max };
    writer.write_value(ty, value).map_err(|_| ProgramOutputTooLong)?;
    Ok(String::from_utf8(writer.text)?)
}

/// Writes JSON up to a maximum length.
struct JsonWriter {
    text: Vec<u8>,
    max: usize,
}

impl Write for JsonWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.text.len() + bytes.len() > self.max {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl JsonWriter {
    fn write_value(&mut self, ty: &Type, value: &Val) -> std::io::Result<()> {
        match (ty, value) {
            (_, Val::Bool(value)) => write!(self, "{value}"),
            (_, Val::S8(value)) => write!(self, "{value}"),
            (_, Val::U8(value)) => write!(self, "{value}"),
            (_, Val::S16(value)) => write!(self, "{value}"),
            (_, Val::U16(value)) => write!(self, "{value}"),
            (_, Val::S32(value)) => write!(self, "{value}"),
            (_, Val::U32(value)) => write!(self, "{value}"),
            (_, Val::S64(value)) if value.unsigned_abs() > EXACT => write!(self, "\"{value}\""),
            (_, Val::S64(value)) => write!(self, "{value}"),
            (_, Val::U64(value)) if *value > EXACT => write!(self, "\"{value}\""),
            (_, Val::U64(value)) => write!(self, "{value}"),
            (_, Val::Float32(value)) => {
                self.write_float(value.is_finite(), f64::from(*value), &format!("{value:?}"))
            }
            (_, Val::Float64(value)) => self.write_float(value.is_finite(), *value, &format!("{value:?}")),
            (_, Val::Char(value)) => self.write_string(value.encode_utf8(&mut [0; 4])),
            (_, Val::String(text) | Val::Enum(text)) => self.write_string(text),
            (list, Val::List(items)) if is_bytes(list) => self.write_bytes(items),
            (Type::List(list), Val::List(items)) => {
                let ty = list.ty();
                self.write_joined("[", "]", items, |this, item| this.write_value(&ty, item))
            }
            (Type::Tuple(tuple), Val::Tuple(items)) => {
                let pairs: Vec<_> = tuple.types().zip(items).collect();
                self.write_joined("[", "]", &pairs, |this, (ty, item)| this.write_value(ty, item))
            }
            (Type::Record(record), Val::Record(values)) => {
                let fields: Vec<_> = record.fields().zip(values).collect();
                self.write_joined("{", "}", &fields, |this, (field, (name, value))| {
                    this.write_key(name)?;
                    this.write_value(&field.ty, value)
                })
            }
            (Type::Variant(variant), Val::Variant(name, value)) => {
                let ty = variant.cases().find(|case| case.name == name).and_then(|case| case.ty);
                match (ty, value) {
                    (Some(ty), Some(value)) => self.write_member(name, Some((&ty, value.as_ref()))),
                    _ => self.write_string(name),
                }
            }
            (_, Val::Flags(names)) => {
                self.write_joined("[", "]", names, |this, name| this.write_string(name))
            }
            (Type::Option(_), Val::Option(None)) => self.write_all(b"null"),
            (Type::Option(option), Val::Option(Some(value))) => match option.ty() {
                inner @ Type::Option(_) => self.write_member("some", Some((&inner, value.as_ref()))),
                inner => self.write_value(&inner, value),
            },
            (Type::Result(result), Val::Result(value)) => {
                let (name, ty, value) = match value {
                    Ok(value) => ("ok", result.ok(), value),
                    Err(value) => ("err", result.err(), value),
                };
                self.write_member(name, ty.as_ref().zip(value.as_deref()))
            }
            // Unreachable: `schema` rejects functions with other types.
            _ => Err(std::io::ErrorKind::Unsupported.into()),
        }
    }

    fn write_joined<T>(
        &mut self,
        open: &str,
        close: &str,
        items: &[T],
        each: impl Fn(&mut Self, &T) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        self.write_all(open.as_bytes())?;
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.write_all(b",")?;
            }
            each(self, item)?;
        }
        self.write_all(close.as_bytes())
    }

    fn write_member(&mut self, name: &str, value: Option<(&Type, &Val)>) -> std::io::Result<()> {
        self.write_all(b"{")?;
        self.write_key(name)?;
        match value {
            Some((ty, value)) => self.write_value(ty, value)?,
            None => self.write_all(b"null")?,
        }
        self.write_all(b"}")
    }

    fn write_key(&mut self, name: &str) -> std::io::Result<()> {
        self.write_string(name)?;
        self.write_all(b":")
    }

    fn write_string(&mut self, text: &str) -> std::io::Result<()> {
        serde_json::to_writer(self, text).map_err(Into::into)
    }

    /// `shown` is the shortest text that parses to the same number.
    fn write_float(&mut self, is_finite: bool, value: f64, shown: &str) -> std::io::Result<()> {
        match (is_finite, value.is_nan(), value > 0.0) {
            (true, ..) => self.write_all(shown.as_bytes()),
            (false, true, _) => self.write_all(b"\"NaN\""),
            (false, false, true) => self.write_all(b"\"Infinity\""),
            (false, false, false) => self.write_all(b"\"-Infinity\""),
        }
    }

    fn write_bytes(&mut self, items: &[Val]) -> std::io::Result<()> {
        let byte = |item: &Val| if let Val::U8(byte) = item { Some(*byte) } else { None };
        let bytes: Vec<u8> = items.iter().filter_map(byte).collect();
        self.write_string(&STANDARD.encode(bytes))
    }
}
