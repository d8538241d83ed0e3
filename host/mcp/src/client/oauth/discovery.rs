//! Finds the authorization server of an MCP server: the metadata of the protected resource (RFC 9728), then those of the
//! authorization server (RFC 8414, OpenID Connect Discovery). A document is not believed about anyone else:
//! the resource must be the server, and the issuer must be the one that the resource named, or the policy.
//!
//! A document that cannot be read or fetched costs only its place: the next place may have one. An authorization server
//! that cannot be used costs only itself, if the resource names another.

use serde::Deserialize;
use toolbay_policy::mcp_server::OAuthClientSettings;
use toolbay_policy::refusal::PolicyRefusal;
use url::Url;

use super::OAuthError;
use super::challenge::Challenge;
use super::credentials::same_issuer;
use super::http::{FlowClient, parse_url};
use super::member;

/// Most authorization servers of a resource that are tried. Each costs up to three requests.
const MAX_ISSUERS: usize = 3;

/// The metadata of a protected resource.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ResourceMetadata {
    pub(super) resource: String,
    #[serde(default, deserialize_with = "member::texts")]
    authorization_servers: Option<Vec<String>>,
    #[serde(default, deserialize_with = "member::texts")]
    pub(super) scopes_supported: Option<Vec<String>>,
    /// Whether the server published them.
    #[serde(skip, default = "published")]
    is_published: bool,
}

const fn published() -> bool {
    true
}

impl ResourceMetadata {
    /// A server that publishes none: the resource is its URL.
    fn of_server(url: &Url) -> Self {
        Self {
            resource: url.to_string(),
            authorization_servers: None,
            scopes_supported: None,
            is_published: false,
        }
    }
}

/// The metadata of an authorization server.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ServerMetadata {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    #[serde(default, deserialize_with = "member::text")]
    pub(super) registration_endpoint: Option<String>,
    #[serde(default, deserialize_with = "member::text")]
    pub(super) revocation_endpoint: Option<String>,
    #[serde(default, deserialize_with = "member::texts")]
    response_types_supported: Option<Vec<String>>,
    #[serde(default, deserialize_with = "member::texts")]
    code_challenge_methods_supported: Option<Vec<String>>,
    #[serde(default, deserialize_with = "member::texts")]
    pub(super) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default, deserialize_with = "member::texts")]
    pub(super) scopes_supported: Option<Vec<String>>,
    #[serde(default, deserialize_with = "member::flag")]
    pub(super) authorization_response_iss_parameter_supported: bool,
    #[serde(default, deserialize_with = "member::flag")]
    pub(super) client_id_metadata_document_supported: bool,
}

/// A server with its authorization server.
#[derive(Debug, Clone)]
pub(super) struct Discovered {
    pub(super) resource: ResourceMetadata,
    pub(super) server: ServerMetadata,
}

/// Finds the authorization server. `known` is the issuer that was used before.
pub(super) async fn discover(
    client: &FlowClient,
    settings: &OAuthClientSettings,
    challenge: &Challenge,
    known: Option<&str>,
) -> Result<Discovered, OAuthError> {
    let mut resource = find_resource(client, settings, challenge).await?;
    let server = find_usable_server(client, settings, choose_issuers(&resource, settings, known)?).await?;
    if !resource.is_published {
        // Nobody else names any. Servers without metadata are their own authorization servers, as a rule.
        resource.scopes_supported.clone_from(&server.scopes_supported);
    }
    Ok(Discovered { server, resource })
}

/// The first of some authorization servers that can be used.
async fn find_usable_server(
    client: &FlowClient,
    settings: &OAuthClientSettings,
    issuers: Vec<&str>,
) -> Result<ServerMetadata, OAuthError> {
    let mut failed = Vec::new();
    for issuer in issuers.into_iter().take(MAX_ISSUERS) {
        let found = find_server(client, issuer).await;
        match found.and_then(|server| check_server(client, issuer, &server, settings).map(|()| server)) {
            Ok(server) => return Ok(server),
            Err(error) => failed.push(error.into_refusal()),
        }
    }
    let texts: Vec<&str> = failed.iter().map(|why| why.text.as_str()).collect();
    let all = PolicyRefusal::from(texts.join("; and "));
    let hints = failed.iter().map(|why| why.hint.clone());
    Err(OAuthError::new(hints.fold(all, PolicyRefusal::with_further_hint)))
}

/// The metadata of the server. One that publishes none has those of its URL, if the policy names the issuer.
async fn find_resource(
    client: &FlowClient,
    settings: &OAuthClientSettings,
    challenge: &Challenge,
) -> Result<ResourceMetadata, OAuthError> {
    let own = Url::parse(&client.endpoint.url).map_err(|e| OAuthError::new(format!("`url`: {e}")))?;
    let mut failed = None;
    for place in resource_places(&own, challenge) {
        let fetched = match place {
            Ok(place) => client.fetch::<ResourceMetadata>(&place).await,
            Err(error) => Err(error),
        };
        match fetched {
            Ok(Some(found)) => {
                check_resource(&own, &found.resource, client)?;
                return Ok(found);
            }
            Ok(None) => {}
            Err(error) => drop(failed.get_or_insert(error)),
        }
    }
    if settings.issuer.is_some() {
        return Ok(ResourceMetadata::of_server(&own));
    }
    Err(failed.unwrap_or_else(|| {
        let text = "the server publishes no metadata of a protected resource (RFC 9728), so its authorization server is \
                    unknown";
        let hint = format!(
            "if you know it, write in the policy: [mcp.{}.oauth] issuer = \"https://…\"; if you have a token, write it \
             as `bearer`",
            client.name
        );
        OAuthError::new(PolicyRefusal::new(text, hint))
    }))
}

/// Where the metadata of a server may be: where its challenge says, and where the standard says.
fn resource_places(own: &Url, challenge: &Challenge) -> Vec<Result<Url, OAuthError>> {
    let mut places = Vec::new();
    if let Some(named) = &challenge.resource_metadata {
        // The operator wrote the server's own URL, and so decided on its scheme.
        let url = Url::parse(named).ok().filter(|url| url.origin() == own.origin());
        places.push(url.map_or_else(|| parse_url("the address of the resource metadata", named), Ok));
    }
    for path in [own.path().trim_end_matches('/'), ""] {
        let mut url = own.clone();
        url.set_query(None);
        url.set_path(&format!("/.well-known/oauth-protected-resource{path}"));
        if !places.contains(&Ok(url.clone())) {
            places.push(Ok(url));
        }
    }
    places
}

/// The resource must be the server: the same origin, and its path or one above. A token for another resource could be
/// used there.
fn check_resource(own: &Url, resource: &str, client: &FlowClient) -> Result<(), OAuthError> {
    let fits = Url::parse(resource).is_ok_and(|url| {
        let above = url.path().trim_end_matches('/');
        let below =
            own.path().strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        url.origin() == own.origin() && below && url.fragment().is_none()
    });
    if fits {
        return Ok(());
    }
    Err(OAuthError::new(format!(
        "the metadata are those of another resource, `{}`, and not of `{}`",
        client.show(resource),
        client.show(own.as_str())
    )))
}

/// The issuer of the policy; otherwise the issuers that the resource names, the one used before first. Never empty.
fn choose_issuers<'a>(
    resource: &'a ResourceMetadata,
    settings: &'a OAuthClientSettings,
    known: Option<&str>,
) -> Result<Vec<&'a str>, OAuthError> {
    let named = resource.authorization_servers.as_deref().unwrap_or_default();
    let listed = |wanted: &str| named.iter().find(|one| same_issuer(one, wanted));
    match &settings.issuer {
        Some(wanted) if named.is_empty() => Ok(vec![wanted]),
        Some(wanted) => listed(wanted).map(|one| vec![one.as_str()]).ok_or_else(|| {
            OAuthError::new(format!(
                "the server does not name `{wanted}`, the `issuer` of the policy, as its authorization server"
            ))
        }),
        None if named.is_empty() => Err(OAuthError::new(
            "the server's metadata name no authorization server: if you know it, write it as `issuer`"
                .to_owned(),
        )),
        None => {
            let known = known.and_then(listed);
            let others = named.iter().filter(|one| Some(*one) != known);
            Ok(known.into_iter().chain(others).map(String::as_str).collect())
        }
    }
}

/// The metadata of an authorization server, which speak for this issuer.
pub(super) async fn find_server(client: &FlowClient, issuer: &str) -> Result<ServerMetadata, OAuthError> {
    let url = parse_url("the issuer", issuer)?;
    let mut failed = None;
    for place in metadata_places(&url) {
        match client.fetch::<ServerMetadata>(&place).await {
            Ok(Some(found)) if same_issuer(&found.issuer, issuer) => return Ok(found),
            Ok(Some(found)) => {
                let other = client.show(&found.issuer);
                let why = format!("its metadata are those of another issuer, `{other}`");
                return Err(unusable(client, issuer, why));
            }
            Ok(None) => {}
            Err(error) => drop(failed.get_or_insert(error)),
        }
    }
    Err(failed.unwrap_or_else(|| {
        let shown = client.show(issuer);
        OAuthError::new(format!("the authorization server `{shown}` publishes no metadata"))
    }))
}

fn unusable(client: &FlowClient, issuer: &str, why: impl Into<PolicyRefusal>) -> OAuthError {
    let issuer = client.show(issuer);
    let why: PolicyRefusal = why.into();
    OAuthError::new(why.map_text(|why| format!("the authorization server `{issuer}` cannot be used: {why}")))
}

/// Where the metadata of an issuer may be, in the order of the MCP specification.
fn metadata_places(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let mut paths = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        paths.push(format!("{path}/.well-known/openid-configuration"));
    }
    let at = |path: String| {
        let mut url = issuer.clone();
        url.set_query(None);
        url.set_path(&path);
        url
    };
    paths.into_iter().map(at).collect()
}

/// Checks that an authorization is possible, and that it is protected by PKCE (RFC 7636).
fn check_server(
    client: &FlowClient,
    issuer: &str,
    found: &ServerMetadata,
    settings: &OAuthClientSettings,
) -> Result<(), OAuthError> {
    let has = |list: &[String], wanted: &str| list.iter().any(|one| one == wanted);
    if found.response_types_supported.as_ref().is_some_and(|all| !has(all, "code")) {
        return Err(unusable(client, issuer, "it does not support the response type `code`"));
    }
    match &found.code_challenge_methods_supported {
        Some(methods) if has(methods, "S256") => {}
        Some(_) => return Err(unusable(client, issuer, "it does not support PKCE with S256")),
        None if settings.assumes_pkce => {}
        None => {
            let hint = format!(
                "if it does, write in the policy: [mcp.{}.oauth] issuer = {:?}, assume_pkce = true",
                client.name,
                client.show(issuer)
            );
            let text = "it does not say that it supports PKCE with S256";
            return Err(unusable(client, issuer, PolicyRefusal::new(text, hint)));
        }
    }
    parse_url("the authorization endpoint", &found.authorization_endpoint)?;
    parse_url("the token endpoint", &found.token_endpoint)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_are_sought_in_the_order_of_the_specification() {
        let places = |issuer: &str| -> Vec<String> {
            metadata_places(&Url::parse(issuer).unwrap()).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            places("https://a.example/"),
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            places("https://a.example/t/1/"),
            [
                "https://a.example/.well-known/oauth-authorization-server/t/1",
                "https://a.example/.well-known/openid-configuration/t/1",
                "https://a.example/t/1/.well-known/openid-configuration",
            ]
        );
    }

    #[test]
    fn issuers_are_compared_as_texts() {
        assert!(same_issuer("https://a.example", "https://a.example/"));
        for other in ["https://A.example", "https://a.example:443", "https://a.example/x", "http://a.example"]
        {
            assert!(!same_issuer("https://a.example", other), "{other}");
        }
        assert!(!same_issuer("https://a.example/x", "https://a.example/x/"));
    }
}
