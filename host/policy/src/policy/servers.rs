//! The format of `[mcp.NAME]`, and its conversion into an [`McpServer`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::names::check_tool_names;
use super::server_oauth::ServerOAuthSection;
use super::{MAX_SHOWN, Policy};
use crate::capability::environment::EnvRule;
use crate::capability::list::{FolderList, RuleList};
use crate::capability::net::NetTarget;
use crate::capability::path_rule::{self, PathRule};
use crate::capability::program::{self, Program, SandboxMode};
use crate::capability::secret;
use crate::excerpt::one_line;
use crate::mcp_server::{
    DEFAULT_START_TIMEOUT, DEFAULT_TIMEOUT, HttpServerConfig, MAX_SERVER_NAME, McpServer, ProtocolEra,
    SecretHeader, ServerToolSettings, ServerTransport, StdioServerConfig,
};
use crate::name::{PluginId, QualifiedName};
use crate::output::OutputSettings;
use crate::permission::Action;
use crate::problem::{PolicyProblem, nest_under, of_key};
use crate::quantity::unit::{Bytes, OptionalQuantity, Size, Timeout};
use crate::route::OutboundRoute;
use crate::rule::GrantRule as _;
use crate::schema::CommandArray;
use crate::url_parts::has_credentials;

/// Most entries of each list and table of a section: arguments, variables, headers, tool names.
const MAX_LINES: usize = 256;

/// Another MCP server, with `command` or `url`. Each excludes the keys of the other.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    {"required": ["command"], "properties": {"url": false}},
    {"required": ["url"], "properties": {"command": false}},
]))]
pub(super) struct ServerSection {
    /// The program, an absolute path, and its arguments.
    #[schemars(with = "Option<CommandArray>")]
    command: Option<Vec<String>>,
    /// More arguments.
    #[serde(default)]
    #[schemars(length(max = MAX_LINES))]
    args: Vec<String>,
    /// Its environment variables. No other variable of the host is passed.
    #[serde(default)]
    env: RuleList<EnvRule>,
    /// Variables that hold secrets, `{ TOKEN = "NAME" }`; the secret must have `reveal = true`.
    #[serde(default)]
    env_secrets: BTreeMap<String, String>,
    /// The folder in which it starts. Default: `$workspace`.
    cwd: Option<String>,
    /// Whole folders and files that it may read.
    #[serde(default)]
    fs_read: FolderList,
    /// Whole folders and files that it may write; does not allow reading.
    #[serde(default)]
    fs_write: FolderList,
    /// Whole folders and files from which it may run programs and load libraries, besides the system's.
    #[serde(default)]
    execute: FolderList,
    /// Whether it may use the network, without restrictions. Default: false.
    network: Option<bool>,
    /// Address space of each of its processes, as a string such as `512MiB`.
    #[serde(default)]
    memory: OptionalQuantity<u64, Size>,
    /// Most processes of the server, its descendants included. Default: 256.
    #[schemars(range(min = 1, max = program::MAX_PROCESSES))]
    processes: Option<u64>,
    /// Whether it may change modes, owners and attributes of every file of the host's user. Default: false.
    chmod: Option<bool>,
    /// What happens if the kernel cannot confine it. Default: `required`.
    sandbox: Option<SandboxMode>,
    /// The URL of a server over HTTP.
    #[schemars(regex(pattern = "^[hH][tT][tT][pP][sS]?://."))]
    url: Option<String>,
    /// Headers of every request.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Headers that hold secrets, `{ X-Api-Key = "NAME" }`.
    #[serde(default)]
    header_secrets: BTreeMap<String, String>,
    /// The secret that is sent as `Authorization: Bearer …`.
    bearer: Option<String>,
    /// How the host gets OAuth tokens for the URL.
    oauth: Option<ServerOAuthSection>,
    /// Private networks that the URL's host name, and the addresses of its authorization server, may resolve to.
    #[serde(default)]
    net_private: RuleList<IpNet>,
    /// The HTTP proxy through which the URL and its authorization server are reached: `http://proxy.example:3128`.
    /// Default: `HTTPS_PROXY`.
    #[schemars(regex(pattern = "^http://[^/?#@]+/?$"))]
    proxy: Option<String>,
    /// A file with certificates (PEM) that are trusted besides the system's, relative to the policy's folder.
    ca: Option<String>,
    /// The protocol era that the host uses with the server.
    #[serde(default)]
    protocol: ProtocolEra,
    /// Names of its tools that are imported; `*` matches any run of characters.
    tools: Option<BTreeSet<String>>,
    /// Names of its tools that are not imported, even if `tools` includes them.
    #[serde(default)]
    exclude: BTreeSet<String>,
    /// URIs of its resources that may be read; `[]` for none.
    resources: Option<BTreeSet<String>>,
    /// Time from its start to its list of tools. Default: 60s.
    #[serde(default)]
    start_timeout: OptionalQuantity<Duration, Timeout>,
    /// Timeout of one call. Default: 55s.
    #[serde(default)]
    timeout: OptionalQuantity<Duration, Timeout>,
    /// The permission for its calls, if the rules are less strict.
    permission: Option<Action>,
    /// Longest result text, in characters.
    max_result_chars: Option<u64>,
    /// Largest result besides its text, in bytes. Default: 256KiB.
    #[serde(default)]
    max_result_bytes: OptionalQuantity<u64, Bytes>,
    /// How its results are delivered.
    #[serde(default)]
    results: OutputSettings,
    /// The built-in reducer for its results.
    reduce: Option<String>,
    /// Settings of single tools, by the server's tool name.
    #[serde(default)]
    tool: BTreeMap<String, ServerToolSettings>,
}

impl ServerSection {
    /// Relative paths start from `base`, and those of a program from `workspace`.
    pub(super) fn resolve(
        self,
        name: &str,
        base: &Path,
        workspace: &Path,
    ) -> Result<McpServer, PolicyProblem> {
        let id = PluginId::new(name).map_err(|e| e.to_string().replacen("plugin id", "name", 1))?;
        if name.len() > MAX_SERVER_NAME {
            return Err(format!(
                "the name is longer than {MAX_SERVER_NAME} characters, which leaves no room for tool names"
            )
            .into());
        }
        self.check_sizes()?;
        let transport = match (&self.command, &self.url) {
            (Some(_), None) => ServerTransport::Stdio(Box::new(self.resolve_stdio(workspace)?)),
            (None, Some(url)) => ServerTransport::Http(Box::new(self.resolve_http(url, base, workspace)?)),
            (Some(_), Some(_)) => {
                let message = "`url` and `command` exclude each other: remove one of them";
                return Err(PolicyProblem::at_keys(["url"], message));
            }
            (None, None) => {
                let message = "`command` or `url` is missing: write `command = [\"/path/of/the/program\"]`, or \
                               `url = \"https://…\"`";
                return Err(PolicyProblem::missing_key("command", message).avoided_by(&["url"]));
            }
        };
        let server = McpServer {
            transport,
            protocol: self.protocol,
            timeout: self.timeout.0.unwrap_or(DEFAULT_TIMEOUT),
            start_timeout: self.start_timeout.0.unwrap_or(DEFAULT_START_TIMEOUT),
            tool_overrides: self.tool,
            tool_defaults: ServerToolSettings {
                name: None,
                permission: self.permission,
                timeout: None,
                max_result_chars: self.max_result_chars,
                max_result_bytes: self.max_result_bytes.0,
                results: self.results,
                reduce: self.reduce,
            },
            tools: self.tools,
            exclude: self.exclude,
            resources: self.resources,
            name: id,
        };
        let tools = server.tool_overrides.iter().map(|(tool, own)| (tool.as_str(), own.name.as_ref()));
        check_tool_names("tool", tools, |name| QualifiedName::join_mcp(&server.name, name))?;
        Ok(server)
    }

    fn check_sizes(&self) -> Result<(), PolicyProblem> {
        let lists = [
            ("args", self.args.len()),
            ("command", self.command.as_ref().map_or(0, Vec::len)),
            ("env", self.env.len() + self.env_secrets.len()),
            ("headers", self.headers.len() + self.header_secrets.len()),
            ("tools", self.tools.as_ref().map_or(0, BTreeSet::len)),
            ("exclude", self.exclude.len()),
            ("resources", self.resources.as_ref().map_or(0, BTreeSet::len)),
            ("tool", self.tool.len()),
        ];
        match lists.iter().find(|(_, lines)| *lines > MAX_LINES) {
            Some((key, _)) => {
                Err(PolicyProblem::at_keys([*key], format!("`{key}` has more than {MAX_LINES} lines")))
            }
            None => Ok(()),
        }
    }

    /// Refuses keys that have no effect on this kind of server.
    fn refuse_keys(kind: &str, keys: &[(&str, bool)]) -> Result<(), PolicyProblem> {
        match keys.iter().find(|(_, written)| *written) {
            Some((key, _)) => {
                let message = format!("`{key}` has no effect on a server with `{kind}`: remove it");
                Err(PolicyProblem::at_keys([*key], message))
            }
            None => Ok(()),
        }
    }

    fn resolve_stdio(&self, workspace: &Path) -> Result<StdioServerConfig, PolicyProblem> {
        Self::refuse_keys(
            "command",
            &[
                ("headers", !self.headers.is_empty()),
                ("header_secrets", !self.header_secrets.is_empty()),
                ("bearer", self.bearer.is_some()),
                ("oauth", self.oauth.is_some()),
                ("net_private", !self.net_private.is_empty()),
                ("proxy", self.proxy.is_some()),
                ("ca", self.ca.is_some()),
            ],
        )?;
        let mut command = self.command.iter().flatten();
        let empty = "`command` is empty: write the absolute path of a program";
        let file = command.next().ok_or_else(|| PolicyProblem::at_keys(["command"], empty))?;
        let path = Path::new(file);
        let Some(path) = path_rule::normalize(path).filter(|_| path.is_absolute()) else {
            let file = one_line(file, MAX_SHOWN);
            let message = format!(
                "`command` begins with `{file}`: write an absolute path, `which {file}` shows it; no search path is used"
            );
            return Err(PolicyProblem::at_keys(["command"], message).in_entry(0));
        };
        let args: Vec<String> = command.chain(&self.args).cloned().collect();
        if args.iter().any(|arg| arg.contains('\0')) {
            return Err("an argument contains a zero byte".to_owned().into());
        }
        let sandbox = self.sandbox.unwrap_or(SandboxMode::Required);
        if sandbox == SandboxMode::None {
            Self::refuse_keys(
                "sandbox = \"none\"",
                &[
                    ("fs_read", !self.fs_read.is_empty()),
                    ("fs_write", !self.fs_write.is_empty()),
                    ("execute", !self.execute.is_empty()),
                    ("network", self.network == Some(false)),
                    ("chmod", self.chmod == Some(false)),
                ],
            )?;
        }
        let env = self.env.rules_or_empty("env", workspace)?;
        for variable in self.env_secrets.keys() {
            let wrong = |why: String| {
                PolicyProblem::from(format!("`env_secrets`: {why}")).under_keys(["env_secrets", variable])
            };
            let parsed = EnvRule::parse(variable, workspace).map_err(wrong)?;
            if parsed.value.is_some() || env.iter().any(|rule| rule.name == parsed.name) {
                return Err(wrong(format!("`{}` is set twice", one_line(variable, MAX_SHOWN))));
            }
        }
        let cwd = PathRule::parse(self.cwd.as_deref().unwrap_or("$workspace"), workspace);
        Ok(StdioServerConfig {
            program: Program {
                path,
                env,
                guest_env: BTreeSet::new(),
                network: self.network.unwrap_or(false),
                cwd: cwd.map_err(of_key("cwd"))?.folder().to_path_buf(),
                timeout: None,
                memory_bytes: self.memory.0,
                processes: program::check_processes(self.processes)?,
                read: self.fs_read.folders("fs_read", workspace)?,
                write: self.fs_write.folders("fs_write", workspace)?,
                execute: self.execute.folders("execute", workspace)?,
                chmod: self.chmod.unwrap_or(false),
                sandbox,
            },
            args,
            env_secrets: self.env_secrets.clone(),
        })
    }

    fn resolve_http(
        &self,
        url: &str,
        base: &Path,
        workspace: &Path,
    ) -> Result<HttpServerConfig, PolicyProblem> {
        Self::refuse_keys(
            "url",
            &[
                ("args", !self.args.is_empty()),
                ("env", !self.env.is_empty()),
                ("env_secrets", !self.env_secrets.is_empty()),
                ("cwd", self.cwd.is_some()),
                ("fs_read", !self.fs_read.is_empty()),
                ("fs_write", !self.fs_write.is_empty()),
                ("execute", !self.execute.is_empty()),
                ("network", self.network.is_some()),
                ("memory", self.memory.0.is_some()),
                ("processes", self.processes.is_some()),
                ("chmod", self.chmod.is_some()),
                ("sandbox", self.sandbox.is_some()),
            ],
        )?;
        let parsed = read_url(url)?;
        let mut headers = BTreeMap::new();
        let wrong = |table: &str, name: &str, why: String| {
            PolicyProblem::at_keys([table, name], format!("`{table}`: {why}"))
        };
        for (written, value) in &self.headers {
            let wrong = |why: String| wrong("headers", written.as_str(), why);
            let name = secret::parse_header_name(written).map_err(wrong)?;
            if !value.bytes().all(|b| b == b'\t' || (b' '..=b'~').contains(&b)) {
                return Err(wrong(format!("the value of `{name}` is not plain ASCII")));
            }
            if is_host_header(&name) {
                return Err(wrong(format!("the host sets `{name}` itself")));
            }
            headers.insert(name, value.clone());
        }
        let mut secrets = Vec::new();
        for (written, of) in &self.header_secrets {
            let wrong = |why: String| wrong("header_secrets", written.as_str(), why);
            let header = secret::parse_header_name(written).map_err(wrong)?;
            if is_host_header(&header) || headers.contains_key(&header) {
                return Err(wrong(format!("`{header}` is already set")));
            }
            secrets.push(SecretHeader { header, prefix: "", secret: of.clone() });
        }
        if let Some(of) = &self.bearer {
            let header = secret::DEFAULT_HEADER.to_owned();
            if headers.contains_key(&header) || secrets.iter().any(|one| one.header == header) {
                let message = "`bearer`: the header `authorization` is already set";
                return Err(PolicyProblem::at_keys(["bearer"], message));
            }
            secrets.push(SecretHeader { header, prefix: "Bearer ", secret: of.clone() });
        }
        let net_private = self.net_private.rules_or_empty("net_private", workspace)?;
        let authorized = headers.contains_key(secret::DEFAULT_HEADER)
            || secrets.iter().any(|one| one.header == secret::DEFAULT_HEADER);
        let oauth = match (&self.oauth, authorized) {
            (Some(_), true) => {
                let message = "`oauth`: the header `authorization` is already set: remove one of them";
                return Err(PolicyProblem::at_keys(["oauth"], message));
            }
            (None, true) => None,
            (section, false) => {
                Some(section.clone().unwrap_or_default().resolve().map_err(nest_under(["oauth"]))?)
            }
        };
        let route = OutboundRoute::parse(self.proxy.as_deref(), self.ca.as_deref(), base)?;
        Ok(HttpServerConfig { url: parsed.into(), headers, secrets, oauth, net_private, route })
    }
}

/// Whether the protocol sets this header itself.
fn is_host_header(name: &str) -> bool {
    name.starts_with("mcp-") || matches!(name, "accept" | "accept-encoding" | "last-event-id" | "user-agent")
}

fn read_url(url: &str) -> Result<Url, PolicyProblem> {
    let wrong = |message: String| PolicyProblem::at_keys(["url"], message);
    let shown = one_line(url, MAX_SHOWN);
    let mut parsed = Url::parse(url).map_err(|e| wrong(format!("`url`: `{shown}`: {e}")))?;
    if has_credentials(&parsed) {
        let message =
            "`url`: the URL must not contain a user name or password; use `bearer` or `header_secrets`";
        return Err(wrong(message.to_owned()));
    }
    parsed.set_fragment(None);
    NetTarget::request("POST", &parsed).map_err(|e| wrong(format!("`url`: `{shown}`: {e}")))?;
    Ok(parsed)
}

impl Policy {
    /// The other MCP servers, in the order of their names.
    pub fn mcp_servers(&self) -> impl Iterator<Item = &std::sync::Arc<McpServer>> {
        self.servers.values()
    }

    /// Another MCP server by its name.
    #[must_use]
    pub fn mcp_server(&self, name: &str) -> Option<&std::sync::Arc<McpServer>> {
        self.servers.get(name)
    }

    /// Refuses servers with undefined secrets, or with secrets that must not go there: they would never work.
    pub(super) fn check_servers(&self) -> Result<(), PolicyProblem> {
        for server in self.servers.values() {
            let checked = match &server.transport {
                ServerTransport::Stdio(child) => self.check_stdio_server(child),
                ServerTransport::Http(endpoint) => self.check_http_server(endpoint),
            };
            checked.map_err(nest_under(["mcp", server.name.as_str()]))?;
        }
        Ok(())
    }

    fn check_stdio_server(&self, child: &StdioServerConfig) -> Result<(), PolicyProblem> {
        for rule in &child.program.env {
            self.check_variable(rule)?;
        }
        for (variable, name) in &child.env_secrets {
            let secret = self.find_secret("env_secrets", name).map_err(|problem| problem.in_key(variable))?;
            if !secret.reveal {
                let message = format!(
                    "`env_secrets` hands the value of [secrets.{name:?}] to a program, which may send it anywhere; to \
                     allow that, write `reveal = true` there"
                );
                return Err(PolicyProblem::at_keys(["env_secrets", variable], message));
            }
        }
        Ok(())
    }

    fn check_http_server(&self, endpoint: &HttpServerConfig) -> Result<(), PolicyProblem> {
        let client = endpoint.oauth.as_ref().and_then(|oauth| oauth.client.as_ref());
        if let Some(name) = client.and_then(|client| client.secret.as_ref()) {
            // Where it may be sent is checked when the authorization server has named its token endpoint.
            self.find_secret("client_secret", name).map_err(nest_under(["oauth"]))?;
        }
        let target = Url::parse(&endpoint.url).map_err(|e| e.to_string());
        let target = target.and_then(|url| NetTarget::request("POST", &url)).map_err(of_key("url"))?;
        for SecretHeader { header, prefix, secret: name } in &endpoint.secrets {
            let key = if prefix.is_empty() { "header_secrets" } else { "bearer" };
            let secret = self.find_secret(key, name)?;
            if !secret.headers.contains(header) {
                let message = format!(
                    "`{key}`: the secret `{name}` may not be put into the header `{header}`; to allow it, add to \
                     [secrets.{name:?}] headers = [{header:?}]"
                );
                return Err(PolicyProblem::at_keys([key], message));
            }
            if !secret.may_be_sent_to(&target) {
                let origin = target.to_rule();
                let origin = origin.split_once(' ').map_or(origin.as_str(), |(_, origin)| origin);
                let message = format!(
                    "`{key}`: the secret `{name}` may not be sent to its `url`; to allow it, add to [secrets.{name:?}] \
                     origins = [{:?}]",
                    Url::parse(origin)
                        .map_or_else(|_| origin.to_owned(), |url| url.origin().ascii_serialization())
                );
                return Err(PolicyProblem::at_keys([key], message));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "servers_tests.rs"]
mod tests;
