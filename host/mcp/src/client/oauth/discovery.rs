//! Finds the authorization server of an MCP server: the metadata of the protected resource (RFC 9728), then those of the
//! authorization server (RFC 8414, OpenID Connect Discovery). What a document says about someone else is not believed:
//! the resource must be the server, and the issuer must be the one that the resource named.

use serde::Deserialize;
use toolbay_policy::mcp_server::OAuthClientSettings;
use url::Url;

use super::OAuthError;
use super::challenge::Challenge;
use super::http::{FlowClient, parse_url};

/// The metadata of a protected resource.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ResourceMetadata {
    pub(super) resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    pub(super) scopes_supported: Vec<String>,
}

/// The metadata of an authorization server.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ServerMetadata {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) registration_endpoint: Option<String>,
    #[serde(default)]
    response_types_supported: Option<Vec<String>>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
    pub(super) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(super) scopes_supported: Vec<String>,
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
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
    let resource = find_resource(client, challenge).await?;
    let issuer = choose_issuer(&resource, settings, known)?;
    let server = find_server(client, issuer).await?;
    Ok(Discovered { server, resource })
}

async fn find_resource(client: &FlowClient, challenge: &Challenge) -> Result<ResourceMetadata, OAuthError> {
    let own = Url::parse(&client.endpoint.url).map_err(|e| OAuthError::new(format!("`url`: {e}")))?;
    let mut places = Vec::new();
    if let Some(named) = &challenge.resource_metadata {
        // The operator wrote the server's own URL, so its scheme is his decision.
        let url = Url::parse(named).ok().filter(|url| url.origin() == own.origin());
        places.push(url.map_or_else(|| parse_url("the address of the resource metadata", named), Ok)?);
    }
    for path in [own.path().trim_end_matches('/'), ""] {
        let mut url = own.clone();
        url.set_query(None);
        url.set_path(&format!("/.well-known/oauth-protected-resource{path}"));
        if !places.contains(&url) {
            places.push(url);
        }
    }
    for place in &places {
        if let Some(found) = client.fetch::<ResourceMetadata>(place).await? {
            check_resource(&own, &found.resource, client)?;
            return Ok(found);
        }
    }
    Err(OAuthError::new(
        "the server publishes no metadata of a protected resource (RFC 9728), so its authorization server is unknown: \
         if you have a token, write it as `bearer`"
            .to_owned(),
    ))
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

/// The issuer of the policy, the one used before, or the first one.
fn choose_issuer<'a>(
    resource: &'a ResourceMetadata,
    settings: &OAuthClientSettings,
    known: Option<&str>,
) -> Result<&'a str, OAuthError> {
    let listed = |wanted: &str| resource.authorization_servers.iter().find(|one| same_issuer(one, wanted));
    if let Some(wanted) = &settings.issuer {
        return listed(wanted).map(String::as_str).ok_or_else(|| {
            OAuthError::new(format!(
                "the server does not name `{wanted}`, the `issuer` of the policy, as its authorization server"
            ))
        });
    }
    let chosen = known.and_then(listed).or_else(|| resource.authorization_servers.first());
    chosen
        .map(String::as_str)
        .ok_or_else(|| OAuthError::new("the server's metadata name no authorization server".to_owned()))
}

/// Whether two issuers are the same text. An empty path equals `/` (RFC 3986, section 6.2.3).
pub(super) fn same_issuer(one: &str, other: &str) -> bool {
    let root = |issuer: &str| match issuer.strip_suffix('/') {
        Some(rest) if rest.split_once("://").is_some_and(|(_, host)| !host.contains('/')) => rest.to_owned(),
        _ => issuer.to_owned(),
    };
    root(one) == root(other)
}

async fn find_server(client: &FlowClient, issuer: &str) -> Result<ServerMetadata, OAuthError> {
    let url = parse_url("the issuer", issuer)?;
    for place in metadata_places(&url) {
        if let Some(found) = client.fetch::<ServerMetadata>(&place).await? {
            check_server(client, issuer, &found)?;
            return Ok(found);
        }
    }
    Err(OAuthError::new(format!("the authorization server `{}` publishes no metadata", client.show(issuer))))
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

fn check_server(client: &FlowClient, issuer: &str, found: &ServerMetadata) -> Result<(), OAuthError> {
    let refuse = |why: String| {
        Err(OAuthError::new(format!(
            "the authorization server `{}` cannot be used: {why}",
            client.show(issuer)
        )))
    };
    if !same_issuer(&found.issuer, issuer) {
        return refuse(format!("its metadata are those of another issuer, `{}`", client.show(&found.issuer)));
    }
    let code = found.response_types_supported.as_ref().is_none_or(|all| all.iter().any(|one| one == "code"));
    if !code {
        return refuse("it does not support the response type `code`".to_owned());
    }
    if !found.code_challenge_methods_supported.iter().any(|method| method == "S256") {
        return refuse("it does not say that it supports PKCE with S256".to_owned());
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
