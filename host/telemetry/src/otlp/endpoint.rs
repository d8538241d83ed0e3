//! Where traces and metrics go: the policy, with gaps filled by OpenTelemetry's environment variables.
//!
//! | variable | fills |
//! |---|---|
//! | `OTEL_EXPORTER_OTLP_ENDPOINT` | `otlp` of the policy |
//! | `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `…_METRICS_ENDPOINT` | the whole URL for one of them, without `otlp` |
//! | `OTEL_EXPORTER_OTLP_HEADERS` | headers, such as a token: `name=value,name=value`, percent-encoded |
//! | `OTEL_EXPORTER_OTLP_TIMEOUT` | the time for one request, in milliseconds |
//! | `OTEL_METRIC_EXPORT_INTERVAL` | the time between two exports of metrics, in milliseconds |
//! | `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | the name of the service, and further attributes |
//!
//! Without the table `[telemetry]`, the variables have no effect: other programs read them, too.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use toolbay_policy::telemetry::{TelemetryPolicy, parse_endpoint};
use url::Url;

use super::resource::Resource;
use crate::conventions::SERVICE_NAME;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const TIMEOUT: &str = "OTEL_EXPORTER_OTLP_TIMEOUT";
const INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";
const SERVICE: &str = "OTEL_SERVICE_NAME";
const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
/// The defaults of OpenTelemetry.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
/// The media type of the messages.
const PROTOBUF: &str = "application/x-protobuf";

/// A collector, and how to name this program to it.
#[derive(Debug, Clone)]
pub struct OtlpEndpoint {
    pub(super) traces: Url,
    pub(super) metrics: Url,
    pub(super) headers: Vec<(String, String)>,
    /// The time for one request.
    pub(super) timeout: Duration,
    /// The time between two exports of metrics.
    pub(super) interval: Duration,
    pub(super) resource: Resource,
}

impl OtlpEndpoint {
    /// The endpoint of a policy. `variable` reads the environment.
    ///
    /// # Errors
    /// Neither the policy nor the environment names a collector, or a variable is invalid.
    pub fn new(policy: &TelemetryPolicy, variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        // An empty variable counts as unset.
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let endpoint = |signal: &str, path: &str| {
            if let Some(base) = &policy.otlp {
                return Ok(below(base, path));
            }
            if let Some(whole) = variable(&format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")) {
                return parse_endpoint(&whole)
                    .map_err(|problem| format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT: {problem}"));
            }
            let base = variable(ENDPOINT).ok_or_else(|| {
                format!(
                    "`otlp` is missing, and {ENDPOINT} is not set: write `otlp = \"http://127.0.0.1:4318\"`"
                )
            })?;
            Ok(below(&parse_endpoint(&base).map_err(|problem| format!("{ENDPOINT}: {problem}"))?, path))
        };
        let protocol =
            variable(PROTOCOL).filter(|protocol| policy.otlp.is_none() && protocol != "http/protobuf");
        if let Some(protocol) = protocol {
            return Err(format!(
                "{PROTOCOL} is `{protocol}`: only `http/protobuf` is spoken; write `otlp` in the policy"
            ));
        }
        let mut headers = variable(HEADERS).map_or_else(|| Ok(Vec::new()), |text| pairs(HEADERS, &text))?;
        headers.push(("content-type".to_owned(), PROTOBUF.to_owned()));
        let mut attributes =
            variable(ATTRIBUTES).map_or_else(|| Ok(Vec::new()), |text| pairs(ATTRIBUTES, &text))?;
        if let Some(service) = variable(SERVICE) {
            attributes.retain(|(name, _)| name != SERVICE_NAME);
            attributes.push((SERVICE_NAME.to_owned(), service));
        }
        let millis = |name: &str, default: Duration| match variable(name) {
            Some(text) => text
                .parse()
                .map(Duration::from_millis)
                .map_err(|_| format!("{name} is not a number of milliseconds")),
            None => Ok(default),
        };
        Ok(Self {
            traces: endpoint("TRACES", "v1/traces")?,
            metrics: endpoint("METRICS", "v1/metrics")?,
            headers,
            timeout: millis(TIMEOUT, DEFAULT_TIMEOUT)?,
            interval: millis(INTERVAL, DEFAULT_INTERVAL)?,
            resource: Resource::new(attributes),
        })
    }
}

/// The URL of a path below a base, which may have a path itself.
fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}/{path}", base.path().trim_end_matches('/')));
    url
}

/// Parses `name=value,name=value` with percent-encoded values.
fn pairs(variable: &str, text: &str) -> Result<Vec<(String, String)>, String> {
    // The text is not shown: it may have a token.
    let bad = || format!("{variable} is not a list like `name=value,name=value`");
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').ok_or_else(bad)?;
        let value = percent_decode_str(value.trim()).decode_utf8().map_err(|_| bad())?;
        Ok((name.trim().to_owned(), value.into_owned()))
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(otlp: Option<&str>, variables: &[(&str, &str)]) -> Result<OtlpEndpoint, String> {
        let policy = TelemetryPolicy {
            otlp: otlp.map(|text| text.parse().unwrap()),
            net_private: Vec::new(),
            sample: 1.0,
            propagate: std::collections::BTreeSet::new(),
            arguments: false,
        };
        OtlpEndpoint::new(&policy, |name| {
            variables.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_policy_takes_precedence_and_the_environment_fills_gaps() {
        let urls = |otlp, variables: &[_]| {
            let found = endpoint(otlp, variables).unwrap();
            (found.traces.to_string(), found.metrics.to_string())
        };
        let own = ("http://c:1/v1/traces".to_owned(), "http://c:1/v1/metrics".to_owned());
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1");
        assert_eq!(urls(Some("http://c:1"), &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://d:1")]), own);
        assert_eq!(urls(None, &[base]), own);
        assert_eq!(urls(Some("http://c:1/a/"), &[]).0, "http://c:1/a/v1/traces");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t.example/x");
        assert_eq!(urls(None, &[base, traces]).0, "https://t.example/x");
        let found = endpoint(
            Some("http://c:1"),
            &[
                ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20a,x-scope = b"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
                ("OTEL_SERVICE_NAME", ""),
            ],
        );
        let found = found.unwrap();
        assert_eq!(found.timeout, Duration::from_millis(250));
        let header =
            |name: &str| found.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
        assert_eq!(header("authorization"), Some("Bearer a"));
        assert_eq!((header("x-scope"), header("content-type")), (Some("b"), Some("application/x-protobuf")));
        for (variables, expected) in [
            (vec![], "`otlp` is missing"),
            (vec![("OTEL_EXPORTER_OTLP_ENDPOINT", "c:1")], "OTEL_EXPORTER_OTLP_ENDPOINT: "),
            (vec![base, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], "http/protobuf"),
            (vec![base, ("OTEL_EXPORTER_OTLP_HEADERS", "token")], "name=value"),
            (vec![base, ("OTEL_EXPORTER_OTLP_TIMEOUT", "1s")], "milliseconds"),
        ] {
            let problem = endpoint(None, &variables).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
