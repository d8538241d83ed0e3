//! The admin listener (`[admin]`): where it listens, who may use it, and who may read metrics.
//!
//! Everybody on the machine can connect to a loopback address, and so can web pages in a browser, so every request but
//! those for open metrics needs a token.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::problem::PolicyProblem;

/// Prefix of the path of a socket in `listen`.
const SOCKET_PREFIX: &str = "unix:";
/// Longest path of a socket, in bytes: `sun_path` of unix(7) without its last byte.
const MAX_SOCKET: usize = 107;

/// The address of the admin listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminAddress {
    /// A loopback address.
    Loopback(SocketAddr),
    /// A Unix socket.
    Socket(PathBuf),
}

/// Who may read metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricsAccess {
    /// Clients with a token of any role.
    #[default]
    Token,
    /// Every client that reaches the listener.
    Open,
}

/// The admin listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminPolicy {
    /// Where it listens.
    pub listen: AdminAddress,
    /// The file with the tokens.
    pub tokens: PathBuf,
    /// Who may read metrics.
    pub metrics: MetricsAccess,
}

/// `[admin]`: control, metrics and state of a running server, on a listener of its own.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AdminSection {
    /// Where the admin listener listens: a loopback address, `127.0.0.1:8081`, or `unix:/path`. Without it, there is none.
    listen: Option<String>,
    /// The file with bearer tokens and their roles.
    tokens: Option<PathBuf>,
    /// Who may read `/metrics`. Default: `token`.
    metrics: MetricsAccess,
}

impl AdminSection {
    /// Checks the section. File names are relative to `base`.
    pub(crate) fn resolve(self, base: &Path) -> Result<Option<AdminPolicy>, PolicyProblem> {
        let Self { listen, tokens, metrics } = self;
        let Some(listen) = listen else {
            let is_empty = tokens.is_none() && metrics == MetricsAccess::default();
            let missing = "`listen` is missing: write `listen = \"127.0.0.1:8081\"`, or remove the table";
            return if is_empty { Ok(None) } else { Err(PolicyProblem::at_keys(["listen"], missing)) };
        };
        let listen = AdminAddress::parse(&listen, base)?;
        let missing = "`tokens` is missing: every request of the admin listener needs a token";
        let tokens = tokens.ok_or_else(|| PolicyProblem::at_keys(["tokens"], missing))?;
        Ok(Some(AdminPolicy { listen, tokens: base.join(tokens), metrics }))
    }
}

impl fmt::Display for AdminAddress {
    /// Writes it as the policy would.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback(address) => address.fmt(f),
            Self::Socket(path) => write!(f, "{SOCKET_PREFIX}{}", path.display()),
        }
    }
}

impl AdminAddress {
    fn parse(text: &str, base: &Path) -> Result<Self, PolicyProblem> {
        let wrong = |why: String| PolicyProblem::at_keys(["listen"], format!("`listen`: {why}"));
        if let Some(path) = text.strip_prefix(SOCKET_PREFIX) {
            let path = base.join(path);
            let bytes = path.as_os_str().len();
            if bytes > MAX_SOCKET {
                return Err(wrong(format!(
                    "the path has {bytes} bytes; a socket's path has at most {MAX_SOCKET}"
                )));
            }
            return Ok(Self::Socket(path));
        }
        let shown: String = text.chars().take(100).collect();
        let address: SocketAddr = text.parse().map_err(|_| {
            wrong(format!(
                "`{shown}` is not an address: write `127.0.0.1:8081`, `[::1]:8081` or `unix:/path`"
            ))
        })?;
        if !address.ip().is_loopback() {
            return Err(wrong(format!(
                "`{shown}` is not a loopback address; reach it from elsewhere through a reverse proxy with TLS"
            )));
        }
        Ok(Self::Loopback(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<AdminPolicy>, String> {
        let section: AdminSection = toml::from_str(text).map_err(|error| error.to_string())?;
        section.resolve(Path::new("/etc/t")).map_err(|problem| problem.to_string())
    }

    #[test]
    fn an_admin_listener_is_local_and_has_tokens() {
        assert_eq!(parse("").unwrap(), None);
        let admin = parse("listen = \"127.0.0.1:8081\"\ntokens = \"admin.toml\"").unwrap().unwrap();
        assert_eq!(admin.listen, AdminAddress::Loopback(([127, 0, 0, 1], 8081).into()));
        assert_eq!((admin.tokens, admin.metrics), ("/etc/t/admin.toml".into(), MetricsAccess::Token));
        let admin = parse("listen = \"unix:a.sock\"\ntokens = \"/t\"\nmetrics = \"open\"").unwrap().unwrap();
        assert_eq!(
            (admin.listen, admin.metrics),
            (AdminAddress::Socket("/etc/t/a.sock".into()), MetricsAccess::Open)
        );
        assert!(parse("listen = \"[::1]:0\"\ntokens = \"t\"").is_ok());
        for (text, part) in [
            ("tokens = \"t\"", "`listen` is missing"),
            ("metrics = \"open\"", "`listen` is missing"),
            ("listen = \"127.0.0.1:1\"", "`tokens` is missing"),
            ("listen = \"0.0.0.0:1\"\ntokens = \"t\"", "not a loopback address"),
            ("listen = \"10.0.0.7:1\"\ntokens = \"t\"", "not a loopback address"),
            ("listen = \"localhost:1\"\ntokens = \"t\"", "is not an address"),
            ("listen = \"8081\"\ntokens = \"t\"", "is not an address"),
            ("listen = \"127.0.0.1:1\"\ntokens = \"t\"\nmetrics = \"all\"", "unknown variant"),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
        let long = format!("listen = \"unix:/{}\"\ntokens = \"t\"", "a".repeat(107));
        assert!(parse(&long).unwrap_err().contains("at most 107"));
    }
}
