//! From what a service answered to what its caller gets.

use serde_json::Value;
use serde_json::value::RawValue;
use toolbay_core::content::{
    Blob, BlockBody, ContentBlock, EmbeddedResource, ErrorCode, ResourceBody, ToolError, ToolOutput,
    ToolResult,
};
use toolbay_core::json;
use toolbay_core::text::one_line;

use crate::exchange::Response;

/// Longest message of a service that is handed on, in characters.
const MAX_MESSAGE: usize = 2000;
/// Largest body that is no text and is handed on, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The result of a call that was answered.
pub(crate) fn result(url: &str, response: Response) -> ToolResult {
    if !(200..300).contains(&response.status) {
        return Err(refusal(&response));
    }
    let media = media(&response);
    let size = response.body.len();
    if size == 0 {
        return Ok(ToolOutput::text(format!("The service answered {} without a body.", response.status)));
    }
    let more = if response.truncated { "\n[the answer was longer than the host takes]" } else { "" };
    if is_text(&media) || (media.is_empty() && std::str::from_utf8(&response.body).is_ok()) {
        let text = String::from_utf8(response.body)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        let structured = (is_json(&media) && more.is_empty()).then(|| structured(&text)).flatten();
        return Ok(ToolOutput { structured, ..ToolOutput::text(text + more) });
    }
    let shown = if media.is_empty() { "bytes" } else { media.as_str() };
    let note = format!("The service answered with {size} bytes of {}.{more}", one_line(shown, 100));
    if size > MAX_BYTES || response.truncated {
        return Ok(ToolOutput::text(format!("{note} More than {MAX_BYTES} bytes are not handed on.")));
    }
    let blob = |data| Blob { data, mime_type: media.clone() };
    let body = match media.split('/').next() {
        Some("image") => BlockBody::Image(blob(response.body)),
        Some("audio") => BlockBody::Audio(blob(response.body)),
        _ => BlockBody::Embedded(EmbeddedResource {
            uri: without_query(url).to_owned(),
            mime_type: (!media.is_empty()).then(|| media.clone()),
            body: ResourceBody::Blob(response.body),
        }),
    };
    Ok(ToolOutput { content: vec![ContentBlock { body, annotations: None }], ..ToolOutput::text(note) })
}

/// What kind of refusal a status is: of the arguments, of this caller now, or of the whole.
fn refusal(response: &Response) -> ToolError {
    let code = match response.status {
        400 | 409 | 415 | 422 => ErrorCode::InputInvalid,
        401 | 402 | 403 | 429 | 503 => ErrorCode::NotAvailable,
        _ => ErrorCode::ExecutionFailed,
    };
    let said = message(response);
    let colon = if said.is_empty() { "" } else { ": " };
    let mut text = format!("the service answered {}{colon}{said}", response.status);
    if let Some(wait) = response.header("retry-after") {
        text += &format!(" (to be tried again after {})", one_line(wait, 60));
    }
    ToolError::new(code, text).about(format!("HTTP {}", response.status))
}

/// What a service says of an error: the field that usually holds it (RFC 9457 and common usage), or the text.
fn message(response: &Response) -> String {
    let text = String::from_utf8_lossy(&response.body);
    let media = media(response);
    let body: Option<Value> = is_json(&media).then(|| serde_json::from_str(&text).ok()).flatten();
    let found = body.as_ref().and_then(|body| {
        let places = [
            "/detail",
            "/error/message",
            "/message",
            "/error_description",
            "/errors/0/message",
            "/errors/0/detail",
            "/error",
            "/title",
        ];
        places.into_iter().find_map(|place| body.pointer(place)?.as_str().filter(|text| !text.is_empty()))
    });
    let whole = match found {
        // The rest may say which argument is wrong.
        Some(found) if text.len() > MAX_MESSAGE => found.to_owned(),
        _ if body.is_some() || media.starts_with("text/plain") => text.into_owned(),
        Some(found) => found.to_owned(),
        // A page for people says nothing to a model.
        None if media.ends_with("html") => String::new(),
        None => text.into_owned(),
    };
    whole.trim().chars().take(MAX_MESSAGE).collect()
}

/// The media type, in small letters and without parameters.
fn media(response: &Response) -> String {
    let field = response.header("content-type").unwrap_or_default();
    field.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn is_json(media: &str) -> bool {
    media == "application/json" || media.ends_with("+json")
}

fn is_text(media: &str) -> bool {
    let known = [
        "application/xml",
        "application/yaml",
        "application/javascript",
        "application/x-ndjson",
        "application/x-www-form-urlencoded",
        "application/graphql",
    ];
    media.starts_with("text/")
        || is_json(media)
        || media.ends_with("+xml")
        || media.ends_with("+yaml")
        || known.contains(&media)
}

/// An object or a list is structured; one that two readers would read differently is only text.
fn structured(text: &str) -> Option<Box<RawValue>> {
    let value = json::parse(text).ok()?;
    (value.is_object() || value.is_array())
        .then(|| RawValue::from_string(text.trim().to_owned()).ok())
        .flatten()
}

fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, media: &str, body: &[u8]) -> Response {
        let headers = vec![("content-type".to_owned(), media.to_owned())];
        Response { status, headers, body: body.to_vec(), truncated: false }
    }

    fn said(response: Response) -> ToolOutput {
        result("https://a.example/x?key=1", response).unwrap()
    }

    #[test]
    fn what_succeeds() {
        let json = said(answer(200, "application/json; charset=utf-8", br#"{"a": 1.10}"#));
        assert_eq!(json.value, r#"{"a": 1.10}"#);
        assert_eq!(json.structured.unwrap().get(), r#"{"a": 1.10}"#);
        for body in [r#""text""#, "7", "{", r#"{"a":1,"a":2}"#] {
            let json = said(answer(200, "application/problem+json", body.as_bytes()));
            assert!(json.structured.is_none() && json.value == body, "{body}");
        }
        assert_eq!(said(answer(204, "", b"")).value, "The service answered 204 without a body.");
        assert_eq!(said(answer(200, "text/csv", b"a\xff")).value, "a\u{fffd}");
        assert_eq!(said(answer(200, "", b"plain")).value, "plain");
        let cut = said(Response { truncated: true, ..answer(200, "application/json", br#"{"a":1}"#) });
        assert!(
            cut.structured.is_none() && cut.value.ends_with("[the answer was longer than the host takes]")
        );
        let image = said(answer(200, "image/png", &[1, 2]));
        assert!(
            matches!(image.content[0].body, BlockBody::Image(_))
                && image.value.contains("2 bytes of image/png")
        );
        let pdf = said(answer(200, "application/pdf", b"%PDF"));
        assert!(matches!(&pdf.content[0].body, BlockBody::Embedded(e) if e.uri == "https://a.example/x"));
        let large = said(answer(200, "application/zip", &vec![0; MAX_BYTES + 1]));
        assert!(large.content.is_empty() && large.value.contains("are not handed on"));
    }

    #[test]
    fn what_is_refused() {
        let long = format!(r#"{{"message": "short", "trace": "{}"}}"#, "x".repeat(5000));
        for (response, code, text) in [
            (
                answer(404, "application/problem+json", br#"{"title":"Not Found","detail":"no pet 7"}"#),
                ErrorCode::ExecutionFailed,
                r#"the service answered 404: {"title":"Not Found","detail":"no pet 7"}"#,
            ),
            (
                answer(422, "application/json", long.as_bytes()),
                ErrorCode::InputInvalid,
                "the service answered 422: short",
            ),
            (
                answer(500, "text/html", b"<html>oops</html>"),
                ErrorCode::ExecutionFailed,
                "the service answered 500",
            ),
            (answer(403, "text/plain", b" no \n"), ErrorCode::NotAvailable, "the service answered 403: no"),
            (answer(302, "", b""), ErrorCode::ExecutionFailed, "the service answered 302"),
        ] {
            let error = result("https://a.example", response).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (code, text));
        }
        let mut busy = answer(429, "text/plain", &vec![b'x'; 9000]);
        busy.headers.push(("retry-after".to_owned(), "30".to_owned()));
        let error = result("https://a.example", busy).unwrap_err();
        assert!(error.message.ends_with("x (to be tried again after 30)") && error.message.len() < 2100);
        assert_eq!(error.subject.as_deref(), Some("HTTP 429"));
    }
}
