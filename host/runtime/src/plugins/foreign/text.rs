//! From what a function returned, or a program printed, to the answer of a tool.
//!
//! How many values come back is bounded by `host_call_bytes`, since wasmtime counts what it takes out of a guest; how
//! long a text they become is bounded by the same number here.

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use wasmtime::component::Val;
use wasmtime::component::types::{ComponentFunc, Type};

use super::schema::{answered, is_bytes};
use crate::engine::bindings::types::{ErrorCode, ToolError, ToolOutput, ToolResult};
use crate::engine::state::TooMuch;

/// Numbers up to it are exact for every reader of JSON (RFC 8259, section 6).
const EXACT: u64 = (1 << 53) - 1;

/// What a function without a result answers.
const DONE: &str = "done";

/// The answer of a tool from what its function returned. An `err` is a failure of the tool, as its author says it.
///
/// # Errors
/// The text would be longer than `most` bytes.
pub(super) fn of_result(func: &ComponentFunc, results: &[Val], most: usize) -> wasmtime::Result<ToolResult> {
    let (returned, ty) = match (results.first(), func.results().next()) {
        (Some(Val::Result(Err(error))), Some(Type::Result(result))) => {
            let message = match (error, result.err()) {
                (Some(error), Some(ty)) => said(&ty, error, most)?,
                _ => "it failed and did not say why".to_owned(),
            };
            let code = ErrorCode::ExecutionFailed;
            return Ok(Err(ToolError { code, message, subject: None, cost_usd: None }));
        }
        (Some(Val::Result(Ok(value))), Some(Type::Result(_))) => (value.as_deref(), answered(func)),
        (value, ty) => (value, ty),
    };
    let (Some(value), Some(ty)) = (returned, ty) else { return Ok(Ok(output(DONE.to_owned(), None))) };
    let text = said(&ty, value, most)?;
    let structured = match &ty {
        Type::String => None,
        Type::Record(_) => Some(json(&ty, value, most)?),
        _ => Some(format!("{{\"result\":{}}}", json(&ty, value, most)?)),
    };
    Ok(Ok(output(text, structured)))
}

/// The answer of a tool from what its program printed.
pub(super) fn of_output(printed: String, is_json: bool) -> ToolOutput {
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

/// A value as a model reads it: JSON, but for what JSON would put between quotes.
fn said(ty: &Type, value: &Val, most: usize) -> wasmtime::Result<String> {
    match value {
        Val::String(text) => Ok(text.clone()),
        Val::Char(one) => Ok(one.to_string()),
        value => {
            let text = json(ty, value, most)?;
            // Digits, base64, names: nothing in them is escaped.
            let inside = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            Ok(inside.map(str::to_owned).unwrap_or(text))
        }
    }
}

fn json(ty: &Type, value: &Val, most: usize) -> wasmtime::Result<String> {
    let mut written = Written { text: Vec::new(), most };
    written.value(ty, value).map_err(|_| TooMuch)?;
    Ok(String::from_utf8(written.text)?)
}

/// JSON that is written until it is too long.
struct Written {
    text: Vec<u8>,
    most: usize,
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.text.len() + bytes.len() > self.most {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn value(&mut self, ty: &Type, value: &Val) -> std::io::Result<()> {
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
                self.float(value.is_finite(), f64::from(*value), &format!("{value:?}"))
            }
            (_, Val::Float64(value)) => self.float(value.is_finite(), *value, &format!("{value:?}")),
            (_, Val::Char(value)) => self.string(value.encode_utf8(&mut [0; 4])),
            (_, Val::String(text) | Val::Enum(text)) => self.string(text),
            (list, Val::List(items)) if is_bytes(list) => self.bytes(items),
            (Type::List(list), Val::List(items)) => {
                let ty = list.ty();
                self.joined("[", "]", items, |this, item| this.value(&ty, item))
            }
            (Type::Tuple(tuple), Val::Tuple(items)) => {
                let pairs: Vec<_> = tuple.types().zip(items).collect();
                self.joined("[", "]", &pairs, |this, (ty, item)| this.value(ty, item))
            }
            (Type::Record(record), Val::Record(values)) => {
                let fields: Vec<_> = record.fields().zip(values).collect();
                self.joined("{", "}", &fields, |this, (field, (name, value))| {
                    this.key(name)?;
                    this.value(&field.ty, value)
                })
            }
            (Type::Variant(variant), Val::Variant(name, value)) => {
                let ty = variant.cases().find(|case| case.name == name).and_then(|case| case.ty);
                match (ty, value) {
                    (Some(ty), Some(value)) => self.named(name, Some((&ty, value.as_ref()))),
                    _ => self.string(name),
                }
            }
            (_, Val::Flags(names)) => self.joined("[", "]", names, |this, name| this.string(name)),
            (Type::Option(_), Val::Option(None)) => self.write_all(b"null"),
            (Type::Option(option), Val::Option(Some(value))) => match option.ty() {
                inner @ Type::Option(_) => self.named("some", Some((&inner, value.as_ref()))),
                inner => self.value(&inner, value),
            },
            (Type::Result(result), Val::Result(value)) => {
                let (name, ty, value) = match value {
                    Ok(value) => ("ok", result.ok(), value),
                    Err(value) => ("err", result.err(), value),
                };
                self.named(name, ty.as_ref().zip(value.as_deref()))
            }
            // None of its types is: `schema` refused the function.
            _ => Err(std::io::ErrorKind::Unsupported.into()),
        }
    }

    fn joined<T>(
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

    fn named(&mut self, name: &str, value: Option<(&Type, &Val)>) -> std::io::Result<()> {
        self.write_all(b"{")?;
        self.key(name)?;
        match value {
            Some((ty, value)) => self.value(ty, value)?,
            None => self.write_all(b"null")?,
        }
        self.write_all(b"}")
    }

    fn key(&mut self, name: &str) -> std::io::Result<()> {
        self.string(name)?;
        self.write_all(b":")
    }

    fn string(&mut self, text: &str) -> std::io::Result<()> {
        serde_json::to_writer(self, text).map_err(Into::into)
    }

    /// `shown` is the shortest text that reads as the same number.
    fn float(&mut self, is_finite: bool, value: f64, shown: &str) -> std::io::Result<()> {
        match (is_finite, value.is_nan(), value > 0.0) {
            (true, ..) => self.write_all(shown.as_bytes()),
            (false, true, _) => self.write_all(b"\"NaN\""),
            (false, false, true) => self.write_all(b"\"Infinity\""),
            (false, false, false) => self.write_all(b"\"-Infinity\""),
        }
    }

    fn bytes(&mut self, items: &[Val]) -> std::io::Result<()> {
        let byte = |item: &Val| if let Val::U8(byte) = item { Some(*byte) } else { None };
        let bytes: Vec<u8> = items.iter().filter_map(byte).collect();
        self.string(&STANDARD.encode(bytes))
    }
}
