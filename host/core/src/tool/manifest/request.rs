//! Request templates: they turn the arguments of a call into a request for a component that handles HTTP.
//!
//! | in the manifest | result |
//! |---|---|
//! | `path = "/items/{id}"` | the argument, percent-encoded; it must be given, and be no `.` or `..` |
//! | `query.limit = "{limit}"` | the pair, percent-encoded; nothing if the argument is absent |
//! | `headers.accept = "text/plain"` | the header; nothing if an argument in it is absent |
//! | `body = "{text}"` | the text; empty if the argument is absent |
//! | `json = ["name", "price"]` | an object with those of the arguments that are given |

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::is_optional;
use super::template::{MAX_STDIN, TextTemplate, defaults, reject};
use crate::tool::content::ToolError;

/// Longest path with its query, in bytes: what most HTTP servers accept.
const MAX_PATH: usize = 8 << 10;
/// Most headers, and most pairs of a query.
const MAX_PAIRS: usize = 100;
/// What a URL keeps as it is (RFC 3986, unreserved characters).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How the host calls a component that handles HTTP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestSpec {
    /// The method; `GET` by default.
    pub method: Option<String>,
    /// The path, which starts with `/`.
    pub path: String,
    /// The query.
    pub query: BTreeMap<String, String>,
    /// The headers.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Option<String>,
    /// The arguments that the body has as a JSON object.
    pub json: Vec<String>,
}

/// A request with placeholders for arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestTemplate {
    method: String,
    path: TextTemplate,
    query: BTreeMap<String, TextTemplate>,
    headers: BTreeMap<String, TextTemplate>,
    body: Option<TextTemplate>,
    json: Vec<String>,
    defaults: Map<String, Value>,
    /// Whether a successful response must be JSON.
    returns_json: bool,
}

/// A request for a component.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HandlerRequest {
    /// The method.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl RequestTemplate {
    /// Parses the `http` table of a manifest. `args` are the declared arguments.
    pub(super) fn new(
        spec: &RequestSpec,
        args: &Map<String, Value>,
        returns_json: bool,
    ) -> Result<Self, String> {
        let check_declared = |name: &str| {
            args.contains_key(name)
                .then_some(())
                .ok_or_else(|| format!("`http` uses `{{{name}}}`, but `args.{name}` is not declared"))
        };
        let text = |text: &str| {
            let text = TextTemplate::parse(text)?;
            text.names().try_for_each(check_declared)?;
            Ok::<_, String>(text)
        };
        let texts = |all: &BTreeMap<String, String>| {
            all.iter().map(|(name, value)| Ok((name.clone(), text(value)?))).collect::<Result<_, String>>()
        };
        let method = spec.method.clone().unwrap_or_else(|| "GET".to_owned());
        if method.is_empty() || !method.bytes().all(|b| b.is_ascii_uppercase()) {
            return Err(format!("`http.method` is `{method}`; write it in capital letters: `POST`"));
        }
        if !spec.path.starts_with('/') || spec.path.contains(['?', '#']) {
            return Err(
                "`http.path` starts with `/` and has no query; write the query in `http.query`".to_owned()
            );
        }
        let path = text(&spec.path)?;
        let defaults = defaults(args);
        let is_missing =
            |name: &&str| args.get(*name).is_some_and(is_optional) && !defaults.contains_key(*name);
        if let Some(name) = path.names().find(is_missing) {
            return Err(format!("`http.path` uses `{{{name}}}`, but `args.{name}` is optional"));
        }
        if spec.query.len().max(spec.headers.len()) > MAX_PAIRS {
            return Err(format!("`http` has more than {MAX_PAIRS} headers or pairs of the query"));
        }
        let is_token = |name: &String| {
            !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        if let Some(name) = spec.headers.keys().find(|name| !is_token(name)) {
            return Err(format!("`http.headers.{name}` is not the name of a header in small letters"));
        }
        if spec.body.is_some() && !spec.json.is_empty() {
            return Err("`http.body` and `http.json` are both set; a request has one body".to_owned());
        }
        spec.json.iter().try_for_each(|name| check_declared(name))?;
        Ok(Self {
            method,
            path,
            query: texts(&spec.query)?,
            headers: texts(&spec.headers)?,
            body: spec.body.as_deref().map(text).transpose()?,
            json: spec.json.clone(),
            defaults,
            returns_json,
        })
    }

    /// Whether a successful response must be JSON: the manifest has a schema for it.
    #[must_use]
    pub fn returns_json(&self) -> bool {
        self.returns_json
    }

    /// Fills in the arguments of a call.
    ///
    /// # Errors
    /// The arguments do not fit into a request: `input_invalid`.
    pub fn fill(&self, args: &Map<String, Value>) -> Result<HandlerRequest, ToolError> {
        let given =
            |name: &str| args.get(name).or_else(|| self.defaults.get(name)).filter(|value| !value.is_null());
        let escape = |text: &str| utf8_percent_encode(text, ESCAPED).to_string();
        let mut path = self.path.fill_with(given, MAX_PATH, escape)?.unwrap_or_default();
        // Percent-encoding does not help: URLs treat `%2E` as `.`.
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(reject(
                "an argument of the path is `.` or `..`, which names another path".to_owned(),
            ));
        }
        let mut separator = '?';
        for (name, value) in &self.query {
            if let Some(value) = value.fill(given, MAX_PATH)? {
                path.push_str(&format!("{separator}{}={}", escape(name), escape(&value)));
                separator = '&';
            }
        }
        if path.len() > MAX_PATH {
            return Err(reject(format!("the path has {} bytes; the limit is {MAX_PATH}", path.len())));
        }
        let mut headers = Vec::new();
        for (name, value) in &self.headers {
            let Some(value) = value.fill(given, MAX_PATH)? else { continue };
            if value.contains(|c: char| c.is_control()) {
                return Err(reject(format!("the header `{name}` would have a control character")));
            }
            headers.push((name.clone(), value));
        }
        let (body, kind) = match &self.body {
            Some(body) => {
                (body.fill(given, MAX_STDIN)?.unwrap_or_default(), Some("text/plain; charset=utf-8"))
            }
            None if self.json.is_empty() => (String::new(), None),
            None => {
                let members = self.json.iter().filter_map(|name| Some((name.clone(), given(name)?.clone())));
                (Value::Object(members.collect()).to_string(), Some("application/json"))
            }
        };
        if let Some(kind) = kind.filter(|_| !self.headers.contains_key("content-type")) {
            headers.push(("content-type".to_owned(), kind.to_owned()));
        }
        Ok(HandlerRequest { method: self.method.clone(), path, headers, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::manifest::Manifest;
    use serde_json::json;

    fn template(http: &str) -> Result<RequestTemplate, String> {
        let args = "args.id = {}\nargs.text = { optional = true }\nargs.limit = { default = 5 }";
        let manifest = Manifest::parse(&format!("version = 1\n[tools.t]\n{args}\nhttp = {http}"))?;
        Ok(manifest.tools["t"].request().unwrap().unwrap())
    }

    #[test]
    fn arguments_become_parts_of_a_request_and_cannot_leave_them() {
        let filled =
            |http: &str, args: Value| template(http).unwrap().fill(args.as_object().unwrap()).unwrap();
        let request = filled(
            r#"{ path = "/items/{id}", query = { limit = "{limit}", text = "{text}" }, headers = { accept = "{text}" } }"#,
            json!({"id": "../a b?c#d%"}),
        );
        assert_eq!(request.path, "/items/..%2Fa%20b%3Fc%23d%25?limit=5");
        assert_eq!(
            (request.method.as_str(), request.headers, request.body.as_str()),
            ("GET", Vec::new(), "")
        );
        let request = filled(r#"{ path = "/", method = "POST", json = ["id", "text"] }"#, json!({"id": [1]}));
        assert_eq!(request.body, r#"{"id":[1]}"#);
        assert_eq!(request.headers, [("content-type".to_owned(), "application/json".to_owned())]);
        let request = filled(
            r#"{ path = "/", body = "<{text}>", query = { q = "{text}" } }"#,
            json!({"id": 1, "text": "a&b=c"}),
        );
        assert_eq!((request.path.as_str(), request.body.as_str()), ("/?q=a%26b%3Dc", "<a&b=c>"));
        let split = template(r#"{ path = "/", headers = { x = "{text}" } }"#).unwrap();
        let refused = split.fill(json!({"text": "a\r\nhost: b"}).as_object().unwrap()).unwrap_err();
        assert!(refused.message.contains("control character"), "{refused:?}");
        let path = template(r#"{ path = "/{id}/x" }"#).unwrap();
        for id in ["x".repeat(MAX_PATH), ".".to_owned(), "..".to_owned()] {
            assert!(path.fill(json!({"id": id}).as_object().unwrap()).is_err(), "{id}");
        }
    }

    #[test]
    fn a_request_that_cannot_be_made_is_refused_with_the_manifest() {
        for (http, part) in [
            (r#"{ path = "items" }"#, "starts with `/`"),
            (r#"{ path = "/?a=b" }"#, "has no query"),
            (r#"{ path = "/{none}" }"#, "`args.none` is not declared"),
            (r#"{ path = "/{text}" }"#, "`args.text` is optional"),
            (r#"{ path = "/", method = "get" }"#, "capital letters"),
            (r#"{ path = "/", headers = { "A b" = "x" } }"#, "name of a header"),
            (r#"{ path = "/", body = "a", json = ["id"] }"#, "both set"),
            (r#"{ path = "/", json = ["none"] }"#, "`args.none` is not declared"),
            (r#"{ path = "/", more = 1 }"#, "unknown field"),
        ] {
            let problem = template(http).unwrap_err();
            assert!(problem.contains(part), "{http}: {problem}");
        }
    }
}
