//! OCI registries: their names, and what the policy says about one of them (`[registry."HOST"]`). Plain data, without
//! connections.

use std::fmt;
use std::path::PathBuf;

use ipnet::IpNet;
use url::{Host, Url};

use crate::text::one_line;

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
    /// The text is no such host.
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
        match Url::parse(&format!("https://{}/", self.0)).ok().as_ref().and_then(Url::host) {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
    }
}

impl fmt::Display for RegistryHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A registry of the policy. The default, which also holds for a registry without a section, trusts the system's
/// certificates, public addresses, and the registry itself as the source of tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryPolicy {
    /// Origins besides the registry's own that may receive its credentials in exchange for a token.
    pub realm: Vec<String>,
    /// A file with certificates (PEM) that are trusted besides the system's.
    pub ca: Option<PathBuf>,
    /// Private networks that its host name, and those of `realm`, may resolve to.
    pub net_private: Vec<IpNet>,
    /// Private networks that hosts which the registry itself names may be in: of redirects, and of realms that are not
    /// listed.
    pub redirect_private: Vec<IpNet>,
    /// Whether it is reached without TLS. Only on this machine.
    pub plain_http: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

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
