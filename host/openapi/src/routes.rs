//! The requests of included operations, to which a service may redirect without a further grant.

use url::Url;

use crate::request::{PathPiece, RequestPlan};

/// The requests of a document's operations.
#[derive(Debug, Clone, Default)]
pub struct Routes(Vec<Route>);

#[derive(Debug, Clone)]
struct Route {
    method: &'static str,
    origin: url::Origin,
    /// The segments of the path; `None` stands for a value.
    segments: Vec<Option<String>>,
}

impl Routes {
    pub(crate) fn from_plans<'a>(plans: impl Iterator<Item = &'a RequestPlan>) -> Self {
        Self(plans.filter_map(Route::from_plan).collect())
    }

    /// Whether a request belongs to an included operation: it compares the method, the origin and the path, with any
    /// value at each parameter. A trailing slash makes no difference.
    #[must_use]
    pub fn matches(&self, method: &str, url: &Url) -> bool {
        let segments = segments(url.path());
        // A path that some server splits differently does not match.
        if segments.iter().any(|segment| is_ambiguous_segment(segment)) {
            return false;
        }
        let fits = |route: &Route| {
            route.method.eq_ignore_ascii_case(method)
                && route.origin == url.origin()
                && route.segments.len() == segments.len()
                && route.segments.iter().zip(&segments).all(|(want, have)| match want {
                    Some(want) => want == have,
                    None => !have.is_empty(),
                })
        };
        self.0.iter().any(fits)
    }
}

impl Route {
    fn from_plan(plan: &RequestPlan) -> Option<Self> {
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
        let segment = |text: &&str| (!text.contains(VALUE)).then(|| (*text).to_owned());
        Some(Self {
            method: plan.method,
            origin: base.origin(),
            segments: segments(&whole).iter().map(segment).collect(),
        })
    }

    /// The path as a pattern of a `net` list.
    fn pattern(&self) -> String {
        self.segments.iter().map(|segment| format!("/{}", segment.as_deref().unwrap_or("*"))).collect()
    }
}

/// The rules of a `net` list for a plan: with its path, and without.
pub(crate) fn net_rules(plan: &RequestPlan) -> Option<(String, String)> {
    let route = Route::from_plan(plan)?;
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
    use crate::request::parse_template;

    fn plan(method: &'static str, path: &str) -> RequestPlan {
        RequestPlan {
            method,
            base: "https://a.example/v1".to_owned(),
            path: parse_template(path).unwrap(),
            ..RequestPlan::default()
        }
    }

    #[test]
    fn a_request_matches_its_operation() {
        let plans =
            [plan("GET", "/pets"), plan("GET", "/pets/{id}.json"), plan("POST", "/pets/{id}/toys/{toy}")];
        let routes = Routes::from_plans(plans.iter());
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
            assert_eq!(routes.matches(method, &Url::parse(url).unwrap()), expected, "{method} {url}");
        }
        let (with, without) = net_rules(&plans[1]).unwrap();
        assert_eq!(
            (with.as_str(), without.as_str()),
            ("GET https://a.example/v1/pets/*", "GET https://a.example")
        );
    }
}
