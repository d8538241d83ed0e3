//! The body of a request: its media type, and the conversion of an argument.

mod media;
mod multipart;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use toolbay_policy::excerpt::one_line;

use crate::document::OpenApiDocument;
use crate::examples;
use crate::scalar::{is_absent, member_flag};
use crate::schema::SchemaConverter;
use crate::style::{self, EscapeMode, ParameterStyle};
use media::{MAX_MEDIA, MediaKind, as_header_text};
use multipart::{decode_base64, encode_multipart};

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
    /// What the importer did not read of it.
    pub(crate) unread: Option<String>,
}

impl BodyEncoder {
    /// Reads the body of an operation, with the schema of the argument. Among several media types, the most expressive
    /// one is used.
    pub(crate) fn read(
        document: &OpenApiDocument,
        operation: &Value,
        schemas: &mut SchemaConverter<'_>,
    ) -> Result<Option<(Self, Value)>, String> {
        let Some(node) = operation.get("requestBody").filter(|node| !is_absent(node)) else {
            return Ok(None);
        };
        let map = match document.resolve(node) {
            Ok(map) => map,
            Err(why) => {
                document.work.spend(0)?;
                schemas.name_loss("body", &format!("it may be anything, because it is {why}"));
                let media = "application/json".to_owned();
                return Ok(Some((
                    Self { kind: BodyEncoding::Json, media, required: false, unread: None },
                    json!({}),
                )));
            }
        };
        if node.get("$ref").is_some() {
            // A referenced body may belong to many operations.
            map.get("content").map_or(Ok(()), |content| document.work.spend_value(content))?;
        }
        let required = member_flag(map, "required") == Some(true);
        let content = map.get("content").and_then(Value::as_object);
        let is_sent = |media: &str| as_header_text(media).is_some() && media.len() <= MAX_MEDIA;
        let best =
            content.into_iter().flatten().min_by_key(|(media, _)| (!is_sent(media), MediaKind::rank(media)));
        let Some((media, shape)) = best else { return Ok(None) };
        // A reference is new in OpenAPI 3.2. `null` stands for an empty object.
        let empty = Map::new();
        let shape = match document.resolve(shape) {
            Ok(shape) => shape,
            Err(why) => {
                document.work.spend(0)?;
                if shape.is_object() {
                    schemas.name_loss("body", &format!("it may be anything, because its content is {why}"));
                }
                &empty
            }
        };
        if !is_sent(media) {
            return Err("its body has an invalid media type".to_owned());
        }
        let any = Value::Object(Map::new());
        let schema = shape.get("schema").unwrap_or(&any);
        // A range of types is not a media type.
        let media = match MediaKind::of(media) {
            MediaKind::Range => MediaKind::of_range(document, media, schema),
            MediaKind::Text if media.contains('*') => "text/plain",
            _ if media.contains('*') => "application/octet-stream",
            _ => media,
        };
        let (kind, schema) = match MediaKind::of(media) {
            MediaKind::Json => (BodyEncoding::Json, schemas.convert("body", schema)?),
            MediaKind::Form => (BodyEncoding::Form(read_encodings(shape)), schemas.convert("body", schema)?),
            MediaKind::Multipart => {
                let schema = schemas.convert_form(schema, binary_fields(shape))?;
                (BodyEncoding::Multipart(read_encodings(shape)), schema)
            }
            MediaKind::Text => (BodyEncoding::Text, json!({"type": "string"})),
            MediaKind::Range | MediaKind::Binary => (
                BodyEncoding::Binary,
                json!({"type": "string", "description": format!("{}, in base64.", one_line(media, 100))}),
            ),
        };
        let mut examples = examples::read(document, shape, |why| schemas.name_loss("body", why))?;
        if !matches!(kind, BodyEncoding::Json | BodyEncoding::Form(_)) {
            examples.clear();
        }
        let schema = examples::annotate(schema, map.get("description"), examples);
        let new =
            ["itemSchema", "itemEncoding", "prefixEncoding"].iter().find(|key| shape.contains_key(**key));
        let unread = new.map(|key| format!("`{key}` of its body is new in OpenAPI 3.2 and is not read"));
        Ok(Some((Self { kind, media: media.to_owned(), required, unread }, schema)))
    }

    /// Encodes an argument: returns the value of `Content-Type` and the bytes.
    ///
    /// # Errors
    /// Returns why the argument cannot be this body.
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

/// The fields whose encoding is that of a file. A field without a type and with such an encoding is one (OpenAPI 3.1,
/// Encoding Object, `contentType`).
fn binary_fields(shape: &Map<String, Value>) -> BTreeSet<String> {
    let all = shape.get("encoding").and_then(Value::as_object).into_iter().flatten();
    let is_binary = |encoding: &Value| {
        let media = encoding.get("contentType").and_then(Value::as_str).unwrap_or_default();
        let first = media.split(',').next().unwrap_or_default().trim();
        !first.is_empty() && MediaKind::of(first) == MediaKind::Binary
    };
    all.filter(|(_, encoding)| is_binary(encoding)).map(|(name, _)| name.clone()).collect()
}

fn read_encodings(shape: &Map<String, Value>) -> BTreeMap<String, PropertyEncoding> {
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

/// How the value of a parameter with `content` becomes a text (OpenAPI 3.1, Parameter Object, `content`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ParameterContent {
    Json,
    Form(BTreeMap<String, PropertyEncoding>),
    /// The text of a scalar. Objects and lists have no such text and are written as JSON.
    Text,
}

/// The form of a parameter with this media type. `shape` is its Media Type Object.
pub(crate) fn parameter_content(
    document: &OpenApiDocument,
    media: &str,
    shape: Option<&Map<String, Value>>,
    schema: &Value,
) -> ParameterContent {
    let media = match MediaKind::of(media) {
        MediaKind::Range => MediaKind::of_range(document, media, schema),
        _ => media,
    };
    match MediaKind::of(media) {
        MediaKind::Json => ParameterContent::Json,
        MediaKind::Form => ParameterContent::Form(shape.map(read_encodings).unwrap_or_default()),
        MediaKind::Multipart | MediaKind::Range | MediaKind::Text | MediaKind::Binary => {
            ParameterContent::Text
        }
    }
}

pub(crate) fn encode_form(
    fields: &Map<String, Value>,
    encodings: &BTreeMap<String, PropertyEncoding>,
) -> String {
    let plain = PropertyEncoding::default();
    let pairs = fields.iter().filter(|(_, value)| !value.is_null()).flat_map(|(name, value)| {
        let encoding = encodings.get(name).unwrap_or(&plain);
        if encoding.media.as_ref().is_some_and(|media| MediaKind::of(media) == MediaKind::Json)
            || value.is_object() && !encodings.contains_key(name)
        {
            let json = Value::String(value.to_string());
            return style::serialize_pairs(ParameterStyle::Form, false, name, &json, encoding.escape);
        }
        style::serialize_pairs(encoding.style, encoding.explode, name, value, encoding.escape)
    });
    pairs.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::SchemaTotals;

    fn body(request: &Value) -> (BodyEncoder, Value) {
        body_with(request, &json!({}))
    }

    /// A body of a document with these schemas, and the schema of the arguments with its definitions.
    fn body_with(request: &Value, schemas: &Value) -> (BodyEncoder, Value) {
        let text = json!({"openapi": "3.1.0", "paths": {}, "components": {"schemas": schemas}}).to_string();
        let document = OpenApiDocument::parse(&text).unwrap();
        let operation = json!({ "requestBody": request });
        let mut totals = SchemaTotals::default();
        let mut schemas = SchemaConverter::new(&document, 20, &mut totals);
        let (body, mut schema) = BodyEncoder::read(&document, &operation, &mut schemas).unwrap().unwrap();
        schemas.add_definitions(schema.as_object_mut().unwrap()).unwrap();
        (body, schema)
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
    fn a_body_without_a_description_may_be_anything() {
        let document = OpenApiDocument::parse(r#"{"openapi": "3.1.0", "paths": {}}"#).unwrap();
        let gone = json!({"$ref": "#/components/gone"});
        let example = json!({"schema": {"type": "object"}, "examples": {"a": gone, "b": {"value": {}}}});
        for (request, media, schema, part) in [
            (
                gone.clone(),
                "application/json",
                json!({}),
                "`body`: it may be anything, because it is a reference",
            ),
            (json!([1]), "application/json", json!({}), "a value that is not an object"),
            (
                json!({"content": {"application/x+json": gone}}),
                "application/x+json",
                json!({}),
                "its content is a reference",
            ),
            (
                json!({"content": {"application/json": example}}),
                "application/json",
                json!({"type": "object", "examples": [{}]}),
                "an example is left out: it is a reference",
            ),
        ] {
            let mut totals = SchemaTotals::default();
            let mut schemas = SchemaConverter::new(&document, 20, &mut totals);
            let operation = json!({ "requestBody": request });
            let (body, converted) = BodyEncoder::read(&document, &operation, &mut schemas).unwrap().unwrap();
            assert_eq!(
                (body.media.as_str(), &converted, body.required),
                (media, &schema, false),
                "{request}"
            );
            let losses = schemas.into_losses();
            assert!(losses.len() == 1 && losses[0].contains(part), "{request}: {losses:?}");
        }
        let (body, _) = body(&json!({"content": {"application/\u{7f}+json": {}, "text/plain": {}}}));
        assert_eq!(written(&body, "\"a\"").unwrap().0, "text/plain");
    }

    #[test]
    fn a_range_becomes_the_media_type_that_its_schema_needs() {
        let object = json!({"schema": {"type": "object"}});
        let (list, named) =
            (json!({"schema": {"type": "array", "items": {}}}), json!({"schema": reference("A")}));
        let text = json!({"schema": {"type": "string"}});
        let bytes = json!({"schema": {"type": "string", "format": "binary"}});
        for (content, media) in [
            (json!({"*/*": object}), "application/json"),
            (json!({"*/*": list}), "application/json"),
            (json!({"application/*": named}), "application/json"),
            (json!({"*/*": {}}), "application/json"),
            (json!({"*/*": text}), "text/plain"),
            (json!({"*/*": bytes}), "application/octet-stream"),
            (json!({"application/*+json": text}), "application/json"),
            (json!({"application/*+json": object, "text/json": object}), "text/json"),
            (json!({"*/*": object, "application/vnd.a+json": object}), "application/vnd.a+json"),
            (json!({"application/json-patch+json": object, "application/json": object}), "application/json"),
            (json!({"*/*": object, "text/plain": text}), "application/json"),
            (json!({"text/*": text}), "text/plain"),
        ] {
            let (body, _) = body_with(&json!({"content": content}), &json!({"A": {"type": "object"}}));
            let argument = if media == "application/octet-stream" { r#""YQ==""# } else { r#"{"a":1}"# };
            let sent = written(&body, argument).unwrap();
            assert_eq!(sent.0, media, "{content}");
            assert_eq!(sent.1, if argument.starts_with('{') { argument } else { "a" }, "{content}");
        }
    }

    fn reference(name: &str) -> Value {
        json!({"$ref": format!("#/components/schemas/{name}")})
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
    fn a_file_is_found_wherever_it_describes_a_field() {
        let file = json!({"type": "string", "format": "binary"});
        let with_photo =
            json!({"type": "object", "properties": {"photo": file, "title": {"type": "string"}}});
        let schemas = json!({"Form": with_photo, "File": file, "Titled": {"properties": {"title": {"type": "string"}}}});
        let field = |schema: Value| json!({"type": "object", "properties": {"photo": schema}});
        let list = |items: Value| json!({"type": "array", "items": items});
        for schema in [
            with_photo.clone(),
            reference("Form"),
            json!({"allOf": [reference("Titled"), with_photo]}),
            json!({"allOf": [reference("Titled"), {"allOf": [reference("Form")]}]}),
            json!({"oneOf": [reference("Form"), {"properties": {"url": {"type": "string"}}, "required": ["url"]}]}),
            json!({"anyOf": [reference("Form")]}),
            field(reference("File")),
            field(json!({"oneOf": [file, {"type": "integer"}]})),
            field(json!({"anyOf": [{"type": "integer"}, reference("File")]})),
            field(json!({"allOf": [reference("File")], "description": "the photo"})),
            field(json!({"type": "file"})),
            field(json!({"contentMediaType": "image/png"})),
            field(list(file.clone())),
            field(list(reference("File"))),
            field(list(json!({"oneOf": [file, {"type": "integer"}]}))),
            field(json!({"oneOf": [list(file.clone()), file]})),
            json!({"type": "object", "additionalProperties": file}),
        ] {
            let content = json!({"content": {"multipart/form-data": {"schema": schema}}});
            let (body, converted) = body_with(&content, &schemas);
            let definitions = converted.get("$defs").cloned().unwrap_or_else(|| json!({}));
            let checked = json!({"type": "object", "properties": {"body": converted}, "$defs": definitions});
            let checked = toolbay_core::tool::schema::Schema::input(&checked.to_string()).unwrap();
            let one = json!({"base64": "iVBORw0KGgo=", "filename": "a.png", "mime_type": "image/png"});
            let photo = if schema.to_string().contains("items") { json!([one]) } else { one };
            checked.check(&json!({"body": {"photo": photo}})).unwrap_or_else(|e| panic!("{schema}: {e:?}"));
            assert!(checked.check(&json!({"body": {"photo": "iVBORw0KGgo="}})).is_err(), "{schema}");
            let argument = json!({"photo": photo}).to_string();
            let raw: Box<RawValue> = serde_json::from_str(&argument).unwrap();
            let (_, bytes) = body.encode(&raw).unwrap();
            let head =
                b"name=\"photo\"; filename=\"a.png\"\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n\x1a\n\r\n";
            assert!(bytes.windows(head.len()).any(|part| part == head), "{schema}");
        }
    }

    #[test]
    fn the_encoding_of_a_form_can_make_a_field_a_file() {
        let content = json!({"content": {"multipart/form-data": {
            "schema": {"type": "object", "properties": {"a": {}, "b": {"type": "array", "items": {}}, "c": {}, "d": {"type": "string"}}},
            "encoding": {"a": {"contentType": "image/png, image/jpeg"}, "b": {"contentType": "application/octet-stream"},
                "c": {"contentType": "application/json"}, "d": {"contentType": "image/png"}}}}});
        let (body, schema) = body(&content);
        let is_file = |place: &str| schema.pointer(place).is_some_and(|at| at.get("properties").is_some());
        assert!(is_file("/properties/a") && is_file("/properties/b/items"), "{schema}");
        assert!(!is_file("/properties/c") && !is_file("/properties/d"), "{schema}");
        let argument = r#"{"b": [{"base64": "YQ=="}, {"base64": "Yg=="}, null], "c": []}"#;
        let (_, text) = written(&body, argument).unwrap();
        assert_eq!(
            text.matches("name=\"b\"; filename=\"file\"\r\nContent-Type: application/octet-stream").count(),
            2
        );
        assert!(text.contains("name=\"c\"\r\nContent-Type: application/json\r\n\r\n[]"), "{text}");
    }

    #[test]
    fn an_empty_list_of_a_form_is_left_out() {
        let (body, _) = body(&json!({"content": {"application/x-www-form-urlencoded": {
            "schema": {"type": "object"}, "encoding": {"l": {"explode": false}}}}}));
        for (argument, text) in [
            (r#"{"l": [], "m": [], "a": 1}"#, "a=1"),
            (r#"{"l": [""], "m": [""]}"#, "l=&m="),
            (r#"{"l": [null, 1]}"#, "l=1"),
        ] {
            assert_eq!(written(&body, argument).unwrap().1, text, "{argument}");
        }
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
