//! Converts responses of a service to results.

use serde_json::Value;
use serde_json::value::RawValue;
use toolbay_core::call::service_request::ServiceResponse;
use toolbay_core::tool::content::{
    Blob, BlockBody, ContentBlock, EmbeddedResource, ErrorCode, ResourceBody, ToolError, ToolOutput,
};
use toolbay_core::tool::json;
use toolbay_policy::capability::attachment;
use toolbay_policy::excerpt::one_line;

use crate::charset::{DecodedText, EncodedText, is_json};
use crate::html_text::html_text;
use crate::response_headers;
use crate::routes::Routes;

/// The longest error message of a service that is passed on, in characters.
const MAX_MESSAGE: usize = 2000;
/// The longest file name, in characters.
const MAX_NAME: usize = 100;
/// The largest binary body that is passed on, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The result of a call.
#[derive(Debug)]
pub(crate) enum DecodedResponse {
    /// Text or an image.
    Output(ToolOutput),
    /// Other bytes.
    Binary(BinaryBody),
}

/// Binary data.
#[derive(Debug)]
pub(crate) struct BinaryBody {
    /// A description for the model.
    pub(crate) note: String,
    pub(crate) name: String,
    pub(crate) media: String,
    pub(crate) data: Vec<u8>,
    url: String,
}

impl BinaryBody {
    /// The bytes as part of the result, unless there are too many.
    pub(crate) fn into_embedded(self) -> ToolOutput {
        if self.data.len() > MAX_BYTES {
            return ToolOutput::text(format!("{} More than {MAX_BYTES} bytes are not passed on.", self.note));
        }
        let body = BlockBody::Embedded(EmbeddedResource {
            uri: self.url,
            mime_type: Some(self.media),
            body: ResourceBody::Blob(self.data),
        });
        ToolOutput { content: vec![ContentBlock { body, annotations: None }], ..ToolOutput::text(self.note) }
    }
}

/// The result of a call that was answered. `budget` is the limit for its text, in characters. A longer text is not
/// repeated in a form that nothing truncates. `routes` are the requests of the service's tools.
pub(crate) fn decode(
    url: &str,
    response: ServiceResponse,
    budget: usize,
    routes: &Routes,
) -> Result<DecodedResponse, ToolError> {
    if !(200..300).contains(&response.status) {
        return Err(error_from_status(&response, url, routes));
    }
    let lines = response_headers::success_lines(&response, url, routes);
    let media = media_type(&response);
    let size = response.body.len();
    let with_lines =
        |text: String| std::iter::once(text).chain(lines.iter().cloned()).collect::<Vec<_>>().join("\n");
    if size == 0 {
        let text = format!("The service answered {} without a body.", response.status);
        return Ok(DecodedResponse::Output(ToolOutput::text(with_lines(text))));
    }
    let more = if response.truncated { "\n[the response was longer than the host accepts]" } else { "" };
    let may_be_text = is_text(&media) || media.is_empty();
    let problem = match may_be_text.then(|| encoded_text(&response, &media).decode()) {
        Some(Ok(DecodedText { text, unknown_charset })) => {
            let whole = is_json(&media) && more.is_empty() && text.len() <= budget.saturating_mul(4);
            let structured = whole.then(|| structured_json(&text, budget)).flatten();
            let charset = unknown_charset.map(|label| format!("\n[the charset `{label}` is not known]"));
            let text = with_lines(text + more + &charset.unwrap_or_default());
            return Ok(DecodedResponse::Output(ToolOutput { structured, ..ToolOutput::text(text) }));
        }
        Some(Err(error)) if !media.is_empty() => format!(" They are not shown as text: {error}."),
        Some(Err(_)) | None => String::new(),
    };
    let shown = if media.is_empty() { "bytes" } else { media.as_str() };
    let note = format!("The service answered with {size} bytes of {}.{problem}{more}", one_line(shown, 100));
    let note = with_lines(note);
    let blob = |data| Blob { data, mime_type: media.clone() };
    // A false image must not reach a model as an image.
    let kind = media.split('/').next().filter(|_| size <= MAX_BYTES && !response.truncated);
    let body = match kind {
        Some("image") if is_picture(&media, &response.body) => BlockBody::Image(blob(response.body)),
        Some("audio") if std::str::from_utf8(&response.body).is_err() => {
            BlockBody::Audio(blob(response.body))
        }
        _ => {
            let media =
                attachment::media_type(&media).unwrap_or_else(|| attachment::UNKNOWN_MEDIA_TYPE.to_owned());
            let (name, url) = (file_name(&response, url), without_query(url).to_owned());
            return Ok(DecodedResponse::Binary(BinaryBody { note, name, media, data: response.body, url }));
        }
    };
    let content = vec![ContentBlock { body, annotations: None }];
    Ok(DecodedResponse::Output(ToolOutput { content, ..ToolOutput::text(note) }))
}

fn encoded_text<'a>(response: &'a ServiceResponse, media: &'a str) -> EncodedText<'a> {
    EncodedText {
        body: &response.body,
        media,
        content_type: response.header("content-type").unwrap_or_default(),
        truncated: response.truncated,
    }
}

/// Whether bytes have the signature of their declared image type.
fn is_picture(media: &str, bytes: &[u8]) -> bool {
    match media {
        "image/png" => bytes.starts_with(b"\x89PNG\r\n\x1a\n"),
        "image/jpeg" => bytes.starts_with(b"\xff\xd8\xff"),
        "image/gif" => bytes.starts_with(b"GIF8"),
        "image/webp" => bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP"),
        _ => false,
    }
}

/// The name of a file: the service's name or the end of the URL, with safe characters only.
fn file_name(response: &ServiceResponse, url: &str) -> String {
    let field = response.header("content-disposition").unwrap_or_default();
    let name_in_header = field.split(';').find_map(|part| part.trim().strip_prefix("filename="));
    let name_in_header = name_in_header.map(|name| name.trim_matches('"'));
    let name = name_in_header.or_else(|| without_query(url).rsplit('/').next()).unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
    let name: String = name.chars().take(MAX_NAME).map(plain).collect();
    let name = name.trim_matches(['.', '_']);
    if name.is_empty() { "answer".to_owned() } else { name.to_owned() }
}

/// The error class of a status code: the arguments, the service's current state, or the operation.
fn error_from_status(response: &ServiceResponse, url: &str, routes: &Routes) -> ToolError {
    let code = match response.status {
        400 | 409 | 415 | 422 => ErrorCode::InputInvalid,
        401 | 402 | 403 | 429 | 503 => ErrorCode::NotAvailable,
        _ => ErrorCode::ExecutionFailed,
    };
    let message = error_message(response);
    let colon = if message.is_empty() { "" } else { ": " };
    let mut text = format!("the service answered {}{colon}{message}", response.status);
    if (300..400).contains(&response.status)
        && let Some(location) = response_headers::location(response, url, routes)
    {
        text += &format!(" (location {location})");
    }
    if let Some(wait) = response_headers::retry_after(response) {
        text += &format!(" (retry after {wait})");
    }
    ToolError::new(code, text).with_subject(format!("HTTP {}", response.status))
}

/// The error message of a service: from the usual field (RFC 9457 and common practice), or the text.
fn error_message(response: &ServiceResponse) -> String {
    let media = media_type(response);
    let text = match encoded_text(response, &media).decode() {
        Ok(decoded) => decoded.text,
        Err(error) if is_text(&media) => return format!("its text cannot be read: {error}"),
        Err(_) => return String::new(),
    };
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
        // The other fields may name the invalid argument.
        Some(found) if text.len() > MAX_MESSAGE => found.to_owned(),
        _ if body.is_some() || media.starts_with("text/plain") => text,
        Some(found) => found.to_owned(),
        // Without its tags, a page says what a text does.
        None if is_html(&media) => html_text(&text, MAX_MESSAGE),
        None if !is_text(&media) && !media.is_empty() => String::new(),
        None => text,
    };
    whole.trim().chars().take(MAX_MESSAGE).collect()
}

/// The media type in lower case, without parameters.
fn media_type(response: &ServiceResponse) -> String {
    let field = response.header("content-type").unwrap_or_default();
    field.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn is_html(media: &str) -> bool {
    matches!(media, "text/html" | "application/xhtml+xml")
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

/// An object or a list is structured. JSON that two parsers could read differently is text only.
fn structured_json(text: &str, budget: usize) -> Option<Box<RawValue>> {
    if text.chars().nth(budget).is_some() {
        return None;
    }
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

    fn answer(status: u16, media: &str, body: &[u8]) -> ServiceResponse {
        let headers = vec![("content-type".to_owned(), media.to_owned())];
        ServiceResponse { status, headers, body: body.to_vec(), truncated: false }
    }

    fn said(response: ServiceResponse) -> ToolOutput {
        match decode("https://a.example/x?key=1", response, 1000, &Routes::default()).unwrap() {
            DecodedResponse::Output(output) => output,
            DecodedResponse::Binary(file) => file.into_embedded(),
        }
    }

    #[test]
    fn a_success_becomes_output() {
        let json = said(answer(200, "application/json; charset=utf-8", br#"{"a": 1.10}"#));
        assert_eq!(json.value, r#"{"a": 1.10}"#);
        assert_eq!(json.structured.unwrap().get(), r#"{"a": 1.10}"#);
        for body in [r#""text""#, "7", "{", r#"{"a":1,"a":2}"#] {
            let json = said(answer(200, "application/problem+json", body.as_bytes()));
            assert!(json.structured.is_none() && json.value == body, "{body}");
        }
        assert_eq!(said(answer(204, "", b"")).value, "The service answered 204 without a body.");
        let odd = said(answer(200, "text/csv; charset=x-odd", b"a\xff"));
        assert!(
            odd.value.contains("`x-odd` is not known") && !odd.value.contains('\u{fffd}'),
            "{}",
            odd.value
        );
        assert!(
            matches!(&odd.content[0].body, BlockBody::Embedded(e) if e.body == ResourceBody::Blob(b"a\xff".to_vec()))
        );
        assert_eq!(said(answer(200, "text/plain; charset=gbk", b"\xc4\xe3")).value, "你");
        let marked = said(answer(200, "application/json", b"\xef\xbb\xbf{\"a\": 1}"));
        assert_eq!((marked.value.as_str(), marked.structured.unwrap().get()), ("{\"a\": 1}", "{\"a\": 1}"));
        assert_eq!(said(answer(200, "", b"plain")).value, "plain");
        let cut = said(ServiceResponse { truncated: true, ..answer(200, "application/json", br#"{"a":1}"#) });
        assert!(
            cut.structured.is_none()
                && cut.value.ends_with("[the response was longer than the host accepts]")
        );
        let image = said(answer(200, "image/png", b"\x89PNG\r\n\x1a\n"));
        assert!(
            matches!(image.content[0].body, BlockBody::Image(_))
                && image.value.contains("8 bytes of image/png")
        );
        let none = said(answer(200, "image/png", b"<script>"));
        assert!(matches!(none.content[0].body, BlockBody::Embedded(_)), "a picture that is none");
        assert_eq!(said(answer(200, "text/html; charset=ISO-8859-1", b"gr\xfcn")).value, "grün");
        let long = said(answer(200, "application/json", format!("[{}]", "1,".repeat(600) + "1").as_bytes()));
        assert!(long.structured.is_none(), "a long text is not repeated");
        for (field, name) in [
            ("attachment; filename=\"../../etc/pass wd\"", "etc_pass_wd"),
            ("attachment", "x"),
            ("inline; filename=\"..\"", "answer"),
        ] {
            let mut file = answer(200, "application/zip", &[0xff]);
            file.headers.push(("content-disposition".to_owned(), field.to_owned()));
            let Ok(DecodedResponse::Binary(file)) =
                decode("https://a.example/x?key=1", file, 9, &Routes::default())
            else {
                panic!()
            };
            assert!(
                file.name == name && toolbay_core::session::attachment::check_name(&file.name).is_ok(),
                "{}",
                file.name
            );
        }
        let pdf = said(answer(200, "application/pdf", b"%PDF"));
        assert!(matches!(&pdf.content[0].body, BlockBody::Embedded(e) if e.uri == "https://a.example/x"));
        let large = said(answer(200, "application/zip", &vec![0; MAX_BYTES + 1]));
        assert!(large.content.is_empty() && large.value.contains("are not passed on"));
    }

    #[test]
    fn an_error_status_becomes_a_tool_error() {
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
                "the service answered 500: oops",
            ),
            (
                answer(503, "text/html; charset=iso-8859-1", b"<title>gr\xfcn</title><body>\n<h1>busy</h1>"),
                ErrorCode::NotAvailable,
                "the service answered 503: gr\u{fc}n busy",
            ),
            (
                answer(500, "text/html", b"<script>x</script>"),
                ErrorCode::ExecutionFailed,
                "the service answered 500",
            ),
            (answer(403, "text/plain", b" no \n"), ErrorCode::NotAvailable, "the service answered 403: no"),
            (answer(302, "", b""), ErrorCode::ExecutionFailed, "the service answered 302"),
            (
                answer(500, "text/plain", b"a\xff"),
                ErrorCode::ExecutionFailed,
                "the service answered 500: its text cannot be read: they are not in the charset `utf-8`",
            ),
        ] {
            let error = decode("https://a.example", response, 1000, &Routes::default()).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (code, text));
        }
        let mut busy = answer(429, "text/plain", &vec![b'x'; 9000]);
        busy.headers.push(("retry-after".to_owned(), "30".to_owned()));
        let error = decode("https://a.example", busy, 1000, &Routes::default()).unwrap_err();
        let page = answer(500, "text/html", format!("<p>{}", "x ".repeat(50_000)).as_bytes());
        assert!(
            decode("https://a.example", page, 1000, &Routes::default()).unwrap_err().message.len() < 2100
        );
        assert!(error.message.ends_with("x (retry after 30)") && error.message.len() < 2100);
        assert_eq!(error.subject.as_deref(), Some("HTTP 429"));
    }

    #[test]
    fn a_success_says_where_to_go_on() {
        let with = |status: u16, fields: &[(&str, &str)]| {
            let headers = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            ServiceResponse { status, headers: headers.collect(), ..ServiceResponse::default() }
        };
        for (fields, text) in [
            (&[("location", "/jobs/17"), ("retry-after", "5")][..], "\nLocation: /jobs/17\nRetry-After: 5"),
            (&[("location", "jobs/17?a=b#c")], "\nLocation: /v1/jobs/17?a=b"),
            (&[("location", "https://b.example/x")], "\nLocation: /x (on another server)"),
            (&[("location", "mailto:a@b.example")], ""),
            (
                &[("location", "/a\u{202e}\u{1b}[31mb ignore this")],
                "\nLocation: /a%E2%80%AE%1B[31mb%20ignore%20this",
            ),
            (&[("retry-after", "\u{1b}[31m5")], "\nRetry-After: "),
        ] {
            let decoded = decode("https://a.example/v1/x?key=1", with(202, fields), 1000, &Routes::default());
            let Ok(DecodedResponse::Output(output)) = decoded else { panic!("{fields:?}") };
            let expected = format!("The service answered 202 without a body.{text}");
            assert!(output.value.starts_with(&expected), "{fields:?}: {}", output.value);
            assert!(!output.value.contains('\u{1b}') && (!text.is_empty() || output.value == expected));
        }
        let long = format!("/{}", "x".repeat(10_000));
        let Ok(DecodedResponse::Output(output)) =
            decode("https://a.example/", with(201, &[("location", &long)]), 1000, &Routes::default())
        else {
            panic!()
        };
        assert!(output.value.chars().count() < 600, "{}", output.value.len());
        let moved = with(307, &[("location", "/elsewhere"), ("retry-after", "9")]);
        let error = decode("https://a.example/", moved, 1000, &Routes::default()).unwrap_err();
        assert_eq!(error.message, "the service answered 307 (location /elsewhere) (retry after 9)");
    }
}
