//! Builds requests from arguments.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;
use toolbay_core::call::service_request::{Credential, ServiceRequest};
use toolbay_core::tool::content::{ErrorCode, ToolError};
use toolbay_policy::capability::net::is_ambiguous;

use crate::body::{BodyEncoder, ParameterContent, encode_form};
use crate::parameter::{Parameter, ParameterLocation, ReservedField};
use crate::path_template::{FixedQuery, PathPiece};
use crate::style;

/// The plan for an operation's requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestPlan {
    pub(crate) method: &'static str,
    pub(crate) base: String,
    pub(crate) path: Vec<PathPiece>,
    /// The query parameters of the path. No argument replaces them.
    pub(crate) query: Vec<FixedQuery>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) body: Option<BodyEncoder>,
    pub(crate) accept: String,
    /// The operator's header fields.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) credentials: Vec<Credential>,
    /// The locations of the service's credentials. No argument may set them.
    pub(crate) reserved: Arc<[ReservedField]>,
    /// Method and path as in the document.
    pub(crate) method_and_path: String,
    /// Whether path values may contain encoded slashes, which depends on how the service parses them.
    pub(crate) encoded_slashes: bool,
    /// What the importer left out of the operation.
    pub(crate) lacks: Vec<String>,
}

/// The error for a value that a server could read as several segments, or as a step up.
const AMBIGUOUS: &str = "contains a slash, a backslash, a segment `.` or `..` or a control character, possibly encoded, which some servers \
                         read as another path; the operator can allow slashes with `encoded_slashes`";
/// The most bytes of a URL, and of all header fields of a request. Servers accept less.
const MAX_HEAD: usize = 32 << 10;

impl RequestPlan {
    /// Builds the request of one call. The arguments match the tool's schema; `text` is the caller's JSON.
    ///
    /// # Errors
    /// Fails for an argument that the schema allows but that cannot be sent.
    pub(crate) fn request(&self, text: &str, args: &Value) -> Result<ServiceRequest, ToolError> {
        let (mut query, mut cookies) = (Vec::new(), Vec::new());
        let mut headers = vec![("Accept".to_owned(), self.accept.clone())];
        let raw: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
        for (parameter, value) in self.given_parameters(args) {
            let value = &parameter.serialized(value, raw.get(&parameter.argument).copied());
            let Parameter { name, style, explode, escape_mode: escape, .. } = parameter;
            match parameter.place {
                ParameterLocation::Path => {}
                ParameterLocation::Query | ParameterLocation::Cookie => {
                    let pairs = style::serialize_pairs(*style, *explode, name, value, *escape);
                    self.check_reserved(parameter, &pairs)?;
                    let all =
                        if parameter.place == ParameterLocation::Query { &mut query } else { &mut cookies };
                    all.extend(pairs);
                }
                // RFC 6570, section 2.3: a list without members is not there.
                ParameterLocation::Header if style::is_undefined(value) => {}
                ParameterLocation::Header => {
                    let text = style::serialize_single(*style, *explode, name, value, *escape);
                    if !text.bytes().all(|b| b == b'\t' || (0x20..0x7f).contains(&b)) {
                        return Err(invalid_argument(
                            parameter,
                            "has characters that are not allowed in a header field",
                        ));
                    }
                    headers.push((name.clone(), text));
                }
            }
        }
        let pairs = |pairs: &[(String, String)], between: &str| {
            pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(between)
        };
        if !cookies.is_empty() {
            headers.push(("Cookie".to_owned(), pairs(&cookies, "; ")));
        }
        let mut url = format!("{}{}", self.base, self.build_path(&raw, args)?);
        query.retain(|(name, _)| !self.is_fixed(name));
        let fixed = self.query.iter().map(|one| one.text.clone());
        let query: Vec<String> = fixed.chain((!query.is_empty()).then(|| pairs(&query, "&"))).collect();
        if !query.is_empty() {
            url = format!("{url}?{}", query.join("&"));
        }
        let body = self.encode_body(raw.get("body").copied(), &mut headers)?;
        for (name, value) in &self.headers {
            headers.retain(|(one, _)| !one.eq_ignore_ascii_case(name));
            headers.push((name.clone(), value.clone()));
        }
        let head = url.len() + headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        if head > MAX_HEAD {
            let text =
                format!("the arguments make a URL and headers of {head} bytes; the limit is {MAX_HEAD}");
            return Err(ToolError::new(ErrorCode::InputInvalid, text));
        }
        Ok(ServiceRequest { method: self.method, url, headers, body, credentials: self.credentials.clone() })
    }

    /// Whether the path has this query parameter. `name` is encoded.
    fn is_fixed(&self, name: &str) -> bool {
        let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
        self.query.iter().any(|one| one.name == name)
    }

    /// An object may contain parameter names, but not the name of a credential.
    fn check_reserved(&self, parameter: &Parameter, pairs: &[(String, String)]) -> Result<(), ToolError> {
        for (name, _) in pairs {
            let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
            let named = *name != parameter.name;
            if named && self.reserved.iter().any(|one| one.collides(parameter.place, &name)) {
                let shown = toolbay_policy::excerpt::one_line(&name, 60);
                return Err(invalid_argument(
                    parameter,
                    &format!("contains `{shown}`, which is reserved for credentials"),
                ));
            }
        }
        Ok(())
    }

    /// The given parameters with their values. `null` counts as omitted.
    fn given_parameters<'a>(&'a self, args: &'a Value) -> impl Iterator<Item = (&'a Parameter, &'a Value)> {
        let all = self.parameters.iter().filter_map(|one| Some((one, args.get(&one.argument)?)));
        all.filter(|(_, value)| !value.is_null())
    }

    fn build_path(&self, raw: &BTreeMap<String, &RawValue>, args: &Value) -> Result<String, ToolError> {
        let mut path = PathBuilder::default();
        for piece in &self.path {
            let name = match piece {
                PathPiece::Text(text) => {
                    path.push(text, false);
                    continue;
                }
                PathPiece::Parameter(name) => name,
            };
            let mut of_path =
                self.given_parameters(args).filter(|(one, _)| one.place == ParameterLocation::Path);
            let Some((parameter, value)) = of_path.find(|(one, _)| one.name == *name) else {
                let text = format!("the path needs `{name}`");
                return Err(ToolError::new(ErrorCode::InputInvalid, text));
            };
            let value = parameter.serialized(value, raw.get(&parameter.argument).copied());
            let text = style::serialize_single(
                parameter.style,
                parameter.explode,
                name,
                &value,
                parameter.escape_mode,
            );
            if text.is_empty() || style::is_undefined(&value) {
                return Err(invalid_argument(parameter, "is empty, which would change the path"));
            }
            if !self.is_safe_segment(&text) {
                return Err(invalid_argument(parameter, AMBIGUOUS));
            }
            path.push(&text, true);
        }
        // Values that are valid alone may be invalid together.
        if path.0.iter().any(|(segment, of_values)| *of_values && !self.is_safe_segment(segment)) {
            return Err(ToolError::new(ErrorCode::InputInvalid, format!("a value of the path {AMBIGUOUS}")));
        }
        Ok(path.0.into_iter().map(|(segment, _)| segment).collect::<Vec<_>>().join("/"))
    }

    /// Whether every server reads a segment with these values as a single segment.
    fn is_safe_segment(&self, segment: &str) -> bool {
        if !is_ambiguous(segment) {
            return true;
        }
        let decoded = percent_encoding::percent_decode_str(segment).decode_utf8();
        self.encoded_slashes
            && decoded.is_ok_and(|text| text.split('/').all(|part| !part.is_empty() && !is_ambiguous(part)))
    }

    fn encode_body(
        &self,
        raw: Option<&RawValue>,
        headers: &mut Vec<(String, String)>,
    ) -> Result<Option<Vec<u8>>, ToolError> {
        let (Some(body), Some(raw)) = (&self.body, raw) else { return Ok(None) };
        let (media, bytes) = body.encode(raw).map_err(|why| {
            ToolError::new(ErrorCode::InputInvalid, format!("`body`: {why}")).with_subject("/body")
        })?;
        headers.push(("Content-Type".to_owned(), media));
        Ok(Some(bytes))
    }
}

/// The segments of a path, each with whether it contains values.
struct PathBuilder(Vec<(String, bool)>);

impl Default for PathBuilder {
    fn default() -> Self {
        Self(vec![(String::new(), false)])
    }
}

impl PathBuilder {
    fn push(&mut self, text: &str, of_values: bool) {
        for (n, part) in text.split('/').enumerate() {
            if n > 0 {
                self.0.push((String::new(), false));
            }
            if let Some((segment, known)) = self.0.last_mut() {
                segment.push_str(part);
                *known |= of_values;
            }
        }
    }
}

impl Parameter {
    /// A value in the form that the document requires. A number keeps the caller's spelling, because parsing
    /// would change long numbers.
    fn serialized(&self, value: &Value, raw: Option<&RawValue>) -> Value {
        let written = || Value::String(raw.map_or_else(|| value.to_string(), |raw| raw.get().to_owned()));
        match (&self.content, value) {
            (None | Some(ParameterContent::Form(_) | ParameterContent::Text), Value::String(_)) => {
                return value.clone();
            }
            (Some(ParameterContent::Form(encodings)), Value::Object(fields)) => {
                return Value::String(encode_form(fields, encodings));
            }
            (Some(_), _) => return written(),
            (None, _) => {}
        }
        match value {
            Value::Number(_) => written(),
            Value::Array(_) => {
                let items: Option<Vec<&RawValue>> = raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
                let Some((items, Value::Array(values))) = items.map(|items| (items, value)) else {
                    return value.clone();
                };
                let one = |(value, raw): (&Value, &&RawValue)| match value {
                    Value::Number(_) => Value::String(raw.get().to_owned()),
                    other => other.clone(),
                };
                Value::Array(values.iter().zip(&items).map(one).collect())
            }
            _ => value.clone(),
        }
    }
}

fn invalid_argument(parameter: &Parameter, problem: &str) -> ToolError {
    let text = format!("`{}` {problem}", parameter.argument);
    ToolError::new(ErrorCode::InputInvalid, text).with_subject(format!("/{}", parameter.argument))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::ScalarType;
    use crate::path_template::PathTemplate;
    use crate::style::{EscapeMode, ParameterStyle};
    use proptest::prelude::*;
    use serde_json::json;

    fn parameter(name: &str, place: ParameterLocation) -> Parameter {
        let (style, escape) = match place {
            ParameterLocation::Path => (ParameterStyle::Simple, EscapeMode::Strict),
            ParameterLocation::Header => (ParameterStyle::Simple, EscapeMode::None),
            ParameterLocation::Query | ParameterLocation::Cookie => {
                (ParameterStyle::Form, EscapeMode::Strict)
            }
        };
        let (name, argument) = (name.to_owned(), name.to_owned());
        Parameter {
            name,
            place,
            style,
            explode: false,
            escape_mode: escape,
            content: None,
            argument,
            required: false,
            scalar: Some(ScalarType::Text),
        }
    }

    fn plan(template: &str) -> RequestPlan {
        let parameters = vec![
            parameter("id", ParameterLocation::Path),
            parameter("more", ParameterLocation::Path),
            parameter("q", ParameterLocation::Query),
            parameter("X-H", ParameterLocation::Header),
            parameter("c", ParameterLocation::Cookie),
            Parameter { content: Some(ParameterContent::Json), ..parameter("j", ParameterLocation::Query) },
        ];
        RequestPlan {
            method: "GET",
            base: "https://a.example/v1".to_owned(),
            path: PathTemplate::parse(template).unwrap().pieces,
            parameters,
            body: None,
            accept: "*/*".to_owned(),
            ..RequestPlan::default()
        }
    }

    #[test]
    fn every_value_is_sent_in_its_location() {
        let args = json!({"id": "a b", "more": 7, "q": "x&y", "X-H": "h", "c": "a; b", "j": {"k": 1}});
        let request = plan("/pets/{id}.json/{more}").request("{}", &args).unwrap();
        assert_eq!(request.url, "https://a.example/v1/pets/a%20b.json/7?q=x%26y&j=%7B%22k%22%3A1%7D");
        let headers: Vec<_> = request.headers.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(headers, [("Accept", "*/*"), ("X-H", "h"), ("Cookie", "c=a%3B%20b")]);
    }

    #[test]
    fn a_parameter_with_content_has_the_form_of_its_media_type() {
        let with =
            |name: &str, place, content| Parameter { content: Some(content), ..parameter(name, place) };
        let form = || ParameterContent::Form(BTreeMap::new());
        let plan = RequestPlan {
            parameters: vec![
                with("t", ParameterLocation::Query, ParameterContent::Text),
                with("f", ParameterLocation::Query, form()),
                with("X-T", ParameterLocation::Header, ParameterContent::Text),
                with("X-F", ParameterLocation::Header, form()),
                with("id", ParameterLocation::Path, ParameterContent::Text),
            ],
            ..plan("/a/{id}")
        };
        for (args, url, headers) in [
            (json!({"id": "x", "t": "x y", "X-T": "abc"}), "/a/x?t=x%20y", vec![("X-T", "abc")]),
            (json!({"id": "x", "t": true}), "/a/x?t=true", vec![]),
            (json!({"id": "x", "t": ["a", 1]}), "/a/x?t=%5B%22a%22%2C1%5D", vec![]),
            (
                json!({"id": "x", "f": {"a": "b c", "l": [1, 2]}}),
                "/a/x?f=a%3Db%2520c%26l%3D1%26l%3D2",
                vec![],
            ),
            (json!({"id": "x", "f": "a=b", "X-F": {"a": "ü"}}), "/a/x?f=a%3Db", vec![("X-F", "a=%C3%BC")]),
        ] {
            let request = plan.request(&args.to_string(), &args).unwrap();
            assert_eq!(request.url, format!("https://a.example/v1{url}"), "{args}");
            let sent: Vec<_> =
                request.headers.iter().skip(1).map(|(k, v)| (k.as_str(), v.as_str())).collect();
            assert_eq!(sent, headers, "{args}");
        }
        // The rules for paths hold for any form.
        for id in ["../x", "a/b", ""] {
            assert!(plan.request("{}", &json!({ "id": id })).is_err(), "{id}");
        }
    }

    #[test]
    fn a_value_that_would_change_the_request_is_refused() {
        for (template, args, part) in [
            ("/pets/{id}", json!({"id": ""}), "is empty"),
            ("/pets/{id}", json!({"id": ".."}), "another path"),
            ("/pets/{id}{more}", json!({"id": ".", "more": "."}), "another path"),
            ("/pets/{id}", json!({"id": "../admin"}), "another path"),
            ("/pets/{id}", json!({"id": "a/b"}), "another path"),
            ("/pets/{id}", json!({"id": "a\\b"}), "another path"),
            ("/pets/{id}", json!({"id": "%2e%2e"}), "another path"),
            ("/pets/{id}", json!({"id": "%252F"}), "another path"),
            ("/pets/{id}", json!({"id": "..;x"}), "another path"),
            ("/pets/{id}", json!({"id": "a\nb"}), "another path"),
            ("/pets/{id}", json!({"id": ["..", "a/b"]}), "another path"),
            ("/pets/{id}", json!({"id": {"a": "x/../y"}}), "another path"),
            ("/pets/{id}", json!({}), "needs `id`"),
            ("/pets/{id}", json!({"id": null}), "needs `id`"),
            ("/pets/{id}", json!({"id": []}), "is empty"),
            ("/pets/{id}", json!({"id": [null]}), "is empty"),
            ("/pets", json!({"X-H": "a\r\nEvil: x"}), "not allowed in a header field"),
            ("/pets", json!({"X-H": "ü"}), "not allowed in a header field"),
        ] {
            let error = plan(template).request("{}", &args).unwrap_err();
            assert_eq!(error.code, ErrorCode::InputInvalid);
            assert!(error.message.contains(part), "{args}: {}", error.message);
        }
        let slashes = RequestPlan { encoded_slashes: true, ..plan("/files/{id}") };
        let url = slashes.request("{}", &json!({"id": "src/main.rs"})).unwrap().url;
        assert_eq!(url, "https://a.example/v1/files/src%2Fmain.rs");
        for bad in ["../x", "a/../b", "a//b", "/a", "a/", "a\\b", "a/%2e%2e/b", "a/..;/b"] {
            assert!(slashes.request("{}", &json!({"id": bad})).is_err(), "{bad}");
        }
        for template in ["/a/{b", "/a/../b", "/a/%2e%2E/b", "/a/..;x/b", "/a\\..\\b", "/./a"] {
            assert!(PathTemplate::parse(template).is_err(), "{template}");
        }
        let long = json!({"q": "x".repeat(40_000)});
        assert!(plan("/pets").request("{}", &long).unwrap_err().message.contains("32768"));
        let matrix = RequestPlan {
            parameters: vec![Parameter {
                style: ParameterStyle::Matrix,
                ..parameter("id", ParameterLocation::Path)
            }],
            ..plan("/pets/{id}")
        };
        assert_eq!(
            matrix.request("{}", &json!({"id": ".."})).unwrap().url,
            "https://a.example/v1/pets/;id=.."
        );
        let glued = RequestPlan { path: PathTemplate::parse("/pets/{more}{id}").unwrap().pieces, ..matrix };
        let glued = RequestPlan {
            parameters: vec![parameter("more", ParameterLocation::Path), glued.parameters[0].clone()],
            ..glued
        };
        let error = glued.request("{}", &json!({"more": "..", "id": "x"})).unwrap_err();
        assert!(error.message.contains("another path"), "{}", error.message);
    }

    #[test]
    fn a_list_without_members_is_left_out() {
        let lists = |explode: bool| RequestPlan {
            parameters: ["q", "X-H", "c"]
                .into_iter()
                .zip([ParameterLocation::Query, ParameterLocation::Header, ParameterLocation::Cookie])
                .map(|(name, place)| Parameter { explode, ..parameter(name, place) })
                .collect(),
            ..plan("/pets")
        };
        for explode in [false, true] {
            for empty in [json!([]), json!({}), json!([null]), json!({"a": null})] {
                let args = json!({"q": empty, "X-H": empty, "c": empty});
                let request = lists(explode).request("{}", &args).unwrap();
                assert_eq!(request.url, "https://a.example/v1/pets", "{empty}");
                assert_eq!(request.headers, [("Accept".to_owned(), "*/*".to_owned())], "{empty}");
            }
            let args = json!({"q": [""], "X-H": ["", null], "c": [""]});
            let request = lists(explode).request("{}", &args).unwrap();
            assert_eq!(request.url, "https://a.example/v1/pets?q=");
            assert!(request.headers.contains(&("Cookie".to_owned(), "c=".to_owned())));
            assert!(request.headers.contains(&("X-H".to_owned(), String::new())));
        }
        // JSON is sent as it is.
        let request = plan("/pets").request("{}", &json!({"j": []})).unwrap();
        assert_eq!(request.url, "https://a.example/v1/pets?j=%5B%5D");
    }

    #[test]
    fn the_query_of_a_path_wins_over_arguments() {
        let template = PathTemplate::parse("/pets?beta=true&b%5B%5D=1&flag#copy").unwrap();
        let free = Parameter { explode: true, ..parameter("free", ParameterLocation::Query) };
        let plan = RequestPlan {
            path: template.pieces,
            query: template.query,
            parameters: vec![parameter("q", ParameterLocation::Query), free],
            ..plan("/pets")
        };
        assert_eq!(
            plan.request("{}", &json!({})).unwrap().url,
            "https://a.example/v1/pets?beta=true&b%5B%5D=1&flag"
        );
        let args = json!({"q": 1, "free": {"beta": "false", "b[]": 2, "more": 3}});
        assert_eq!(
            plan.request("{}", &args).unwrap().url,
            "https://a.example/v1/pets?beta=true&b%5B%5D=1&flag&q=1&more=3"
        );
    }

    #[test]
    fn no_argument_can_set_a_credential() {
        let object = |name: &str, place, style, explode| {
            let parameter = parameter(name, place);
            Parameter { style, explode, ..parameter }
        };
        let fixed = |place, name: &str| ReservedField(place, name.to_owned());
        let plan = RequestPlan {
            parameters: vec![
                object("free", ParameterLocation::Query, ParameterStyle::Form, true),
                object("deep", ParameterLocation::Query, ParameterStyle::DeepObject, true),
                object("jar", ParameterLocation::Cookie, ParameterStyle::Form, true),
                object("flat", ParameterLocation::Query, ParameterStyle::Form, false),
            ],
            reserved: [
                fixed(ParameterLocation::Query, "api_key"),
                fixed(ParameterLocation::Query, "deep[key]"),
                fixed(ParameterLocation::Cookie, "sid"),
            ]
            .into(),
            ..plan("/pets")
        };
        for args in [
            json!({"free": {"api_key": "mine"}}),
            json!({"free": {"API_KEY": "mine"}}),
            json!({"free": {"api_key[]": "mine"}}),
            json!({"free": {"api_key": [1, 2]}}),
            json!({"deep": {"key": "mine"}}),
            json!({"jar": {"sid": "mine"}}),
        ] {
            let error = plan.request("{}", &args).unwrap_err();
            assert!(error.message.contains("reserved for credentials"), "{args}: {}", error.message);
        }
        let args = json!({"free": {"sid": 1, "apikey": 2, "%61pi_key": 3}, "deep": {"api_key": 4}, "jar": {"api_key": 5},
            "flat": {"api_key": 6}});
        let request = plan.request("{}", &args).unwrap();
        assert_eq!(
            request.url,
            "https://a.example/v1/pets?sid=1&apikey=2&%2561pi_key=3&deep%5Bapi_key%5D=4&flat=api_key,6"
        );
    }

    #[test]
    fn a_number_is_sent_as_it_was_written() {
        let text = r#"{"id": 12345678901234567890123, "q": [1.10, "a", 98765432109876543210], "X-H": 1.0, "j": [1.10]}"#;
        let args: Value = serde_json::from_str(text).unwrap();
        let request = plan("/pets/{id}").request(text, &args).unwrap();
        assert_eq!(
            request.url,
            "https://a.example/v1/pets/12345678901234567890123?q=1.10,a,98765432109876543210&j=%5B1.10%5D"
        );
        assert!(request.headers.contains(&("X-H".to_owned(), "1.0".to_owned())));
    }

    #[test]
    fn the_operators_headers_override_arguments() {
        let headers = [("accept", "text/csv"), ("X-H", "mine")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let plan = RequestPlan { headers: headers.to_vec(), ..plan("/pets") };
        let request = plan.request("{}", &json!({"X-H": "theirs"})).unwrap();
        assert_eq!(request.headers, headers);
    }

    proptest! {
        #[test]
        fn no_value_changes_the_shape_of_a_url(id in ".+", q in ".*", c in ".*") {
            let args = json!({"id": id, "q": q, "c": c});
            if let Ok(request) = plan("/pets/{id}/end").request("{}", &args) {
                let url = url::Url::parse(&request.url).unwrap();
                prop_assert_eq!(url.host_str(), Some("a.example"));
                let segments: Vec<&str> = url.path_segments().unwrap().collect();
                prop_assert_eq!(segments.len(), 4);
                prop_assert_eq!((segments[1], segments[3]), ("pets", "end"));
                let decoded = percent_encoding::percent_decode_str(segments[2]).decode_utf8().unwrap();
                prop_assert_eq!(decoded, id);
                prop_assert_eq!(url.query_pairs().count(), 1);
                prop_assert!(url.fragment().is_none());
                let cookie = request.headers.iter().find(|(name, _)| name == "Cookie").unwrap();
                prop_assert!(!cookie.1.contains([';', '\r', '\n', ' ']));
            }
        }
    }
}
