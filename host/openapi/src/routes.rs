//! The requests of included operations: to which a service may redirect without a further grant, and which call a
//! location means.

use std::sync::Arc;

use serde_json::{Map, Value};
use toolbay_core::call::service_request::ServiceRoutes;
use url::Url;

use crate::body::ParameterContent;
use crate::parameter::{Parameter, ParameterLocation, ScalarType};
use crate::path_template::PathPiece;
use crate::request::RequestPlan;

/// The requests of a document's operations.
#[derive(Debug, Clone, Default)]
pub struct Routes(Vec<Route>);

#[derive(Debug, Clone)]
struct Route {
    method: &'static str,
    origin: url::Origin,
    /// The segments of the path; `None` stands for a value.
    segments: Vec<Option<String>>,
    /// The call of its tool, if its arguments can be read from a URL.
    call: Option<RouteCall>,
}

/// How a URL is read as the arguments of a tool.
#[derive(Debug, Clone)]
struct RouteCall {
    tool: Arc<str>,
    /// One for each segment of the path.
    segments: Vec<SegmentPattern>,
    /// The query parameters that every request has.
    fixed: Vec<(String, String)>,
    query: Vec<RouteParameter>,
}

#[derive(Debug, Clone)]
enum SegmentPattern {
    Text,
    /// A value between two texts.
    Value(String, RouteParameter, String),
}

#[derive(Debug, Clone)]
struct RouteParameter {
    name: String,
    argument: String,
    scalar: ScalarType,
    required: bool,
}

impl ServiceRoutes for Routes {
    /// Compares the method, the origin and the path, with any value at each parameter. A trailing slash makes no
    /// difference.
    fn includes(&self, method: &str, url: &Url) -> bool {
        let segments = segments(url.path());
        // A path that some server splits differently does not match.
        if segments.iter().any(|segment| is_ambiguous_segment(segment)) {
            return false;
        }
        self.0.iter().any(|route| route.matches(method, url, &segments))
    }
}

impl Routes {
    pub(crate) fn from_plans<'a>(plans: impl Iterator<Item = (&'a str, &'a RequestPlan)>) -> Self {
        Self(plans.filter_map(|(tool, plan)| Route::from_plan(tool, plan)).collect())
    }

    /// The only call whose request is `GET` of a URL: the tool and its arguments.
    pub(crate) fn find_call(&self, url: &Url) -> Option<(&str, Value)> {
        let segments = segments(url.path());
        if segments.iter().any(|segment| is_ambiguous_segment(segment)) {
            return None;
        }
        let routes = self.0.iter().filter(|route| route.matches("GET", url, &segments));
        let mut calls = routes.filter_map(|route| {
            let call = route.call.as_ref()?;
            Some((&*call.tool, Value::Object(call.arguments(&segments, url)?)))
        });
        calls.next().filter(|_| calls.next().is_none())
    }
}

impl Route {
    fn from_plan(tool: &str, plan: &RequestPlan) -> Option<Self> {
        // A character that no path contains stands for a value.
        const VALUE: char = '\u{1}';
        let mut path = String::new();
        for piece in &plan.path {
            match piece {
                PathPiece::Text(text) => path.push_str(text),
                PathPiece::Parameter(_) => path.push(VALUE),
            }
        }
        let base = Url::parse(&plan.base).ok()?;
        let whole = format!("{}{path}", base.path().trim_end_matches('/'));
        let patterns = segments(&whole);
        let segment = |text: &&str| (!text.contains(VALUE)).then(|| (*text).to_owned());
        Some(Self {
            method: plan.method,
            origin: base.origin(),
            segments: patterns.iter().map(segment).collect(),
            call: RouteCall::from_plan(tool, plan, &patterns, VALUE),
        })
    }

    fn matches(&self, method: &str, url: &Url, segments: &[&str]) -> bool {
        self.method.eq_ignore_ascii_case(method)
            && self.origin == url.origin()
            && self.segments.len() == segments.len()
            && self.segments.iter().zip(segments).all(|(want, have)| match want {
                Some(want) => want == have,
                None => !have.is_empty(),
            })
    }

    /// The path as a pattern of a `net` list.
    fn pattern(&self) -> String {
        self.segments.iter().map(|segment| format!("/{}", segment.as_deref().unwrap_or("*"))).collect()
    }
}

impl RouteCall {
    /// `None` if the request has values that no URL has, or whose form is ambiguous.
    fn from_plan(tool: &str, plan: &RequestPlan, patterns: &[&str], value: char) -> Option<Self> {
        if plan.method != "GET" || plan.body.as_ref().is_some_and(|body| body.required) {
            return None;
        }
        let in_url = [ParameterLocation::Path, ParameterLocation::Query];
        if plan.parameters.iter().any(|one| one.required && !in_url.contains(&one.place)) {
            return None;
        }
        let mut names = plan.path.iter().filter_map(|piece| match piece {
            PathPiece::Parameter(name) => Some(name),
            PathPiece::Text(_) => None,
        });
        let mut read_segment = |text: &&str| match text.split_once(value) {
            None => Some(SegmentPattern::Text),
            Some((before, after)) => {
                let name = names.next().filter(|_| !after.contains(value))?;
                let found = plan
                    .parameters
                    .iter()
                    .find(|one| one.place == ParameterLocation::Path && one.name == *name);
                let parameter = RouteParameter::new(found?)?;
                Some(SegmentPattern::Value(before.to_owned(), parameter, after.to_owned()))
            }
        };
        let query = plan.parameters.iter().filter(|one| one.place == ParameterLocation::Query);
        let decoded = |text: &str| url::form_urlencoded::parse(text.as_bytes()).into_owned().next();
        Some(Self {
            tool: tool.into(),
            segments: patterns.iter().map(&mut read_segment).collect::<Option<_>>()?,
            fixed: plan.query.iter().map(|one| decoded(&one.text)).collect::<Option<_>>()?,
            query: query.filter_map(RouteParameter::new).collect(),
        })
    }

    /// The arguments of a URL. `None` if a part of it is no argument.
    fn arguments(&self, segments: &[&str], url: &Url) -> Option<Map<String, Value>> {
        let mut arguments = Map::new();
        for (pattern, segment) in self.segments.iter().zip(segments) {
            if let SegmentPattern::Value(before, parameter, after) = pattern {
                let text = segment.strip_prefix(before.as_str())?.strip_suffix(after.as_str())?;
                let text = percent_encoding::percent_decode_str(text).decode_utf8().ok()?;
                arguments.insert(parameter.argument.clone(), parameter.scalar.parse(&text)?);
            }
        }
        let mut fixed: Vec<&(String, String)> = self.fixed.iter().collect();
        for (name, text) in url.query_pairs() {
            if let Some(at) = fixed.iter().position(|one| one.0 == name && one.1 == text) {
                fixed.remove(at);
                continue;
            }
            let parameter = self.query.iter().find(|one| one.name == name)?;
            let value = parameter.scalar.parse(&text)?;
            if arguments.insert(parameter.argument.clone(), value).is_some() {
                return None;
            }
        }
        let is_missing = |one: &RouteParameter| one.required && !arguments.contains_key(&one.argument);
        (fixed.is_empty() && !self.query.iter().any(is_missing)).then_some(arguments)
    }
}

impl RouteParameter {
    fn new(parameter: &Parameter) -> Option<Self> {
        let Parameter { name, argument, scalar, required, content, .. } = parameter;
        let scalar =
            scalar.filter(|_| content.as_ref().is_none_or(|content| *content == ParameterContent::Text))?;
        Some(Self { name: name.clone(), argument: argument.clone(), scalar, required: *required })
    }
}

/// The rules of a `net` list for a plan: with its path, and without.
pub(crate) fn net_rules(plan: &RequestPlan) -> Option<(String, String)> {
    let route = Route::from_plan("", plan)?;
    let origin = format!("{} {}", route.method, route.origin.ascii_serialization());
    Some((format!("{origin}{}", route.pattern()), origin))
}

fn segments(path: &str) -> Vec<&str> {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.strip_suffix('/').unwrap_or(path).split('/').collect()
}

fn is_ambiguous_segment(segment: &str) -> bool {
    let decoded = percent_encoding::percent_decode_str(segment).decode_utf8_lossy();
    decoded.contains(['/', '\\', '%']) || decoded.starts_with("..") || decoded.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path_template::PathTemplate;
    use crate::style::{EscapeMode, ParameterStyle};
    use serde_json::json;

    fn plan(method: &'static str, path: &str) -> RequestPlan {
        let template = PathTemplate::parse(path).unwrap();
        let parameter = |name: &str, place, scalar, required| Parameter {
            name: name.to_owned(),
            place,
            style: ParameterStyle::Simple,
            explode: false,
            escape_mode: EscapeMode::Strict,
            content: None,
            argument: name.to_owned(),
            required,
            scalar,
        };
        let of_path = template.pieces.iter().filter_map(|piece| match piece {
            PathPiece::Parameter(name) => {
                Some(parameter(name, ParameterLocation::Path, Some(ScalarType::Text), true))
            }
            PathPiece::Text(_) => None,
        });
        let page = parameter("page", ParameterLocation::Query, Some(ScalarType::Integer), false);
        let list = parameter("list", ParameterLocation::Query, None, false);
        RequestPlan {
            method,
            base: "https://a.example/v1".to_owned(),
            parameters: of_path.chain([page, list]).collect(),
            path: template.pieces,
            query: template.query,
            ..RequestPlan::default()
        }
    }

    #[test]
    fn a_request_matches_its_operation() {
        let plans =
            [plan("GET", "/pets"), plan("GET", "/pets/{id}.json"), plan("POST", "/pets/{id}/toys/{toy}")];
        let routes = Routes::from_plans(plans.iter().map(|plan| ("tool", plan)));
        for (method, url, expected) in [
            ("GET", "https://a.example/v1/pets", true),
            ("get", "https://a.example/v1/pets/?page=2", true),
            ("GET", "https://a.example:443/v1/pets/7.json", true),
            ("GET", "https://a.example/v1/pets/7/secret", false),
            ("GET", "https://a.example/v1/pets//", false),
            ("POST", "https://a.example/v1/pets", false),
            ("POST", "https://a.example/v1/pets/a%20b/toys/1", true),
            ("POST", "https://a.example/v1/pets/a%2Fb/toys/1", false),
            ("POST", "https://a.example/v1/pets/..%3b/toys/1", false),
            ("POST", "https://a.example/v1/pets/%252e%252e/toys/1", false),
            ("GET", "http://a.example/v1/pets", false),
            ("GET", "https://b.example/v1/pets", false),
            ("GET", "https://a.example:8443/v1/pets", false),
            ("GET", "https://a.example/pets", false),
        ] {
            assert_eq!(routes.includes(method, &Url::parse(url).unwrap()), expected, "{method} {url}");
        }
        let (with, without) = net_rules(&plans[1]).unwrap();
        assert_eq!(
            (with.as_str(), without.as_str()),
            ("GET https://a.example/v1/pets/*", "GET https://a.example")
        );
    }

    #[test]
    fn a_location_that_is_exactly_a_request_is_its_call() {
        let plans = [
            ("jobs", plan("GET", "/jobs/{id}")),
            ("json", plan("GET", "/files/{name}.json")),
            ("beta", plan("GET", "/beta?v=2")),
            ("cancel", plan("DELETE", "/jobs/{id}/x")),
            ("one", plan("GET", "/twice/{a}")),
            ("other", plan("GET", "/twice/{b}")),
            ("pair", plan("GET", "/{a}-{b}/c")),
        ];
        let routes = Routes::from_plans(plans.iter().map(|(tool, plan)| (*tool, plan)));
        for (url, call) in [
            ("/jobs/17", Some(("jobs", json!({"id": "17"})))),
            ("/jobs/a%20b?page=2", Some(("jobs", json!({"id": "a b", "page": 2})))),
            ("/files/a.json", Some(("json", json!({"name": "a"})))),
            ("/beta?v=2", Some(("beta", json!({})))),
            ("/beta?page=1&v=2", Some(("beta", json!({"page": 1})))),
            ("/beta", None),
            ("/beta?v=3", None),
            ("/jobs/17?page=x", None),
            ("/jobs/17?other=1", None),
            ("/jobs/17?list=1", None),
            ("/jobs/17?page=1&page=2", None),
            ("/jobs/17/x", None),
            ("/jobs/..%2fx", None),
            ("/files/a.xml", None),
            ("/twice/1", None),
            ("/a-b/c", None),
        ] {
            let url = Url::parse(&format!("https://a.example/v1{url}")).unwrap();
            assert_eq!(routes.find_call(&url), call, "{url}");
        }
        assert_eq!(routes.find_call(&Url::parse("https://b.example/v1/jobs/17").unwrap()), None);
        let mut with_header = plan("GET", "/h");
        with_header.parameters.push(Parameter {
            place: ParameterLocation::Header,
            required: true,
            ..with_header.parameters[0].clone()
        });
        let routes = Routes::from_plans(std::iter::once(("h", &with_header)));
        assert_eq!(routes.find_call(&Url::parse("https://a.example/v1/h").unwrap()), None);
    }
}
