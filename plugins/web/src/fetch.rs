//! `fetch_url`.

use toolbay_sdk::http;
use toolbay_sdk::prelude::*;

use crate::{charset, markdown};

/// The largest page that is read, in bytes.
const PAGE_BYTES: u64 = 4 << 20;

/// The result of a fetch.
#[data]
#[derive(Debug, PartialEq)]
pub struct FetchedPage {
    /// The address of the page, after redirects.
    pub url: String,
    /// The status code.
    pub status: u16,
    /// The content type.
    pub content_type: String,
    /// The title of the page.
    pub title: Option<String>,
    /// Whether the page was truncated.
    pub truncated: bool,
}

/// Fetch a page of the web and read it as Markdown; JSON and plain text come as they are.
///
/// Links stay in the text, so that you can follow them with further calls. Scripts do not run: a page that builds itself
/// in the browser may come without its text.
#[tool(
    toolset = "web", tags = ["read"], read_only, idempotent, untrusted_output,
    net = "https://*:*", reason = "fetches the page you name",
    optional(net = "http://*:*", reason = "fetches pages of servers without TLS"),
)]
pub fn fetch_url(
    /// The address, with `https://` or `http://`.
    #[arg(length(min = 8, max = 8000))]
    url: String,
    /// Keep what leads around the site: menus and footers.
    #[arg(default = false)]
    menus: bool,
) -> Result<Rendered<FetchedPage>> {
    if !(url.starts_with("https://") || url.starts_with("http://")) {
        return Err(Error::input("write the whole address, with `https://`").at("/url"));
    }
    let accept = "text/html, application/xhtml+xml, text/markdown, application/json, text/*;q=0.9, */*;q=0.1";
    let request = http::get(&url).header("accept", accept).max_response_bytes(PAGE_BYTES);
    let response = request.send()?;
    let content_type = response.header("content-type").unwrap_or_default().to_owned();
    let mut data = FetchedPage {
        url: response.url.clone(),
        status: response.status,
        content_type: content_type.clone(),
        title: None,
        truncated: response.truncated,
    };
    let text = match kind(&content_type, &response.body) {
        ContentKind::Html => {
            let html = charset::decode(&response.body, &content_type);
            let page = markdown::convert(&html, &response.url, menus);
            data.title = page.title;
            page.markdown
        }
        ContentKind::Text => charset::decode(&response.body, &content_type),
        ContentKind::Other => {
            let bytes = response.body.len();
            let message = format!("`{}` is no text but `{content_type}`, {bytes} bytes", data.url);
            return Err(Error::failed(message).at("not-text"));
        }
    };
    if !(200..300).contains(&data.status) {
        let shown: String = text.chars().take(1000).collect();
        let message = format!("`{}` answered with status {}: {shown}", data.url, data.status);
        return Err(Error::failed(message).at(data.status.to_string()));
    }
    Ok(Rendered { text: rendered(&data, &text), data })
}

enum ContentKind {
    Html,
    Text,
    Other,
}

/// The kind of a body, by its content type or else by its first bytes.
fn kind(content_type: &str, body: &[u8]) -> ContentKind {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "text/html" | "application/xhtml+xml" => ContentKind::Html,
        "" if body.trim_ascii_start().starts_with(b"<") => ContentKind::Html,
        "" if std::str::from_utf8(body).is_ok() => ContentKind::Text,
        "application/json"
        | "application/xml"
        | "application/javascript"
        | "application/x-ndjson"
        | "application/toml"
        | "application/yaml"
        | "image/svg+xml" => ContentKind::Text,
        other if other.starts_with("text/") || other.ends_with("+json") || other.ends_with("+xml") => {
            ContentKind::Text
        }
        _ => ContentKind::Other,
    }
}

fn rendered(page: &FetchedPage, text: &str) -> String {
    let title = page.title.as_ref().filter(|title| !text.starts_with(&format!("# {title}")));
    let cut = if page.truncated { "\n\n[the page is longer than what was read]" } else { "" };
    match title {
        Some(title) => format!("# {title}\n\n{text}{cut}"),
        None => format!("{text}{cut}"),
    }
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::testing::{FakeHost, call, describe, reply};
    use toolbay_sdk::types::{ErrorCode, ToolTraits};

    use super::*;

    const URL: &str = "https://example.com/a";

    fn fetch(content_type: &str, body: &[u8]) -> Result<Rendered<FetchedPage>> {
        let fake = FakeHost::new().http("GET", URL, reply(200, content_type, body));
        fake.run(|| fetch_url(URL.to_owned(), false))
    }

    #[test]
    fn a_page_is_read_as_markdown() {
        let html = "<title>T</title><h1>H</h1><p>a <a href='b'>b</a>";
        let page = fetch("text/html; charset=utf-8", html.as_bytes()).unwrap();
        assert_eq!(page.text, "# T\n\n# H\n\na [b](https://example.com/b)");
        assert_eq!((page.data.title.as_deref(), page.data.status), (Some("T"), 200));
        assert_eq!(fetch("text/html;charset=iso-8859-1", b"<p>\xe4").unwrap().text, "ä");
        assert_eq!(fetch("", b" <p>x").unwrap().text, "x");
        assert_eq!(fetch("text/html", b"<title>T</title><h1>T</h1>x").unwrap().text, "# T\n\nx");
    }

    #[test]
    fn text_comes_as_it_is() {
        for content_type in
            ["application/json", "text/plain", "application/ld+json; charset=utf-8", "text/markdown", ""]
        {
            assert_eq!(
                fetch(content_type, b"{\"a\": \"<b>\"}").unwrap().text,
                "{\"a\": \"<b>\"}",
                "{content_type}"
            );
        }
        let error = fetch("image/png", b"\x89PNG").unwrap_err();
        assert_eq!(error.subject(), Some("not-text"), "{error}");
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let gone = FakeHost::new().http("GET", URL, reply(404, "text/html", b"<h1>Not here</h1>"));
        let error = gone.run(|| fetch_url(URL.to_owned(), false)).unwrap_err();
        assert_eq!(error.subject(), Some("404"));
        assert!(error.message().contains("Not here"), "{error}");
        let denied = FakeHost::new().run(|| fetch_url(URL.to_owned(), false)).unwrap_err();
        assert_eq!((denied.code(), denied.subject()), (ErrorCode::NotAvailable, Some("denied")));
        let scheme = FakeHost::new().run(|| fetch_url("ftp://example.com".to_owned(), false)).unwrap_err();
        assert_eq!((scheme.code(), scheme.subject()), (ErrorCode::InputInvalid, Some("/url")));
    }

    #[test]
    fn what_was_cut_is_said_and_the_last_address_counts() {
        let mut cut = reply(200, "text/html", b"<a href=c>x</a>");
        cut.truncated = true;
        cut.url = "https://other.example/b/".to_owned();
        let fake = FakeHost::new().http("GET", URL, cut);
        let page = fake.run(|| fetch_url(URL.to_owned(), false)).unwrap();
        assert_eq!(page.text, "[x](https://other.example/b/c)\n\n[the page is longer than what was read]");
        let [request] = fake.requests().try_into().unwrap();
        assert_eq!(request.max_response_bytes, Some(PAGE_BYTES));
    }

    #[test]
    fn it_only_reads_and_says_who_wrote_the_text() {
        let definition = describe::<fetch_url>();
        assert!(definition.traits.contains(ToolTraits::READ_ONLY | ToolTraits::UNTRUSTED_OUTPUT));
        let needs: Vec<_> = definition.capabilities.iter().map(|c| (c.target.as_str(), c.optional)).collect();
        assert_eq!(needs, [("https://*:*", false), ("http://*:*", true)]);
        let fake = FakeHost::new().http("GET", URL, reply(200, "text/html", b"<nav>m</nav>x"));
        let output = fake.run(|| call::<fetch_url>(json!({"url": URL, "menus": true}))).unwrap();
        assert_eq!(output.value, "m\n\nx");
    }
}
