//! Stand-ins: a guest gets a token that is good for one call, and the host puts the value in its place when a request
//! leaves, in the headers and towards the origins that the operator named. Nowhere else: a request that has a token where
//! it is not swapped is refused, because whoever gets it could only be confused by it.
//!
//! A token is 128 random bits, made for one secret in one call. To anybody outside the call it means nothing.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use secrecy::ExposeSecret;
use toolbay_core::output::redact::{self, Redactor};
use toolbay_policy::capability::net::Target;
use toolbay_policy::capability::secret::to_add;
use toolbay_policy::refusal::Refusal;
use toolbay_policy::rule::Rule as _;
use toolbay_policy::text::one_line;
use url::Url;
use zeroize::Zeroizing;

use super::Held;

/// What each token begins with.
const PREFIX: &str = "tbs_";
/// Random bytes of a token; twice as many digits.
const RANDOM_BYTES: usize = 16;
/// Bytes of a token.
const TOKEN_BYTES: usize = PREFIX.len() + 2 * RANDOM_BYTES;
/// Longest host or header name that a refusal repeats, in characters.
const MAX_SHOWN: usize = 100;

/// The stand-ins that one call was given. A clone goes with each request, and knows those that are given later, too:
/// what a server says on a connection that was open before is searched like everything else.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tokens(Arc<Mutex<Vec<Token>>>);

#[derive(Debug, Clone)]
struct Token {
    text: Arc<str>,
    held: Arc<Held>,
}

impl Tokens {
    /// The stand-in for a secret; the same one for the whole call.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub(crate) fn issue(&self, held: &Arc<Held>) -> Result<String, String> {
        if let Some(token) = self.issued().iter().find(|token| Arc::ptr_eq(&token.held, held)) {
            return Ok(token.text.as_ref().to_owned());
        }
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random).map_err(|error| format!("the system gives no random bytes: {error}"))?;
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!("{PREFIX}{digits}");
        let token = Token { text: text.as_str().into(), held: Arc::clone(held) };
        self.0.lock().push(token);
        Ok(text)
    }

    fn issued(&self) -> Vec<Token> {
        self.0.lock().clone()
    }

    /// Whether there is any.
    pub(crate) fn any(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// The most bytes that one of the values takes in any form that is searched for; 0 without a token.
    pub(crate) fn reach(&self) -> usize {
        let all = self.0.lock();
        let longest = all.iter().map(|token| token.held.value.expose_secret().len()).max();
        longest.map_or(0, redact::reach)
    }

    /// Puts the values in place of the tokens in the headers of a request to `url`. Call it for each hop, on the
    /// headers as the guest wrote them (less what a hop to another origin drops). With the values in them, all headers
    /// have at most `most` bytes: a value is longer than what stands for it.
    ///
    /// # Errors
    /// The refusal: a token where no value may go, or one of another call. Nothing was changed then.
    pub(crate) fn inject(&self, headers: &mut HeaderMap, url: &Url, most: usize) -> Result<(), Refusal> {
        let issued = Issued(self.issued());
        if let Some(token) = issued.0.iter().find(|token| url.as_str().contains(&*token.text)) {
            return Err(token.refusal("stands in the address of a request, which logs keep").into());
        }
        let (mut swapped, mut left) = (Vec::new(), most);
        for (at, (name, value)) in headers.iter().enumerate() {
            if issued.0.iter().any(|token| name.as_str().contains(&*token.text)) {
                return Err("a stand-in for a secret is no name of a header".into());
            }
            let new = issued.swap(name, value, url, left)?;
            let bytes = name.as_str().len() + new.as_ref().map_or(value.len(), HeaderValue::len);
            left = left.checked_sub(bytes).ok_or_else(too_long)?;
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

    /// Refuses a body that has a token in it.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) fn check_body(&self, body: &[u8]) -> Result<(), String> {
        let issued = Issued(self.issued());
        match stand_ins(body).find_map(|(_, text)| issued.token(text)) {
            Some(token) => Err(token.refusal("stands in the body of a request")),
            None => Ok(()),
        }
    }

    /// Takes out of a response what was put into a request: a server that echoes must not give a guest the value.
    pub(crate) fn scrub(&self, redactor: &Redactor, bytes: Vec<u8>) -> Vec<u8> {
        let most = bytes.len();
        self.scrub_start(redactor, bytes, most)
    }

    /// [`Tokens::scrub`] for the first `most` bytes of what is to be cut there; to find a value that stands across that
    /// place, `bytes` has [`Tokens::reach`] more, as far as there are more.
    pub(crate) fn scrub_start(&self, redactor: &Redactor, mut bytes: Vec<u8>, most: usize) -> Vec<u8> {
        let whole = most >= bytes.len();
        let issued = Issued(self.issued());
        if !issued.0.is_empty()
            && let Some((clean, _)) = redactor.head(&bytes, most.min(bytes.len()), |name| issued.has(name))
        {
            bytes = clean;
        }
        if !whole {
            bytes.truncate(most);
        }
        bytes
    }
}

/// The tokens that there are at one time.
struct Issued(Vec<Token>);

impl Issued {
    /// The token that a text is.
    fn token(&self, text: &[u8]) -> Option<&Token> {
        self.0.iter().find(|token| token.text.as_bytes() == text)
    }

    /// Whether one stands for this secret. Only those are taken out of responses: what else is taken out would tell a
    /// guest that it guessed another.
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|token| token.held.name == name)
    }

    /// One header with the value in it; `None` when there is no token in it.
    fn swap(
        &self,
        name: &HeaderName,
        value: &HeaderValue,
        url: &Url,
        most: usize,
    ) -> Result<Option<HeaderValue>, Refusal> {
        let Some(plain) = self.swap_text(name, value.as_bytes(), url, most)? else {
            // `Basic` hides the token in base64 of `user:token` (RFC 7617).
            let Some((scheme, inner)) = basic(value.as_bytes()) else { return Ok(None) };
            let Some(inner) = self.swap_text(name, &inner, url, most)? else { return Ok(None) };
            let mut new = Zeroizing::new(scheme.to_vec());
            new.extend_from_slice(Zeroizing::new(STANDARD.encode(&*inner)).as_bytes());
            return Ok(Some(header_value(&new)?));
        };
        Ok(Some(header_value(&plain)?))
    }

    fn swap_text(
        &self,
        name: &HeaderName,
        text: &[u8],
        url: &Url,
        most: usize,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, Refusal> {
        let mut found = Vec::new();
        let mut bytes = text.len();
        for (at, stand_in) in stand_ins(text) {
            let token = self.token(stand_in).ok_or_else(|| foreign(name))?;
            token.check(name, url)?;
            let value = token.held.value.expose_secret().as_bytes();
            bytes = bytes + value.len() - TOKEN_BYTES;
            found.push((at, value));
        }
        if found.is_empty() {
            return Ok(None);
        }
        if bytes > most {
            return Err(too_long().into());
        }
        let mut out = Zeroizing::new(Vec::with_capacity(bytes));
        let mut done = 0;
        for (at, value) in found {
            out.extend_from_slice(text.get(done..at).unwrap_or_default());
            out.extend_from_slice(value);
            done = at + TOKEN_BYTES;
        }
        out.extend_from_slice(text.get(done..).unwrap_or_default());
        Ok(Some(out))
    }
}

/// [`Tokens::scrub`] for a body that comes in parts: holds back what may be the beginning of a value.
#[derive(Debug)]
pub(crate) struct Scrubber {
    tokens: Tokens,
    redactor: Redactor,
    held: Vec<u8>,
}

impl Scrubber {
    /// A scrubber for one body.
    pub(crate) fn new(tokens: &Tokens, redactor: &Redactor) -> Self {
        Self { tokens: tokens.clone(), redactor: redactor.clone(), held: Vec::new() }
    }

    /// The part that can be passed on.
    pub(crate) fn push(&mut self, part: Bytes) -> Bytes {
        let reach = self.tokens.reach();
        if reach == 0 {
            return part;
        }
        self.held.extend_from_slice(&part);
        // Each round looks at what is held again: for a long value, only when as much again has come.
        let wanted = if reach > 4096 { 2 * reach } else { reach };
        if self.held.len() <= wanted {
            return Bytes::new();
        }
        let end = self.held.len() - reach;
        let issued = Issued(self.tokens.issued());
        match self.redactor.head(&self.held, end, |name| issued.has(name)) {
            Some((clean, done)) => {
                self.held.drain(..done);
                clean.into()
            }
            None => {
                let rest = self.held.split_off(end);
                std::mem::replace(&mut self.held, rest).into()
            }
        }
    }

    /// What was held back.
    pub(crate) fn end(&mut self) -> Bytes {
        self.tokens.scrub(&self.redactor, std::mem::take(&mut self.held)).into()
    }
}

impl Token {
    fn check(&self, name: &HeaderName, url: &Url) -> Result<(), Refusal> {
        let rule = &self.held.rule;
        if !rule.headers.iter().any(|allowed| allowed == name.as_str()) {
            let header = name.as_str();
            let text = self.refusal(&format!("stands in the header `{}`", one_line(header, MAX_SHOWN)));
            return Err(Refusal::new(text, to_add(&self.held.name, "headers", &rule.headers, header)));
        }
        if Target::request("GET", url).is_ok_and(|target| rule.goes_to(&target)) {
            return Ok(());
        }
        let origin = url.origin().ascii_serialization();
        let text = self.refusal(&format!("is on the way to `{}`", one_line(&origin, MAX_SHOWN)));
        let known: Vec<String> = rule.origins.iter().map(|rule| rule.show(Path::new("/"))).collect();
        Err(Refusal::new(text, to_add(&self.held.name, "origins", &known, &origin)))
    }

    fn refusal(&self, what: &str) -> String {
        let name = &self.held.name;
        format!(
            "the stand-in for the secret `{name}` {what}; it is swapped in the headers and towards the origins of [secrets.{name:?}] only"
        )
    }
}

fn header_value(bytes: &[u8]) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_bytes(bytes)
        .map_err(|_| "the value of a secret cannot stand in a header".to_owned())?;
    // Keeps it out of what libraries print, and out of the tables of HTTP/2's header compression.
    value.set_sensitive(true);
    Ok(value)
}

fn foreign(name: &HeaderName) -> String {
    format!(
        "the header `{}` has a stand-in for a secret that is not of this call: ask for the secret in each call",
        one_line(name.as_str(), MAX_SHOWN)
    )
}

fn too_long() -> String {
    "with the values of its secrets, the request has more bytes of headers than one may have".to_owned()
}

/// What looks like a token, and where. One pass over the text, however many tokens there are.
fn stand_ins(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let is_token = |window: &[u8]| {
        let digits = window.strip_prefix(PREFIX.as_bytes());
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    text.windows(TOKEN_BYTES).enumerate().filter(move |(_, window)| is_token(window))
}

/// The scheme with its space, and the decoded credentials, of a `Basic` header.
fn basic(value: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    const SCHEME: &[u8] = b"basic ";
    let (scheme, rest) = value.split_at_checked(SCHEME.len())?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return None;
    }
    // Written with and without padding.
    let rest: Vec<u8> = rest.trim_ascii().iter().copied().filter(|byte| *byte != b'=').collect();
    Some((scheme, STANDARD_NO_PAD.decode(rest).ok()?))
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
