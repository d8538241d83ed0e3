//! `http_request`.

use std::collections::BTreeMap;

use toolbay_sdk::prelude::*;
use toolbay_sdk::{http, secrets};

use crate::charset;

/// The largest response body that is read, in bytes.
const ANSWER_BYTES: u64 = 4 << 20;
/// The prefix of secrets that a model may name.
const FOLDER: &str = "web/";

/// The response of the server.
#[data]
#[derive(Debug, PartialEq)]
pub struct FetchReply {
    /// The address that responded, after redirects.
    pub url: String,
    /// The status code.
    pub status: u16,
    /// The headers, with names in lower case. Several values of one name are joined with `, `.
    pub headers: BTreeMap<String, String>,
    /// The body as text; absent if it is not text.
    pub body: Option<String>,
    /// The size of the body in bytes.
    pub bytes: usize,
    /// Whether the body was truncated.
    pub truncated: bool,
}

/// Send an HTTP request and return the answer, whatever its status.
///
/// Credentials never stand in the arguments: name the operator's secret in `secret`, and the host puts its value into the
/// header on the way.
#[tool(
    toolset = "web", tags = ["write"], untrusted_output,
    net = "https://*:*", reason = "sends the request you describe",
    optional(
        net = "http://*:*", reason = "talks to servers without TLS",
        secret = "web/*", reason = "puts the credential you name into a header",
    ),
)]
pub fn http_request(
    /// The method.
    #[arg(default = "GET".to_owned(), regex("^[A-Za-z]{1,20}$"))]
    method: String,
    /// The address, with `https://` or `http://`.
    #[arg(length(min = 8, max = 8000))]
    url: String,
    /// Headers by name.
    headers: Option<BTreeMap<String, String>>,
    /// The body, sent as UTF-8.
    body: Option<String>,
    /// The secret to send, by its name below `web/`.
    #[arg(regex("^[A-Za-z0-9_.-]{1,64}$"))]
    secret: Option<String>,
    /// The header that carries the secret; `authorization` carries it as `Bearer …`, any other alone.
    #[arg(default = "authorization".to_owned(), length(min = 1, max = 100))]
    secret_header: String,
) -> Result<Rendered<FetchReply>> {
    let mut request = http::request(&method.to_ascii_uppercase(), &url).max_response_bytes(ANSWER_BYTES);
    for (name, value) in headers.unwrap_or_default() {
        request = request.header(&name, value);
    }
    if let Some(name) = secret {
        let value = secrets::get(&format!("{FOLDER}{name}"))?.text;
        let bearer = secret_header.eq_ignore_ascii_case("authorization");
        request = request.header(&secret_header, if bearer { format!("Bearer {value}") } else { value });
    }
    if let Some(body) = body {
        request = request.body(body);
    }
    let response = request.send()?;
    let content_type = response.header("content-type").unwrap_or_default().to_owned();
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in &response.headers {
        let joined = headers.entry(name.to_ascii_lowercase()).or_default();
        if !joined.is_empty() {
            joined.push_str(", ");
        }
        joined.push_str(value);
    }
    let body = (!response.body.contains(&0)).then(|| charset::decode(&response.body, &content_type));
    let bytes = response.body.len();
    let data = FetchReply {
        url: response.url,
        status: response.status,
        headers,
        body,
        bytes,
        truncated: response.truncated,
    };
    Ok(Rendered { text: rendered(&data), data })
}

fn rendered(reply: &FetchReply) -> String {
    let mut text = format!("HTTP {} from {}\n", reply.status, reply.url);
    for (name, value) in &reply.headers {
        text.push_str(&format!("{name}: {value}\n"));
    }
    match &reply.body {
        Some(body) => text.push_str(&format!("\n{body}")),
        None => text.push_str(&format!("\n[{} bytes that are no text]", reply.bytes)),
    }
    if reply.truncated {
        text.push_str("\n[the body is longer than what was read]");
    }
    text
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::serde_json::Value;
    use toolbay_sdk::testing::{FakeHost, call, describe, reply};
    use toolbay_sdk::types::{ErrorCode, ToolTraits};

    use super::*;

    const URL: &str = "https://api.example.com/v1";

    fn header<'a>(request: &'a toolbay_sdk::testing::Request, name: &str) -> Option<&'a str> {
        let (_, value) = request.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        Some(value)
    }

    #[test]
    fn a_request_is_sent_as_it_is_described() {
        let fake = FakeHost::new().http("POST", URL, reply(201, "application/json", b"{\"id\":7}"));
        let args = json!({"method": "post", "url": URL, "headers": {"X-A": "b"}, "body": "{}"});
        let output = fake.run(|| call::<http_request>(args)).unwrap();
        assert_eq!(
            output.value,
            format!("HTTP 201 from {URL}\ncontent-type: application/json\n\n{{\"id\":7}}")
        );
        let data: Value = toolbay_sdk::serde_json::from_str(&output.structured.unwrap()).unwrap();
        assert_eq!(
            (&data["status"], &data["body"], &data["bytes"]),
            (&json!(201), &json!("{\"id\":7}"), &json!(8))
        );
        let [request] = fake.requests().try_into().unwrap();
        assert_eq!((request.method.as_str(), request.body.as_deref()), ("POST", Some(&b"{}"[..])));
        assert_eq!(header(&request, "x-a"), Some("b"));
        assert_eq!(header(&request, "authorization"), None);
    }

    #[test]
    fn a_secret_goes_into_its_header_as_what_the_host_gave() {
        for (args, name, value) in [
            (json!({"url": URL, "secret": "github"}), "authorization", "Bearer placeholder"),
            (
                json!({"url": URL, "secret": "github", "secret_header": "X-Api-Key"}),
                "x-api-key",
                "placeholder",
            ),
        ] {
            let fake = FakeHost::new()
                .http("GET", URL, reply(200, "text/plain", b"ok"))
                .secret("web/github", "placeholder");
            fake.run(|| call::<http_request>(args)).unwrap();
            let [request] = fake.requests().try_into().unwrap();
            assert_eq!(header(&request, name), Some(value));
        }
        let fake = FakeHost::new().http("GET", URL, reply(200, "text/plain", b"ok"));
        let error = fake.run(|| call::<http_request>(json!({"url": URL, "secret": "github"}))).unwrap_err();
        assert_eq!((error.code(), error.subject()), (ErrorCode::NotAvailable, Some("denied")));
        assert!(fake.requests().is_empty(), "not without its credential");
    }

    #[test]
    fn an_error_of_the_server_is_an_answer_and_bytes_are_not_text() {
        let fake = FakeHost::new().http("GET", URL, reply(500, "text/plain", b"broken"));
        let output = fake.run(|| call::<http_request>(json!({"url": URL}))).unwrap();
        assert!(output.value.starts_with("HTTP 500") && output.value.ends_with("broken"), "{}", output.value);
        let fake = FakeHost::new().http("GET", URL, reply(200, "image/png", b"\x89PNG\0\0"));
        let output = fake.run(|| call::<http_request>(json!({"url": URL}))).unwrap();
        assert!(output.value.ends_with("[6 bytes that are no text]"), "{}", output.value);
    }

    #[test]
    fn it_may_write_and_names_what_it_wants() {
        let definition = describe::<http_request>();
        assert!(!definition.traits.contains(ToolTraits::READ_ONLY));
        assert!(definition.traits.contains(ToolTraits::UNTRUSTED_OUTPUT));
        let needs: Vec<_> = definition
            .capabilities
            .iter()
            .map(|c| (c.kind.as_str(), c.target.as_str(), c.optional))
            .collect();
        assert_eq!(
            needs,
            [("net", "https://*:*", false), ("net", "http://*:*", true), ("secret", "web/*", true)]
        );
        assert!(definition.capabilities.iter().all(|c| c.reason.is_some()));
    }
}
