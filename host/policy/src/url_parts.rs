//! Questions about the parts of a URL that several sections of a policy ask.

use url::{Host, Url};

/// Whether a URL has a user name or a password.
pub(crate) fn has_credentials(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// Whether a URL has nothing but a scheme, a host and a port.
pub(crate) fn is_origin(url: &Url) -> bool {
    url.path() == "/" && url.query().is_none() && url.fragment().is_none() && !has_credentials(url)
}

/// Whether the host of a URL is this machine, by an address or as `localhost`.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
