//! How the host reaches the servers of a section: `proxy` and `ca` of `[mcp.NAME]`, `[openapi.NAME]` and
//! `[registry."HOST"]`. Plain data, without connections.

use std::path::{Path, PathBuf};

use url::Url;

use crate::excerpt::one_line;
use crate::problem::PolicyProblem;
use crate::url_parts::{has_credentials, is_origin};

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
    pub(crate) fn parse(proxy: Option<&str>, ca: Option<&str>, base: &Path) -> Result<Self, PolicyProblem> {
        if ca.is_some_and(str::is_empty) {
            let message = "`ca` is empty: name a file with certificates (PEM)";
            return Err(PolicyProblem::at_keys(["ca"], message));
        }
        Ok(Self { proxy: proxy.map(parse_proxy).transpose()?, ca: ca.map(|file| base.join(file)) })
    }
}

fn parse_proxy(text: &str) -> Result<Url, PolicyProblem> {
    let at_proxy = |message: String| PolicyProblem::at_keys(["proxy"], message);
    let bad = |why: &str| at_proxy(format!("`proxy`: `{}` {why}", one_line(text, MAX_SHOWN)));
    let url = Url::parse(text).map_err(|_| bad("is not a URL: write `http://HOST:PORT`"))?;
    if has_credentials(&url) {
        let message = "`proxy` has credentials, which do not belong in a policy: set `HTTPS_PROXY` to this proxy \
                       with them";
        return Err(at_proxy(message.to_owned()));
    }
    if url.scheme() != "http" || !is_origin(&url) {
        return Err(bad("is not an HTTP proxy: write `http://HOST:PORT`"));
    }
    Ok(url)
}
