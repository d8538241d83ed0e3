//! The base URL of a service.

use serde_json::{Map, Value};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::refusal::PolicyRefusal;
use url::Url;

use crate::scalar::scalar_text;

/// The longest URL of a server.
const MAX_URL: usize = 2048;

/// The URL of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    /// The base of an operation's URLs, without a trailing `/`.
    pub(crate) base: String,
    /// The query of each request, without the `?`.
    pub(crate) query: String,
}

/// The most servers of one list that are tried.
const MAX_SERVERS: usize = 20;

/// Why a server cannot be used.
enum ServerProblem {
    /// The document's mistake: another server of the list may be meant.
    OfDocument(PolicyRefusal),
    /// The operator's mistake. The operator chose a server, and no other one takes its place.
    OfOperator(PolicyRefusal),
}

impl From<String> for ServerProblem {
    fn from(text: String) -> Self {
        Self::OfDocument(text.into())
    }
}

/// A server and what the document lost on the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChosenServer {
    pub(crate) url: ServerUrl,
    /// The servers that come first and cannot be used, in one line.
    pub(crate) passed_over: Option<String>,
    /// Whether it is a server of the whole document.
    pub(crate) of_document: bool,
}

/// The servers of a list that are tried.
pub(crate) fn tried_servers(servers: &Value) -> &[Value] {
    let all = servers.as_array().map_or(std::slice::from_ref(servers), Vec::as_slice);
    all.get(..MAX_SERVERS).unwrap_or(all)
}

/// The server of an operation: the operator's, or the first one that can be used of the operation, the path or the
/// document, in this order. A list that has servers counts, even if none can be used: those of the next list are other
/// servers.
pub(crate) fn server_url(
    given: Option<&str>,
    document_url: Option<&str>,
    variables: &std::collections::BTreeMap<String, String>,
    levels: [Option<&Value>; 3],
) -> Result<ChosenServer, PolicyRefusal> {
    if let Some(given) = given {
        let url = parse_url(given, document_url)?;
        return Ok(ChosenServer { url, passed_over: None, of_document: true });
    }
    let mut lists = levels.into_iter().enumerate().filter_map(|(level, servers)| {
        let servers: Vec<&Map<String, Value>> =
            tried_servers(servers?).iter().filter_map(Value::as_object).collect();
        (!servers.is_empty()).then_some((level, servers))
    });
    let Some((level, servers)) = lists.next() else {
        return Ok(ChosenServer { url: parse_url("/", document_url)?, passed_over: None, of_document: true });
    };
    let mut first: Option<PolicyRefusal> = None;
    for server in servers {
        let found = expand_variables(server, variables)
            .and_then(|text| parse_url(&text, document_url).map_err(ServerProblem::OfDocument));
        match (found, &first) {
            (Ok(url), None) => return Ok(ChosenServer { url, passed_over: None, of_document: level == 2 }),
            (Ok(url), Some(why)) => {
                let used = one_line(&url.base, 200);
                let passed_over =
                    Some(format!("`{used}` is used instead of the first server: {}", why.for_operator()));
                return Ok(ChosenServer { url, passed_over, of_document: level == 2 });
            }
            (Err(ServerProblem::OfOperator(why)), _) => return Err(why),
            (Err(ServerProblem::OfDocument(why)), None) => first = Some(why),
            (Err(ServerProblem::OfDocument(_)), Some(_)) => {}
        }
    }
    Err(first.unwrap_or_default())
}

fn parse_url(text: &str, document_url: Option<&str>) -> Result<ServerUrl, PolicyRefusal> {
    let shown = one_line(text, 200);
    let mut url = match Url::parse(text) {
        Ok(url) => url,
        Err(url::ParseError::RelativeUrlWithoutBase) => {
            let base = document_url.and_then(|base| Url::parse(base).ok());
            let joined = base.and_then(|base| base.join(text).ok());
            joined.ok_or_else(|| {
                let text = format!("its server `{shown}` is not an absolute URL");
                PolicyRefusal::new(text, "To give it one, set `server`")
            })?
        }
        Err(error) => return Err(format!("its server `{shown}` is not a URL: {error}").into()),
    };
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(format!("its server `{shown}` does not use HTTP").into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL of its server contains credentials: configure them as secrets".into());
    }
    // All variables have their values, so a brace is text.
    let query = url.query().unwrap_or_default().replace('{', "%7B").replace('}', "%7D");
    url.set_query(None);
    url.set_fragment(None);
    Ok(ServerUrl { base: url.as_str().trim_end_matches('/').to_owned(), query })
}

/// A server URL with its variables replaced by the operator's values or the defaults.
fn expand_variables(
    server: &Map<String, Value>,
    given: &std::collections::BTreeMap<String, String>,
) -> Result<String, ServerProblem> {
    let template = server.get("url").and_then(Value::as_str).unwrap_or("/");
    let variables = server.get("variables").and_then(Value::as_object);
    let mut url = String::new();
    let mut rest = template;
    while let Some((text, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            return Err(format!("its server `{}` has a `{{` without a `}}`", one_line(template, 200)).into());
        };
        let shown = one_line(name, 60);
        let variable = variables.and_then(|all| all.get(name));
        let default = variable.and_then(|variable| variable.get("default")).and_then(scalar_text);
        let operators = given.get(name);
        let Some(value) = operators.map(|value| value.as_str().into()).or(default) else {
            let text = format!("its server `{}` has a variable without a value", one_line(template, 200));
            let hint = format!("To give it one, write `variables = {{ \"{shown}\" = \"…\" }}`, or `server`");
            return Err(ServerProblem::OfDocument(PolicyRefusal::new(text, hint)));
        };
        let listed = variable.and_then(|variable| variable.get("enum")).and_then(Value::as_array);
        // A default that the document does not list is its author's slip.
        let is_listed =
            |listed: &Vec<Value>| listed.iter().any(|one| scalar_text(one).as_ref() == Some(&value));
        if operators.is_some() && listed.is_some_and(|listed| !is_listed(listed)) {
            let value = one_line(&value, 60);
            let text = format!("`{value}` is not a value of its server's variable `{shown}`");
            return Err(ServerProblem::OfOperator(text.into()));
        }
        // Values of variables are not expanded again, so the URL cannot grow without end.
        url.extend([text, &*value]);
        if url.len() > MAX_URL {
            break;
        }
        rest = after;
    }
    url.push_str(rest);
    if url.len() > MAX_URL {
        return Err(format!("its server's URL has more than {MAX_URL} bytes").into());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn base_url(
        given: Option<&str>,
        from: Option<&str>,
        variables: &BTreeMap<String, String>,
        levels: [Option<&Value>; 3],
    ) -> Result<String, PolicyRefusal> {
        server_url(given, from, variables, levels).map(|server| server.url.base)
    }

    #[test]
    fn the_base_url_comes_from_the_operator_or_the_nearest_server() {
        let none = BTreeMap::new();
        let at = |url: &str| json!([{ "url": url }]);
        let (root, own) = (at("https://a.example/v1/"), at("https://b.example"));
        assert_eq!(base_url(None, None, &none, [None, None, Some(&root)]).unwrap(), "https://a.example/v1");
        assert_eq!(
            base_url(None, None, &none, [Some(&own), None, Some(&root)]).unwrap(),
            "https://b.example"
        );
        let given = base_url(Some("http://127.0.0.1:9/x"), None, &none, [Some(&own), None, Some(&root)]);
        assert_eq!(given.unwrap(), "http://127.0.0.1:9/x");
        let from = Some("https://c.example/docs/api.json");
        assert_eq!(
            base_url(None, from, &none, [None, None, Some(&at("/v2"))]).unwrap(),
            "https://c.example/v2"
        );
        assert_eq!(base_url(None, from, &none, [None, None, None]).unwrap(), "https://c.example");
        let with = json!([{"url": "https://{region}.example:{port}",
            "variables": {"region": {"default": "eu", "enum": ["eu", "us"]}, "port": {"default": "8443"}}}]);
        assert_eq!(
            base_url(None, None, &none, [None, None, Some(&with)]).unwrap(),
            "https://eu.example:8443"
        );
        let us = BTreeMap::from([("region".to_owned(), "us".to_owned())]);
        assert_eq!(base_url(None, None, &us, [None, None, Some(&with)]).unwrap(), "https://us.example:8443");
        let evil = BTreeMap::from([("region".to_owned(), "x.evil".to_owned())]);
        assert!(
            base_url(None, None, &evil, [None, None, Some(&with)]).unwrap_err().text.contains("not a value")
        );
        let numbers = json!([{"url": "http://a.example:{port}/{stage}", "variables": {
            "port": {"default": 46012, "enum": [46012, 46013]}, "stage": {"default": "v9", "enum": ["v1", true]}}}]);
        assert_eq!(
            base_url(None, None, &none, [None, None, Some(&numbers)]).unwrap(),
            "http://a.example:46012/v9"
        );
        let other =
            BTreeMap::from([("port", "46013"), ("stage", "true")].map(|(k, v)| (k.to_owned(), v.to_owned())));
        assert_eq!(
            base_url(None, None, &other, [None, None, Some(&numbers)]).unwrap(),
            "http://a.example:46013/true"
        );
        // Variables that contain each other would double the URL in each round.
        let bomb: serde_json::Map<String, Value> = (0..60)
            .map(|n| (format!("v{n}"), json!({"default": format!("{{v{0}}}{{v{0}}}", n + 1)})))
            .collect();
        let bomb = json!([{"url": "https://a.example/{v0}", "variables": bomb}]);
        assert_eq!(
            base_url(None, None, &none, [None, None, Some(&bomb)]).unwrap(),
            "https://a.example/%7Bv1%7D%7Bv1%7D"
        );
        let long = json!([{"url": format!("https://a.example/{}", "{v}".repeat(1000)),
            "variables": {"v": {"default": "x".repeat(1000)}}}]);
        assert!(
            base_url(None, None, &none, [None, None, Some(&long)])
                .unwrap_err()
                .text
                .contains("more than 2048")
        );
        for (url, part) in [
            ("/v1", "not an absolute URL. To give it one, set `server`"),
            ("ftp://a.example", "does not use HTTP"),
            ("https://u:p@a.example", "credentials"),
            ("https://{x}.example", "without a value"),
            ("https://[", "not a URL"),
            ("https://{a", "without a `}`"),
        ] {
            let error = base_url(None, None, &none, [None, None, Some(&at(url))]).unwrap_err();
            assert!(error.for_operator().contains(part), "{url}: {error:?}");
        }
    }

    #[test]
    fn the_first_server_that_can_be_used_counts() {
        fn choose(levels: [Option<&Value>; 3]) -> Result<ChosenServer, PolicyRefusal> {
            server_url(None, None, &BTreeMap::new(), levels)
        }
        let good = json!({"url": "https://a.example/v1"});
        for (bad, part) in [
            (json!({"url": "/v1"}), "not an absolute URL"),
            (json!({"description": "no URL"}), "not an absolute URL"),
            (json!({"url": "ftp://a.example"}), "does not use HTTP"),
            (json!({"url": "https://u:p@a.example"}), "credentials"),
            (json!({"url": "https://{x}.example"}), "without a value"),
            (json!({"url": "https://["}), "not a URL"),
        ] {
            let list = json!([bad, "x", null, {"url": "/v2"}, good, {"url": "https://b.example"}]);
            let root = json!([{"url": "https://root.example"}]);
            for levels in [
                [None, None, Some(&list)],
                [None, Some(&list), Some(&root)],
                [Some(&list), None, Some(&root)],
            ] {
                let chosen = choose(levels).unwrap();
                assert_eq!(chosen.url.base, "https://a.example/v1");
                assert_eq!(chosen.of_document, levels[2] == Some(&list));
                let line = chosen.passed_over.unwrap();
                assert!(line.contains(part) && line.contains("https://a.example/v1"), "{line}");
            }
            // Those of the document are other servers.
            let error = choose([Some(&json!([bad])), None, Some(&root)]).unwrap_err();
            assert!(error.for_operator().contains(part), "{error:?}");
        }
        assert_eq!(choose([None, None, Some(&json!([good]))]).unwrap().passed_over, None);
        assert_eq!(choose([None, None, Some(&good)]).unwrap().url.base, "https://a.example/v1");
        let many: Vec<Value> =
            std::iter::repeat_n(json!({"url": "/v1"}), MAX_SERVERS).chain([good]).collect();
        assert!(choose([None, None, Some(&json!(many))]).is_err());
    }

    #[test]
    fn a_variable_of_the_operator_never_leads_to_another_server() {
        let servers = json!([
            {"url": "https://{region}.example", "variables": {"region": {"default": "eu", "enum": ["eu", "us"]}}},
            {"url": "https://other.example"}]);
        let given = BTreeMap::from([("region".to_owned(), "mars".to_owned())]);
        let error = server_url(None, None, &given, [None, None, Some(&servers)]).unwrap_err();
        assert!(error.text.contains("`mars` is not a value"), "{error:?}");
    }
}
