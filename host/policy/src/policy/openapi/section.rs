//! The format of `[openapi.NAME]`, and its conversion into an [`OpenApiService`].

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};
use url::Url;

use super::{
    ApprovalMode, DEFAULT_REFRESH, DocumentLocation, MAX_NAME, OpenApiService, OpenApiToolSettings,
    ServiceHeader,
};
use crate::capability::list::RuleList;
use crate::capability::net::NetRule;
use crate::capability::secret;
use crate::excerpt::one_line;
use crate::limits::table::{self, LimitFlag};
use crate::limits::{CallLimits, CallLimitsPatch};
use crate::name::{PluginId, ToolName};
use crate::output::{OutputSettings, Truncation};
use crate::permission::Action;
use crate::policy::pin::normalize_sha256;
use crate::problem::{PolicyProblem, nest_under, of_key};
use crate::quantity::unit::{OptionalQuantity, Time};
use crate::route::OutboundRoute;
use crate::schema::ToolKey;
use crate::url_parts::{has_credentials, is_loopback};

/// Most services of a policy.
pub(in crate::policy) const MAX_SERVICES: usize = 100;
/// Most headers of a section.
pub(super) const MAX_HEADERS: usize = 32;
/// Longest header value, in bytes.
const MAX_HEADER_BYTES: usize = 4096;

/// A service described by an OpenAPI document.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ServiceSection")]
pub(in crate::policy) struct OpenApiSection {
    /// A file, relative to the policy's folder, or an `https` URL.
    #[schemars(length(min = 1))]
    document: String,
    /// The only accepted content of the document, as SHA-256 in hex.
    #[schemars(regex(pattern = "^[0-9a-fA-F]{64}$"))]
    sha256: Option<String>,
    /// Time after which a fetched document is refreshed. Default: 1h.
    #[serde(default)]
    refresh: OptionalQuantity<Duration, Time>,
    /// The base URL of all requests, `https://api.example.com/v1`. Default: the document's.
    #[schemars(regex(pattern = "^[hH][tT][tT][pP][sS]?://[^?#]+$"))]
    server: Option<String>,
    /// Values for the variables of the document's server.
    #[serde(default)]
    variables: BTreeMap<String, String>,
    /// Operations that become tools: `tag:NAME`, `op:ID`, `GET`, `/path/*`, `GET /path/*`. Default: all.
    #[serde(default)]
    include: Vec<String>,
    /// Operations that do not become tools, even if `include` matches.
    #[serde(default)]
    exclude: Vec<String>,
    /// The secret for each security scheme of the document, `{ api_key = "PETS" }`.
    #[serde(default)]
    secrets: BTreeMap<String, String>,
    /// Headers of every request: texts, or `{ secret = "PETS", prefix = "Token " }`.
    #[serde(default)]
    headers: BTreeMap<String, HeaderSection>,
    /// Which calls need approval.
    #[serde(default)]
    approve: ApprovalMode,
    /// The built-in reducer for results; `none` turns it off. Default: `json_array`.
    reduce: Option<String>,
    /// Whether path values may contain slashes, which are sent as `%2F`.
    #[serde(default)]
    encoded_slashes: bool,
    /// Further targets of redirects, besides the included operations.
    #[serde(default)]
    net: RuleList<NetRule>,
    /// Private networks in which the service and the server of its document may be.
    #[serde(default)]
    net_private: RuleList<IpNet>,
    /// The HTTP proxy through which the service and its document are reached: `http://proxy.example:3128`. Default:
    /// `HTTPS_PROXY`.
    #[schemars(regex(pattern = "^http://[^/?#@]+/?$"))]
    proxy: Option<String>,
    /// A file with certificates (PEM) that are trusted besides the system's, relative to the policy's folder.
    ca: Option<String>,
    /// Limits of its tools.
    #[serde(default)]
    #[schemars(schema_with = "service_limits_schema")]
    limits: CallLimitsPatch,
    /// Whether all calls of its tools run one after another.
    #[serde(default)]
    serial: bool,
    /// How its results are delivered. They are always marked as untrusted.
    #[serde(default, deserialize_with = "read_results")]
    #[schemars(with = "ServiceResultsSection")]
    results: OutputSettings,
    /// Whether the model is asked for the reason of its calls.
    toolcall_reason: Option<bool>,
    /// Settings of single tools, by the tool's name without the service.
    #[serde(default)]
    #[schemars(with = "BTreeMap<ToolKey, OpenApiToolSettings>")]
    tools: BTreeMap<String, OpenApiToolSettings>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a text, or { secret = \"NAME\", prefix = \"…\" }")]
#[schemars(rename = "ServiceHeader")]
enum HeaderSection {
    Plain(String),
    Secret(SecretHeaderSection),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SecretHeaderSection {
    /// The name of the secret.
    secret: String,
    /// Text before the value, such as `Token `.
    #[serde(default)]
    prefix: String,
}

/// The permissions that a tool's section can set. It never allows a call that a rule refuses.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum StricterAction {
    Ask,
    Deny,
}

pub(super) fn read_stricter_action<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Action>, D::Error> {
    Ok(Some(match StricterAction::deserialize(input)? {
        StricterAction::Ask => Action::Ask,
        StricterAction::Deny => Action::Deny,
    }))
}

/// `results` without `untrusted`: results of a service are always marked.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "ServiceResults")]
pub(super) struct ServiceResultsSection {
    /// Which part of a long text is kept.
    truncate: Option<Truncation>,
    /// Whether long runs of encoded bytes are removed from texts.
    strip_blobs: Option<bool>,
}

pub(super) fn read_results<'de, D: Deserializer<'de>>(input: D) -> Result<OutputSettings, D::Error> {
    let ServiceResultsSection { truncate, strip_blobs } = ServiceResultsSection::deserialize(input)?;
    Ok(OutputSettings { truncate, strip_blobs, ..OutputSettings::default() })
}

fn service_limits_schema(_: &mut SchemaGenerator) -> Schema {
    table::table_schema::<CallLimits>(|entry| entry.has(LimitFlag::AppliesToServices))
}

pub(super) fn service_tool_limits_schema(_: &mut SchemaGenerator) -> Schema {
    table::table_schema::<CallLimits>(|entry| {
        entry.has(LimitFlag::AppliesToServices) && !entry.has(LimitFlag::PerPlugin)
    })
}

impl OpenApiSection {
    /// Relative paths start from `base`.
    pub(in crate::policy) fn resolve(
        mut self,
        name: &str,
        base: &Path,
        workspace: &Path,
    ) -> Result<OpenApiService, PolicyProblem> {
        let name = PluginId::new(name).map_err(|e| e.to_string())?;
        check_name(&name)?;
        let document = DocumentLocation::parse(&self.document, base).map_err(of_key("document"))?;
        normalize_sha256(&mut self.sha256)?;
        check_document_location(&document, self.sha256.is_some(), self.server.is_some())?;
        let checked = self.limits.check_service().and_then(|()| self.limits.check());
        checked.map_err(nest_under(["limits"]))?;
        let mut tools = BTreeMap::new();
        for (tool, section) in self.tools {
            let name = ToolName::new(&tool)
                .map_err(|e| PolicyProblem::at_keys(["tools", tool.as_str()], e.to_string()))?;
            let checked = section.limits.check_service();
            let checked = checked.and_then(|()| section.limits.check_tool("openapi.NAME"));
            checked.map_err(nest_under(["tools", tool.as_str(), "limits"]))?;
            tools.insert(name, section);
        }
        Ok(OpenApiService {
            document,
            sha256: self.sha256,
            refresh: self.refresh.0.unwrap_or(DEFAULT_REFRESH),
            server: self.server.map(|server| parse_server(&server)).transpose()?,
            variables: self.variables,
            include: self.include,
            exclude: self.exclude,
            secrets: self.secrets,
            headers: parse_headers(self.headers)?,
            approve: self.approve,
            reduce: reducer(self.reduce),
            encoded_slashes: self.encoded_slashes,
            net: self.net.rules_or_empty("net", workspace)?,
            net_private: self.net_private.rules_or_empty("net_private", workspace)?,
            route: OutboundRoute::parse(self.proxy.as_deref(), self.ca.as_deref(), base)?,
            limits: self.limits,
            serial: self.serial,
            results: self.results,
            toolcall_reason: self.toolcall_reason,
            tools,
            name,
        })
    }
}

/// The default reducer is for lists, the most frequent kind of result.
fn reducer(written: Option<String>) -> Option<String> {
    Some(written.unwrap_or_else(|| "json_array".to_owned())).filter(|name| name != "none")
}

fn check_name(name: &PluginId) -> Result<(), String> {
    let text = name.as_str();
    if text.len() > MAX_NAME {
        return Err(format!(
            "the name has {} characters; use at most {MAX_NAME} to leave room for tool names",
            text.len()
        ));
    }
    if !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err("the name must begin with a letter, because tool names begin with it".to_owned());
    }
    Ok(())
}

/// A fetched document can change, so it must not decide where requests and secrets go.
fn check_document_location(
    document: &DocumentLocation,
    pinned: bool,
    server: bool,
) -> Result<(), PolicyProblem> {
    let Some(url) = document.url() else { return Ok(()) };
    if pinned {
        return Ok(());
    }
    if url.scheme() != "https" && !is_loopback(url) {
        let message = "`document` is fetched over `http` and can be changed in transit: write `https`, or pin the \
                       document with `sha256`";
        return Err(PolicyProblem::at_keys(["document"], message));
    }
    if !server {
        let message = "`document` is fetched and can change: set `server = \"https://…\"`, or pin the document with \
                       `sha256`";
        return Err(PolicyProblem::at_keys(["document"], message));
    }
    Ok(())
}

fn parse_server(text: &str) -> Result<String, PolicyProblem> {
    let wrong = |why: &str| {
        let message = format!("`server` is `{}`: {why}", one_line(text, 200));
        Err(PolicyProblem::at_keys(["server"], message))
    };
    let Ok(url) = Url::parse(text) else { return wrong("write a URL, `https://api.example.com/v1`") };
    if !matches!(url.scheme(), "https" | "http") || url.host_str().is_none() {
        return wrong("write an `https` or `http` URL");
    }
    if has_credentials(&url) || url.query().is_some() || url.fragment().is_some() {
        return wrong("the URL must not contain a user name, a password, a query or a fragment");
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn parse_headers(
    sections: BTreeMap<String, HeaderSection>,
) -> Result<BTreeMap<String, ServiceHeader>, PolicyProblem> {
    if sections.len() > MAX_HEADERS {
        let message = format!("`headers` has more than {MAX_HEADERS} lines");
        return Err(PolicyProblem::at_keys(["headers"], message));
    }
    let mut all = BTreeMap::new();
    for (written, value) in sections {
        let wrong = |why: String| PolicyProblem::at_keys(["headers", &written], format!("`headers`: {why}"));
        let name = secret::parse_header_name(&written).map_err(wrong)?;
        let (text, header) = match value {
            HeaderSection::Plain(text) => (text.clone(), ServiceHeader::Plain(text)),
            HeaderSection::Secret(SecretHeaderSection { secret, prefix }) => {
                (prefix.clone(), ServiceHeader::Secret { secret, prefix })
            }
        };
        if name == "cookie" {
            return Err(wrong("cookies are parameters of operations".to_owned()));
        }
        if text.len() > MAX_HEADER_BYTES || !text.bytes().all(|b| b == b'\t' || (0x20..0x7f).contains(&b)) {
            return Err(wrong(format!("the value of `{name}` has characters that a header cannot carry")));
        }
        if all.insert(name.clone(), header).is_some() {
            return Err(wrong(format!("`{name}` is there twice")));
        }
    }
    Ok(all)
}
