//! The body of a request: its media type, and the conversion of an argument.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use toolbay_policy::text::one_line;

use crate::document::OpenApiDocument;
use crate::schema::{MAX_DESCRIPTION, SchemaConverter, plain_text};
use crate::style::{self, EscapeMode, ParameterStyle};

/// The longest media type that is sent, in bytes.
const MAX_MEDIA: usize = 200;

/// The encoding of one property of a form (Encoding Object).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PropertyEncoding {
    media: Option<String>,
    style: ParameterStyle,
    explode: bool,
    escape: EscapeMode,
}

impl Default for PropertyEncoding {
    fn default() -> Self {
        Self { media: None, style: ParameterStyle::Form, explode: true, escape: EscapeMode::Strict }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum BodyEncoding {
    Json,
    Form(BTreeMap<String, PropertyEncoding>),
    Multipart(BTreeMap<String, PropertyEncoding>),
    Text,
    Binary,
}

/// The body of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BodyEncoder {
    kind: BodyEncoding,
    media: String,
    pub(crate) required: bool,
}

/// A file in an argument.
fn file_schema() -> Value {
    json!({"type": "object", "description": "A file.", "required": ["base64"], "additionalProperties": false,
        "properties": {
            "base64": {"type": "string", "description": "The content, in base64."},
            "filename": {"type": "string"},
            "mime_type": {"type": "string"}}})
}

impl BodyEncoder {
    /// Reads the body of an operation, with the schema of the argument. Of several media types, the most expressive
    /// one is used.
    pub(crate) fn read(
        document: &OpenApiDocument,
        operation: &Value,
        schemas: &mut SchemaConverter<'_>,
    ) -> Result<Option<(Self, Value)>, String> {
        let Some(node) = operation.get("requestBody") else { return Ok(None) };
        let map = document.resolve(node)?;
        if node.get("$ref").is_some() {
            // A referenced body may belong to many operations.
            map.get("content").map_or(Ok(()), |content| document.work.spend_value(content))?;
        }
        let required = map.get("required") == Some(&Value::Bool(true));
        let content = map.get("content").and_then(Value::as_object);
        let best = content.into_iter().flatten().min_by_key(|(media, _)| media_rank(media));
        let Some((media, shape)) = best else { return Ok(None) };
        if as_header_text(media).is_none() || media.len() > MAX_MEDIA {
            return Err("its body has an invalid media type".to_owned());
        }
        let any = Value::Object(Map::new());
        let schema = shape.get("schema").unwrap_or(&any);
        let (kind, schema) = match media_rank(media) {
            0 => (BodyEncoding::Json, schemas.convert(schema)?),
            1 => (BodyEncoding::Form(read_encodings(shape)), schemas.convert(schema)?),
            2 => {
                // The schema is inlined, because files in it are replaced.
                let map = document.resolve(schema)?;
                map.values().try_for_each(|part| document.work.spend_value(part))?;
                let whole = Value::Object(map.clone());
                let converted = schemas.convert(&whole)?;
                (BodyEncoding::Multipart(read_encodings(shape)), with_files(document, &whole, converted))
            }
            3 => (BodyEncoding::Text, json!({"type": "string"})),
            _ => (
                BodyEncoding::Binary,
                json!({"type": "string", "description": format!("{}, in base64.", one_line(media, 100))}),
            ),
        };
        let mut schema = if schema.is_object() { schema } else { json!({}) };
        let description = map.get("description").and_then(Value::as_str);
        if let (Some(text), Some(schema)) = (description, schema.as_object_mut()) {
            schema.entry("description").or_insert_with(|| Value::from(plain_text(text, MAX_DESCRIPTION)));
        }
        // A range of types (`image/*`) is not a media type.
        let media = if media.contains('*') { "application/octet-stream" } else { media };
        Ok(Some((Self { kind, media: media.to_owned(), required }, schema)))
    }

    /// Encodes an argument: returns the value of `Content-Type` and the bytes.
    ///
    /// # Errors
    /// The reason why the argument cannot be this body.
    pub(crate) fn encode(&self, raw: &RawValue) -> Result<(String, Vec<u8>), String> {
        // The caller's text, so that no number changes.
        if self.kind == BodyEncoding::Json {
            return Ok((self.media.clone(), raw.get().as_bytes().to_vec()));
        }
        let value: Value = serde_json::from_str(raw.get()).map_err(|e| e.to_string())?;
        let fields = || value.as_object().ok_or_else(|| "it must be an object".to_owned());
        match &self.kind {
            BodyEncoding::Json | BodyEncoding::Text => match &value {
                Value::String(text) => Ok((self.media.clone(), text.clone().into_bytes())),
                other => Ok((self.media.clone(), other.to_string().into_bytes())),
            },
            BodyEncoding::Binary => Ok((self.media.clone(), decode_base64(&value)?)),
            BodyEncoding::Form(encodings) => {
                let text = encode_form(fields()?, encodings);
                Ok(("application/x-www-form-urlencoded".to_owned(), text.into_bytes()))
            }
            BodyEncoding::Multipart(encodings) => encode_multipart(fields()?, encodings),
        }
    }
}

/// How expressive a media type is; lower is better.
fn media_rank(media: &str) -> u8 {
    let essence = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" => 0,
        json if json.ends_with("+json") || json == "*/*" => 0,
        "application/x-www-form-urlencoded" => 1,
        "multipart/form-data" => 2,
        text if text.starts_with("text/") || text.ends_with("xml") => 3,
        _ => 4,
    }
}

fn read_encodings(shape: &Value) -> BTreeMap<String, PropertyEncoding> {
    let one = |encoding: &Value| {
        let media = encoding.get("contentType").and_then(Value::as_str);
        let style = encoding
            .get("style")
            .and_then(Value::as_str)
            .and_then(ParameterStyle::parse)
            .unwrap_or(ParameterStyle::Form);
        let flag = |key: &str| encoding.get(key).and_then(Value::as_bool);
        PropertyEncoding {
            media: media
                .filter(|media| media.len() <= MAX_MEDIA && !media.contains(['*', ',']))
                .and_then(as_header_text),
            style,
            explode: flag("explode")
                .unwrap_or(matches!(style, ParameterStyle::Form | ParameterStyle::DeepObject)),
            escape: if flag("allowReserved") == Some(true) {
                EscapeMode::Reserved
            } else {
                EscapeMode::Strict
            },
        }
    };
    let all = shape.get("encoding").and_then(Value::as_object).into_iter().flatten();
    all.map(|(name, encoding)| (name.clone(), one(encoding))).collect()
}

fn as_header_text(text: &str) -> Option<String> {
    text.bytes().all(|b| (0x20..0x7f).contains(&b)).then(|| text.to_owned())
}

/// The schema of a form, in which files are objects.
fn with_files(document: &OpenApiDocument, written: &Value, mut converted: Value) -> Value {
    let is_file = |schema: &Value| {
        document.resolve(schema).is_ok_and(|map| {
            let said = |key: &str| map.get(key).and_then(Value::as_str);
            said("format") == Some("binary")
                || (said("contentMediaType").is_some() && said("contentEncoding").is_none())
        })
    };
    let fields = written.get("properties").and_then(Value::as_object).into_iter().flatten();
    for (name, schema) in fields {
        let Some(slot) = converted.get_mut("properties").and_then(|all| all.get_mut(name)) else { continue };
        if is_file(schema) {
            *slot = file_schema();
        } else if document.resolve(schema).ok().and_then(|map| map.get("items")).is_some_and(is_file) {
            *slot = json!({"type": "array", "items": file_schema()});
        }
    }
    converted
}

fn encode_form(fields: &Map<String, Value>, encodings: &BTreeMap<String, PropertyEncoding>) -> String {
    let plain = PropertyEncoding::default();
    let pairs = fields.iter().filter(|(_, value)| !value.is_null()).flat_map(|(name, value)| {
        let encoding = encodings.get(name).unwrap_or(&plain);
        if encoding.media.as_ref().is_some_and(|media| media_rank(media) == 0)
            || value.is_object() && !encodings.contains_key(name)
        {
            let json = Value::String(value.to_string());
            return style::serialize_pairs(ParameterStyle::Form, false, name, &json, encoding.escape);
        }
        style::serialize_pairs(encoding.style, encoding.explode, name, value, encoding.escape)
    });
    pairs.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// A multipart form (RFC 7578). The boundary is a hash of the whole form, so no part can contain it.
fn encode_multipart(
    fields: &Map<String, Value>,
    encodings: &BTreeMap<String, PropertyEncoding>,
) -> Result<(String, Vec<u8>), String> {
    let plain = PropertyEncoding::default();
    let mut parts: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let encoding = encodings.get(name).unwrap_or(&plain);
        match value.as_array() {
            Some(items) if encoding.media.is_none() => {
                for item in items {
                    parts.push(encode_part(name, item, encoding)?);
                }
            }
            _ => parts.push(encode_part(name, value, encoding)?),
        }
    }
    let mut hash = Sha256::new();
    for (head, content) in &parts {
        hash.update(head.as_bytes());
        hash.update(content);
    }
    let hex: String = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let boundary = format!("toolbay-{hex}");
    let mut out = Vec::new();
    for (head, content) in parts {
        out.extend_from_slice(format!("--{boundary}\r\n{head}\r\n").as_bytes());
        out.extend_from_slice(&content);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((format!("multipart/form-data; boundary={boundary}"), out))
}

/// The header lines and the content of one part.
fn encode_part(name: &str, value: &Value, encoding: &PropertyEncoding) -> Result<(String, Vec<u8>), String> {
    // Names in forms are escaped like in the HTML standard.
    let quoted = |text: &str| text.replace('\r', "%0D").replace('\n', "%0A").replace('"', "%22");
    let mut head = format!("Content-Disposition: form-data; name=\"{}\"", quoted(name));
    let (media, content) = match value.get("base64") {
        Some(content) => {
            let said = |key: &str| value.get(key).and_then(Value::as_str);
            head += &format!("; filename=\"{}\"", quoted(said("filename").unwrap_or("file")));
            let media = said("mime_type").and_then(as_header_text).or_else(|| encoding.media.clone());
            let media = media.unwrap_or_else(|| "application/octet-stream".to_owned());
            (Some(media), decode_base64(content).map_err(|why| format!("`{name}`: {why}"))?)
        }
        None if value.is_object() || value.is_array() => {
            let media = encoding.media.clone().unwrap_or_else(|| "application/json".to_owned());
            (Some(media), value.to_string().into_bytes())
        }
        None => (encoding.media.clone(), style::value_as_text(value).into_bytes()),
    };
    head += "\r\n";
    if let Some(media) = media {
        head += &format!("Content-Type: {media}\r\n");
    }
    Ok((head, content))
}

fn decode_base64(value: &Value) -> Result<Vec<u8>, String> {
    let text = value.as_str().ok_or("it must be a base64 string")?;
    STANDARD.decode(text).map_err(|e| format!("it is not base64: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::SchemaTotals;

    fn body(request: &Value) -> (BodyEncoder, Value) {
        let document = OpenApiDocument::parse(r#"{"openapi": "3.1.0", "paths": {}}"#).unwrap();
        let operation = json!({ "requestBody": request });
        BodyEncoder::read(
            &document,
            &operation,
            &mut SchemaConverter::new(&document, 20, &mut SchemaTotals::default()),
        )
        .unwrap()
        .unwrap()
    }

    fn written(body: &BodyEncoder, argument: &str) -> Result<(String, String), String> {
        let raw: Box<RawValue> = serde_json::from_str(argument).unwrap();
        body.encode(&raw).map(|(media, bytes)| (media, String::from_utf8(bytes).unwrap()))
    }

    #[test]
    fn json_is_preferred_and_sent_unchanged() {
        let (body, schema) = body(&json!({"required": true, "description": "all of it", "content": {
            "text/plain": {}, "multipart/form-data": {},
            "application/vnd.api+json": {"schema": {"type": "object"}}}}));
        assert!(body.required);
        assert_eq!(schema, json!({"type": "object", "description": "all of it"}));
        let argument = r#"{"n": 12345678901234567890123, "x": 1.10}"#;
        let expected = ("application/vnd.api+json".to_owned(), argument.to_owned());
        assert_eq!(written(&body, argument), Ok(expected));
    }

    #[test]
    fn forms_follow_their_encoding() {
        let (body, _) = body(&json!({"content": {"application/x-www-form-urlencoded": {
            "schema": {"type": "object"},
            "encoding": {"d": {"style": "deepObject"}, "l": {"explode": false}, "j": {"contentType": "application/json"}}}}}));
        let (media, text) =
            written(&body, r#"{"a": "x y&z", "d": {"k": 1}, "l": [1, 2], "j": {"k": 1}, "o": {"k": 1}, "m": [1, 2], "n": null}"#)
                .unwrap();
        assert_eq!(media, "application/x-www-form-urlencoded");
        assert_eq!(text, "a=x%20y%26z&d%5Bk%5D=1&l=1,2&j=%7B%22k%22%3A1%7D&o=%7B%22k%22%3A1%7D&m=1&m=2");
        assert!(written(&body, "[1]").unwrap_err().contains("object"));
    }

    #[test]
    fn files_become_parts_of_a_multipart_body() {
        let (body, schema) =
            body(&json!({"content": {"multipart/form-data": {"schema": {"type": "object", "properties": {
            "f": {"type": "string", "format": "binary"},
            "all": {"type": "array", "items": {"type": "string", "format": "binary"}},
            "note": {"type": "string"}}}}}}));
        assert_eq!(schema.pointer("/properties/f/required/0"), Some(&json!("base64")));
        assert_eq!(schema.pointer("/properties/all/items/required/0"), Some(&json!("base64")));
        let argument = r#"{"f": {"base64": "aGk=", "filename": "a\"\r\nX: y", "mime_type": "text/plain\r\nX: y"},
            "note": "hello", "o": {"k": 1}, "all": [{"base64": "YQ=="}, {"base64": "Yg=="}]}"#;
        let (media, text) = written(&body, argument).unwrap();
        let boundary = media.strip_prefix("multipart/form-data; boundary=").unwrap();
        let expected = [
            "Content-Disposition: form-data; name=\"f\"; filename=\"a%22%0D%0AX: y\"\r\nContent-Type: application/octet-stream\r\n\r\nhi",
            "Content-Disposition: form-data; name=\"note\"\r\n\r\nhello",
            "Content-Disposition: form-data; name=\"o\"\r\nContent-Type: application/json\r\n\r\n{\"k\":1}",
            "Content-Disposition: form-data; name=\"all\"; filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\na",
            "Content-Disposition: form-data; name=\"all\"; filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\nb",
        ];
        let whole: String = expected.iter().map(|part| format!("--{boundary}\r\n{part}\r\n")).collect();
        assert_eq!(text, format!("{whole}--{boundary}--\r\n"));
        assert!(written(&body, r#"{"f": {"base64": "*"}}"#).unwrap_err().contains("not base64"));
    }

    #[test]
    fn text_is_sent_as_it_is_and_bytes_come_in_base64() {
        let (text, _) = body(&json!({"content": {"text/csv": {"schema": {"type": "string"}}}}));
        assert_eq!(written(&text, r#""a,b\n""#), Ok(("text/csv".to_owned(), "a,b\n".to_owned())));
        let (bytes, schema) = body(&json!({"content": {"image/*": {}}}));
        assert_eq!(
            written(&bytes, r#""aGk=""#),
            Ok(("application/octet-stream".to_owned(), "hi".to_owned()))
        );
        assert_eq!(schema.get("type"), Some(&json!("string")));
    }
}
