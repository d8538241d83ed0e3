//! `[openapi.NAME]`: services that an OpenAPI document describes, as tools, and what the operator says of each.
//!
//! Where such tools reach is not granted in lists: it is the service that the section, or a document the operator pinned or
//! holds, names, and of it the operations that are included. What a section lists beside that (`net`, `net_private`) is for
//! where the service leads to. A profile narrows all of it, as it narrows grants.

mod section;

pub(super) use section::{OpenApiSection, resolve_all};

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::grant::GrantLevels;
use super::problem::{PolicyProblem, nest_under};
use super::{Grants, Policy, RuleLists};
use crate::capability::Capability;
use crate::capability::attachment::{AttachmentAccess, AttachmentRule};
use crate::capability::net::NetRule;
use crate::capability::secret;
use crate::limits::table::{LimitFlag, LimitRow, LimitTable as _};
use crate::limits::{self, CallLimits, CallLimitsPatch};
use crate::name::{NAME_SEPARATOR, PluginId, ToolName};
use crate::output::OutputSettings;
use crate::permission::{self, Action};
use crate::quantity::unit::{OptionalQuantity, Timeout};
use crate::text::one_line;

/// Longest name of a section, in characters: with `__` it stands before the names of all tools, and some clients take 45
/// characters together.
pub const MAX_NAME: usize = 24;
/// Longest qualified name of such a tool, in characters: what every client and vendor takes.
pub const MAX_QUALIFIED: usize = 45;
/// How long a fetched document is used before its server is asked for a newer one, unless the section says otherwise.
const DEFAULT_REFRESH: Duration = Duration::from_secs(3600);

/// One section.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenApiService {
    /// What the operator calls it; stands before the names of its tools.
    pub name: PluginId,
    /// Where its document is.
    pub document: DocumentLocation,
    /// The only content of the document that is taken, SHA-256 in lower-case hex.
    pub sha256: Option<String>,
    /// How long a fetched document is used before its server is asked for a newer one.
    pub refresh: Duration,
    /// The base of all requests, instead of what the document says.
    pub server: Option<String>,
    /// Values for the variables of the document's server.
    pub variables: BTreeMap<String, String>,
    /// Which operations become tools; empty: all.
    pub include: Vec<String>,
    /// Which of them do not.
    pub exclude: Vec<String>,
    /// Names of secrets by the document's security schemes.
    pub secrets: BTreeMap<String, String>,
    /// What is sent with each request.
    pub headers: BTreeMap<String, ServiceHeader>,
    /// Which calls want to be approved.
    pub approve: ApprovalMode,
    /// The built-in reducer for results; `None`: none.
    pub reduce: Option<String>,
    /// Further places that the service may redirect to.
    pub net: Vec<NetRule>,
    /// Private networks that the service, and its document, may be in.
    pub net_private: Vec<IpNet>,
    /// Tools with a section of their own.
    pub tools: BTreeMap<ToolName, OpenApiToolSettings>,
    encoded_slashes: bool,
    limits: CallLimitsPatch,
    serial: bool,
    results: OutputSettings,
    toolcall_reason: Option<bool>,
}

/// What is said of one tool of a service.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ServiceToolSection")]
pub struct OpenApiToolSettings {
    /// Makes the rules stricter for this tool.
    #[serde(default, deserialize_with = "section::read_stricter_action")]
    #[schemars(with = "Option<section::StricterAction>")]
    pub permission: Option<Action>,
    /// Whether somebody is asked about its calls, unless a rule fits.
    pub approve: Option<bool>,
    /// For how long a session may look a result up instead of calling again; at most a day.
    #[serde(default)]
    cache: OptionalQuantity<Duration, Timeout>,
    /// The built-in reducer for its results; `none` for none.
    pub reduce: Option<String>,
    /// Whether values in its path may have slashes in them.
    encoded_slashes: Option<bool>,
    /// Limits of this tool, over the service's.
    #[serde(default, deserialize_with = "section::read_service_limits")]
    #[schemars(schema_with = "section::service_tool_limits_schema")]
    limits: CallLimitsPatch,
    /// Whether its calls run one after the other.
    serial: Option<bool>,
    /// How its results are given out.
    #[serde(default, deserialize_with = "section::read_results")]
    #[schemars(with = "section::ServiceResultsSection")]
    results: OutputSettings,
    /// Whether the model is asked why it calls.
    toolcall_reason: Option<bool>,
}

/// Where a document is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentLocation {
    /// In a file.
    File(PathBuf),
    /// On a server.
    Url(Url),
}

impl DocumentLocation {
    /// Reads a path, relative to `base`, or a URL.
    ///
    /// # Errors
    /// It is a URL that is not fetched.
    pub fn parse(text: &str, base: &Path) -> Result<Self, String> {
        if text.is_empty() {
            return Err("it is empty".to_owned());
        }
        if !text.contains("://") {
            return Ok(Self::File(base.join(text)));
        }
        let url = Url::parse(text).map_err(|e| format!("`{}` is no URL: {e}", one_line(text, 200)))?;
        match url.scheme() {
            "https" | "http" if url.username().is_empty() && url.password().is_none() => Ok(Self::Url(url)),
            "https" | "http" => Err("a user name or password has no place in a URL".to_owned()),
            _ => Err("write a path, or a URL of `https`".to_owned()),
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

/// The value of a header that is sent with each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceHeader {
    /// This text.
    Plain(String),
    /// The value of a secret, behind a text.
    Secret {
        /// Its name.
        secret: String,
        /// What stands before the value, `Bearer ` for instance.
        prefix: String,
    },
}

/// Which calls of a service want to be approved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalMode {
    /// None, unless a rule says so.
    #[default]
    None,
    /// Those that can change something: all but `GET` and `HEAD`.
    Writes,
    /// All.
    All,
}

impl OpenApiService {
    /// The file of its document, if that is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match &self.document {
            DocumentLocation::File(path) => Some(path),
            DocumentLocation::Url(_) => None,
        }
    }

    /// The names of all secrets that it names.
    pub fn secret_names(&self) -> impl Iterator<Item = &str> {
        let of_headers = self.headers.values().filter_map(|header| match header {
            ServiceHeader::Secret { secret, .. } => Some(secret.as_str()),
            ServiceHeader::Plain(_) => None,
        });
        self.secrets.values().map(String::as_str).chain(of_headers)
    }

    /// Whether calls of a tool want to be approved.
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

    /// Whether values in the paths of a tool's requests may have slashes in them.
    #[must_use]
    pub fn encoded_slashes(&self, tool: &ToolName) -> bool {
        self.tools.get(tool).and_then(|tool| tool.encoded_slashes).unwrap_or(self.encoded_slashes)
    }

    /// The lane of a tool whose calls run one after the other.
    #[must_use]
    pub fn serial_queue(&self, tool: &ToolName) -> Option<Arc<str>> {
        match self.tools.get(tool).and_then(|tool| tool.serial) {
            None if self.serial => Some(format!("openapi:{}", self.name).into()),
            Some(true) => Some(format!("openapi:{}:{tool}", self.name).into()),
            None | Some(false) => None,
        }
    }

    /// For how long a session may look a tool's results up.
    #[must_use]
    pub fn cache(&self, tool: &ToolName) -> Option<Duration> {
        self.tools.get(tool)?.cache.0
    }

    /// How a tool's results are given out; they are always marked as what others wrote.
    #[must_use]
    pub fn results(&self, tool: &ToolName) -> OutputSettings {
        let own = self.tools.get(tool).map(|tool| tool.results).unwrap_or_default();
        OutputSettings { untrusted: Some(true), ..own.or(self.results) }
    }

    /// Whether callers of a tool are asked for their reason; `None`: the policy decides.
    #[must_use]
    pub fn asks_reason(&self, tool: &ToolName) -> Option<bool> {
        self.tools.get(tool).and_then(|tool| tool.toolcall_reason).or(self.toolcall_reason)
    }

    fn table_name(&self) -> String {
        format!("openapi.{}", self.name)
    }
}

impl Policy {
    /// The services that an OpenAPI document describes, by name.
    pub fn openapi_services(&self) -> impl Iterator<Item = &Arc<OpenApiService>> {
        self.openapi.values()
    }

    /// One of them.
    #[must_use]
    pub fn openapi_service(&self, name: &str) -> Option<&Arc<OpenApiService>> {
        self.openapi.get(name)
    }

    /// The limits of a service as a whole, or of one of its tools.
    #[must_use]
    pub fn openapi_limits(&self, service: &OpenApiService, tool: Option<&ToolName>) -> CallLimits {
        let limits = service.limits.apply(self.limits.apply(CallLimits::default()));
        let limits = CallLimits { table: Some(service.table_name().into()), ..limits };
        match tool.and_then(|tool| service.tools.get_key_value(tool)) {
            Some((name, tool)) => tool.limits.apply_to_tool(limits, name),
            None => limits,
        }
    }

    /// The same with where each was set.
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

    /// What tools of a service get: `reached`, which is what their operations come to, and what the section lists, cut
    /// down to a profile. `declared` says what a tool asks for of it.
    #[must_use]
    pub fn openapi_grant(
        &self,
        service: &OpenApiService,
        tool: &ToolName,
        declared: &[Capability],
        reached: &[NetRule],
        profile: Option<&str>,
    ) -> Grants {
        let secrets: BTreeSet<&str> = service.secret_names().collect();
        let rules = RuleLists {
            net: Some(reached.iter().chain(&service.net).cloned().collect()),
            net_private: Some(service.net_private.clone()),
            attachments: Some(vec![AttachmentRule {
                access: AttachmentAccess::Create,
                media_type_pattern: "*/*".to_owned(),
            }]),
            secrets: Some(
                secrets.into_iter().map(|name| secret::SecretRule::Exact(name.to_owned())).collect(),
            ),
            ..RuleLists::default()
        };
        GrantLevels::for_service(self, service, tool, &rules).grant(declared, profile)
    }

    /// What sections of single tools say of permission.
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

    /// A section that names a secret that nobody defined would never work.
    pub(super) fn check_openapi(&self) -> Result<(), PolicyProblem> {
        for service in self.openapi.values() {
            let table = ["openapi", service.name.as_str()];
            for (scheme, name) in &service.secrets {
                let checked =
                    self.find_secret("secrets", name).map_err(|problem| problem.in_table_entry(scheme));
                checked.map_err(nest_under(table))?;
            }
            for (header, value) in &service.headers {
                let ServiceHeader::Secret { secret, .. } = value else { continue };
                let checked =
                    self.find_secret("headers", secret).map_err(|problem| problem.in_table_entry(header));
                checked.map_err(nest_under(table))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "openapi_tests.rs"]
mod tests;
