//! Multipart forms and the files in them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::PropertyEncoding;
use super::media::as_header_text;
use crate::style;

/// A multipart form (RFC 7578). The boundary is a hash of the whole form, so no part can contain it.
pub(super) fn encode_multipart(
    fields: &Map<String, Value>,
    encodings: &BTreeMap<String, PropertyEncoding>,
) -> Result<(String, Vec<u8>), String> {
    let plain = PropertyEncoding::default();
    let mut parts: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let encoding = encodings.get(name).unwrap_or(&plain);
        match value.as_array() {
            // The encoding of a list is that of its members (Encoding Object, `contentType`).
            Some(items) if encoding.media.is_none() || items.iter().any(is_file) => {
                for item in items.iter().filter(|item| !item.is_null()) {
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

/// Whether a value is a file.
fn is_file(value: &Value) -> bool {
    value.get("base64").is_some()
}

/// The header lines and the content of one part.
fn encode_part(name: &str, value: &Value, encoding: &PropertyEncoding) -> Result<(String, Vec<u8>), String> {
    // Names in forms are escaped like in the HTML standard.
    let quoted = |text: &str| text.replace('\r', "%0D").replace('\n', "%0A").replace('"', "%22");
    let mut head = format!("Content-Disposition: form-data; name=\"{}\"", quoted(name));
    let (media, content) = match value.get("base64") {
        Some(content) => {
            let member = |key: &str| value.get(key).and_then(Value::as_str);
            head += &format!("; filename=\"{}\"", quoted(member("filename").unwrap_or("file")));
            let media = member("mime_type").and_then(as_header_text).or_else(|| encoding.media.clone());
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

/// The bytes of a text in base64.
pub(super) fn decode_base64(value: &Value) -> Result<Vec<u8>, String> {
    let text = value.as_str().ok_or("it must be a base64 string")?;
    STANDARD.decode(text).map_err(|e| format!("it is not base64: {e}"))
}
