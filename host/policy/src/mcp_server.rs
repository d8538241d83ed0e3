//! Another MCP server, as the operator describes it (`[mcp.NAME]`): how it is reached, what it may reach itself, which
//! of its tools are taken, and how their results are treated. Plain data; who connects is elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::capability::program::Program;
use crate::name::PluginId;
use crate::output::OutputSettings;
use crate::permission::{Action, PermissionRule};
use crate::quantity::unit::{Bytes, OptionalQuantity, Timeout, Unit as _};
use crate::wildcard::text_matches;

/// Longest name of a server, in characters: what is left of the 64 of a qualified name must hold a tool's.
pub const MAX_SERVER_NAME: usize = 32;
/// Most servers of one policy.
pub const MAX_SERVERS: usize = 64;
/// How long a call of a server's tool may take, unless the operator says otherwise. Below the 60 s after which most
/// clients give up by themselves.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(55);
/// How long a server may take from its start to its list of tools. Package runners download before they begin.
pub const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(60);

/// A server of the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct McpServer {
    /// The name the operator gave it; follows the rules of a plugin's id.
    pub name: PluginId,
    /// How it is reached.
    pub transport: ServerTransport,
    /// Which era of the protocol it is spoken to in.
    pub protocol: ProtocolEra,
    /// Its tools that are taken, as it names them, `*` standing for any run of characters; `None`: all.
    pub tools: Option<BTreeSet<String>>,
    /// Its tools that are not taken, whatever lets them in.
    pub exclude: BTreeSet<String>,
    /// Its resources that may be read, as it addresses them, `*` standing for any run of characters; `None`: all.
    pub resources: Option<BTreeSet<String>>,
    /// How long one call may take.
    pub timeout: Duration,
    /// How long it may take from its start to its list of tools.
    pub start_timeout: Duration,
    /// What holds for all its tools.
    pub rules: ServerToolSettings,
    /// What holds for some of them, by the name the server gives them; the narrower wins, key by key.
    pub tool_overrides: BTreeMap<String, ServerToolSettings>,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerTransport {
    /// A program that is started and spoken to over its stdin and stdout.
    Stdio(Box<StdioServerConfig>),
    /// A URL.
    Http(Box<HttpServerConfig>),
}

/// A server that is started.
#[derive(Debug, Clone, PartialEq)]
pub struct StdioServerConfig {
    /// The file, and what it may reach.
    pub program: Program,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that hold the values of secrets: the variable, and the secret's name.
    pub env_secrets: BTreeMap<String, String>,
    /// Whether a sandbox holds it; `false` is the operator's explicit word.
    pub sandboxed: bool,
}

/// A server behind a URL.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpServerConfig {
    /// The URL.
    pub url: String,
    /// Headers of every request.
    pub headers: BTreeMap<String, String>,
    /// Headers that hold the values of secrets.
    pub secrets: Vec<SecretHeader>,
    /// Private networks that the URL's host may lead to, beside the address that the URL itself names.
    pub net_private: Vec<IpNet>,
}

/// A header with the value of a secret in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretHeader {
    /// Its name, in lower case.
    pub header: String,
    /// What stands before the value: `Bearer `, or nothing.
    pub prefix: &'static str,
    /// The name of the secret.
    pub secret: String,
}

/// Which era of the protocol a server is spoken to in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProtocolEra {
    /// 2026-07-28 is tried first, then the handshake of older revisions.
    #[default]
    Auto,
    /// The handshake of 2024-11-05 to 2025-11-25, and nothing else.
    Legacy,
    /// 2026-07-28, and nothing else.
    Modern,
}

/// What is said of one tool of a server; what is absent is as in the server's table.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ServerToolSection")]
pub struct ServerToolSettings {
    /// What becomes of its calls, where the rules are less strict.
    pub permission: Option<Action>,
    /// How long one call may take.
    #[serde(default, deserialize_with = "Timeout::read_some")]
    #[schemars(with = "OptionalQuantity<Duration, Timeout>")]
    pub timeout: Option<Duration>,
    /// Characters of text that a result may have.
    pub max_result_chars: Option<u64>,
    /// Bytes of a result beside its text.
    #[serde(default, deserialize_with = "Bytes::read_some")]
    #[schemars(with = "OptionalQuantity<u64, Bytes>")]
    pub max_result_bytes: Option<u64>,
    /// How its results are given out.
    #[serde(default)]
    pub results: OutputSettings,
    /// The built-in reducer for its results.
    pub reduce: Option<String>,
}

impl McpServer {
    /// Whether a tool is taken, by the name the server gives it.
    #[must_use]
    pub fn includes_tool(&self, tool: &str) -> bool {
        let fits = |pattern: &String| text_matches(pattern, tool);
        !self.exclude.iter().any(fits) && self.tools.as_ref().is_none_or(|tools| tools.iter().any(fits))
    }

    /// Whether a resource may be read, by the address the server gives it. Of a template, its text is compared.
    #[must_use]
    pub fn includes_resource(&self, uri: &str) -> bool {
        self.resources.as_ref().is_none_or(|all| all.iter().any(|pattern| text_matches(pattern, uri)))
    }

    /// What holds for one tool, by the name the server gives it.
    #[must_use]
    pub fn settings_for(&self, tool: &str) -> ServerToolSettings {
        let (wide, none) = (&self.rules, ServerToolSettings::default());
        let narrow = self.tool_overrides.get(tool).unwrap_or(&none);
        ServerToolSettings {
            permission: narrow.permission.or(wide.permission),
            timeout: narrow.timeout.or(wide.timeout).or(Some(self.timeout)),
            max_result_chars: narrow.max_result_chars.or(wide.max_result_chars),
            max_result_bytes: narrow.max_result_bytes.or(wide.max_result_bytes),
            results: narrow.results.or(wide.results),
            reduce: narrow.reduce.clone().or_else(|| wide.reduce.clone()),
        }
    }

    /// What the section says of calls, as rules: the narrower come first.
    #[must_use]
    pub fn permission_rules(&self) -> Vec<PermissionRule> {
        let rule = |tool: Option<String>, action: Action, table: String| PermissionRule {
            tool,
            tag: None,
            source: Some(format!("mcp:{}", self.name)),
            args: BTreeMap::new(),
            action,
            reason: Some(format!("`permission` of {table}")),
        };
        let of_tools = self.tool_overrides.iter().filter_map(|(tool, rules)| {
            let name = crate::name::QualifiedName::from_mcp_tool(&self.name, tool).ok()?;
            let table = format!("[mcp.{}.tool.{tool:?}]", self.name);
            Some(rule(Some(name.as_str().to_owned()), rules.permission?, table))
        });
        let of_all = self.rules.permission.map(|action| rule(None, action, format!("[mcp.{}]", self.name)));
        of_tools.chain(of_all).collect()
    }
}

#[cfg(test)]
#[path = "mcp_server_tests.rs"]
mod tests;
