//! Secret injection into requests, and redaction of responses.
//!
//! Each hop starts from the guest's original headers, so a value injected into one hop is never visible to the next.

use hyper::HeaderMap;
use hyper::header::{ACCEPT_ENCODING, HeaderValue, IF_RANGE, RANGE};
use url::Url;

use super::call_network::{CallNetwork, NetError};
use super::headers::MAX_BYTES;

/// Replaces placeholders in the headers by the values of their secrets, where the policy allows them for `url`. Runs
/// last before a hop is sent, after the checks of the rules and addresses.
///
/// # Errors
/// When a placeholder is not allowed for this URL or header. The text is the refusal of the hop.
pub(super) fn inject(network: &CallNetwork, headers: &mut HeaderMap, url: &Url) -> Result<(), String> {
    network
        .placeholders
        .inject(headers, url, MAX_BYTES)
        .map_err(|refusal| network.grantee.report_refusal(refusal))
}

/// Changes the request of a call with placeholders so that its response can be searched: complete, and in one of the
/// `codings` that are decoded here. Otherwise the guest could choose ranges or codings in which no value is found.
pub(super) fn keep_readable(network: &CallNetwork, headers: &mut HeaderMap, codings: &'static str) {
    if !network.placeholders.has_any() {
        return;
    }
    headers.remove(RANGE);
    headers.remove(IF_RANGE);
    // `A-IM` requests both, too (RFC 3229).
    headers.remove("a-im");
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(codings));
}

/// Redacts secrets in bytes for the guest: header values, buffered bodies, the final URL.
pub(super) fn scrub(network: &CallNetwork, bytes: Vec<u8>) -> Vec<u8> {
    network.placeholders.scrub(network.redactor(), bytes)
}

/// [`scrub`] for the first `max` bytes of a buffered body; a value may continue behind them.
pub(super) fn scrub_prefix(network: &CallNetwork, bytes: Vec<u8>, max: u64) -> Vec<u8> {
    network.placeholders.scrub_prefix(network.redactor(), bytes, usize::try_from(max).unwrap_or(usize::MAX))
}

/// [`scrub`] for a text, such as an error with a server's words. Runs before the text is truncated: half a secret is
/// secret, too.
pub(super) fn scrub_text(network: &CallNetwork, text: String) -> String {
    if network.placeholders.has_any() {
        String::from_utf8_lossy(&scrub(network, text.into_bytes())).into_owned()
    } else {
        text
    }
}

/// [`scrub_text`] for an error.
pub(super) fn scrub_error(network: &CallNetwork, error: NetError) -> NetError {
    match error {
        NetError::Denied(why) => NetError::Denied(scrub_text(network, why)),
        NetError::Address(why) => NetError::Address(why.map_text(|text| scrub_text(network, text))),
        NetError::Invalid(why) => NetError::Invalid(scrub_text(network, why)),
        NetError::Transport(why) => NetError::Transport(scrub_text(network, why)),
        NetError::Timeout => NetError::Timeout,
    }
}
