//! Header fields of an answer that tell a caller how to go on: `Location` and `Retry-After` of 201, 202 and 3xx (RFC 9110,
//! sections 10.2.2 and 10.2.3).
//!
//! Nothing here is followed. A location is text of the service, so only its path and query are repeated, and a tool is
//! named only if the location is exactly a request of it.

use toolbay_core::call::service_request::ServiceResponse;
use toolbay_policy::excerpt::one_line;
use url::Url;

use crate::routes::Routes;

/// The longest location that is repeated, in characters.
const MAX_LOCATION: usize = 500;
/// The longest value of `Retry-After`, in characters.
const MAX_RETRY_AFTER: usize = 60;

/// `Retry-After`, cleaned.
pub(crate) fn retry_after(response: &ServiceResponse) -> Option<String> {
    response.header("retry-after").map(|text| one_line(text, MAX_RETRY_AFTER)).filter(|text| !text.is_empty())
}

/// `Location` of a response to a request of `url`, with the tool that reads it.
pub(crate) fn location(response: &ServiceResponse, url: &str, routes: &Routes) -> Option<String> {
    let base = Url::parse(url).ok()?;
    let target = base.join(response.header("location")?).ok()?;
    if !matches!(target.scheme(), "http" | "https") {
        return None;
    }
    let query = target.query().map(|query| format!("?{query}")).unwrap_or_default();
    let shown = one_line(&format!("{}{query}", target.path()), MAX_LOCATION);
    let place = if target.origin() == base.origin() { "" } else { " (on another server)" };
    let call = routes.find_call(&target);
    let call = call.map(|(tool, args)| {
        format!(", which is `{tool}` with {}", one_line(&args.to_string(), MAX_LOCATION))
    });
    Some(format!("{shown}{place}{}", call.unwrap_or_default()))
}

/// The lines about a success.
pub(crate) fn success_lines(response: &ServiceResponse, url: &str, routes: &Routes) -> Vec<String> {
    let location = location(response, url, routes).map(|location| format!("Location: {location}"));
    let wait = retry_after(response).map(|wait| format!("Retry-After: {wait}"));
    location.into_iter().chain(wait).collect()
}
