//! The base URL of a service.

use serde_json::{Map, Value};
use toolbay_policy::text::one_line;
use url::Url;

/// The longest URL of a server.
const MAX_URL: usize = 2048;

/// The base of an operation's URLs: the operator's, or the first server of the operation, the path or the document,
/// in this order. It has no trailing `/`.
pub(crate) fn base_url(
    given: Option<&str>,
    document_url: Option<&str>,
    variables: &std::collections::BTreeMap<String, String>,
    levels: [Option<&Value>; 3],
) -> Result<String, String> {
    let of_document = || {
        let server =
            levels.into_iter().flatten().find_map(|servers| servers.as_array()?.first()?.as_object());
        server.map_or_else(|| Ok("/".to_owned()), |server| expand_variables(server, variables))
    };
    let text = match given {
        Some(given) => given.to_owned(),
        None => of_document()?,
    };
    let shown = one_line(&text, 200);
    let url = match Url::parse(&text) {
        Ok(url) => url,
        Err(url::ParseError::RelativeUrlWithoutBase) => {
            let base = document_url.and_then(|base| Url::parse(base).ok());
            let joined = base.and_then(|base| base.join(&text).ok());
            joined.ok_or_else(|| format!("its server `{shown}` is not an absolute URL: set `server`"))?
        }
        Err(error) => return Err(format!("its server `{shown}` is not a URL: {error}")),
    };
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(format!("its server `{shown}` does not use HTTP"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL of its server contains credentials: configure them as secrets".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("its server `{shown}` has a query"));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// A server URL with its variables replaced by the operator's values or the defaults.
fn expand_variables(
    server: &Map<String, Value>,
    given: &std::collections::BTreeMap<String, String>,
) -> Result<String, String> {
    let template = server.get("url").and_then(Value::as_str).unwrap_or("/");
    let variables = server.get("variables").and_then(Value::as_object);
    let mut url = String::new();
    let mut rest = template;
    while let Some((text, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            return Err(format!("its server `{}` has a `{{` without a `}}`", one_line(template, 200)));
        };
        let shown = one_line(name, 60);
        let variable = variables.and_then(|all| all.get(name));
        let default = variable.and_then(|variable| variable.get("default")).and_then(Value::as_str);
        let value = given.get(name).map(String::as_str).or(default);
        let Some(value) = value else {
            return Err(format!(
                "its server `{}` has a variable without a value: write `variables = {{ \"{shown}\" = \"…\" }}`, or `server`",
                one_line(template, 200)
            ));
        };
        let listed = variable.and_then(|variable| variable.get("enum")).and_then(Value::as_array);
        if listed.is_some_and(|listed| !listed.iter().any(|one| one.as_str() == Some(value))) {
            return Err(format!(
                "`{}` is not a value of its server's variable `{shown}`",
                one_line(value, 60)
            ));
        }
        // Values of variables are not expanded again, so the URL cannot grow without end.
        url.extend([text, value]);
        if url.len() > MAX_URL {
            break;
        }
        rest = after;
    }
    url.push_str(rest);
    if url.len() > MAX_URL {
        return Err(format!("its server's URL has more than {MAX_URL} bytes"));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

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
        assert!(base_url(None, None, &evil, [None, None, Some(&with)]).unwrap_err().contains("not a value"));
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
            base_url(None, None, &none, [None, None, Some(&long)]).unwrap_err().contains("more than 2048")
        );
        for (url, part) in [
            ("/v1", "not an absolute URL"),
            ("ftp://a.example", "does not use HTTP"),
            ("https://u:p@a.example", "credentials"),
            ("https://a.example/?x=1", "query"),
            ("https://{x}.example", "without a value"),
            ("https://[", "not a URL"),
            ("https://{a", "without a `}`"),
        ] {
            let error = base_url(None, None, &none, [None, None, Some(&at(url))]).unwrap_err();
            assert!(error.contains(part), "{url}: {error}");
        }
    }
}
