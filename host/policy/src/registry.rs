//! OCI registries: their names, and what the policy says about one of them (`[registry."HOST"]`). Plain data, without
//! connections.

use std::fmt;

use ipnet::IpNet;
use url::Url;

use crate::excerpt::one_line;
use crate::route::OutboundRoute;
use crate::url_parts;

/// Most registries in one policy.
pub const MAX_REGISTRIES: usize = 64;
/// Longest text of a host in a message, in characters.
const MAX_SHOWN: usize = 100;

/// The host of a registry, with the port if it is not the default one: `registry.example`, `localhost:5000`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegistryHost(String);

impl RegistryHost {
    /// Parses a host. It contains a dot or a port, or is `localhost`, so that it cannot be mistaken for the first part of
    /// a repository's path.
    ///
    /// # Errors
    /// Fails if the text is not the host of a registry, in lower case.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || {
            let shown = one_line(text, MAX_SHOWN);
            format!(
                "`{shown}` is not a registry: write its host, with the port if it is not 443, in lower case"
            )
        };
        let url = Url::parse(&format!("https://{text}/")).map_err(|_| bad())?;
        let is_explicit = text.contains(['.', ':']) || text == "localhost";
        let host = url.host_str().unwrap_or_default();
        // What the URL parser reads must be the whole text, without a user, a path or another spelling.
        let read = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        if is_explicit && read == text { Ok(Self(text.to_owned())) } else { Err(bad()) }
    }

    /// The host as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is this machine, by an address or as `localhost`.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        Url::parse(&format!("https://{}/", self.0)).is_ok_and(|url| url_parts::is_loopback(&url))
    }
}

impl fmt::Display for RegistryHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a mirror has the repositories of a registry: another registry, with the path that comes before theirs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryMirror {
    /// The registry, which has its own section of the policy.
    pub host: RegistryHost,
    /// The path before the repositories; empty if there is none.
    pub path: String,
}

impl RegistryMirror {
    /// Parses `HOST` or `HOST/PATH`.
    ///
    /// # Errors
    /// Fails if the text is not `HOST` or `HOST/PATH`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (host, path) = text.split_once('/').unwrap_or((text, ""));
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        let is_part = |part: &str| !part.is_empty() && part.chars().all(is_word);
        if text.contains('/') && !path.split('/').all(is_part) {
            let shown = one_line(text, MAX_SHOWN);
            return Err(format!("`{shown}` is not a mirror: write `HOST` or `HOST/PATH`, in lower case"));
        }
        Ok(Self { host: RegistryHost::parse(host)?, path: path.to_owned() })
    }

    /// The repository of the mirror for a repository of the registry.
    #[must_use]
    pub fn repository(&self, repository: &str) -> String {
        match self.path.as_str() {
            "" => repository.to_owned(),
            path => format!("{path}/{repository}"),
        }
    }
}

/// A registry of the policy. The default, which also holds for a registry without a section, trusts the system's
/// certificates, public addresses, and the registry itself as the source of tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryPolicy {
    /// Origins besides the registry's own that may receive its credentials in exchange for a token.
    pub realm: Vec<String>,
    /// How the host reaches the registry and the hosts that it names.
    pub route: OutboundRoute,
    /// Private networks that its host name, and those of `realm`, may resolve to.
    pub net_private: Vec<IpNet>,
    /// Private networks of the hosts that the registry names: targets of redirects, and realms that `realm` does not list.
    pub redirect_private: Vec<IpNet>,
    /// Whether it is reached without TLS. Only on this machine.
    pub plain_http: bool,
    /// The registry that is asked first for content by its digest.
    pub mirror: Option<RegistryMirror>,
    /// The secret with its credentials: `USER:PASSWORD`, or an identity token.
    pub secret: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_has_the_repositories_below_a_path() {
        for (text, repository) in [
            ("mirror.example", "acme/hash"),
            ("localhost:5000/proxy", "proxy/acme/hash"),
            ("mirror.example/a/b.c", "a/b.c/acme/hash"),
        ] {
            assert_eq!(RegistryMirror::parse(text).unwrap().repository("acme/hash"), repository, "{text}");
        }
        for text in
            ["", "acme", "mirror.example/", "mirror.example//a", "mirror.example/A", "https://mirror.example"]
        {
            assert!(RegistryMirror::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_registry_is_a_host_that_no_path_looks_like() {
        for (text, loopback) in [
            ("registry.example", false),
            ("registry.example:5000", false),
            ("localhost", true),
            ("localhost:5000", true),
            ("127.0.0.1:5000", true),
            ("[::1]:5000", true),
            ("10.0.0.1", false),
        ] {
            assert_eq!(RegistryHost::parse(text).map(|host| host.is_loopback()), Ok(loopback), "{text}");
        }
        for text in [
            "",
            "acme",
            "Registry.example",
            "registry.example:443",
            "a.b/c",
            "u@a.b",
            ":p@a.b",
            "127.1:80",
            "a b.c",
            "a.b?x",
            "a.b#x",
            ":80",
        ] {
            assert!(RegistryHost::parse(text).is_err(), "{text}");
        }
    }
}
