//! Requests of OpenAPI services and for their documents: through the same client, checks and limits as those of
//! guests. This file injects the secrets that the operator named.
//!
//! The host builds the first request of a call, from an included operation. It is checked by method and origin, and
//! by the paths of the profile. A redirect must lead to an included operation or match the section's own `net`.

use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use toolbay_core::call::service_request::{Credential, Placement, ServiceRequest, ServiceResponse};
use toolbay_policy::GrantKey;
use url::Url;

use super::call_network::{CallNetwork, HostRequest, NetError};
use super::exchange;
use super::secret_injection;
use crate::bindings::host::http_client::{HttpRequest, HttpResponse};
use crate::secrets::{SecretEntry, SecretPlaceholders};
use crate::{Grantee, ResolvedGrants};

/// Sends a request and reads the response, up to `max` bytes.
///
/// # Errors
/// When there is no response; the text contains no secrets.
pub async fn send(
    mut request: ServiceRequest,
    max: u64,
    grantee: Grantee,
    deadline: Instant,
) -> Result<ServiceResponse, NetError> {
    let placeholders = SecretPlaceholders::default();
    let query = place_credentials(&grantee, &placeholders, &mut request)?;
    let url = Url::parse(&request.url).map_err(|e| NetError::Invalid(format!("the URL is invalid: {e}")))?;
    let host_request = HostRequest { method: request.method, url, query };
    let network = CallNetwork::for_service(grantee, deadline, host_request, placeholders)?;
    let request = HttpRequest {
        method: request.method.to_owned(),
        url: request.url,
        headers: request.headers,
        body: request.body,
        timeout_ms: None,
        max_response_bytes: Some(max.min(network.bytes_left().0)),
    };
    let fetched = tokio::time::timeout(network.time_left(None), exchange::fetch(&network, request)).await;
    let fetched = fetched
        .unwrap_or(Err(NetError::Timeout))
        .map_err(|error| secret_injection::scrub_error(&network, error))?;
    let HttpResponse { status, headers, body, truncated, .. } = fetched;
    Ok(ServiceResponse { status, headers, body, truncated })
}

/// Puts placeholders into the headers, where injection replaces them like any other, and returns the secrets for the
/// query.
fn place_credentials(
    grantee: &Grantee,
    placeholders: &SecretPlaceholders,
    request: &mut ServiceRequest,
) -> Result<Vec<(String, Arc<SecretEntry>)>, NetError> {
    let mut query = Vec::new();
    let Some(granted) = &grantee.granted else { return Err(NetError::Denied(grantee.sealed_error())) };
    for Credential { secret, placement } in std::mem::take(&mut request.credentials) {
        check_secret(grantee, granted, &secret)?;
        let entry = granted.services.secrets.entry(&secret).map_err(NetError::Denied)?;
        let text = placeholders.issue(entry).map_err(NetError::Transport)?;
        let (name, value) = match placement {
            Placement::Header { name, prefix } => (name, format!("{prefix}{text}")),
            Placement::Basic => ("Authorization".to_owned(), format!("Basic {}", STANDARD.encode(text))),
            Placement::Cookie(name) => {
                if !entry.fits_cookie() {
                    let text = format!("the value of the secret `{secret}` is not a valid cookie value");
                    return Err(NetError::Denied(text));
                }
                let others = request.headers.iter().find(|(one, _)| one.eq_ignore_ascii_case("cookie"));
                let others = others.map(|(_, value)| format!("{value}; ")).unwrap_or_default();
                ("Cookie".to_owned(), format!("{others}{name}={text}"))
            }
            Placement::Query(name) => {
                query.push((name, Arc::clone(entry)));
                continue;
            }
        };
        request.headers.retain(|(one, _)| !one.eq_ignore_ascii_case(&name));
        request.headers.push((name, value));
    }
    Ok(query)
}

/// Checks that the profile of the call allows a secret, and records its use.
fn check_secret(grantee: &Grantee, granted: &ResolvedGrants, secret: &str) -> Result<(), NetError> {
    let allowed = granted.grants.secrets.iter().any(|rule| rule.matches(secret));
    grantee.note(GrantKey::Secrets, secret, allowed);
    if allowed {
        return Ok(());
    }
    let profile = grantee.profile().unwrap_or_default();
    let text = format!("the profile `{profile}` does not allow the secret `{secret}`");
    let hint = || format!("See `secrets` in [profile.{profile}].").into();
    Err(NetError::Denied(grantee.refuse_with(&text, hint)))
}
