//! How the host reaches the servers of a section: `proxy` and `ca` of `[mcp.NAME]`, `[openapi.NAME]` and
//! `[registry."HOST"]`. Plain data, without connections.

use std::path::{Path, PathBuf};

use url::Url;

use crate::excerpt::one_line;

/// Longest text of the policy in a message, in characters.
const MAX_SHOWN: usize = 100;

/// How the host reaches the servers of a section. The default follows the proxies of the environment and trusts the
/// system's certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutboundRoute {
    /// The HTTP proxy for all of them, without credentials: it gets those that `HTTPS_PROXY` has for the same proxy.
    /// `None`: `HTTPS_PROXY` and `NO_PROXY`.
    pub proxy: Option<Url>,
    /// A file with certificates (PEM) that are trusted besides the system's.
    pub ca: Option<PathBuf>,
}

impl OutboundRoute {
    /// Reads the two keys of a section. A relative path starts from `base`.
    pub(crate) fn parse(proxy: Option<&str>, ca: Option<&str>, base: &Path) -> Result<Self, String> {
        if ca.is_some_and(str::is_empty) {
            return Err("`ca` is empty: name a file with certificates (PEM)".to_owned());
        }
        Ok(Self { proxy: proxy.map(parse_proxy).transpose()?, ca: ca.map(|file| base.join(file)) })
    }
}

fn parse_proxy(text: &str) -> Result<Url, String> {
    let bad = |why: &str| format!("`proxy`: `{}` {why}", one_line(text, MAX_SHOWN));
    let url = Url::parse(text).map_err(|_| bad("is not a URL: write `http://HOST:PORT`"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("`proxy` has credentials, which do not belong in a policy: set `HTTPS_PROXY` to \
                    this proxy with them"
            .to_owned());
    }
    let is_origin = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    if url.scheme() != "http" || !is_origin {
        return Err(bad("is not an HTTP proxy: write `http://HOST:PORT`"));
    }
    Ok(url)
}
