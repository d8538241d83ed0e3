//! Instructions of the MCP server, authentication and limits of the HTTP server (`[serve]`).
//!
//! This module only parses and checks. The server reads the files that the section names, and enforces the limits.
//! Without the section, a server listens on loopback addresses only and accepts every local client.

mod limits;

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use url::Url;

pub use self::limits::ServeLimits;
use crate::capability::list::RuleList;
use crate::name::MAX_QUALIFIED;
use crate::problem::{PolicyProblem, nest_under, of_key};
use crate::quantity;
use crate::quantity::unit::{OptionalQuantity, Time, Unit as _};
use crate::rule::GrantRule as _;
use crate::url_parts::{is_loopback, is_origin};

/// Longest host, origin or scope, in characters.
const MAX_ENTRY: usize = 300;
/// Smallest `name_budget`, in characters: shorter names could hardly be chosen.
const MIN_NAME_BUDGET: usize = 16;
/// Largest clock skew of a token issuer.
const MAX_LEEWAY: Duration = Duration::from_secs(600);

/// The longest name of a tool that is not warned about, in characters.
///
/// Model APIs refuse names of more than 64 characters, and Claude Code puts `mcp__toolbay__`, 14 characters, before each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct NameBudget(#[schemars(range(min = MIN_NAME_BUDGET, max = MAX_QUALIFIED))] pub usize);

impl Default for NameBudget {
    fn default() -> Self {
        Self(50)
    }
}

/// `[serve]`: instructions of the MCP server, authentication and limits of the HTTP server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServePolicy {
    /// Instructions for models, which clients get when they connect, over stdio and HTTP.
    pub instructions: Option<String>,
    /// Adds a line to the instructions for each plugin whose tools the client can find: the plugin's id, and the first
    /// sentence of its description.
    pub plugin_descriptions: bool,
    /// Longest name of a tool that is not warned about, in characters. Clients put their own prefix before it. Default: 50.
    pub name_budget: NameBudget,
    /// Adds `toolbay/…` members to `_meta`: usage, duration, cost and error codes of results, and the plugins of tools. Some
    /// clients show `_meta` to the model.
    pub usage_meta: bool,
    /// Accepted `Host` headers, `host` or `host:port`, besides loopback names and the listen address.
    #[schemars(inner(regex(pattern = "^[^/@?# ]+$"), length(max = MAX_ENTRY)))]
    pub hosts: BTreeSet<String>,
    /// Web pages that may send requests, `https://host:port`; `:*` matches any port. By default, only pages of this
    /// machine, if the server listens on a loopback address.
    #[schemars(inner(regex(pattern = r"^[hH][tT][tT][pP][sS]?://[^/?# ]+(/|:\*)?$"), length(max = MAX_ENTRY)))]
    pub origins: BTreeSet<String>,
    /// The URL under which clients reach the server, without a path, if it differs from the listen address. Its
    /// endpoints are the audience of OAuth tokens.
    #[schemars(regex(pattern = "^[A-Za-z]+://[^/?@]+/?(#.*)?$"))]
    pub public_url: Option<String>,
    /// The file with bearer tokens.
    pub tokens: Option<PathBuf>,
    /// The file with the key of `requestState`. Servers with the same key accept each other's, and a server accepts its own
    /// after a restart. Default: a random key.
    pub request_state_key: Option<PathBuf>,
    /// Accepts every client without authentication, also on non-loopback addresses.
    pub anonymous: bool,
    /// Reverse proxies, as addresses or networks. Only their `Forwarded` and `X-Forwarded-For` headers are trusted.
    #[serde(deserialize_with = "read_proxies")]
    #[schemars(with = "RuleList<IpNet>")]
    pub trusted_proxies: Vec<IpNet>,
    /// Access tokens of an OAuth authorization server.
    pub oauth: Option<OAuthPolicy>,
    /// Limits of the server and of each client.
    pub limits: ServeLimits,
}

/// `[serve.oauth]`: access tokens of an authorization server. This server is their protected resource (RFC 9728).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OAuthPolicy {
    /// The token issuer. `iss` must equal it.
    pub issuer: String,
    /// Accepted `aud` values, besides the URL of the endpoint below `public_url`. A value that is the URL of an
    /// endpoint is accepted by that endpoint only.
    #[serde(default)]
    pub audience: BTreeSet<String>,
    /// The source of the issuer's keys: `https://…`, or a file.
    pub jwks: String,
    /// Private networks that the host name of `jwks` may resolve to. An IP address in `jwks` is always allowed.
    #[serde(default, deserialize_with = "read_networks")]
    #[schemars(with = "RuleList<IpNet>")]
    pub net_private: Vec<IpNet>,
    /// Scopes that every token must have.
    #[serde(default)]
    pub scopes: BTreeSet<String>,
    /// Additional scopes required per profile; `*` is the endpoint without a profile. If empty, `scopes` opens all
    /// endpoints. Otherwise only the listed ones are open.
    #[serde(default)]
    pub profiles: BTreeMap<String, BTreeSet<String>>,
    /// Accepted signature algorithms.
    #[serde(default = "all_algorithms")]
    #[schemars(length(min = 1))]
    pub algorithms: BTreeSet<SignatureAlgorithm>,
    /// Accepted clock skew of the issuer.
    #[serde(default = "default_leeway", deserialize_with = "Time::read")]
    #[schemars(with = "OptionalQuantity<Duration, Time>")]
    pub leeway: Duration,
}

/// An asymmetric signature algorithm for tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
pub enum SignatureAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    RS256,
    /// ECDSA with P-256 and SHA-256.
    ES256,
    /// Ed25519.
    EdDSA,
}

fn all_algorithms() -> BTreeSet<SignatureAlgorithm> {
    [SignatureAlgorithm::RS256, SignatureAlgorithm::ES256, SignatureAlgorithm::EdDSA].into()
}

/// A private network of a list. Its error has the position of the entry, because the parser adds it to newtypes.
#[derive(Deserialize)]
struct PrivateNetwork(#[serde(deserialize_with = "read_network")] IpNet);

/// The network of a reverse proxy, as [`PrivateNetwork`].
#[derive(Deserialize)]
struct ProxyNetwork(#[serde(deserialize_with = "read_proxy")] IpNet);

pub(crate) fn read_networks<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<IpNet>, D::Error> {
    let list: Vec<PrivateNetwork> = Vec::deserialize(input)?;
    Ok(list.into_iter().map(|PrivateNetwork(network)| network).collect())
}

fn read_proxies<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<IpNet>, D::Error> {
    let list: Vec<ProxyNetwork> = Vec::deserialize(input)?;
    Ok(list.into_iter().map(|ProxyNetwork(network)| network).collect())
}

fn read_network<'de, D: Deserializer<'de>>(input: D) -> Result<IpNet, D::Error> {
    IpNet::parse(&String::deserialize(input)?, Path::new("/"))
        .map_err(|why| D::Error::custom(format!("`net_private`: {why}")))
}

fn read_proxy<'de, D: Deserializer<'de>>(input: D) -> Result<IpNet, D::Error> {
    parse_proxy(&String::deserialize(input)?).map_err(D::Error::custom)
}

fn parse_proxy(text: &str) -> Result<IpNet, String> {
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map_err(|_| {
        let shown: String = text.chars().take(MAX_ENTRY).collect();
        format!("`trusted_proxies` has `{shown}`: write an address, `10.0.0.7`, or a network, `10.0.0.0/8`")
    })?;
    if network.prefix_len() == 0 {
        return Err(format!(
            "`trusted_proxies` has `{network}`: every client could claim any address; write the networks of the proxies"
        ));
    }
    Ok(network.trunc())
}

fn default_leeway() -> Duration {
    Duration::from_secs(60)
}

impl ServePolicy {
    /// Whether clients must authenticate.
    #[must_use]
    pub fn requires_authentication(&self) -> bool {
        self.tokens.is_some() || self.oauth.is_some()
    }

    /// Returns the files that the section names: tokens and keys.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let keys = self.oauth.as_ref().and_then(OAuthPolicy::file);
        self.tokens.as_deref().into_iter().chain(keys)
    }

    /// Checks the section and resolves its file names against `base`.
    ///
    /// # Errors
    /// Names the wrong key and shows its form.
    pub fn resolve(mut self, base: &Path) -> Result<Self, PolicyProblem> {
        self.hosts = self.hosts.iter().map(|host| read_host(host)).collect::<Result<_, _>>()?;
        self.origins = self.origins.iter().map(|origin| read_origin(origin)).collect::<Result<_, _>>()?;
        self.public_url = self.public_url.as_deref().map(read_public_url).transpose()?;
        self.tokens = self.tokens.map(|file| base.join(file));
        self.request_state_key = self.request_state_key.map(|file| base.join(file));
        if self.anonymous && self.requires_authentication() {
            let message = "`anonymous = true` excludes `tokens` and [serve.oauth]; remove one of them";
            return Err(PolicyProblem::at_keys(["anonymous"], message));
        }
        let NameBudget(budget) = self.name_budget;
        if !(MIN_NAME_BUDGET..=MAX_QUALIFIED).contains(&budget) {
            let message = format!("`name_budget` is {budget}: write {MIN_NAME_BUDGET} to {MAX_QUALIFIED}");
            return Err(PolicyProblem::at_keys(["name_budget"], message));
        }
        self.limits.check().map_err(nest_under(["limits"]))?;
        self.check_instructions()?;
        if let Some(oauth) = &mut self.oauth {
            let has_address = self.public_url.is_some();
            oauth.resolve(base, has_address).map_err(nest_under(["oauth"]))?;
        }
        Ok(self)
    }

    fn check_instructions(&self) -> Result<(), PolicyProblem> {
        let most = self.limits.instructions_chars;
        let chars = self.instructions.as_deref().map_or(0, |text| text.chars().count());
        if chars > most as usize {
            let message = format!(
                "`instructions` has {chars} characters, more than {most}; shorten it, or raise `instructions_chars` of \
                 [serve.limits]"
            );
            return Err(PolicyProblem::at_keys(["instructions"], message));
        }
        Ok(())
    }
}

impl OAuthPolicy {
    /// Returns the file with the keys, if `jwks` is a file.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        let is_address = self.jwks.starts_with("https://") || self.jwks.starts_with("http://");
        (!is_address).then(|| Path::new(&self.jwks))
    }

    fn resolve(&mut self, base: &Path, has_address: bool) -> Result<(), PolicyProblem> {
        Url::parse(&self.issuer)
            .map_err(|e| format!("`{}` is not a URL: {e}", self.issuer))
            .map_err(of_key("issuer"))?;
        if self.audience.is_empty() && !has_address {
            let message = "`audience` is empty and `public_url` is not set: tokens for other services would be accepted";
            return Err(PolicyProblem::at_keys(["audience"], message));
        }
        if self.algorithms.is_empty() {
            let message = "`algorithms` is empty: every token would be refused";
            return Err(PolicyProblem::at_keys(["algorithms"], message));
        }
        if self.leeway > MAX_LEEWAY {
            let message = format!("`leeway` must be at most {}", quantity::show_duration(MAX_LEEWAY));
            return Err(PolicyProblem::at_keys(["leeway"], message));
        }
        self.scopes.iter().try_for_each(|scope| check_scope(scope)).map_err(of_key("scopes"))?;
        for (profile, scopes) in &self.profiles {
            let checked = scopes.iter().try_for_each(|scope| check_scope(scope));
            checked.map_err(of_key(profile)).map_err(of_key("profiles"))?;
        }
        match Url::parse(&self.jwks) {
            Ok(url) if url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url)) => {}
            Ok(url) if url.scheme() == "http" => {
                let message = "`jwks` must use `https`: an attacker who replaces the keys in transit could issue tokens";
                return Err(PolicyProblem::at_keys(["jwks"], message));
            }
            _ => self.jwks = base.join(&self.jwks).to_string_lossy().into_owned(),
        }
        Ok(())
    }
}

fn read_host(text: &str) -> Result<String, PolicyProblem> {
    let wrong = || {
        let message = format!("`hosts` has `{text}`: write `tools.example.com` or `tools.example.com:8443`");
        PolicyProblem::at_keys(["hosts"], message).in_text(text)
    };
    let url = Url::parse(&format!("http://{text}")).map_err(|_| wrong())?;
    let plain = !text.contains(['/', '@', '?', '#', ' ', '*']) && text.len() <= MAX_ENTRY;
    let host = url.host_str().filter(|_| is_origin(&url) && plain).ok_or_else(wrong)?;
    // The URL parser drops a default port that the operator wrote. Keep it.
    let port = text.rsplit_once(':').map(|(_, port)| port).filter(|port| port.parse::<u16>().is_ok());
    Ok(port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

fn read_origin(text: &str) -> Result<String, PolicyProblem> {
    let wrong = || {
        let message =
            format!("`origins` has `{text}`: write `https://app.example.com` or `http://localhost:*`");
        PolicyProblem::at_keys(["origins"], message).in_text(text)
    };
    let (base, any) = text.strip_suffix(":*").map_or((text, false), |base| (base, true));
    let url = Url::parse(base).map_err(|_| wrong())?;
    let origin = url.origin();
    let exact = origin.is_tuple() && matches!(url.scheme(), "http" | "https") && url.path() == "/";
    if !exact || url.query().is_some() || text.len() > MAX_ENTRY || (any && url.port().is_some()) {
        return Err(wrong());
    }
    let written = origin.ascii_serialization();
    Ok(if any { format!("{written}:*") } else { written })
}

fn read_public_url(text: &str) -> Result<String, PolicyProblem> {
    let wrong = || {
        let message = format!("`public_url` is `{text}`: write `https://tools.example.com`, without a path");
        PolicyProblem::at_keys(["public_url"], message)
    };
    let url = Url::parse(text).map_err(|_| wrong())?;
    if !url.origin().is_tuple() || url.path() != "/" || url.query().is_some() || !url.username().is_empty() {
        return Err(wrong());
    }
    Ok(url.origin().ascii_serialization())
}

/// RFC 6749, section 3.3: a scope has no characters that would end a quoted string in a header.
fn check_scope(scope: &str) -> Result<(), PolicyProblem> {
    let legal = |b: u8| b == 0x21 || (0x23..=0x5b).contains(&b) || (0x5d..=0x7e).contains(&b);
    if scope.is_empty() || scope.len() > MAX_ENTRY || !scope.bytes().all(legal) {
        let message = format!("`{}` is not a valid scope", scope.escape_default());
        return Err(PolicyProblem::from(message).in_text(scope));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ServePolicy, String> {
        let serve: ServePolicy = toml::from_str(text).map_err(|e| e.to_string())?;
        serve.resolve(Path::new("/etc/toolbay")).map_err(|problem| problem.to_string())
    }

    #[test]
    fn hosts_origins_and_urls_are_normalized() {
        let serve = read(
            "hosts = ['Tools.Example.com', 'a.example:8443', 'b.example:80', '[::1]:9']\n\
             origins = ['https://App.example.com', 'http://localhost:*', 'https://x.example:8443']\n\
             public_url = 'https://Tools.example.com/'\ntokens = 'tokens.toml'",
        )
        .unwrap();
        assert_eq!(
            serve.hosts.iter().collect::<Vec<_>>(),
            ["[::1]:9", "a.example:8443", "b.example:80", "tools.example.com"]
        );
        assert_eq!(
            serve.origins.iter().collect::<Vec<_>>(),
            ["http://localhost:*", "https://app.example.com", "https://x.example:8443"]
        );
        assert_eq!(serve.public_url.as_deref(), Some("https://tools.example.com"));
        assert_eq!(serve.tokens.as_deref(), Some(Path::new("/etc/toolbay/tokens.toml")));
        assert_eq!(serve.request_state_key, None);
        let key = read("request_state_key = 'state.key'").unwrap().request_state_key;
        assert_eq!(key.as_deref(), Some(Path::new("/etc/toolbay/state.key")));
        assert!(serve.requires_authentication() && !ServePolicy::default().requires_authentication());
    }

    #[test]
    fn instructions_that_are_too_long_are_refused() {
        let text = |chars: usize| format!("instructions = '{}'\n", "é".repeat(chars));
        assert_eq!(read(&text(4000)).unwrap().instructions.unwrap().chars().count(), 4000);
        let error = read(&text(4001)).unwrap_err();
        assert!(
            error.contains("4001") && error.contains("`instructions_chars` of [serve.limits]"),
            "{error}"
        );
        assert!(read(&format!("{}[limits]\ninstructions_chars = 5000", text(4001))).is_ok());
        assert!(read("[limits]\nplugin_description_chars = 0").is_err());
    }

    #[test]
    fn proxies_are_addresses_or_networks_and_never_all_addresses() {
        let serve = read("trusted_proxies = ['10.0.0.7', '192.168.1.9/16', '2001:db8::/32', '::1']").unwrap();
        let shown: Vec<String> = serve.trusted_proxies.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.7/32", "192.168.0.0/16", "2001:db8::/32", "::1/128"]);
        for wrong in ["proxy.example", "10.0.0.0/33", "10.0.0", "", "0.0.0.0/0", "::/0"] {
            let error = read(&format!("trusted_proxies = ['{wrong}']")).unwrap_err();
            assert!(error.contains("`trusted_proxies`"), "{error}");
        }
    }

    #[test]
    fn jwks_is_a_file_next_to_the_policy_or_a_url_with_tls() {
        let oauth = |jwks: &str| {
            read(&format!("[oauth]\nissuer = 'https://id.example'\naudience = ['a']\njwks = '{jwks}'"))
        };
        assert_eq!(oauth("keys.json").unwrap().oauth.unwrap().jwks, "/etc/toolbay/keys.json");
        assert_eq!(oauth("https://id.example/keys").unwrap().oauth.unwrap().jwks, "https://id.example/keys");
        assert!(oauth("http://127.0.0.1:8080/keys").is_ok());
        let inside = "https://id.example/keys'\nnet_private = ['10.0.0.0/8', '192.168.0.1']\nissuer_ = '";
        assert!(oauth(inside).is_err(), "an unknown key is an error");
        let inside =
            oauth("https://id.example/keys'\nnet_private = ['10.0.0.0/8', '192.168.0.1']\nleeway = '5s");
        let inside = inside.unwrap().oauth.unwrap().net_private;
        assert_eq!(inside, ["10.0.0.0/8", "192.168.0.1/32"].map(|net| net.parse::<IpNet>().unwrap()));
        let all = oauth("https://id.example/keys'\nnet_private = ['all']\nleeway = '5s").unwrap_err();
        assert!(all.contains("`net_private`: `all`"), "{all}");
        assert!(oauth("http://id.example/keys").unwrap_err().contains("`https`"));
    }

    #[test]
    fn a_public_url_is_audience_enough() {
        let oauth = "[oauth]\nissuer = 'https://id.example'\njwks = 'keys.json'\n";
        assert!(read(oauth).unwrap_err().contains("`public_url`"));
        let serve = read(&format!("public_url = 'https://a.example'\ntokens = 't'\n{oauth}")).unwrap();
        assert_eq!(
            serve.files().collect::<Vec<_>>(),
            [Path::new("/etc/toolbay/t"), Path::new("/etc/toolbay/keys.json")]
        );
        let remote =
            read("[oauth]\nissuer = 'https://a'\naudience = ['a']\njwks = 'https://a/keys'").unwrap();
        assert_eq!(remote.files().count(), 0);
    }

    #[test]
    fn settings_that_admit_everybody_or_nobody_are_refused() {
        let oauth = "[oauth]\nissuer = 'https://id.example'\njwks = 'k'\n";
        for (text, part) in [
            ("hosts = ['https://a.example']", "`hosts`"),
            ("hosts = ['a.example/x']", "`hosts`"),
            ("hosts = ['*']", "`hosts`"),
            ("hosts = ['*.a.example']", "`hosts`"),
            ("origins = ['*']", "`origins`"),
            ("origins = ['https://a.example/path']", "`origins`"),
            ("origins = ['file:///x']", "`origins`"),
            ("public_url = 'https://a.example/x'", "`public_url`"),
            ("anonymous = true\ntokens = 't'", "`anonymous = true`"),
            ("nobody = 1", "unknown field"),
            ("name_budget = 15", "`name_budget` is 15: write 16 to 64"),
            ("name_budget = 65", "`name_budget`"),
            ("[limits]\nconnections = 0", "`connections`"),
            ("[limits]\nidle_timeout = '0s'", "`idle_timeout`"),
            ("[limits]\nbody_bytes = '64MiB'\nbody_bytes_total = '1MiB'", "`body_bytes_total`"),
            ("[limits]\nheader_bytes = 100", "`header_bytes`"),
            ("[limits]\nbody_bytes_per_client = '1MiB'", "`body_bytes_per_client`"),
            ("[limits]\nauth_failures_per_minute = 0", "`auth_failures_per_minute`"),
            (&format!("{oauth}audience = []"), "`audience`"),
            (&format!("{oauth}audience = ['a']\nalgorithms = []"), "`algorithms`"),
            (&format!("{oauth}audience = ['a']\nalgorithms = ['HS256']"), "HS256"),
            (&format!("{oauth}audience = ['a']\nalgorithms = ['none']"), "none"),
            (&format!("{oauth}audience = ['a']\nscopes = ['a b']"), "not a valid scope"),
            (&format!("{oauth}audience = ['a']\nleeway = '60m'"), "`leeway`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
