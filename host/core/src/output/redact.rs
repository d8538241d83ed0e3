//! Redaction: replaces the values of secrets by `[secret NAME]` in everything that leaves the host.
//!
//! A value is found verbatim and in the forms that common encodings produce:
//!
//! | form | search |
//! |---|---|
//! | verbatim | direct |
//! | base64, both alphabets, with and without padding, also as part of a longer encoded text | the digits that depend on the value alone, in all three alignments |
//! | hexadecimal, both cases | the digits |
//! | base64 and hexadecimal with line breaks, spaces, colons or prefixes between digits; hex dumps | in the text reduced to digits |
//! | bytes as octal or decimal numbers, dumps of characters | in the text with such numbers as hexadecimal digits |
//! | percent-encoded, both cases, and form-encoded (`+` for a space) | in the decoded text |
//! | JSON-escaped | in the decoded text |
//! | HTML-escaped, by name or number, also with references to hidden characters between them | in the decoded text |
//!
//! The percent-encoded, JSON-escaped and HTML-escaped forms are found if they are encoded fully or partly, once or
//! twice. All forms are also found with hidden characters or colours of a terminal between their characters, since a
//! later cleaner may remove those.
//!
//! JSON texts stay valid: strings are searched after decoding, a number that contains a value becomes a string, and a
//! text in which a value spans several tokens is replaced completely.
//!
//! Redaction protects against accidents and servers that echo secrets. It does not stop a plugin that has a value
//! (`reveal = true`) from reversing, splitting or encrypting it. Values shorter than [`MIN_BYTES`] are not searched,
//! since they would match everywhere.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::value::RawValue;
use toolbay_policy::hint::Hint;
use zeroize::Zeroizing;

use crate::tool::content::{BlockBody, ContentBlock, ErrorDetails, ResourceBody, ToolError, ToolOutput};
use crate::tool::json;

mod compact;
mod decode;

use compact::{DigitKind, VIEWS};
use decode::{ENCODINGS, Encoding, REMOVALS};

/// Shortest value that is searched, in bytes.
pub const MIN_BYTES: usize = 8;
/// Most bytes of all values together: the automaton takes several hundred times as much memory.
pub const MAX_BYTES: usize = 256 << 10;

/// Steps to search a byte.
const STEPS_PER_BYTE: u64 = 6;

/// Replaces the values of secrets. Without secrets it does no work.
#[derive(Clone, Default)]
pub struct Redactor(Option<Arc<SecretPatterns>>);

struct SecretPatterns {
    forms: AhoCorasick,
    /// The name of the secret of each form.
    names: Vec<Arc<str>>,
    /// The kind of digits of each form, if it consists of digits.
    digits: Vec<Option<DigitKind>>,
    /// The length of the longest form of any value, in bytes.
    max_match_bytes: usize,
}

/// The longest form of a value, in bytes: a byte that is escaped twice takes up to 12 bytes.
#[must_use]
pub const fn max_encoded_len(value_bytes: usize) -> usize {
    12 * value_bytes + 16
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forms = self.0.as_ref().map_or(0, |patterns| patterns.names.len());
        f.debug_struct("Redactor").field("forms", &forms).finish_non_exhaustive()
    }
}

/// A match: its range and the name of the secret.
struct SecretMatch<'a> {
    at: Range<usize>,
    name: &'a str,
}

impl Redactor {
    /// A redactor for values by name.
    ///
    /// # Errors
    /// The values exceed [`MAX_BYTES`], or the automaton cannot be built.
    pub fn new<'a>(values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let (mut forms, mut names, mut digits) = (Vec::new(), Vec::new(), Vec::new());
        let (mut bytes, mut longest) = (0, 0);
        for (name, value) in values.into_iter().filter(|(_, value)| value.len() >= MIN_BYTES) {
            bytes += value.len();
            longest = longest.max(value.len());
            let name: Arc<str> = name.into();
            for (form, of) in encoded_forms(value) {
                forms.push(form);
                digits.push(of);
                names.push(Arc::clone(&name));
            }
        }
        if bytes > MAX_BYTES {
            return Err(format!(
                "the values of all secrets have {bytes} bytes; the limit is {MAX_BYTES} bytes"
            ));
        }
        if forms.is_empty() {
            return Ok(Self::default());
        }
        let built = AhoCorasick::new(&forms);
        let forms = built.map_err(|e| format!("building the search for secrets failed: {e}"))?;
        Ok(Self(Some(Arc::new(SecretPatterns {
            forms,
            names,
            digits,
            max_match_bytes: max_encoded_len(longest),
        }))))
    }

    /// Whether there are no values to search.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// An estimate of the steps to redact `bytes` bytes, of about ten nanoseconds each. Each encoding takes its own passes.
    #[must_use]
    pub fn steps(&self, bytes: usize) -> u64 {
        if self.is_empty() { 0 } else { (bytes as u64).saturating_mul(STEPS_PER_BYTE) }
    }

    /// Redacts a text.
    #[must_use]
    pub fn redact_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(patterns) = &self.0 else { return Cow::Borrowed(text) };
        let mut found = patterns.find(text.as_bytes(), |_| true);
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        for one in &mut found {
            one.at = text.floor_char_boundary(one.at.start)..text.ceil_char_boundary(one.at.end);
        }
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        for SecretMatch { at, name } in merge_overlapping(found) {
            out.push_str(text.get(done..at.start).unwrap_or_default());
            out.extend(["[secret ", name, "]"]);
            done = at.end;
        }
        out.push_str(text.get(done..).unwrap_or_default());
        Cow::Owned(out)
    }

    /// Redacts the first `most` characters of a text. Also returns whether the text is longer. It scans only as much of
    /// a long text as needed, and redacts a value that crosses the end completely.
    #[must_use]
    pub fn redact_prefix<'t>(&self, text: &'t str, most: usize) -> (Cow<'t, str>, bool) {
        // A text has at most as many characters as bytes.
        let cut = if text.len() <= most { None } else { text.char_indices().nth(most) };
        let end = cut.map_or(text.len(), |(at, _)| at);
        let is_longer = end < text.len();
        let Some(patterns) = &self.0 else {
            return (Cow::Borrowed(text.get(..end).unwrap_or_default()), is_longer);
        };
        let seen = text.get(..text.ceil_char_boundary(end.saturating_add(patterns.max_match_bytes)));
        match self.redact_head(seen.unwrap_or(text).as_bytes(), end, |_| true) {
            Some((clean, _)) => (Cow::Owned(String::from_utf8_lossy(&clean).into_owned()), is_longer),
            None => (Cow::Borrowed(text.get(..end).unwrap_or_default()), is_longer),
        }
    }

    /// Redacts the values of the secrets that `which` selects by name.
    #[must_use]
    pub fn redact_bytes(&self, bytes: Vec<u8>, which: impl Fn(&str) -> bool) -> Vec<u8> {
        match self.redact_head(&bytes, bytes.len(), which) {
            Some((clean, _)) => clean,
            None => bytes,
        }
    }

    /// Redacts the first `end` bytes, or a few more if a value crosses that position. Also returns the number of
    /// consumed bytes. `None` if there is no match.
    #[must_use]
    pub fn redact_head(
        &self,
        bytes: &[u8],
        end: usize,
        which: impl Fn(&str) -> bool,
    ) -> Option<(Vec<u8>, usize)> {
        let found = merge_overlapping(self.0.as_ref()?.find(bytes, which));
        let mut out = Vec::with_capacity(end);
        let mut done = 0;
        for SecretMatch { at, name } in found.iter().filter(|one| one.at.start < end) {
            out.extend_from_slice(bytes.get(done..at.start).unwrap_or_default());
            out.extend_from_slice(format!("[secret {name}]").as_bytes());
            done = at.end;
        }
        if done == 0 {
            return None;
        }
        out.extend_from_slice(bytes.get(done..end).unwrap_or_default());
        Some((out, done.max(end)))
    }

    /// Redacts a JSON text. The result is valid JSON.
    #[must_use]
    pub fn redact_json(&self, raw: Box<RawValue>) -> Box<RawValue> {
        let Some(patterns) = &self.0 else { return raw };
        let text = raw.get();
        let plain = !text.contains(['\\', '%', '+', '&'])
            && !REMOVALS.iter().any(|removal| removal.is_marked(text.as_bytes()))
            && !patterns.has_any(text);
        if plain {
            return raw;
        }
        let clean = self.redact_tokens(text);
        // A value can look like JSON itself, and two redacted keys can be equal.
        let is_clean_json = !patterns.has_any(&clean) && json::check(&clean).is_ok();
        let clean = if is_clean_json { clean } else { r#"{"redacted":"[secret]"}"#.to_owned() };
        RawValue::from_string(clean).unwrap_or_default()
    }

    /// Redacts each string and number of a valid JSON text.
    fn redact_tokens(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let (token, after) = rest.split_at(token_end(rest, first));
            rest = after;
            match first {
                '"' => {
                    let inner: String = serde_json::from_str(token).unwrap_or_default();
                    match self.redact_text(&inner) {
                        Cow::Borrowed(_) => out.push_str(token),
                        Cow::Owned(clean) => out.push_str(&json_string(&clean)),
                    }
                }
                '-' | '0'..='9' => match self.redact_text(token) {
                    Cow::Borrowed(_) => out.push_str(token),
                    Cow::Owned(clean) => out.push_str(&json_string(&clean)),
                },
                _ => out.push_str(token),
            }
        }
        out
    }

    /// Redacts a hint.
    #[must_use]
    pub fn redact_hint(&self, hint: Hint) -> Hint {
        hint.map_texts(|text| self.redact_owned(text))
    }

    /// Redacts an error.
    #[must_use]
    pub fn redact_error(&self, error: ToolError) -> ToolError {
        let subject = error.subject.map(|subject| self.redact_owned(subject));
        let hint = error.hint.map(|hint| self.redact_hint(hint));
        let details = error.details.map(|details| Box::new(self.redact_details(*details)));
        ToolError { message: self.redact_owned(error.message), subject, details, hint, ..error }
    }

    fn redact_details(&self, details: ErrorDetails) -> ErrorDetails {
        ErrorDetails {
            structured: details.structured.map(|raw| self.redact_json(raw)),
            content: details.content.into_iter().map(|block| self.redact_block(block)).collect(),
        }
    }

    /// Redacts an output: text, structured part, blocks and metadata.
    #[must_use]
    pub fn redact_output(&self, output: ToolOutput) -> ToolOutput {
        if self.is_empty() {
            return output;
        }
        ToolOutput {
            value: self.redact_owned(output.value),
            structured: output.structured.map(|raw| self.redact_json(raw)),
            content: output.content.into_iter().map(|block| self.redact_block(block)).collect(),
            cost_usd: output.cost_usd,
            meta: output.meta.map(|raw| self.redact_json(raw)),
        }
    }

    /// Like [`Redactor::redact_text`], for an owned text.
    #[must_use]
    pub fn redact_owned(&self, text: String) -> String {
        match self.redact_text(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(clean) => clean,
        }
    }

    /// Redacts a block. Images and audio are searched as bytes: SVG is text, and a random match of 8 bytes in
    /// compressed data is very unlikely.
    fn redact_block(&self, mut block: ContentBlock) -> ContentBlock {
        let clean = |text: &mut String| *text = self.redact_owned(std::mem::take(text));
        let maybe = |text: &mut Option<String>| *text = text.take().map(|text| self.redact_owned(text));
        let data = |data: &mut Vec<u8>| *data = self.redact_bytes(std::mem::take(data), |_| true);
        match &mut block.body {
            BlockBody::Text(text) => clean(text),
            BlockBody::Image(blob) | BlockBody::Audio(blob) => {
                data(&mut blob.data);
                clean(&mut blob.mime_type);
            }
            BlockBody::Link(link) => {
                clean(&mut link.uri);
                clean(&mut link.name);
                maybe(&mut link.title);
                maybe(&mut link.description);
                maybe(&mut link.mime_type);
            }
            BlockBody::Embedded(resource) => {
                clean(&mut resource.uri);
                maybe(&mut resource.mime_type);
                match &mut resource.body {
                    ResourceBody::Text(text) => clean(text),
                    ResourceBody::Blob(bytes) => data(bytes),
                }
            }
        }
        if let Some(annotations) = &mut block.annotations {
            maybe(&mut annotations.last_modified);
        }
        block
    }
}

impl SecretPatterns {
    /// Whether a text contains a value, verbatim or as digits.
    fn has_any(&self, text: &str) -> bool {
        !self.search(text.as_bytes(), &|_| true).is_empty()
    }

    /// All matches, sorted by start.
    fn find(&self, text: &[u8], which: impl Fn(&str) -> bool) -> Vec<SecretMatch<'_>> {
        let mut all = self.find_encoded(text, &which);
        for removal in &REMOVALS {
            let Some(rest) = removal.decode(text).filter(|rest| rest.len() < text.len()) else { continue };
            let mut found = self.find_encoded(&rest, &which);
            found.sort_by_key(|one| (one.at.start, std::cmp::Reverse(one.at.end)));
            all.extend(to_original_ranges(removal, text, merge_overlapping(found)));
        }
        all.sort_by_key(|one| (one.at.start, std::cmp::Reverse(one.at.end)));
        all
    }

    /// The matches in a text and in what it decodes to.
    fn find_encoded<'a>(&'a self, text: &[u8], which: &impl Fn(&str) -> bool) -> Vec<SecretMatch<'a>> {
        let mut all = self.search(text, which);
        for encoding in &ENCODINGS {
            let Some(once) = encoding.decode(text) else { continue };
            all.extend(to_original_ranges(encoding, text, self.search(&once, which)));
            if let Some(twice) = encoding.decode(&once) {
                let found = to_original_ranges(encoding, &once, self.search(&twice, which));
                all.extend(to_original_ranges(encoding, text, found));
            }
        }
        all
    }

    /// The matches in a text without decoding, with overlapping matches merged. It examines overlapping hits, since
    /// values can be equal or contain each other and `which` may select any of them.
    fn search<'a>(&'a self, text: &[u8], which: &impl Fn(&str) -> bool) -> Vec<SecretMatch<'a>> {
        let mut found = self.find_forms(text, None, which);
        let direct = found.len();
        for view in &VIEWS {
            let digits = view.digits(text);
            let is_text = digits.len() == text.len() && view.shows == DigitKind::Base64;
            if is_text || digits.len() < MIN_BYTES {
                continue;
            }
            let in_view = self.find_forms(&digits, Some(view.shows), which);
            let ranges: Vec<Range<usize>> = in_view.iter().map(|one| one.at.clone()).collect();
            if !ranges.is_empty() {
                let originals = view.original_ranges(text, &ranges);
                found.extend(in_view.into_iter().zip(originals).map(|(one, at)| SecretMatch { at, ..one }));
            }
        }
        if found.len() > direct {
            found.sort_by_key(|one| (one.at.start, std::cmp::Reverse(one.at.end)));
            found = merge_overlapping(found);
        }
        found
    }

    /// The matches of all forms, or of the forms with one kind of digits.
    fn find_forms<'a>(
        &'a self,
        text: &[u8],
        digits: Option<DigitKind>,
        which: &impl Fn(&str) -> bool,
    ) -> Vec<SecretMatch<'a>> {
        let mut found: Vec<SecretMatch<'a>> = Vec::new();
        // Hits are sorted by end.
        for hit in self.forms.find_overlapping_iter(text) {
            let form = hit.pattern().as_usize();
            if digits.is_some() && self.digits.get(form).copied().flatten() != digits {
                continue;
            }
            let Some(name) = self.names.get(form).filter(|name| which(name)) else {
                continue;
            };
            let mut next = SecretMatch { at: hit.range(), name };
            while let Some(last) = found.pop_if(|last| last.at.end > next.at.start) {
                if last.at.start < next.at.start || last.at == next.at {
                    next = SecretMatch { at: last.at.start..next.at.end, name: last.name };
                }
            }
            found.push(next);
        }
        found
    }
}

/// Maps matches in a decoded text to ranges of the original text.
fn to_original_ranges<'a>(
    encoding: &Encoding,
    text: &[u8],
    found: Vec<SecretMatch<'a>>,
) -> Vec<SecretMatch<'a>> {
    if found.is_empty() {
        return found;
    }
    let ranges: Vec<Range<usize>> = found.iter().map(|one| one.at.clone()).collect();
    let originals = encoding.original_ranges(text, &ranges);
    found.into_iter().zip(originals).map(|(one, at)| SecretMatch { at, ..one }).collect()
}

/// Merges overlapping matches under the name of the first.
fn merge_overlapping(found: Vec<SecretMatch<'_>>) -> Vec<SecretMatch<'_>> {
    let mut merged: Vec<SecretMatch<'_>> = Vec::with_capacity(found.len());
    for one in found {
        match merged.last_mut() {
            Some(last) if one.at.start < last.at.end => last.at.end = last.at.end.max(one.at.end),
            _ => merged.push(one),
        }
    }
    merged
}

/// The length of the token at the start of a valid JSON text.
fn token_end(text: &str, first: char) -> usize {
    match first {
        '"' => {
            let mut escaped = false;
            let end = text.char_indices().skip(1).find(|(_, c)| {
                let ends = *c == '"' && !escaped;
                escaped = *c == '\\' && !escaped;
                ends
            });
            end.map_or(text.len(), |(at, _)| at + 1)
        }
        '-' | '0'..='9' => {
            text.find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E')).unwrap_or(text.len())
        }
        other => other.len_utf8(),
    }
}

fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A form of a value, and its kind of digits.
type EncodedForm = (Zeroizing<Vec<u8>>, Option<DigitKind>);

/// The forms of a value that are searched directly.
fn encoded_forms(value: &str) -> Vec<EncodedForm> {
    let bytes = value.as_bytes();
    let mut forms = Vec::new();
    for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        // The encoded value alone, with and without padding, and as part of a longer encoded text.
        let alone = engine.encode(bytes);
        let padding = "=".repeat((4 - alone.len() % 4) % 4);
        forms.push(format!("{alone}{padding}").into_bytes());
        forms.push(alone.into_bytes());
        for before in 0..3 {
            let shifted = Zeroizing::new([vec![0; before], bytes.to_vec()].concat());
            let digits = engine.encode(&*shifted);
            // Digits that share bits with the surrounding text are left out.
            let (first, end) = ((before * 8).div_ceil(6), shifted.len() * 8 / 6);
            forms.extend(digits.get(first..end).map(|core| core.as_bytes().to_vec()));
        }
    }
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let hex = [hex.to_uppercase(), hex].map(|hex| (Zeroizing::new(hex.into_bytes()), Some(DigitKind::Hex)));
    let base64 = forms.into_iter().map(|form| (Zeroizing::new(form), Some(DigitKind::Base64)));
    let mut forms: Vec<EncodedForm> =
        base64.chain(hex).chain([(Zeroizing::new(bytes.to_vec()), None)]).collect();
    forms.sort_by(|one, other| one.0.cmp(&other.0));
    forms.dedup_by(|one, other| one.0 == other.0);
    forms
}

#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
