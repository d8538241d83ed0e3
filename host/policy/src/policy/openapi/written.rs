//! `[openapi.NAME]` as it is written, and how it is read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use url::Url;

use super::{Approve, DEFAULT_REFRESH, Header, MAX_NAME, OpenApi, OpenApiTool, Place};
use crate::capability::secret;
use crate::limits::LimitsPatch;
use crate::limits::table;
use crate::name::{PluginId, ToolName};
use crate::output::Delivery;
use crate::output::Truncation;
use crate::permission::Action;
use crate::policy::file;
use crate::policy::problem::{Problem, within};
use crate::quantity;
use crate::rule::Rule;
use crate::text::one_line;

/// Most sections.
pub(super) const MAX_SECTIONS: usize = 100;
/// Most static headers of a section.
pub(super) const MAX_HEADERS: usize = 32;
/// Longest value of one, in bytes.
const MAX_HEADER_BYTES: usize = 4096;

/// A section as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Section {
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
    encoded_slashes: bool,
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
    encoded_slashes: Option<bool>,
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
        Delivery { truncate: self.truncate, strip_blobs: self.strip_blobs, ..Delivery::default() }
    }
}

/// A `limits` table without the keys that are about guest code.
fn service_limits<'de, D: Deserializer<'de>>(input: D) -> Result<LimitsPatch, D::Error> {
    let patch = LimitsPatch::deserialize(input)?;
    table::check_service(&patch).map_err(serde::de::Error::custom)?;
    Ok(patch)
}

impl Section {
    fn resolve(self, name: &str, base: &Path, workspace: &Path) -> Result<OpenApi, Problem> {
        let name = PluginId::new(name).map_err(|e| e.to_string())?;
        check_name(&name)?;
        let document = Place::parse(&self.document, base).map_err(|e| format!("`document`: {e}"))?;
        let sha256 = self.sha256.map(|s| s.to_ascii_lowercase());
        if sha256.as_ref().is_some_and(|s| s.len() != 64 || !s.bytes().all(|b| b.is_ascii_hexdigit())) {
            return Err("`sha256` is not 64 hex digits".to_owned().into());
        }
        check_place(&document, sha256.is_some(), self.server.is_some())?;
        let refresh = self.refresh.as_deref().map(quantity::duration).transpose();
        let refresh = refresh.map_err(|e| format!("`refresh`: {e}"))?.unwrap_or(DEFAULT_REFRESH);
        self.limits.check().map_err(within(["limits"]))?;
        let mut tools = BTreeMap::new();
        for (tool, section) in self.tools {
            let name =
                ToolName::new(&tool).map_err(|e| Problem::at(["tools", tool.as_str()], e.to_string()))?;
            tools.insert(name, section.resolve().map_err(within(["tools", tool.as_str()]))?);
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
            encoded_slashes: self.encoded_slashes,
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
    if !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err("the name begins with a letter: it begins the names of tools".to_owned());
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
        return Err(
            "`document` is fetched and can change: write where the service is, `server = \"https://…\"`, or \
             pin the document with `sha256`"
                .to_owned(),
        );
    }
    Ok(())
}

fn checked_server(text: &str) -> Result<String, String> {
    let wrong = |why: &str| Err(format!("`server` is `{}`: {why}", one_line(text, 200)));
    let Ok(url) = Url::parse(text) else { return wrong("write a URL, `https://api.example.com/v1`") };
    if !matches!(url.scheme(), "https" | "http") || url.host_str().is_none() {
        return wrong("the service is reached by `https` or `http`");
    }
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
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
    fn resolve(self) -> Result<OpenApiTool, Problem> {
        let limits = self.limits.check_tool().map_err(|e| e.replace("plugins.ID", "openapi.NAME"));
        limits.map_err(within(["limits"]))?;
        let cache = self.cache.as_deref().map(file::cache_time).transpose();
        let permission = self.permission.map(|stricter| match stricter {
            Stricter::Ask => Action::Ask,
            Stricter::Deny => Action::Deny,
        });
        Ok(OpenApiTool {
            permission,
            approve: self.approve,
            cache: cache.map_err(|e| format!("`cache`: {e}"))?,
            reduce: self.reduce,
            encoded_slashes: self.encoded_slashes,
            limits: self.limits,
            serial: self.serial,
            results: self.results.resolve(),
            toolcall_reason: self.toolcall_reason,
        })
    }
}

/// All sections of a policy.
pub(in crate::policy) fn resolve_all(
    sections: BTreeMap<String, Section>,
    base: &Path,
    workspace: &Path,
) -> Result<BTreeMap<PluginId, Arc<OpenApi>>, Problem> {
    if sections.len() > MAX_SECTIONS {
        return Err(Problem::at(["openapi"], format!("more than {MAX_SECTIONS} sections [openapi.NAME]")));
    }
    let resolve = |(name, section): (String, Section)| {
        let one = section.resolve(&name, base, workspace).map_err(within(["openapi", name.as_str()]))?;
        Ok((one.name.clone(), Arc::new(one)))
    };
    sections.into_iter().map(resolve).collect()
}
