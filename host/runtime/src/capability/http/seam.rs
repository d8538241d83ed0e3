//! Where secrets meet requests.
//!
//! Each hop starts from the headers as the guest wrote them, so what was put into one hop is never seen by the next.

use hyper::HeaderMap;
use hyper::header::{ACCEPT_ENCODING, HeaderValue, IF_RANGE, RANGE};
use url::Url;

use super::headers::MAX_BYTES;
use super::session::{NetError, Session};

/// Puts the values of secrets in place of their stand-ins, as far as they may be sent to `url`. Called last before a
/// hop is sent, after the rules and the addresses were checked.
///
/// # Errors
/// A stand-in may not be sent there, or not in that header: the hop is then refused with this text.
pub(super) fn inject(session: &Session, headers: &mut HeaderMap, url: &Url) -> Result<(), String> {
    session.tokens.inject(headers, url, MAX_BYTES).map_err(|refusal| session.who.tell(refusal))
}

/// Makes a request of a call with stand-ins one whose response can be searched: whole, and in one of the `codings` that
/// are read here. Where a body is cut and how it is written is otherwise the guest's to say, and a part of a value, or
/// one that is compressed, is not found.
pub(super) fn keep_readable(session: &Session, headers: &mut HeaderMap, codings: &'static str) {
    if !session.tokens.any() {
        return;
    }
    headers.remove(RANGE);
    headers.remove(IF_RANGE);
    // Another name for both (RFC 3229).
    headers.remove("a-im");
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(codings));
}

/// Takes the values of secrets out of what the guest is to see: each header's value, a buffered body, the final URL.
pub(super) fn scrub(session: &Session, bytes: Vec<u8>) -> Vec<u8> {
    session.tokens.scrub(session.redactor(), bytes)
}

/// [`scrub`] for the first `most` bytes of a buffered body, behind which more may stand that belongs to a value.
pub(super) fn scrub_start(session: &Session, bytes: Vec<u8>, most: u64) -> Vec<u8> {
    session.tokens.scrub_start(session.redactor(), bytes, usize::try_from(most).unwrap_or(usize::MAX))
}

/// [`scrub`] for a text, such as an error that names what a server said. Before it is cut: half a secret is one, too.
pub(super) fn text(session: &Session, text: String) -> String {
    if session.tokens.any() {
        String::from_utf8_lossy(&scrub(session, text.into_bytes())).into_owned()
    } else {
        text
    }
}

/// [`text`] for an error.
pub(super) fn error(session: &Session, error: NetError) -> NetError {
    match error {
        NetError::Denied(why) => NetError::Denied(text(session, why)),
        NetError::Address(why) => NetError::Address(text(session, why)),
        NetError::Invalid(why) => NetError::Invalid(text(session, why)),
        NetError::Transport(why) => NetError::Transport(text(session, why)),
        NetError::Timeout => NetError::Timeout,
    }
}
