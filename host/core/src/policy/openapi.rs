//! `[openapi.NAME]`: services that an OpenAPI document describes, as tools, and what the operator says of each.
//!
//! Where such tools reach is not granted in lists: it is the service that the section, or a document the operator pinned or
//! holds, names, and of it the operations that are included. What a section lists beside that (`net`, `net_private`) is for
//! where the service leads to. A profile narrows all of it, as it narrows grants.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use url::Url;

use super::grant::Levels;
use super::{Grants, Key, Policy, Rules};
use crate::attachment::{Access, AttachmentRule};
use crate::budget::Truncation;
use crate::capability::Capability;
use crate::delivery::Delivery;
use crate::limits::table::{self, LimitRow};
use crate::limits::{self, Limits, LimitsPatch};
use crate::name::{PluginId, SEAM, ToolName};
use crate::net::NetRule;
use crate::permission::{self, Action};
use crate::quantity;
use crate::rule::Rule;
use crate::secret;
use crate::text::one_line;

/// Longest name of a section, in characters: with `__` it stands before the names of all tools, and some clients take 45
/// characters together.
pub const MAX_NAME: usize = 24;
/// Longest qualified name of such a tool, in characters: what every client and vendor takes.
pub const MAX_QUALIFIED: usize = 45;
/// How long a fetched document is used before its server is asked for a newer one, unless the section says otherwise.
const DEFAULT_REFRESH: Duration = Duration::from_secs(3600);
/// Most sections.
const MAX_SECTIONS: usize = 100;
/// Most static headers of a section.
const MAX_HEADERS: usize = 32;
/// Longest value of one, in bytes.
const MAX_HEADER_BYTES: usize = 4096;

/// One section.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenApi {
    /// What the operator calls it; stands before the names of its tools.
    pub name: PluginId,
    /// Where its document is.
    pub document: Place,
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
    pub headers: BTreeMap<String, Header>,
    /// Which calls want to be approved.
    pub approve: Approve,
    /// The built-in reducer for results; `None`: none.
    pub reduce: Option<String>,
    /// Further places that the service may redirect to.
    pub net: Vec<NetRule>,
    /// Private networks that the service, and its document, may be in.
    pub net_private: Vec<IpNet>,
    /// Tools with a section of their own.
    pub tools: BTreeMap<ToolName, OpenApiTool>,
    limits: LimitsPatch,
    serial: bool,
    results: Delivery,
    toolcall_reason: Option<bool>,
}

/// What is said of one tool of a service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OpenApiTool {
    /// Makes the rules of the policy stricter for it.
    pub permission: Option<Action>,
    /// Whether its calls want to be approved.
    pub approve: Option<bool>,
    /// For how long a session may look its results up.
    pub cache: Option<Duration>,
    /// The built-in reducer for its results; `none` for none.
    pub reduce: Option<String>,
    limits: LimitsPatch,
    serial: Option<bool>,
    results: Delivery,
    toolcall_reason: Option<bool>,
}

/// Where a document is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a file.
    File(PathBuf),
    /// On a server.
    Url(Url),
}

impl Place {
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

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Url(url) => url.fmt(f),
        }
    }
}

/// The value of a header that is sent with each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Header {
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Approve {
    /// None, unless a rule says so.
    #[default]
    None,
    /// Those that can change something: all but `GET` and `HEAD`.
    Writes,
    /// All.
    All,
}

/// A section as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    document: String,
    sha256: Option<String>,
    refresh: Option<String>,
    server: Option<String>,
    #[serde(default)]
    variables: BTreeMap<String, String>,
    #[serde(default)]
    include: Vec<String>,
    #[serde(default)]
    exclude: Vec<String>,
    #[serde(default)]
    secrets: BTreeMap<String, String>,
    #[serde(default)]
    headers: BTreeMap<String, WrittenHeader>,
    #[serde(default)]
    approve: Approve,
    reduce: Option<String>,
    #[serde(default)]
    net: Vec<String>,
    #[serde(default)]
    net_private: Vec<String>,
    #[serde(default, deserialize_with = "service_limits")]
    limits: LimitsPatch,
    #[serde(default)]
    serial: bool,
    #[serde(default)]
    results: Results,
    toolcall_reason: Option<bool>,
    #[serde(default)]
    tools: BTreeMap<String, ToolSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolSection {
    permission: Option<Stricter>,
    approve: Option<bool>,
    cache: Option<String>,
    reduce: Option<String>,
    #[serde(default, deserialize_with = "service_limits")]
    limits: LimitsPatch,
    serial: Option<bool>,
    #[serde(default)]
    results: Results,
    toolcall_reason: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a text, or { secret = \"NAME\", prefix = \"…\" }")]
enum WrittenHeader {
    Plain(String),
    Secret(SecretHeader),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretHeader {
    secret: String,
    #[serde(default)]
    prefix: String,
}

/// What a tool's section may say of permission: it never allows what a rule does not.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stricter {
    Ask,
    Deny,
}

/// `results` without `untrusted`: what a service says is always marked.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Results {
    truncate: Option<Truncation>,
    strip_blobs: Option<bool>,
}

impl Results {
    fn resolve(self) -> Delivery {
        Delivery { untrusted: None, truncate: self.truncate, strip_blobs: self.strip_blobs }
    }
}

/// A `limits` table without the keys that are about guest code.
fn service_limits<'de, D: Deserializer<'de>>(input: D) -> Result<LimitsPatch, D::Error> {
    let patch = LimitsPatch::deserialize(input)?;
    table::check_service(&patch).map_err(serde::de::Error::custom)?;
    Ok(patch)
}

impl Section {
    pub(super) fn resolve(self, name: &str, base: &Path, workspace: &Path) -> Result<OpenApi, String> {
        let name = PluginId::new(name).map_err(|e| e.to_string())?;
        check_name(&name)?;
        let document = Place::parse(&self.document, base).map_err(|e| format!("`document`: {e}"))?;
        let sha256 = self.sha256.map(|s| s.to_ascii_lowercase());
        if sha256.as_ref().is_some_and(|s| s.len() != 64 || !s.bytes().all(|b| b.is_ascii_hexdigit())) {
            return Err("`sha256` is not 64 hex digits".to_owned());
        }
        check_place(&document, sha256.is_some(), self.server.is_some())?;
        let refresh = self.refresh.as_deref().map(quantity::duration).transpose();
        let refresh = refresh.map_err(|e| format!("`refresh`: {e}"))?.unwrap_or(DEFAULT_REFRESH);
        self.limits.check()?;
        let mut tools = BTreeMap::new();
        for (tool, section) in self.tools {
            let tool = ToolName::new(&tool).map_err(|e| e.to_string())?;
            let section = section.resolve().map_err(|e| format!("tool `{tool}`: {e}"))?;
            tools.insert(tool, section);
        }
        Ok(OpenApi {
            document,
            sha256,
            refresh,
            server: self.server.map(|server| checked_server(&server)).transpose()?,
            variables: self.variables,
            include: self.include,
            exclude: self.exclude,
            secrets: self.secrets,
            headers: headers(self.headers)?,
            approve: self.approve,
            reduce: reducer(self.reduce),
            net: Rule::parse_list(&self.net, workspace).map_err(|e| format!("`net`: {e}"))?,
            net_private: Rule::parse_list(&self.net_private, workspace)
                .map_err(|e| format!("`net_private`: {e}"))?,
            limits: self.limits,
            serial: self.serial,
            results: self.results.resolve(),
            toolcall_reason: self.toolcall_reason,
            tools,
            name,
        })
    }
}

/// Results are long lists more often than not.
fn reducer(written: Option<String>) -> Option<String> {
    Some(written.unwrap_or_else(|| "json_array".to_owned())).filter(|name| name != "none")
}

fn check_name(name: &PluginId) -> Result<(), String> {
    let text = name.as_str();
    if text.len() > MAX_NAME {
        return Err(format!(
            "the name has {} characters; at most {MAX_NAME} leave room for the names of tools",
            text.len()
        ));
    }
    if !text.starts_with(|c: char| c.is_ascii_alphabetic()) || text == "mcp" {
        return Err("the name begins with a letter, and is not `mcp`: it begins the names of tools".to_owned());
    }
    Ok(())
}

/// What is fetched can be another document tomorrow: it is not to say where requests, and secrets, go.
fn check_place(document: &Place, pinned: bool, server: bool) -> Result<(), String> {
    let Some(url) = document.url() else { return Ok(()) };
    if pinned {
        return Ok(());
    }
    let local = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(v4)) => v4.is_loopback(),
        Some(url::Host::Ipv6(v6)) => v6.is_loopback(),
        None => false,
    };
    if url.scheme() != "https" && !local {
        return Err("`document` is fetched over `http`, where anybody on the way can change it: write `https`, or pin \
             the document with `sha256`"
            .to_owned());
    }
    if !server {
        return Err("`document` is fetched and can change: write where the service is, `server = \"https://…\"`, or \
             pin the document with `sha256`"
            .to_owned());
    }
    Ok(())
}

fn checked_server(text: &str) -> Result<String, String> {
    let wrong = |why: &str| Err(format!("`server` is `{}`: {why}", one_line(text, 200)));
    let Ok(url) = Url::parse(text) else { return wrong("write a URL, `https://api.example.com/v1`") };
    if !matches!(url.scheme(), "https" | "http") || url.host_str().is_none() {
        return wrong("the service is reached by `https` or `http`");
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return wrong("a user name, a password and a query have no place there");
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn headers(written: BTreeMap<String, WrittenHeader>) -> Result<BTreeMap<String, Header>, String> {
    if written.len() > MAX_HEADERS {
        return Err(format!("`headers` has more than {MAX_HEADERS} lines"));
    }
    let mut all = BTreeMap::new();
    for (name, value) in written {
        let name = secret::header_name(&name)?;
        let (text, header) = match value {
            WrittenHeader::Plain(text) => (text.clone(), Header::Plain(text)),
            WrittenHeader::Secret(SecretHeader { secret, prefix }) => {
                (prefix.clone(), Header::Secret { secret, prefix })
            }
        };
        if name == "cookie" {
            return Err("`headers`: cookies are parameters of operations".to_owned());
        }
        if text.len() > MAX_HEADER_BYTES || !text.bytes().all(|b| b == b'\t' || (0x20..0x7f).contains(&b)) {
            return Err(format!("`headers`: the value of `{name}` is no text that a header can carry"));
        }
        if all.insert(name.clone(), header).is_some() {
            return Err(format!("`headers` has `{name}` twice"));
        }
    }
    Ok(all)
}

impl ToolSection {
    fn resolve(self) -> Result<OpenApiTool, String> {
        self.limits.check_tool().map_err(|e| e.replace("plugins.ID", "openapi.NAME"))?;
        let cache = self.cache.as_deref().map(super::file::cache_time).transpose();
        let permission = self.permission.map(|stricter| match stricter {
            Stricter::Ask => Action::Ask,
            Stricter::Deny => Action::Deny,
        });
        Ok(OpenApiTool {
            permission,
            approve: self.approve,
            cache: cache.map_err(|e| format!("`cache`: {e}"))?,
            reduce: self.reduce,
            limits: self.limits,
            serial: self.serial,
            results: self.results.resolve(),
            toolcall_reason: self.toolcall_reason,
        })
    }
}

/// All sections of a policy.
pub(super) fn resolve_all(
    sections: BTreeMap<String, Section>,
    base: &Path,
    workspace: &Path,
) -> Result<BTreeMap<PluginId, Arc<OpenApi>>, String> {
    if sections.len() > MAX_SECTIONS {
        return Err(format!("more than {MAX_SECTIONS} sections [openapi.NAME]"));
    }
    let resolve = |(name, section): (String, Section)| {
        let one = section.resolve(&name, base, workspace).map_err(|e| format!("[openapi.{name:?}]: {e}"))?;
        Ok((one.name.clone(), Arc::new(one)))
    };
    sections.into_iter().map(resolve).collect()
}

impl OpenApi {
    /// The names of all secrets that it names.
    pub fn named_secrets(&self) -> impl Iterator<Item = &str> {
        let of_headers = self.headers.values().filter_map(|header| match header {
            Header::Secret { secret, .. } => Some(secret.as_str()),
            Header::Plain(_) => None,
        });
        self.secrets.values().map(String::as_str).chain(of_headers)
    }

    /// Whether calls of a tool want to be approved.
    #[must_use]
    pub fn needs_approval(&self, tool: &ToolName, changes: bool) -> bool {
        let own = self.tools.get(tool).and_then(|tool| tool.approve);
        own.unwrap_or(match self.approve {
            Approve::None => false,
            Approve::Writes => changes,
            Approve::All => true,
        })
    }

    /// The built-in reducer for results of a tool.
    #[must_use]
    pub fn reducer(&self, tool: &ToolName) -> Option<&str> {
        let own = self.tools.get(tool).and_then(|tool| tool.reduce.as_deref());
        own.or(self.reduce.as_deref()).filter(|name| *name != "none")
    }

    /// The lane of a tool whose calls run one after the other.
    #[must_use]
    pub fn lane(&self, tool: &ToolName) -> Option<Arc<str>> {
        match self.tools.get(tool).and_then(|tool| tool.serial) {
            None if self.serial => Some(format!("openapi:{}", self.name).into()),
            Some(true) => Some(format!("openapi:{}:{tool}", self.name).into()),
            None | Some(false) => None,
        }
    }

    /// For how long a session may look a tool's results up.
    #[must_use]
    pub fn cache(&self, tool: &ToolName) -> Option<Duration> {
        self.tools.get(tool)?.cache
    }

    /// How a tool's results are given out; they are always marked as what others wrote.
    #[must_use]
    pub fn results(&self, tool: &ToolName) -> Delivery {
        let own = self.tools.get(tool).map(|tool| tool.results).unwrap_or_default();
        Delivery { untrusted: Some(true), ..own.or(self.results) }
    }

    /// Whether callers of a tool are asked for their reason; `None`: the policy decides.
    #[must_use]
    pub fn asks_reason(&self, tool: &ToolName) -> Option<bool> {
        self.tools.get(tool).and_then(|tool| tool.toolcall_reason).or(self.toolcall_reason)
    }

    fn table(&self) -> String {
        format!("openapi.{}", self.name)
    }
}

impl Policy {
    /// The services that an OpenAPI document describes, by name.
    pub fn openapi(&self) -> impl Iterator<Item = &Arc<OpenApi>> {
        self.openapi.values()
    }

    /// One of them.
    #[must_use]
    pub fn openapi_named(&self, name: &str) -> Option<&Arc<OpenApi>> {
        self.openapi.get(name)
    }

    /// The limits of a service as a whole, or of one of its tools.
    #[must_use]
    pub fn openapi_limits(&self, service: &OpenApi, tool: Option<&ToolName>) -> Limits {
        let limits = service.limits.apply(self.limits.apply(Limits::default()));
        let limits = Limits { table: Some(service.table().into()), ..limits };
        match tool.and_then(|tool| service.tools.get_key_value(tool)) {
            Some((name, tool)) => tool.limits.apply_to_tool(limits, name),
            None => limits,
        }
    }

    /// The same with where each was set.
    #[must_use]
    pub fn openapi_limit_rows(&self, service: &OpenApi, tool: &ToolName) -> Vec<LimitRow> {
        let limits = self.openapi_limits(service, Some(tool));
        let name = &service.name;
        let mut layers =
            vec![(&self.limits, "[limits]".to_owned()), (&service.limits, format!("[openapi.{name}.limits]"))];
        let of_tool = service.tools.get(tool).map(|tool| &tool.limits);
        layers.extend(of_tool.map(|patch| (patch, format!("[openapi.{name}.tools.{tool}.limits]"))));
        let rows = table::of_call(&limits, &layers, None);
        rows.into_iter().filter(|row| limits::SERVICE_KEYS.contains(&row.key)).collect()
    }

    /// What tools of a service get: `reached`, which is what their operations come to, and what the section lists, cut
    /// down to a profile. `declared` says what a tool asks for of it.
    #[must_use]
    pub fn openapi_grant(
        &self,
        service: &OpenApi,
        tool: &ToolName,
        declared: &[Capability],
        reached: &[NetRule],
        profile: Option<&str>,
    ) -> Grants {
        let secrets: BTreeSet<&str> = service.named_secrets().collect();
        let rules = Rules {
            net: Some(reached.iter().chain(&service.net).cloned().collect()),
            net_private: Some(service.net_private.clone()),
            attachments: Some(vec![AttachmentRule { access: Access::Create, media: "*/*".to_owned() }]),
            secrets: Some(secrets.into_iter().map(|name| secret::SecretRule::Named(name.to_owned())).collect()),
            ..Rules::default()
        };
        Levels::of_section(self, &service.name, tool, &rules).grant(declared, profile)
    }

    /// The lines that would let requests of a service go where they may not.
    #[must_use]
    pub fn openapi_lines(&self, service: &OpenApi, key: Key, wish: &str) -> String {
        let list = match key {
            Key::NetPrivate => Rule::show_list(&service.net_private, &self.workspace),
            _ => Rule::show_list(&service.net, &self.workspace),
        };
        let all: Vec<String> =
            list.into_iter().chain([wish.to_owned()]).map(|line| serde_json::Value::from(line).to_string()).collect();
        format!("[openapi.{}] {} = [{}]", service.name, key.name(), all.join(", "))
    }

    /// What sections of single tools say of permission.
    pub(super) fn openapi_permissions(&self) -> Vec<permission::Rule> {
        let sections = self.openapi.values().flat_map(|service| {
            let name = &service.name;
            service.tools.iter().filter_map(move |(tool, section)| {
                Some(permission::Rule {
                    tool: Some(format!("{name}{SEAM}{tool}")),
                    tag: None,
                    source: None,
                    args: BTreeMap::new(),
                    action: section.permission?,
                    reason: Some(format!("`permission` of [openapi.{name}.tools.{tool}]")),
                })
            })
        });
        sections.collect()
    }

    /// A section that names a secret that nobody defined would never work.
    pub(super) fn check_openapi(&self) -> Result<(), String> {
        for service in self.openapi.values() {
            for name in service.named_secrets().filter(|name| !self.secrets.contains_key(*name)) {
                return Err(format!(
                    "[openapi.{}]: it names the secret `{name}`, and there is no [secrets.{name:?}]",
                    service.name
                ));
            }
            if self.plugins.contains_key(&service.name) {
                return Err(format!(
                    "[openapi.{0}]: [plugins.{0}] has this name, and tools of both would begin with it",
                    service.name
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "openapi_tests.rs"]
mod tests;
