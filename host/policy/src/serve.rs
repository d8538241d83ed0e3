//! Who may use the tools over HTTP, and how much of the server each may take (`[serve]` of the policy).
//!
//! Only what the operator wrote, checked; whoever listens reads the files that it names and enforces the numbers. With
//! nothing written, a server listens on loopback addresses only, for whoever can reach them.

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
use crate::quantity;
use crate::quantity::unit::{OptionalQuantity, Time, Unit as _};

/// Most characters of a host, an origin or a scope.
const MAX_ENTRY: usize = 300;
/// Most time that the clock of who issues tokens may be off.
const MAX_LEEWAY: Duration = Duration::from_secs(600);

/// `[serve]`: who may use the tools over HTTP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServePolicy {
    /// Hosts that a request may name, `host` or `host:port`, besides loopback names and the address that is listened on.
    #[schemars(inner(regex(pattern = "^[^/@?# ]+$"), length(max = MAX_ENTRY)))]
    pub hosts: BTreeSet<String>,
    /// Web pages that may send requests, `https://host:port`; `:*` is any port. None by default but those of this
    /// machine, where the server listens on a loopback address.
    #[schemars(inner(regex(pattern = r"^[hH][tT][tT][pP][sS]?://[^/?# ]+(/|:\*)?$"), length(max = MAX_ENTRY)))]
    pub origins: BTreeSet<String>,
    /// Under which address clients reach the server, where that is another than it listens on. Without a path. What is
    /// below it are the endpoints that tokens of an authorization server are for.
    #[schemars(regex(pattern = "^[A-Za-z]+://[^/?@]+/?(#.*)?$"))]
    pub public_url: Option<String>,
    /// The file of bearer tokens.
    pub tokens: Option<PathBuf>,
    /// Serves everybody, also on an address that others can reach.
    pub anonymous: bool,
    /// Reverse proxies, as addresses or networks: only they are believed when they say for which client they send a
    /// request (`Forwarded`, `X-Forwarded-For`).
    #[serde(deserialize_with = "read_proxies")]
    #[schemars(with = "RuleList<IpNet>")]
    pub trusted_proxies: Vec<IpNet>,
    /// Tokens of an authorization server.
    pub oauth: Option<OAuthPolicy>,
    /// How much each may take.
    pub limits: ServeLimits,
}

/// `[serve.oauth]`: tokens of an authorization server, for which this one is a resource (RFC 9728).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OAuthPolicy {
    /// Who issues them: `iss` is exactly this.
    pub issuer: String,
    /// For whom they are, besides the endpoint itself under the `public_url`: `aud` has one of these. One that is the
    /// address of an endpoint opens that one only.
    #[serde(default)]
    pub audience: BTreeSet<String>,
    /// Where its keys are: `https://…`, or a file.
    pub jwks: String,
    /// Private networks to which the name of that address may lead. An address that is written itself needs none.
    #[serde(default, deserialize_with = "read_networks")]
    #[schemars(with = "RuleList<IpNet>")]
    pub net_private: Vec<IpNet>,
    /// Scopes that every token must have.
    #[serde(default)]
    pub scopes: BTreeSet<String>,
    /// Scopes that a token must have besides, for a profile; `*` is the endpoint without one. Where this is empty, the
    /// scopes above open all of them; otherwise only those that are named here are open.
    #[serde(default)]
    pub profiles: BTreeMap<String, BTreeSet<String>>,
    /// Which signatures count.
    #[serde(default = "all_algorithms")]
    #[schemars(length(min = 1))]
    pub algorithms: BTreeSet<SignatureAlgorithm>,
    /// How far the issuer's clock may be off.
    #[serde(default = "default_leeway", deserialize_with = "Time::read")]
    #[schemars(with = "OptionalQuantity<Duration, Time>")]
    pub leeway: Duration,
}

/// A signature that anybody can check and only the issuer can make.
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

fn read_networks<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<IpNet>, D::Error> {
    let list: RuleList<IpNet> = RuleList::deserialize(input)?;
    list.rules_or_empty("net_private", Path::new("/")).map_err(D::Error::custom)
}

fn read_proxies<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<IpNet>, D::Error> {
    let texts: Vec<String> = Vec::deserialize(input)?;
    texts.iter().map(|text| read_proxy(text).map_err(D::Error::custom)).collect()
}

fn read_proxy(text: &str) -> Result<IpNet, String> {
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map_err(|_| {
        let shown: String = text.chars().take(MAX_ENTRY).collect();
        format!("`trusted_proxies` has `{shown}`: write an address, `10.0.0.7`, or a network, `10.0.0.0/8`")
    })?;
    if network.prefix_len() == 0 {
        return Err(format!(
            "`trusted_proxies` has `{network}`: every client could claim any address. Write the networks of the proxies"
        ));
    }
    Ok(network.trunc())
}

fn default_leeway() -> Duration {
    Duration::from_secs(60)
}

impl ServePolicy {
    /// Whether a client must say who it is.
    #[must_use]
    pub fn requires_authentication(&self) -> bool {
        self.tokens.is_some() || self.oauth.is_some()
    }

    /// The files that it names: that of tokens, and that of an authorization server's keys.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let keys = self.oauth.as_ref().and_then(OAuthPolicy::file);
        self.tokens.as_deref().into_iter().chain(keys)
    }

    /// Checks what was written, and makes the files that it names those beside the policy.
    ///
    /// # Errors
    /// Says which key is wrong, and how it is written.
    pub fn resolve(mut self, base: &Path) -> Result<Self, String> {
        self.hosts = self.hosts.iter().map(|host| read_host(host)).collect::<Result<_, _>>()?;
        self.origins = self.origins.iter().map(|origin| read_origin(origin)).collect::<Result<_, _>>()?;
        self.public_url = self.public_url.as_deref().map(read_public_url).transpose()?;
        self.tokens = self.tokens.map(|file| base.join(file));
        if self.anonymous && self.requires_authentication() {
            return Err(
                "`anonymous = true` beside `tokens` or [serve.oauth] would let everybody in".to_owned()
            );
        }
        self.limits.check().map_err(|e| format!("`limits`: {e}"))?;
        if let Some(oauth) = &mut self.oauth {
            let has_address = self.public_url.is_some();
            oauth.resolve(base, has_address).map_err(|e| format!("`oauth`: {e}"))?;
        }
        Ok(self)
    }
}

impl OAuthPolicy {
    /// The file that has the keys, if they are in one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        let is_address = self.jwks.starts_with("https://") || self.jwks.starts_with("http://");
        (!is_address).then(|| Path::new(&self.jwks))
    }

    fn resolve(&mut self, base: &Path, has_address: bool) -> Result<(), String> {
        Url::parse(&self.issuer)
            .map_err(|e| format!("`issuer` is `{}`, which is no URL: {e}", self.issuer))?;
        if self.audience.is_empty() && !has_address {
            return Err(
                "`audience` is empty, and there is no `public_url`: a token for any other service would be taken"
                    .to_owned(),
            );
        }
        if self.algorithms.is_empty() {
            return Err("`algorithms` is empty: no token would be taken".to_owned());
        }
        if self.leeway > MAX_LEEWAY {
            return Err(format!("`leeway` is at most {}", quantity::show_duration(MAX_LEEWAY)));
        }
        for scope in &self.scopes {
            check_scope(scope).map_err(|e| format!("`scopes`: {e}"))?;
        }
        for (profile, scopes) in &self.profiles {
            for scope in scopes {
                check_scope(scope).map_err(|e| format!("`profiles`: `{profile}`: {e}"))?;
            }
        }
        match Url::parse(&self.jwks) {
            Ok(url) if url.scheme() == "https" || (url.scheme() == "http" && is_loopback_url(&url)) => {}
            Ok(url) if url.scheme() == "http" => {
                return Err(
                    "`jwks` is read over `https`: who changes the keys on the way makes tokens".to_owned()
                );
            }
            _ => self.jwks = base.join(&self.jwks).to_string_lossy().into_owned(),
        }
        Ok(())
    }
}

fn read_host(text: &str) -> Result<String, String> {
    let wrong = || format!("`hosts` has `{text}`: write `tools.example.com` or `tools.example.com:8443`");
    let url = Url::parse(&format!("http://{text}")).map_err(|_| wrong())?;
    let bare =
        url.path() == "/" && url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    let plain = !text.contains(['/', '@', '?', '#', ' ']) && text.len() <= MAX_ENTRY;
    let host = url.host_str().filter(|_| bare && plain).ok_or_else(wrong)?;
    // A port that is the scheme's own is dropped by the parser, but was meant.
    let port = text.rsplit_once(':').map(|(_, port)| port).filter(|port| port.parse::<u16>().is_ok());
    Ok(port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

fn read_origin(text: &str) -> Result<String, String> {
    let wrong = || format!("`origins` has `{text}`: write `https://app.example.com` or `http://localhost:*`");
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

fn read_public_url(text: &str) -> Result<String, String> {
    let wrong = || format!("`public_url` is `{text}`: write `https://tools.example.com`, without a path");
    let url = Url::parse(text).map_err(|_| wrong())?;
    if !url.origin().is_tuple() || url.path() != "/" || url.query().is_some() || !url.username().is_empty() {
        return Err(wrong());
    }
    Ok(url.origin().ascii_serialization())
}

/// RFC 6749, section 3.3: what would end a quoted text in a header cannot be in it.
fn check_scope(scope: &str) -> Result<(), String> {
    let legal = |b: u8| b == 0x21 || (0x23..=0x5b).contains(&b) || (0x5d..=0x7e).contains(&b);
    if scope.is_empty() || scope.len() > MAX_ENTRY || !scope.bytes().all(legal) {
        return Err(format!("`{}` is no scope", scope.escape_default()));
    }
    Ok(())
}

fn is_loopback_url(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ServePolicy, String> {
        let serve: ServePolicy = toml::from_str(text).map_err(|e| e.to_string())?;
        serve.resolve(Path::new("/etc/toolbay"))
    }

    #[test]
    fn what_is_written_is_normal_form_afterwards() {
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
        assert!(serve.requires_authentication() && !ServePolicy::default().requires_authentication());
    }

    #[test]
    fn proxies_are_addresses_or_networks_and_never_everybody() {
        let serve = read("trusted_proxies = ['10.0.0.7', '192.168.1.9/16', '2001:db8::/32', '::1']").unwrap();
        let shown: Vec<String> = serve.trusted_proxies.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.7/32", "192.168.0.0/16", "2001:db8::/32", "::1/128"]);
        for wrong in ["proxy.example", "10.0.0.0/33", "10.0.0", "", "0.0.0.0/0", "::/0"] {
            let error = read(&format!("trusted_proxies = ['{wrong}']")).unwrap_err();
            assert!(error.contains("`trusted_proxies`"), "{error}");
        }
    }

    #[test]
    fn keys_of_a_file_are_beside_the_policy_and_those_of_a_server_come_over_tls() {
        let oauth = |jwks: &str| {
            read(&format!("[oauth]\nissuer = 'https://id.example'\naudience = ['a']\njwks = '{jwks}'"))
        };
        assert_eq!(oauth("keys.json").unwrap().oauth.unwrap().jwks, "/etc/toolbay/keys.json");
        assert_eq!(oauth("https://id.example/keys").unwrap().oauth.unwrap().jwks, "https://id.example/keys");
        assert!(oauth("http://127.0.0.1:8080/keys").is_ok());
        let inside = "https://id.example/keys'\nnet_private = ['10.0.0.0/8', '192.168.0.1']\nissuer_ = '";
        assert!(oauth(inside).is_err(), "an unknown key is told");
        let inside =
            oauth("https://id.example/keys'\nnet_private = ['10.0.0.0/8', '192.168.0.1']\nleeway = '5s");
        let inside = inside.unwrap().oauth.unwrap().net_private;
        assert_eq!(inside, ["10.0.0.0/8", "192.168.0.1/32"].map(|net| net.parse::<IpNet>().unwrap()));
        assert!(oauth("https://id.example/keys'\nnet_private = ['all']\nleeway = '5s").is_err());
        assert!(oauth("http://id.example/keys").unwrap_err().contains("`https`"));
    }

    #[test]
    fn with_an_address_of_its_own_a_server_needs_no_other_audience() {
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
    fn what_would_let_everybody_or_nobody_in_is_refused() {
        let oauth = "[oauth]\nissuer = 'https://id.example'\njwks = 'k'\n";
        for (text, part) in [
            ("hosts = ['https://a.example']", "`hosts`"),
            ("hosts = ['a.example/x']", "`hosts`"),
            ("origins = ['*']", "`origins`"),
            ("origins = ['https://a.example/path']", "`origins`"),
            ("origins = ['file:///x']", "`origins`"),
            ("public_url = 'https://a.example/x'", "`public_url`"),
            ("anonymous = true\ntokens = 't'", "`anonymous = true`"),
            ("nobody = 1", "unknown field"),
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
            (&format!("{oauth}audience = ['a']\nscopes = ['a b']"), "no scope"),
            (&format!("{oauth}audience = ['a']\nleeway = '60m'"), "`leeway`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
