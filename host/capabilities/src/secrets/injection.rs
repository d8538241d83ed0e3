//! Injects secrets into requests. When a request leaves, the host replaces each placeholder by the value, in the headers
//! and for the origins that the operator allows. A request with a placeholder anywhere else is refused, since its
//! receiver could not use it.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret;
use toolbay_core::output::redact::{self, Redactor};
use toolbay_policy::capability::net::NetTarget;
use toolbay_policy::capability::secret::{SecretPosition, add_hint};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::rule::GrantRule as _;
use url::Url;
use zeroize::Zeroizing;

use super::SecretEntry;
use super::placeholder::{PREFIX, RANDOM_BYTES, SecretPlaceholder, SecretPlaceholders};

/// Length of a placeholder, in bytes.
const PLACEHOLDER_BYTES: usize = PREFIX.len() + 2 * RANDOM_BYTES;
/// Maximum length of a host or header name in a refusal, in characters.
const MAX_SHOWN: usize = 100;

impl SecretEntry {
    /// Whether the value is a valid cookie value (RFC 6265, section 4.1.1).
    pub(crate) fn fits_cookie(&self) -> bool {
        let fits = |b: u8| (0x21..0x7f).contains(&b) && !b"\",;\\".contains(&b);
        self.value.expose_secret().bytes().all(fits)
    }

    /// Appends the value to the query of a request that the host built, if the operator allows it there.
    ///
    /// # Errors
    /// When the operator does not allow it.
    pub(crate) fn append_to_query(
        &self,
        target: &NetTarget,
        parameter: &str,
        url: &mut Url,
    ) -> Result<(), PolicyRefusal> {
        if let Some(why) = self.rule.refusal(&self.name, target, SecretPosition::Query(parameter)) {
            return Err(why);
        }
        url.query_pairs_mut().append_pair(parameter, self.value.expose_secret());
        Ok(())
    }
}

impl SecretPlaceholders {
    /// Whether the call has any placeholder.
    pub(crate) fn has_any(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// The maximum length of a secret of this call in any encoding that is searched for, in bytes; 0 without
    /// placeholders.
    pub(crate) fn longest_match(&self) -> usize {
        let all = self.0.lock();
        let longest = all.iter().map(|placeholder| placeholder.entry.value.expose_secret().len()).max();
        longest.map_or(0, redact::max_encoded_len)
    }

    /// Replaces the placeholders in the headers of a request to `url` by the values. Call it for each hop, on the
    /// guest's original headers (without those that a hop to another origin drops). Values are longer than
    /// placeholders; the resulting headers have at most `max` bytes.
    ///
    /// # Errors
    /// When a placeholder is not allowed there or belongs to another call. The headers are then unchanged.
    pub(crate) fn inject(&self, headers: &mut HeaderMap, url: &Url, max: usize) -> Result<(), PolicyRefusal> {
        let issued = IssuedPlaceholders(self.issued());
        if let Some(placeholder) =
            issued.0.iter().find(|placeholder| url.as_str().contains(&*placeholder.text))
        {
            return Err(placeholder.refusal("is in the URL of a request, which logs keep").into());
        }
        let (mut swapped, mut left) = (Vec::new(), max);
        for (at, (name, value)) in headers.iter().enumerate() {
            if issued.0.iter().any(|placeholder| name.as_str().contains(&*placeholder.text)) {
                return Err("a placeholder for a secret cannot be a header name".into());
            }
            let new = issued.inject_header(name, value, url, left)?;
            let bytes = name.as_str().len() + new.as_ref().map_or(value.len(), HeaderValue::len);
            left = left.checked_sub(bytes).ok_or_else(headers_too_large)?;
            swapped.extend(new.map(|new| (at, new)));
        }
        let mut swapped = swapped.into_iter().peekable();
        for (at, value) in headers.values_mut().enumerate() {
            if let Some((_, new)) = swapped.next_if(|(of, _)| *of == at) {
                *value = new;
            }
        }
        Ok(())
    }

    /// Refuses a body that contains a placeholder.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) fn check_body(&self, body: &[u8]) -> Result<(), String> {
        let issued = IssuedPlaceholders(self.issued());
        match find_placeholders(body).find_map(|(_, text)| issued.find(text)) {
            Some(placeholder) => Err(placeholder.refusal("is in the body of a request")),
            None => Ok(()),
        }
    }

    /// Redacts the values of this call's secrets from a response: a server that echoes a request must not reveal
    /// them.
    pub(crate) fn scrub(&self, redactor: &Redactor, bytes: Vec<u8>) -> Vec<u8> {
        let max = bytes.len();
        self.scrub_prefix(redactor, bytes, max)
    }

    /// [`SecretPlaceholders::scrub`] for the first `max` bytes of a truncated body. `bytes` continues by
    /// [`SecretPlaceholders::longest_match`] if the body does, to find a value that lies across the cut.
    pub(crate) fn scrub_prefix(&self, redactor: &Redactor, mut bytes: Vec<u8>, max: usize) -> Vec<u8> {
        let whole = max >= bytes.len();
        let issued = IssuedPlaceholders(self.issued());
        if !issued.0.is_empty()
            && let Some((clean, _)) =
                redactor.redact_head(&bytes, max.min(bytes.len()), |name| issued.has_secret(name))
        {
            bytes = clean;
        }
        if !whole {
            bytes.truncate(max);
        }
        bytes
    }
}

/// The placeholders issued so far.
struct IssuedPlaceholders(Vec<SecretPlaceholder>);

impl IssuedPlaceholders {
    /// The placeholder with this text.
    fn find(&self, text: &[u8]) -> Option<&SecretPlaceholder> {
        self.0.iter().find(|placeholder| placeholder.text.as_bytes() == text)
    }

    /// Whether the call has a placeholder for this secret. Only those are redacted from responses: redacting others
    /// would confirm a guest's guess of their values.
    fn has_secret(&self, name: &str) -> bool {
        self.0.iter().any(|placeholder| placeholder.entry.name == name)
    }

    /// One header with the values in it; `None` without placeholders.
    fn inject_header(
        &self,
        name: &HeaderName,
        value: &HeaderValue,
        url: &Url,
        max: usize,
    ) -> Result<Option<HeaderValue>, PolicyRefusal> {
        let Some(plain) = self.inject_text(name, value.as_bytes(), url, max)? else {
            // `Basic` encodes `user:placeholder` as base64 (RFC 7617).
            let Some((scheme, inner)) = decode_basic(value.as_bytes()) else { return Ok(None) };
            let Some(inner) = self.inject_text(name, &inner, url, max)? else { return Ok(None) };
            let mut new = Zeroizing::new(scheme.to_vec());
            new.extend_from_slice(Zeroizing::new(STANDARD.encode(&*inner)).as_bytes());
            return Ok(Some(header_value(&new)?));
        };
        Ok(Some(header_value(&plain)?))
    }

    fn inject_text(
        &self,
        name: &HeaderName,
        text: &[u8],
        url: &Url,
        max: usize,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, PolicyRefusal> {
        let mut found = Vec::new();
        let mut bytes = text.len();
        for (at, text) in find_placeholders(text) {
            let placeholder = self.find(text).ok_or_else(|| unknown_placeholder(name))?;
            placeholder.check_destination(name, url)?;
            let value = placeholder.entry.value.expose_secret().as_bytes();
            bytes = bytes + value.len() - PLACEHOLDER_BYTES;
            found.push((at, value));
        }
        if found.is_empty() {
            return Ok(None);
        }
        if bytes > max {
            return Err(headers_too_large().into());
        }
        let mut out = Zeroizing::new(Vec::with_capacity(bytes));
        let mut done = 0;
        for (at, value) in found {
            out.extend_from_slice(text.get(done..at).unwrap_or_default());
            out.extend_from_slice(value);
            done = at + PLACEHOLDER_BYTES;
        }
        out.extend_from_slice(text.get(done..).unwrap_or_default());
        Ok(Some(out))
    }
}

/// [`SecretPlaceholders::scrub`] for a streamed body: holds back bytes that may start a value.
#[derive(Debug)]
pub(crate) struct Scrubber {
    placeholders: SecretPlaceholders,
    redactor: Redactor,
    pending: Vec<u8>,
}

impl Scrubber {
    /// Creates a scrubber for one body.
    pub(crate) fn new(placeholders: &SecretPlaceholders, redactor: &Redactor) -> Self {
        Self { placeholders: placeholders.clone(), redactor: redactor.clone(), pending: Vec::new() }
    }

    /// Returns the bytes that can be passed on.
    pub(crate) fn push(&mut self, part: Bytes) -> Bytes {
        let reach = self.placeholders.longest_match();
        if reach == 0 {
            return part;
        }
        self.pending.extend_from_slice(&part);
        // Each round searches the pending bytes again, so a long value waits until as many bytes again have arrived.
        let wanted = if reach > 4096 { 2 * reach } else { reach };
        if self.pending.len() <= wanted {
            return Bytes::new();
        }
        let end = self.pending.len() - reach;
        let issued = IssuedPlaceholders(self.placeholders.issued());
        match self.redactor.redact_head(&self.pending, end, |name| issued.has_secret(name)) {
            Some((clean, done)) => {
                self.pending.drain(..done);
                clean.into()
            }
            None => {
                let rest = self.pending.split_off(end);
                std::mem::replace(&mut self.pending, rest).into()
            }
        }
    }

    /// Returns the pending bytes.
    pub(crate) fn finish(&mut self) -> Bytes {
        self.placeholders.scrub(&self.redactor, std::mem::take(&mut self.pending)).into()
    }
}

impl SecretPlaceholder {
    fn check_destination(&self, name: &HeaderName, url: &Url) -> Result<(), PolicyRefusal> {
        let rule = &self.entry.rule;
        if !rule.headers.iter().any(|allowed| allowed == name.as_str()) {
            let header = name.as_str();
            let text = self.refusal(&format!("is in the header `{}`", one_line(header, MAX_SHOWN)));
            return Err(PolicyRefusal::new(
                text,
                add_hint(&self.entry.name, "headers", &rule.headers, header),
            ));
        }
        if NetTarget::request("GET", url).is_ok_and(|target| rule.may_be_sent_to(&target)) {
            return Ok(());
        }
        let origin = url.origin().ascii_serialization();
        let text = self.refusal(&format!("is in a request to `{}`", one_line(&origin, MAX_SHOWN)));
        let known: Vec<String> = rule.origins.iter().map(|rule| rule.show(Path::new("/"))).collect();
        Err(PolicyRefusal::new(text, add_hint(&self.entry.name, "origins", &known, &origin)))
    }

    fn refusal(&self, what: &str) -> String {
        let name = &self.entry.name;
        format!(
            "the placeholder for the secret `{name}` {what}; it is replaced only in the headers and for the \
             origins of [secrets.{name:?}]"
        )
    }
}

fn header_value(bytes: &[u8]) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_bytes(bytes)
        .map_err(|_| "the value of a secret is not a valid header value".to_owned())?;
    // Marked sensitive: libraries do not print it, and HTTP/2 keeps it out of its header tables.
    value.set_sensitive(true);
    Ok(value)
}

fn unknown_placeholder(name: &HeaderName) -> String {
    format!(
        "the header `{}` has a secret placeholder of another call: get the secret again in each call",
        one_line(name.as_str(), MAX_SHOWN)
    )
}

fn headers_too_large() -> String {
    "with the values of its secrets, the request exceeds the maximum number of bytes of headers".to_owned()
}

/// Finds everything that looks like a placeholder, in one pass over the text.
fn find_placeholders(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let is_placeholder = |window: &[u8]| {
        let digits = window.strip_prefix(PREFIX.as_bytes());
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    text.windows(PLACEHOLDER_BYTES).enumerate().filter(move |(_, window)| is_placeholder(window))
}

/// Splits a `Basic` header into the scheme with its space and the decoded credentials.
fn decode_basic(value: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    const SCHEME: &[u8] = b"basic ";
    let (scheme, rest) = value.split_at_checked(SCHEME.len())?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return None;
    }
    // Clients send base64 with and without padding.
    let rest: Vec<u8> = rest.trim_ascii().iter().copied().filter(|byte| *byte != b'=').collect();
    Some((scheme, STANDARD_NO_PAD.decode(rest).ok()?))
}

#[cfg(test)]
#[path = "injection_tests.rs"]
mod tests;
