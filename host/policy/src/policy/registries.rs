//! The format of `[registry."HOST"]`, and its conversion into [`RegistryPolicy`].

use std::path::Path;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::MAX_SHOWN;
use crate::capability::list::RuleList;
use crate::capability::net::NetTarget;
use crate::capability::secret::add_hint;
use crate::excerpt::one_line;
use crate::policy::Policy;
use crate::problem::{PolicyProblem, nest_under, of_key};
use crate::registry::{RegistryHost, RegistryMirror, RegistryPolicy};
use crate::route::OutboundRoute;
use crate::rule::GrantRule as _;

/// Most entries of `realm`. Registries have one.
const MAX_REALMS: usize = 8;

/// A registry that plugins come from or go to.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RegistrySection {
    /// Origins besides the registry's own that may receive its credentials: `https://auth.example`.
    #[serde(default)]
    #[schemars(length(max = MAX_REALMS), inner(regex(pattern = "^https://[^/?#@]+$")))]
    realm: Vec<String>,
    /// A file with certificates (PEM) that are trusted besides the system's, relative to the policy's folder.
    ca: Option<String>,
    /// Private networks that its host name, and those of `realm`, may resolve to.
    #[serde(default)]
    net_private: RuleList<IpNet>,
    /// Private networks that it may redirect to, such as that of its storage.
    #[serde(default)]
    redirect_private: RuleList<IpNet>,
    /// Whether it is reached without TLS, on this machine only. Default: false.
    #[serde(default)]
    plain_http: bool,
    /// A registry that mirrors it, with the path before its repositories: `mirror.example/proxy`.
    #[schemars(regex(pattern = "^(localhost|[^/?#@A-Z ]*[.:][^/?#@A-Z ]*)(/[a-z0-9._-]+)*$"))]
    mirror: Option<String>,
    /// The HTTP proxy through which it is reached: `http://proxy.example:3128`. Default: `HTTPS_PROXY`.
    #[schemars(regex(pattern = "^http://[^/?#@]+/?$"))]
    proxy: Option<String>,
    /// The secret with its credentials: `USER:PASSWORD`, or an identity token.
    secret: Option<String>,
}

impl RegistrySection {
    /// Relative paths start from `base`.
    pub(super) fn resolve(
        self,
        name: &str,
        base: &Path,
    ) -> Result<(RegistryHost, RegistryPolicy), PolicyProblem> {
        let wrong = |key: &str, message: &str| Err(PolicyProblem::at_keys([key], message));
        let host = RegistryHost::parse(name)?;
        if self.plain_http && !host.is_loopback() {
            let message = "`plain_http` holds on this machine only: a network could read and change what it carries; \
                           give the registry a certificate, and name it with `ca`";
            return wrong("plain_http", message);
        }
        if self.plain_http && self.ca.is_some() {
            return wrong("ca", "`ca` has no effect with `plain_http`: remove one of them");
        }
        if self.realm.len() > MAX_REALMS {
            return wrong("realm", &format!("`realm` has more than {MAX_REALMS} entries"));
        }
        let is_origin = |text: &String| {
            let origin = Url::parse(text).map(|url| url.origin().ascii_serialization());
            text.starts_with("https://") && origin.is_ok_and(|origin| origin == *text)
        };
        if let Some(text) = self.realm.iter().find(|text| !is_origin(text)) {
            let shown = one_line(text, MAX_SHOWN);
            let message =
                format!("`realm`: `{shown}` is not an origin: write `https://HOST`, without a path");
            return Err(PolicyProblem::at_keys(["realm"], message).in_text(text));
        }
        if self.plain_http && self.proxy.is_some() {
            return wrong("proxy", "`proxy` has no effect with `plain_http`: remove one of them");
        }
        let mirror = self.mirror.as_deref().map(RegistryMirror::parse).transpose();
        let mirror = mirror.map_err(of_key("mirror"))?;
        if mirror.as_ref().is_some_and(|mirror| mirror.host == host) {
            return wrong("mirror", "`mirror` is the registry itself: name another host");
        }
        let route = OutboundRoute::parse(self.proxy.as_deref(), self.ca.as_deref(), base)?;
        let settings = RegistryPolicy {
            realm: self.realm,
            route,
            net_private: self.net_private.rules_or_empty("net_private", Path::new("/"))?,
            redirect_private: self.redirect_private.rules_or_empty("redirect_private", Path::new("/"))?,
            plain_http: self.plain_http,
            mirror,
            secret: self.secret,
        };
        Ok((host, settings))
    }
}

impl Policy {
    /// Checks that the secrets of registries exist, and may be sent to them and to their realms.
    pub(super) fn check_registries(&self) -> Result<(), PolicyProblem> {
        for (host, settings) in &self.registries {
            self.check_registry_secret(host, settings).map_err(nest_under(["registry", host.as_str()]))?;
        }
        Ok(())
    }

    fn check_registry_secret(
        &self,
        host: &RegistryHost,
        settings: &RegistryPolicy,
    ) -> Result<(), PolicyProblem> {
        let Some(name) = &settings.secret else { return Ok(()) };
        let secret = self.find_secret("secret", name)?;
        let scheme = if settings.plain_http { "http" } else { "https" };
        for origin in settings.realm.iter().cloned().chain([format!("{scheme}://{host}")]) {
            let url = Url::parse(&origin).map_err(|error| PolicyProblem::from(error.to_string()))?;
            let target = NetTarget::request("GET", &url).map_err(PolicyProblem::from)?;
            if !secret.may_be_sent_to(&target) {
                let known: Vec<String> =
                    secret.origins.iter().map(|rule| rule.show(Path::new("/"))).collect();
                let hint = add_hint(name, "origins", &known, &origin);
                let why = format!("`secret`: [secrets.{name:?}] may not be sent to `{origin}`. {hint}");
                return Err(PolicyProblem::at_keys(["secret"], why));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use crate::Policy;
    use crate::registry::{RegistryHost, RegistryPolicy};

    #[test]
    fn a_registry_section_is_read_and_its_mistakes_are_refused() {
        let parse = |text: &str| Policy::parse(&format!("version = 1\n{text}"), Path::new("/srv"), None);
        let policy = parse(
            "[registry.\"registry.example:5000\"]\nrealm = [\"https://auth.example\"]\nca = \"ca.pem\"\n\
             net_private = [\"10.0.0.0/8\"]\nredirect_private = [\"10.1.0.0/16\"]",
        )
        .unwrap();
        let host = |name: &str| RegistryHost::parse(name).unwrap();
        let settings = policy.registry(&host("registry.example:5000"));
        assert_eq!(settings.realm, ["https://auth.example"]);
        assert_eq!(settings.route.ca, Some(PathBuf::from("/srv/ca.pem")));
        assert_eq!(settings.net_private, ["10.0.0.0/8".parse::<ipnet::IpNet>().unwrap()]);
        assert_eq!(settings.redirect_private, ["10.1.0.0/16".parse::<ipnet::IpNet>().unwrap()]);
        assert_eq!(policy.registry(&host("registry.example")), RegistryPolicy::default());
        for (section, part) in [
            ("[registry.acme]", "is not a registry"),
            ("[registry.\"a.example\"]\nplain_http = true", "this machine only"),
            ("[registry.\"localhost:1\"]\nplain_http = true\nca = \"x\"", "remove one"),
            ("[registry.\"a.example\"]\nrealm = [\"https://a.example/token\"]", "without a path"),
            ("[registry.\"a.example\"]\nrealm = [\"http://a.example\"]", "is not an origin"),
            ("[registry.\"a.example\"]\nmirrors = 1", "mirrors"),
            ("[registry.\"a.example\"]\nmirror = \"a.example/x\"", "the registry itself"),
            ("[registry.\"a.example\"]\nmirror = \"https://b.example\"", "is not a"),
            ("[registry.\"a.example\"]\nproxy = \"https://b.example\"", "is not an HTTP proxy"),
            ("[registry.\"a.example\"]\nproxy = \"http://u:p@b.example\"", "do not belong in a policy"),
            ("[registry.\"a.example\"]\nproxy = \"http://b.example/x\"", "is not an HTTP proxy"),
            ("[registry.\"localhost:1\"]\nplain_http = true\nproxy = \"http://b.example\"", "remove one"),
            ("[registry.\"a.example\"]\nsecret = \"S\"", "there is no [secrets.\"S\"]"),
            (
                "[secrets.S]\nfrom = \"env:S\"\norigins = [\"https://b.example\"]\n\
                 [registry.\"a.example\"]\nsecret = \"S\"",
                "may not be sent to `https://a.example`",
            ),
            (
                "[secrets.S]\nfrom = \"env:S\"\norigins = [\"https://a.example\"]\n\
                 [registry.\"a.example\"]\nsecret = \"S\"\nrealm = [\"https://b.example\"]",
                "may not be sent to `https://b.example`",
            ),
        ] {
            let error = parse(section).unwrap_err().to_string();
            assert!(error.contains(part), "{section}: {error}");
        }
    }
}
