//! `[openapi.NAME]`: services described by an OpenAPI document. Their operations become tools.
//!
//! The tools of a service can send requests to its included operations without a `net` grant. The server is set in
//! the section, or in a document that the operator pinned or stores in a file. `net` and `net_private` of a section
//! only cover redirects and private networks. A profile narrows all of it, like other grants.

mod section;

pub(super) use section::{MAX_SERVICES, OpenApiSection};

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::names::check_tool_names;
use super::{Policy, RuleLists};
use crate::capability::attachment::{AttachmentAccess, AttachmentRule};
use crate::capability::net::NetRule;
use crate::capability::secret::SecretRule;
use crate::excerpt::one_line;
use crate::limits::table::{LimitFlag, LimitRow, LimitTable as _};
use crate::limits::{self, CallLimits, CallLimitsPatch};
use crate::name::{NAME_SEPARATOR, PluginId, QualifiedName, ToolName};
use crate::output::OutputSettings;
use crate::permission::{self, Action};
use crate::problem::{PolicyProblem, nest_under};
use crate::quantity::unit::{OptionalQuantity, Timeout};
use crate::route::OutboundRoute;
use crate::schema::ToolKey;
use crate::url_parts::has_credentials;

/// Longest name of a section, in characters. It prefixes all tool names, and some clients accept only 45 characters
/// in total.
pub const MAX_NAME: usize = 24;
/// Longest qualified tool name, in characters: the limit that every client and vendor accepts.
pub const MAX_QUALIFIED: usize = 45;
/// Default time after which a fetched document is refreshed.
const DEFAULT_REFRESH: Duration = Duration::from_secs(3600);

/// A service of the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenApiService {
    /// The operator's name for the service. It prefixes the names of its tools.
    pub name: PluginId,
    /// The location of its document.
    pub document: DocumentLocation,
    /// The only accepted content of the document, as SHA-256 in lower-case hex.
    pub sha256: Option<String>,
    /// Time after which a fetched document is refreshed.
    pub refresh: Duration,
    /// The base URL of all requests. It overrides the document.
    pub server: Option<String>,
    /// Values for the variables of the document's server.
    pub variables: BTreeMap<String, String>,
    /// Operations that become tools. Empty includes all.
    pub include: Vec<String>,
    /// Operations that do not become tools, even if `include` matches.
    pub exclude: Vec<String>,
    /// Names of secrets, by the document's security schemes.
    pub secrets: BTreeMap<String, String>,
    /// Headers of every request.
    pub headers: BTreeMap<String, ServiceHeader>,
    /// Which calls need approval.
    pub approve: ApprovalMode,
    /// The built-in reducer for results.
    pub reduce: Option<String>,
    /// Further targets of redirects.
    pub net: Vec<NetRule>,
    /// Private networks in which the service and its document may be.
    pub net_private: Vec<IpNet>,
    /// How the service and its document are reached.
    pub route: OutboundRoute,
    /// Settings of single tools.
    pub tools: BTreeMap<ToolName, OpenApiToolSettings>,
    encoded_slashes: bool,
    limits: CallLimitsPatch,
    serial: bool,
    results: OutputSettings,
    toolcall_reason: Option<bool>,
}

/// Settings of one tool of a service.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ServiceToolSection")]
pub struct OpenApiToolSettings {
    /// The name of the tool after `SERVICE__`, in place of the document's own. Rules and lists with the name that it would
    /// have without this key still apply.
    #[schemars(with = "Option<ToolKey>")]
    pub name: Option<ToolName>,
    /// A permission that makes the rules stricter for this tool.
    #[serde(default, deserialize_with = "section::read_stricter_action")]
    #[schemars(with = "Option<section::StricterAction>")]
    pub permission: Option<Action>,
    /// Whether its calls need approval if no rule matches.
    pub approve: Option<bool>,
    /// How long a session may reuse a result instead of sending the request again; at most a day.
    #[serde(default)]
    cache: OptionalQuantity<Duration, Timeout>,
    /// The built-in reducer for its results; `none` turns it off.
    pub reduce: Option<String>,
    /// Whether path values may contain slashes.
    encoded_slashes: Option<bool>,
    /// Limits of this tool; they override the service's limits.
    #[serde(default)]
    #[schemars(schema_with = "section::service_tool_limits_schema")]
    limits: CallLimitsPatch,
    /// Whether its calls run one after another.
    serial: Option<bool>,
    /// How its results are delivered.
    #[serde(default, deserialize_with = "section::read_results")]
    #[schemars(with = "section::ServiceResultsSection")]
    results: OutputSettings,
    /// Whether the model is asked for the reason of its calls.
    toolcall_reason: Option<bool>,
}

impl OpenApiToolSettings {
    /// Whether the section makes the calls of its tool stricter than those of the service.
    #[must_use]
    pub fn is_stricter(&self) -> bool {
        self.permission.is_some() || self.approve == Some(true)
    }
}

/// The location of an OpenAPI document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentLocation {
    /// A file.
    File(PathBuf),
    /// A URL.
    Url(Url),
}

impl DocumentLocation {
    /// Parses a URL, or a path relative to `base`.
    ///
    /// # Errors
    /// The URL has credentials or an unsupported scheme.
    pub fn parse(text: &str, base: &Path) -> Result<Self, String> {
        if text.is_empty() {
            return Err("it is empty".to_owned());
        }
        if !text.contains("://") {
            return Ok(Self::File(base.join(text)));
        }
        let url = Url::parse(text).map_err(|e| format!("`{}` is not a URL: {e}", one_line(text, 200)))?;
        match url.scheme() {
            "https" | "http" if !has_credentials(&url) => Ok(Self::Url(url)),
            "https" | "http" => Err("a URL must not contain a user name or password".to_owned()),
            _ => Err("write a path or an `https` URL".to_owned()),
        }
    }

    /// The URL, if it is one.
    #[must_use]
    pub fn url(&self) -> Option<&Url> {
        match self {
            Self::Url(url) => Some(url),
            Self::File(_) => None,
        }
    }
}

impl std::fmt::Display for DocumentLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Url(url) => url.fmt(f),
        }
    }
}

/// The value of a request header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceHeader {
    /// A plain text.
    Plain(String),
    /// A secret with a prefix.
    Secret {
        /// The name of the secret.
        secret: String,
        /// Text before the value, such as `Bearer `.
        prefix: String,
    },
}

/// Which calls of a service need approval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalMode {
    /// No calls, unless a rule asks.
    #[default]
    None,
    /// Calls that can change data: all methods except `GET` and `HEAD`.
    Writes,
    /// All calls.
    All,
}

impl OpenApiService {
    /// The file of its document, if it is a file.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match &self.document {
            DocumentLocation::File(path) => Some(path),
            DocumentLocation::Url(_) => None,
        }
    }

    /// What its tools are granted. Their requests reach these operations and its `net`, without the hosts that `net`
    /// excludes.
    pub(super) fn rules(&self, operations: &[NetRule]) -> RuleLists {
        let except = self.net.iter().flat_map(|rule| rule.except.iter().cloned()).collect();
        let operations = operations.iter().cloned().filter_map(|rule| rule.with_exclusions(&except));
        let secrets: BTreeSet<&str> = self.secret_names().collect();
        let any_type = "*/*".to_owned();
        let attachments = AttachmentRule { access: AttachmentAccess::Create, media_type_pattern: any_type };
        RuleLists {
            net: Some(operations.chain(self.net.iter().cloned()).collect()),
            net_private: Some(self.net_private.clone()),
            attachments: Some(vec![attachments]),
            secrets: Some(secrets.into_iter().map(|name| SecretRule::Exact(name.to_owned())).collect()),
            ..RuleLists::default()
        }
    }

    /// The names of all secrets that it uses.
    pub fn secret_names(&self) -> impl Iterator<Item = &str> {
        let of_headers = self.headers.values().filter_map(|header| match header {
            ServiceHeader::Secret { secret, .. } => Some(secret.as_str()),
            ServiceHeader::Plain(_) => None,
        });
        self.secrets.values().map(String::as_str).chain(of_headers)
    }

    /// The operator's name for a tool.
    #[must_use]
    pub fn tool_name(&self, tool: &ToolName) -> Option<&ToolName> {
        self.tools.get(tool)?.name.as_ref()
    }

    /// Whether calls of a tool need approval.
    #[must_use]
    pub fn needs_approval(&self, tool: &ToolName, changes: bool) -> bool {
        let own = self.tools.get(tool).and_then(|tool| tool.approve);
        own.unwrap_or(match self.approve {
            ApprovalMode::None => false,
            ApprovalMode::Writes => changes,
            ApprovalMode::All => true,
        })
    }

    /// The built-in reducer for results of a tool.
    #[must_use]
    pub fn reducer(&self, tool: &ToolName) -> Option<&str> {
        let own = self.tools.get(tool).and_then(|tool| tool.reduce.as_deref());
        own.or(self.reduce.as_deref()).filter(|name| *name != "none")
    }

    /// Whether path values of a tool may contain slashes.
    #[must_use]
    pub fn encoded_slashes(&self, tool: &ToolName) -> bool {
        self.tools.get(tool).and_then(|tool| tool.encoded_slashes).unwrap_or(self.encoded_slashes)
    }

    /// The key of the queue that serializes a tool's calls. `None` if they run in parallel.
    #[must_use]
    pub fn serial_queue(&self, tool: &ToolName) -> Option<Arc<str>> {
        match self.tools.get(tool).and_then(|tool| tool.serial) {
            None if self.serial => Some(format!("openapi:{}", self.name).into()),
            Some(true) => Some(format!("openapi:{}:{tool}", self.name).into()),
            None | Some(false) => None,
        }
    }

    /// How long a session may reuse a tool's results.
    #[must_use]
    pub fn cache(&self, tool: &ToolName) -> Option<Duration> {
        self.tools.get(tool)?.cache.0
    }

    /// The output settings of a tool. Its results are always marked as untrusted.
    #[must_use]
    pub fn results(&self, tool: &ToolName) -> OutputSettings {
        let own = self.tools.get(tool).map(|tool| tool.results).unwrap_or_default();
        OutputSettings { untrusted: Some(true), ..own.or(self.results) }
    }

    /// Whether callers of a tool are asked for a reason. `None` leaves it to the policy.
    #[must_use]
    pub fn asks_reason(&self, tool: &ToolName) -> Option<bool> {
        self.tools.get(tool).and_then(|tool| tool.toolcall_reason).or(self.toolcall_reason)
    }

    fn table_name(&self) -> String {
        format!("openapi.{}", self.name)
    }
}

impl Policy {
    /// The services described by an OpenAPI document, by name.
    pub fn openapi_services(&self) -> impl Iterator<Item = &Arc<OpenApiService>> {
        self.openapi.values()
    }

    /// A service by its name.
    #[must_use]
    pub fn openapi_service(&self, name: &str) -> Option<&Arc<OpenApiService>> {
        self.openapi.get(name)
    }

    /// The limits of a service, or of one of its tools.
    #[must_use]
    pub fn openapi_limits(&self, service: &OpenApiService, tool: Option<&ToolName>) -> CallLimits {
        let limits = service.limits.apply(self.limits.apply(CallLimits::default()));
        let limits = CallLimits { table: Some(service.table_name().into()), ..limits };
        match tool.and_then(|tool| service.tools.get_key_value(tool)) {
            Some((name, tool)) => tool.limits.apply_to_tool(limits, name),
            None => limits,
        }
    }

    /// The limits of a tool of a service, with the places that set them.
    #[must_use]
    pub fn openapi_limit_rows(&self, service: &OpenApiService, tool: &ToolName) -> Vec<LimitRow> {
        let in_force = self.openapi_limits(service, Some(tool));
        let name = &service.name;
        let mut layers = vec![
            (&self.limits, "[limits]".to_owned()),
            (&service.limits, format!("[openapi.{name}.limits]")),
        ];
        let of_tool = service.tools.get(tool).map(|tool| &tool.limits);
        layers.extend(of_tool.map(|patch| (patch, format!("[openapi.{name}.tools.{tool}.limits]"))));
        let entries = CallLimits::ENTRIES.iter().zip(limits::limit_rows(&in_force, &layers, None));
        entries.filter(|(entry, _)| entry.has(LimitFlag::AppliesToServices)).map(|(_, row)| row).collect()
    }

    /// The permission rules from the sections of single tools.
    pub(super) fn openapi_permissions(&self) -> Vec<permission::PermissionRule> {
        let sections = self.openapi.values().flat_map(|service| {
            let name = &service.name;
            service.tools.iter().filter_map(move |(tool, section)| {
                Some(permission::PermissionRule {
                    tool: Some(format!("{name}{NAME_SEPARATOR}{tool}")),
                    tag: None,
                    source: Some(format!("openapi:{name}")),
                    args: BTreeMap::new(),
                    action: section.permission?,
                    reason: Some(format!("`permission` of [openapi.{name}.tools.{tool}]")),
                })
            })
        });
        sections.collect()
    }

    /// Refuses sections with undefined secrets, because they would never work.
    pub(super) fn check_openapi(&self) -> Result<(), PolicyProblem> {
        for service in self.openapi.values() {
            let table = ["openapi", service.name.as_str()];
            let tools = service.tools.iter().map(|(tool, own)| (tool.as_str(), own.name.as_ref()));
            let qualify = |name: &ToolName| QualifiedName::join(&service.name, name);
            check_tool_names("tools", tools, qualify).map_err(nest_under(table))?;
            for (scheme, name) in &service.secrets {
                let checked = self.find_secret("secrets", name).map_err(|problem| problem.in_key(scheme));
                checked.map_err(nest_under(table))?;
            }
            for (header, value) in &service.headers {
                let ServiceHeader::Secret { secret, .. } = value else { continue };
                let checked = self.find_secret("headers", secret).map_err(|problem| problem.in_key(header));
                checked.map_err(nest_under(table))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "openapi_tests.rs"]
mod tests;
