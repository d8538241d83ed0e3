//! The policy of another MCP server (`[mcp.NAME]`): its transport, its sandbox, the tools that are imported, and how
//! their results are delivered. Plain data, without connections.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::capability::program::Program;
use crate::excerpt::one_line;
use crate::name::{PluginId, QualifiedName, ToolName};
use crate::output::OutputSettings;
use crate::permission::{Action, PermissionRule};
use crate::quantity::unit::{Bytes, OptionalQuantity, Timeout, Unit as _};
use crate::route::OutboundRoute;
use crate::schema::ToolKey;
use crate::wildcard::text_matches;

/// Longest name of a server, in characters. A qualified name has 64 characters; the rest is for the tool.
pub const MAX_SERVER_NAME: usize = 32;
/// Most servers in one policy.
pub const MAX_SERVERS: usize = 64;
/// Default timeout of a call of a server's tool. Below the 60 s after which most clients give up.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(55);
/// Default time from the start of a server to its list of tools. Package runners download before they start.
pub const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(60);

/// A server of the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct McpServer {
    /// The operator's name for the server. The rules for plugin ids apply.
    pub name: PluginId,
    /// How the host connects to it.
    pub transport: ServerTransport,
    /// The protocol era that the host uses with it.
    pub protocol: ProtocolEra,
    /// Names of its tools that are imported; `*` matches any run of characters. `None` imports all.
    pub tools: Option<BTreeSet<String>>,
    /// Names of its tools that are not imported, even if `tools` includes them.
    pub exclude: BTreeSet<String>,
    /// URIs of its resources that may be read; `*` matches any run of characters. `None` allows all.
    pub resources: Option<BTreeSet<String>>,
    /// Timeout of one call.
    pub timeout: Duration,
    /// Time from its start to its list of tools.
    pub start_timeout: Duration,
    /// Settings of all its tools.
    pub tool_defaults: ServerToolSettings,
    /// Settings of single tools, by the server's tool name. They override the common settings key by key.
    pub tool_overrides: BTreeMap<String, ServerToolSettings>,
}

/// How the host connects to a server.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerTransport {
    /// A child process, over its stdin and stdout.
    Stdio(Box<StdioServerConfig>),
    /// A URL, over Streamable HTTP.
    Http(Box<HttpServerConfig>),
}

/// A server that the host starts.
#[derive(Debug, Clone, PartialEq)]
pub struct StdioServerConfig {
    /// The program and its sandbox.
    pub program: Program,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables that hold secrets: variable name to secret name.
    pub env_secrets: BTreeMap<String, String>,
}

/// A server at a URL.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpServerConfig {
    /// The URL.
    pub url: String,
    /// Headers of every request.
    pub headers: BTreeMap<String, String>,
    /// Headers that hold secrets.
    pub secrets: Vec<SecretHeader>,
    /// How the host gets OAuth tokens; `None` if the section sets the header `authorization`.
    pub oauth: Option<OAuthClientSettings>,
    /// Private networks that the URL's host name may resolve to. An IP address in the URL is always allowed. Addresses
    /// that a peer names, such as those of an authorization server, are allowed by this list only.
    pub net_private: Vec<IpNet>,
    /// How the server and its authorization server are reached.
    pub route: OutboundRoute,
}

/// What the operator decided about the host as an OAuth client of a server (`[mcp.NAME.oauth]`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OAuthClientSettings {
    /// A client that is registered at [`Self::issuer`].
    pub client: Option<RegisteredClient>,
    /// The only authorization server that is accepted.
    pub issuer: Option<String>,
    /// The URL of a client ID metadata document.
    pub client_metadata_url: Option<String>,
    /// The scopes to request. `None`: those that the server asks for.
    pub scopes: Option<BTreeSet<String>>,
    /// The port of the redirect address on the loopback interface. `None`: any free port.
    pub redirect_port: Option<u16>,
    /// Whether [`Self::issuer`] counts as supporting PKCE with S256 if its metadata do not say.
    pub assumes_pkce: bool,
}

/// A client that the operator registered at an authorization server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredClient {
    /// The client id.
    pub id: String,
    /// The name of the secret, for a confidential client.
    pub secret: Option<String>,
    /// How the client sends its secret to the token endpoint. `None`: a method that the authorization server supports.
    pub auth_method: Option<TokenEndpointAuthMethod>,
}

/// How a client sends its secret to the token endpoint (RFC 7591, section 2; RFC 6749, section 2.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum TokenEndpointAuthMethod {
    /// In the header `authorization`.
    #[serde(rename = "client_secret_basic")]
    Basic,
    /// In the form.
    #[serde(rename = "client_secret_post")]
    Post,
}

/// A header that holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretHeader {
    /// The header name, in lower case.
    pub header: String,
    /// Text before the value: `Bearer ` or nothing.
    pub prefix: &'static str,
    /// The name of the secret.
    pub secret: String,
}

/// The protocol era that the host uses with a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProtocolEra {
    /// Tries 2026-07-28 first, then the handshake of older revisions.
    #[default]
    Auto,
    /// Only the handshake of 2024-11-05 to 2025-11-25.
    Legacy,
    /// Only 2026-07-28.
    Modern,
}

/// Settings of one tool of a server. An absent key leaves the setting of the server's table.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ServerToolSection")]
pub struct ServerToolSettings {
    /// The name of the tool after `mcp__SERVER__`, in place of the server's own. Rules and lists with the name that it would
    /// have without this key still apply.
    #[schemars(with = "Option<ToolKey>")]
    pub name: Option<ToolName>,
    /// The permission for its calls, if the rules are less strict.
    pub permission: Option<Action>,
    /// Timeout of one call.
    #[serde(default, deserialize_with = "Timeout::read_some")]
    #[schemars(with = "OptionalQuantity<Duration, Timeout>")]
    pub timeout: Option<Duration>,
    /// Longest result text, in characters.
    pub max_result_chars: Option<u64>,
    /// Largest result besides its text, in bytes.
    #[serde(default, deserialize_with = "Bytes::read_some")]
    #[schemars(with = "OptionalQuantity<u64, Bytes>")]
    pub max_result_bytes: Option<u64>,
    /// How its results are delivered.
    #[serde(default)]
    pub results: OutputSettings,
    /// The built-in reducer for its results.
    pub reduce: Option<String>,
}

impl McpServer {
    /// Whether a tool is imported, by the server's tool name.
    #[must_use]
    pub fn includes_tool(&self, tool: &str) -> bool {
        let fits = |pattern: &String| text_matches(pattern, tool);
        !self.exclude.iter().any(fits) && self.tools.as_ref().is_none_or(|tools| tools.iter().any(fits))
    }

    /// The tools that the policy has a section for, and that the server does not list.
    pub fn unknown_tools<'a>(
        &'a self,
        is_listed: impl Fn(&str) -> bool + 'a,
    ) -> impl Iterator<Item = &'a str> {
        let tools = self.tool_overrides.keys().map(String::as_str);
        tools.filter(move |tool| self.includes_tool(tool) && !is_listed(tool))
    }

    /// The warning about a section for a tool that is not there.
    #[must_use]
    pub fn unknown_tool_warning(&self, tool: &str) -> String {
        let shown = one_line(tool, 100);
        format!(
            "it has no tool `{shown}`, for which the policy has a section ([mcp.{}.tool.{shown:?}])",
            self.name
        )
    }

    /// Whether a resource may be read. For a resource template, its URI template is compared.
    #[must_use]
    pub fn includes_resource(&self, uri: &str) -> bool {
        self.resources.as_ref().is_none_or(|all| all.iter().any(|pattern| text_matches(pattern, uri)))
    }

    /// Returns the qualified name of one tool, by the server's tool name: the operator's name for it, or the server's own
    /// ([`QualifiedName::from_mcp_tool`]).
    ///
    /// # Errors
    /// The name cannot become a qualified one, or the operator gave it to another tool.
    pub fn tool_name(&self, tool: &str) -> Result<QualifiedName, String> {
        if let Some(name) = self.tool_overrides.get(tool).and_then(|own| own.name.as_ref()) {
            return QualifiedName::join_mcp(&self.name, name).map_err(|e| e.to_string());
        }
        let name = QualifiedName::from_mcp_tool(&self.name, tool).map_err(|e| e.to_string())?;
        let taken = |own: &ServerToolSettings| {
            own.name.as_ref().is_some_and(|given| given.as_str().eq_ignore_ascii_case(name.tool_part()))
        };
        match self.tool_overrides.iter().find(|(_, own)| taken(own)) {
            Some((other, _)) => Err(format!(
                "its name is the one that [mcp.{}.tool.{other:?}] gives to another tool; choose another `name` there",
                self.name
            )),
            None => Ok(name),
        }
    }

    /// Returns the settings of one tool, by the server's tool name.
    #[must_use]
    pub fn settings_for(&self, tool: &str) -> ServerToolSettings {
        let (wide, none) = (&self.tool_defaults, ServerToolSettings::default());
        let narrow = self.tool_overrides.get(tool).unwrap_or(&none);
        ServerToolSettings {
            name: narrow.name.clone(),
            permission: narrow.permission.or(wide.permission),
            timeout: narrow.timeout.or(wide.timeout).or(Some(self.timeout)),
            max_result_chars: narrow.max_result_chars.or(wide.max_result_chars),
            max_result_bytes: narrow.max_result_bytes.or(wide.max_result_bytes),
            results: narrow.results.or(wide.results),
            reduce: narrow.reduce.clone().or_else(|| wide.reduce.clone()),
        }
    }

    /// Returns the section's permissions as rules, narrowest first.
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
            let name = QualifiedName::from_mcp_tool(&self.name, tool).ok()?;
            let table = format!("[mcp.{}.tool.{tool:?}]", self.name);
            Some(rule(Some(name.as_str().to_owned()), rules.permission?, table))
        });
        let of_all =
            self.tool_defaults.permission.map(|action| rule(None, action, format!("[mcp.{}]", self.name)));
        of_tools.chain(of_all).collect()
    }
}
