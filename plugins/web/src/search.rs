//! `web_search`, with a provider of the operator: any service that answers a query with JSON.
//!
//! ```toml
//! [plugins.web.config.search]
//! url = "https://api.example.com/search?q={query}&count={count}"
//! secret = "search"                # [secrets."web/search"]
//! header = "x-api-key"
//! results = "/web/results"
//! ```

use toolbay_sdk::prelude::*;
use toolbay_sdk::serde_json::Value;
use toolbay_sdk::{config, http, secrets, serde_json};

/// The largest response that is read, in bytes.
const ANSWER_BYTES: u64 = 2 << 20;
/// The longest title and address, and the longest extract, in characters.
const MAX_LINE: usize = 500;
const MAX_EXTRACT: usize = 2000;
/// The location of the results and the names of their fields, in responses of common providers.
const RESULTS: [&str; 6] = ["/web/results", "/results", "/organic", "/items", "/webPages/value", "/data"];
const TITLES: [&str; 2] = ["title", "name"];
const ADDRESSES: [&str; 3] = ["url", "link", "href"];
const EXTRACTS: [&str; 5] = ["description", "snippet", "content", "text", "body"];

/// The operator's provider.
#[data]
#[derive(Debug)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// The address, with the placeholders `{query}` and `{count}`.
    pub url: String,
    /// The JSON to post, with the same placeholders in its strings. Without it, the request is a GET.
    #[serde(default)]
    pub body: Option<Value>,
    /// The secret, by its name below `web/`.
    #[serde(default)]
    pub secret: Option<String>,
    /// The header of the secret; `authorization` carries it as `Bearer …`.
    #[serde(default)]
    pub header: Option<String>,
    /// The JSON pointer to the list of results.
    #[serde(default)]
    pub results: Option<String>,
}

/// A search result.
#[data]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebHit {
    /// Its title.
    pub title: String,
    /// Its address.
    pub url: String,
    /// The matching extract, or a description.
    pub extract: String,
}

/// The results of a search.
#[data]
#[derive(Debug, PartialEq, Eq)]
pub struct WebHits {
    /// The results, best first.
    pub results: Vec<WebHit>,
}

/// The reason why the tool is unavailable: no provider is configured.
pub(crate) fn available() -> std::result::Result<(), String> {
    match config::get::<Provider>("search") {
        Ok(Some(_)) => Ok(()),
        Ok(None) => {
            Err("`web_search` needs a provider; write in the policy: [plugins.web.config.search] url = \
                         \"https://…{query}…\""
                .to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Search the web. Answers with titles, addresses and extracts; read a page with fetch_url.
#[tool(
    toolset = "web",
    read_only,
    idempotent,
    untrusted_output,
    net = "https://*:*",
    reason = "asks the search provider of the operator",
    optional(
        net = "http://*:*",
        reason = "asks a search provider without TLS",
        secret = "web/*",
        reason = "shows the provider the operator's key",
    )
)]
pub fn web_search(
    /// What to look for.
    #[arg(length(min = 1, max = 500))]
    query: String,
    /// At most this many results.
    #[arg(default = 10, range(min = 1, max = 50))]
    max_results: usize,
) -> Result<Rendered<WebHits>> {
    let provider: Provider = config::require("search")?;
    let count = max_results.to_string();
    let url = filled(&provider.url, &encoded(&query), &count);
    let mut request = match &provider.body {
        None => http::get(url),
        Some(body) => http::post(url).json(&posted(body, &query, &count))?,
    };
    request = request.header("accept", "application/json").max_response_bytes(ANSWER_BYTES);
    if let Some(name) = &provider.secret {
        let value = secrets::get(&format!("web/{name}"))?.text;
        let header = provider.header.as_deref().unwrap_or("authorization");
        let bearer = header.eq_ignore_ascii_case("authorization");
        request = request.header(header, if bearer { format!("Bearer {value}") } else { value });
    }
    let response = request.send()?.ok()?;
    let strange =
        |problem: String| Error::failed(format!("the search provider's answer {problem}")).at("provider");
    let answer: Value =
        serde_json::from_slice(&response.body).map_err(|e| strange(format!("is not JSON: {e}")))?;
    let results = found(&answer, provider.results.as_deref()).ok_or_else(|| {
        strange("has no list of results; the operator can say where it stands: `results`".to_owned())
    })?;
    let hits: Vec<WebHit> = results.iter().filter_map(hit).take(max_results).collect();
    Ok(Rendered { text: rendered(&hits), data: WebHits { results: hits } })
}

fn filled(text: &str, query: &str, count: &str) -> String {
    // The count comes first: a query may contain text that looks like a placeholder.
    text.replace("{count}", count).replace("{query}", query)
}

/// The body with its placeholders filled. A string that is only the count becomes a number.
fn posted(body: &Value, query: &str, count: &str) -> Value {
    match body {
        Value::String(text) if text == "{count}" => count.parse::<u64>().map_or(Value::Null, Value::from),
        Value::String(text) => Value::String(filled(text, query, count)),
        Value::Array(items) => items.iter().map(|item| posted(item, query, count)).collect(),
        Value::Object(members) => {
            members.iter().map(|(key, value)| (key.clone(), posted(value, query, count))).collect()
        }
        other => other.clone(),
    }
}

/// Percent-encodes everything except the unreserved characters of RFC 3986.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn found<'a>(answer: &'a Value, pointer: Option<&str>) -> Option<&'a Vec<Value>> {
    match pointer {
        Some(pointer) => answer.pointer(pointer)?.as_array(),
        None => {
            let known = RESULTS.iter().find_map(|pointer| answer.pointer(pointer)?.as_array());
            known.or_else(|| answer.as_array())
        }
    }
}

fn hit(result: &Value) -> Option<WebHit> {
    let text = |names: &[&str], most: usize| {
        let text = names.iter().find_map(|name| result.get(name)?.as_str())?;
        Some(text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(most).collect::<String>())
    };
    let url = text(&ADDRESSES, MAX_LINE)?;
    Some(WebHit {
        title: text(&TITLES, MAX_LINE).unwrap_or_else(|| url.clone()),
        extract: text(&EXTRACTS, MAX_EXTRACT).unwrap_or_default(),
        url,
    })
}

fn rendered(hits: &[WebHit]) -> String {
    if hits.is_empty() {
        return "Nothing was found.".to_owned();
    }
    let line = |(at, hit): (usize, &WebHit)| {
        let WebHit { title, url, extract } = hit;
        let extract = if extract.is_empty() { String::new() } else { format!("   {extract}\n") };
        format!("{}. {title}\n   {url}\n{extract}", at + 1)
    };
    hits.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::testing::{FakeHost, call, reply};
    use toolbay_sdk::types::ErrorCode;

    use super::*;

    const URL: &str = "https://api.example.com/search?q=a%20b%26c&n=2";

    fn answered(search: Value, url: &str, method: &str, answer: &Value) -> (Result<Output>, FakeHost) {
        let fake = FakeHost::new().config("search", search).secret("web/search", "placeholder").http(
            method,
            url,
            reply(200, "application/json", answer.to_string()),
        );
        let output = fake.run(|| call::<web_search>(json!({"query": "a b&c", "max_results": 2})));
        (output, fake)
    }

    #[test]
    fn a_provider_is_asked_and_its_answer_read() {
        let hit = |n: u32| json!({"title": format!("Title  {n}"), "url": format!("https://x/{n}"), "description": "About\nit."});
        let answer = json!({"web": {"results": [hit(1), hit(2), hit(3)]}});
        let search = json!({
            "url": "https://api.example.com/search?q={query}&n={count}", "secret": "search", "header": "X-Api-Key",
        });
        let (output, fake) = answered(search, URL, "GET", &answer);
        assert_eq!(
            output.unwrap().value,
            "1. Title 1\n   https://x/1\n   About it.\n2. Title 2\n   https://x/2\n   About it.\n"
        );
        let [request] = fake.requests().try_into().unwrap();
        assert!(
            request.headers.contains(&("X-Api-Key".to_owned(), "placeholder".to_owned())),
            "{:?}",
            request.headers
        );
    }

    #[test]
    fn a_query_may_be_posted() {
        let url = "https://api.example.com/search";
        let search = json!({
            "url": url, "body": {"q": "{query}", "n": "{count}", "deep": true}, "secret": "search", "results": "/hits",
        });
        let (output, fake) =
            answered(search, url, "POST", &json!({"hits": [{"link": "https://x", "snippet": "s"}]}));
        assert_eq!(output.unwrap().value, "1. https://x\n   https://x\n   s\n");
        let [request] = fake.requests().try_into().unwrap();
        let body: Value = serde_json::from_slice(request.body.as_deref().unwrap()).unwrap();
        assert_eq!(body, json!({"q": "a b&c", "n": 2, "deep": true}));
        assert!(request.headers.contains(&("authorization".to_owned(), "Bearer placeholder".to_owned())));
    }

    #[test]
    fn strange_answers_are_failures_and_nothing_is_nothing() {
        let search = || json!({"url": "https://api.example.com/search?q={query}&n={count}"});
        for answer in [json!({"answer": []}), json!("x"), json!({"results": "none"})] {
            let error = answered(search(), URL, "GET", &answer).0.unwrap_err();
            assert_eq!(
                (error.code(), error.subject()),
                (ErrorCode::ExecutionFailed, Some("provider")),
                "{answer}"
            );
        }
        let nothing =
            answered(search(), URL, "GET", &json!({"results": [{"title": "no address"}, 7]})).0.unwrap();
        assert_eq!(nothing.value, "Nothing was found.");
        let long = json!([{"url": "u", "content": "é".repeat(10_000)}]);
        let value = answered(search(), URL, "GET", &long).0.unwrap().value;
        assert_eq!(value.chars().filter(|c| *c == 'é').count(), MAX_EXTRACT);
    }

    #[test]
    fn without_a_provider_it_is_not_available() {
        FakeHost::new().run(|| assert!(available().unwrap_err().contains("[plugins.web.config.search]")));
        FakeHost::new().config("search", json!({"adress": "x"})).run(|| assert!(available().is_err()));
        FakeHost::new().config("search", json!({"url": "x"})).run(|| assert_eq!(available(), Ok(())));
        let error = FakeHost::new().run(|| call::<web_search>(json!({"query": "x"}))).unwrap_err();
        assert_eq!((error.code(), error.subject()), (ErrorCode::NotAvailable, Some("config")));
    }
}
