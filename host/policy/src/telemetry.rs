//! Traces and metrics over OTLP (`[telemetry]`): where they go, which calls are traced, and who receives their context.

use std::collections::BTreeSet;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use crate::capability::list::RuleList;
use crate::capability::net::NetTarget;
use crate::problem::{PolicyProblem, of_key};
use crate::serve::read_networks;
use crate::url_parts::{has_credentials, is_origin};

/// Most origins in `propagate`: services of the operator, which are few.
const MAX_ORIGINS: usize = 64;

/// The table `[telemetry]`.
#[derive(Debug, Clone, PartialEq)]
pub struct TelemetryPolicy {
    /// The base URL of the collector; `None` if the environment names it.
    pub otlp: Option<Url>,
    /// Private networks that the host name of the URL may resolve to.
    pub net_private: Vec<IpNet>,
    /// The share of traces that is sent, 0 to 1. The decision of a caller takes precedence.
    pub sample: f64,
    /// The origins that receive the context of the trace with each request, as [`NetTarget::origin`] writes them.
    pub propagate: BTreeSet<String>,
    /// Whether spans have the arguments and the result of the call.
    pub arguments: bool,
}

/// `[telemetry]`: traces and metrics over OTLP.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TelemetrySection {
    /// The collector's base URL for OTLP over HTTP: `http://127.0.0.1:4318`. Default: `OTEL_EXPORTER_OTLP_ENDPOINT`.
    otlp: Option<String>,
    /// Private networks that the host name of `otlp` may resolve to. An IP address in it is always allowed.
    #[serde(default, deserialize_with = "read_networks")]
    #[schemars(with = "RuleList<IpNet>")]
    net_private: Vec<IpNet>,
    /// The share of traces that is sent, 0 to 1. Default: 1.
    #[serde(default = "all")]
    #[schemars(range(min = 0, max = 1))]
    sample: f64,
    /// The origins that receive `traceparent` with each request. Default: none.
    #[serde(default)]
    propagate: Vec<String>,
    /// Whether spans have the arguments and the result of the call. Default: false.
    #[serde(default)]
    arguments: bool,
}

fn all() -> f64 {
    1.0
}

impl TelemetrySection {
    /// Checks the section.
    pub(crate) fn resolve(self) -> Result<TelemetryPolicy, PolicyProblem> {
        let Self { otlp, net_private, sample, propagate, arguments } = self;
        if !(0.0..=1.0).contains(&sample) {
            let message = format!("`sample` is {sample}: write a share between 0 and 1");
            return Err(PolicyProblem::at_keys(["sample"], message));
        }
        if propagate.len() > MAX_ORIGINS {
            let message = format!("`propagate` has {} origins; at most {MAX_ORIGINS}", propagate.len());
            return Err(PolicyProblem::at_keys(["propagate"], message));
        }
        let otlp = otlp.map(|text| parse_endpoint(&text)).transpose();
        let propagate: Result<_, _> = propagate.iter().map(|text| parse_origin(text)).collect();
        Ok(TelemetryPolicy {
            otlp: otlp.map_err(of_key("otlp"))?,
            net_private,
            sample,
            propagate: propagate.map_err(of_key("propagate"))?,
            arguments,
        })
    }
}

/// Parses the base URL of a collector.
///
/// # Errors
/// Fails if the text is not an `http` or `https` URL, or has credentials, a query or a fragment.
pub fn parse_endpoint(text: &str) -> Result<Url, String> {
    let shown: String = text.chars().take(100).collect();
    let wrong = |why: &str| format!("`{shown}` {why}: write `http://127.0.0.1:4318`");
    let url = Url::parse(text).map_err(|_| wrong("is not a URL"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong("is not an `http` or `https` URL"));
    }
    if has_credentials(&url) {
        return Err(wrong("has credentials, which belong into OTEL_EXPORTER_OTLP_HEADERS"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("has a query or a fragment"));
    }
    Ok(url)
}

/// Parses an origin.
fn parse_origin(text: &str) -> Result<String, PolicyProblem> {
    let shown: String = text.chars().take(100).collect();
    let wrong = || {
        let message = format!("`{shown}` is not an origin: write `https://api.example`");
        PolicyProblem::from(message).in_text(text)
    };
    let url = Url::parse(text).map_err(|_| wrong())?;
    match NetTarget::request("GET", &url) {
        Ok(target) if is_origin(&url) => Ok(target.origin()),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TelemetryPolicy, String> {
        let section: TelemetrySection = toml::from_str(text).map_err(|error| error.to_string())?;
        section.resolve().map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_telemetry_table_is_checked() {
        let empty = parse("").unwrap();
        assert_eq!((empty.otlp, empty.sample, empty.arguments), (None, 1.0, false));
        assert!(empty.propagate.is_empty());
        let full = "otlp = 'http://127.0.0.1:4318'\nsample = 0.1\narguments = true\nnet_private = ['10.0.0.0/8']\n\
                    propagate = ['https://API.example', 'http://127.0.0.1:8000/']";
        let full = parse(full).unwrap();
        assert_eq!(full.otlp.unwrap().as_str(), "http://127.0.0.1:4318/");
        assert_eq!((full.sample, full.arguments, full.net_private.len()), (0.1, true, 1));
        let origins: Vec<_> = full.propagate.iter().map(String::as_str).collect();
        assert_eq!(origins, ["http://127.0.0.1:8000", "https://api.example"]);
        for (text, part) in [
            ("sample = 1.5", "between 0 and 1"),
            ("sample = -0.1", "between 0 and 1"),
            ("sample = nan", "between 0 and 1"),
            ("otlp = '127.0.0.1:4318'", "is not"),
            ("otlp = 'grpc://127.0.0.1:4317'", "`http` or `https`"),
            ("otlp = 'http://u:p@h'", "OTEL_EXPORTER_OTLP_HEADERS"),
            ("otlp = 'http://h/?a'", "has a query"),
            ("propagate = ['*']", "is not an origin"),
            ("propagate = ['https://api.example/path']", "is not an origin"),
            ("propagate = ['https://u@api.example']", "is not an origin"),
            ("propagate = ['ftp://api.example']", "is not an origin"),
            ("spans = true", "unknown field"),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
        let many: Vec<_> = (0..65).map(|n| format!("'https://h{n}.example'")).collect();
        assert!(parse(&format!("propagate = [{}]", many.join(","))).unwrap_err().contains("at most 64"));
    }
}
