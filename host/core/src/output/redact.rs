//! Takes the values of secrets out of what leaves the host: `[secret NAME]` stands where a value stood.
//!
//! A value is found as it is and in the forms into which common code turns it on the way:
//!
//! | form | how it is found |
//! |---|---|
//! | verbatim | as it is |
//! | base64, both alphabets, with and without padding, also inside a longer text that was encoded | the digits that depend on the value alone, in each of the three alignments |
//! | hexadecimal, both cases | as digits |
//! | both of these with line breaks, blanks, colons, prefixes and the like between the digits, and dumps of bytes | the text is reduced to its digits and searched |
//! | percent-encoded, both cases, and as a form (`+` for a space) | the text is decoded and searched |
//! | JSON-escaped | the text is decoded and searched |
//! | HTML-escaped | the text is decoded and searched |
//!
//! Those that are decoded in part or in full, once or twice over.
//!
//! JSON texts stay JSON: strings are searched after decoding, a number that holds a value becomes a string, and a text
//! in which a value spans several tokens is replaced whole.
//!
//! This is for accidents and for servers that echo. A plugin that has a value (`reveal = true`) can reverse it, split it
//! over two results or encrypt it; nothing here stops that. Values shorter than [`MIN_BYTES`] are not searched for:
//! they would be found in everything.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use crate::tool::content::{BlockBody, ContentBlock, ResourceBody, ToolError, ToolOutput};
use crate::tool::json;

mod compact;
mod decode;

use compact::{Digits, VIEWS};
use decode::{ENCODINGS, Encoding};

/// Shortest value that is searched for, in bytes.
pub const MIN_BYTES: usize = 8;
/// Most bytes of all values together: the automaton takes some hundred times as much.
pub const MAX_BYTES: usize = 256 << 10;

/// Finds values and replaces them. Costs nothing when there are none.
#[derive(Clone, Default)]
pub struct Redactor(Option<Arc<Patterns>>);

struct Patterns {
    forms: AhoCorasick,
    /// The name behind each form.
    names: Vec<Arc<str>>,
    /// The digits of which each form is, if it is of such.
    digits: Vec<Option<Digits>>,
    /// The most bytes that one of the values takes in any form.
    reach: usize,
}

/// The most bytes that a value takes in any form that is searched for: escaped twice, a byte takes up to twelve.
#[must_use]
pub const fn reach(value_bytes: usize) -> usize {
    12 * value_bytes + 16
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forms = self.0.as_ref().map_or(0, |patterns| patterns.names.len());
        f.debug_struct("Redactor").field("forms", &forms).finish_non_exhaustive()
    }
}

/// Where a value was found, and whose.
struct Found<'a> {
    at: Range<usize>,
    name: &'a str,
}

impl Redactor {
    /// A redactor for values by name.
    ///
    /// # Errors
    /// When the values are more than [`MAX_BYTES`], or no automaton can be made of them.
    pub fn new<'a>(values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let (mut forms, mut names, mut digits) = (Vec::new(), Vec::new(), Vec::new());
        let (mut bytes, mut longest) = (0, 0);
        for (name, value) in values.into_iter().filter(|(_, value)| value.len() >= MIN_BYTES) {
            bytes += value.len();
            longest = longest.max(value.len());
            let name: Arc<str> = name.into();
            for (form, of) in forms_of(value) {
                forms.push(form);
                digits.push(of);
                names.push(Arc::clone(&name));
            }
        }
        if bytes > MAX_BYTES {
            return Err(format!(
                "the values of all secrets have {bytes} bytes; at most {MAX_BYTES} are taken"
            ));
        }
        if forms.is_empty() {
            return Ok(Self::default());
        }
        let made = AhoCorasick::new(&forms);
        let forms = made.map_err(|e| format!("no search for the values of secrets could be made: {e}"))?;
        Ok(Self(Some(Arc::new(Patterns { forms, names, digits, reach: reach(longest) }))))
    }

    /// Whether there is nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// A text without values.
    #[must_use]
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
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
        for Found { at, name } in merge(found) {
            out.push_str(text.get(done..at.start).unwrap_or_default());
            out.extend(["[secret ", name, "]"]);
            done = at.end;
        }
        out.push_str(text.get(done..).unwrap_or_default());
        Cow::Owned(out)
    }

    /// The beginning of a text without values: what stands in its first `most` characters, and whether there is more. No
    /// more of a long text is looked at than that takes, and a value that stands across its end is taken out whole.
    #[must_use]
    pub fn start<'t>(&self, text: &'t str, most: usize) -> (Cow<'t, str>, bool) {
        let end = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
        let more = end < text.len();
        let Some(patterns) = &self.0 else {
            return (Cow::Borrowed(text.get(..end).unwrap_or_default()), more);
        };
        let seen = text.get(..text.ceil_char_boundary(end.saturating_add(patterns.reach)));
        match self.head(seen.unwrap_or(text).as_bytes(), end, |_| true) {
            Some((clean, _)) => (Cow::Owned(String::from_utf8_lossy(&clean).into_owned()), more),
            None => (Cow::Borrowed(text.get(..end).unwrap_or_default()), more),
        }
    }

    /// Bytes without the values of the secrets that `which` names.
    #[must_use]
    pub fn bytes(&self, bytes: Vec<u8>, which: impl Fn(&str) -> bool) -> Vec<u8> {
        match self.head(&bytes, bytes.len(), which) {
            Some((clean, _)) => clean,
            None => bytes,
        }
    }

    /// The first `end` bytes without values, or a few more if a value stands across that place; and how many bytes that
    /// were. `None` if nothing was found.
    #[must_use]
    pub fn head(&self, bytes: &[u8], end: usize, which: impl Fn(&str) -> bool) -> Option<(Vec<u8>, usize)> {
        let found = merge(self.0.as_ref()?.find(bytes, which));
        let mut out = Vec::with_capacity(end);
        let mut done = 0;
        for Found { at, name } in found.iter().filter(|one| one.at.start < end) {
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

    /// A JSON text without values, and still JSON.
    #[must_use]
    pub fn json(&self, raw: Box<RawValue>) -> Box<RawValue> {
        let Some(patterns) = &self.0 else { return raw };
        let text = raw.get();
        let plain = !text.contains(['\\', '%', '+', '&']) && !patterns.has_any(text);
        if plain {
            return raw;
        }
        let clean = self.tokens(text);
        // A value may look like JSON itself, and a key may now stand twice.
        let sound = !patterns.has_any(&clean) && json::check(&clean).is_ok();
        let clean = if sound { clean } else { r#"{"redacted":"[secret]"}"#.to_owned() };
        RawValue::from_string(clean).unwrap_or_default()
    }

    /// Cleans the strings and numbers of a valid JSON text one by one.
    fn tokens(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let (token, after) = rest.split_at(token_end(rest, first));
            rest = after;
            match first {
                '"' => {
                    let inner: String = serde_json::from_str(token).unwrap_or_default();
                    match self.text(&inner) {
                        Cow::Borrowed(_) => out.push_str(token),
                        Cow::Owned(clean) => out.push_str(&quoted(&clean)),
                    }
                }
                '-' | '0'..='9' => match self.text(token) {
                    Cow::Borrowed(_) => out.push_str(token),
                    Cow::Owned(clean) => out.push_str(&quoted(&clean)),
                },
                _ => out.push_str(token),
            }
        }
        out
    }

    /// An error without values.
    #[must_use]
    pub fn error(&self, error: ToolError) -> ToolError {
        let subject = error.subject.map(|subject| self.owned(subject));
        let hint = error.hint.map(|hint| self.owned(hint));
        ToolError { message: self.owned(error.message), subject, hint, ..error }
    }

    /// An output without values: text, structured part, blocks, metadata.
    #[must_use]
    pub fn output(&self, output: ToolOutput) -> ToolOutput {
        if self.is_empty() {
            return output;
        }
        ToolOutput {
            value: self.owned(output.value),
            structured: output.structured.map(|raw| self.json(raw)),
            content: output.content.into_iter().map(|block| self.block(block)).collect(),
            cost_usd: output.cost_usd,
            meta: output.meta.map(|raw| self.json(raw)),
        }
    }

    /// As [`Redactor::text`], for a text that is owned.
    #[must_use]
    pub fn owned(&self, text: String) -> String {
        match self.text(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(clean) => clean,
        }
    }

    /// Pictures and sounds are searched as bytes: an SVG is text, and a hit of eight bytes in a compressed picture is
    /// no accident.
    fn block(&self, mut block: ContentBlock) -> ContentBlock {
        let clean = |text: &mut String| *text = self.owned(std::mem::take(text));
        let maybe = |text: &mut Option<String>| *text = text.take().map(|text| self.owned(text));
        let data = |data: &mut Vec<u8>| *data = self.bytes(std::mem::take(data), |_| true);
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

impl Patterns {
    /// Whether a value stands in a text, as it is or as digits.
    fn has_any(&self, text: &str) -> bool {
        !self.search(text.as_bytes(), &|_| true).is_empty()
    }

    /// All places, in the order of their beginnings.
    fn find(&self, text: &[u8], which: impl Fn(&str) -> bool) -> Vec<Found<'_>> {
        let mut all = self.search(text, &which);
        for encoding in &ENCODINGS {
            let Some(once) = encoding.decode(text) else { continue };
            all.extend(moved(encoding, text, self.search(&once, &which)));
            if let Some(twice) = encoding.decode(&once) {
                let found = moved(encoding, &once, self.search(&twice, &which));
                all.extend(moved(encoding, text, found));
            }
        }
        all.sort_by_key(|one| (one.at.start, std::cmp::Reverse(one.at.end)));
        all
    }

    /// The places of the forms in a text; those that overlap are one. Every hit is looked at: one value may be equal to
    /// another, contain it or begin with it, and of those that cover each other any may be the one that is asked for.
    fn search<'a>(&'a self, text: &[u8], which: &impl Fn(&str) -> bool) -> Vec<Found<'a>> {
        let mut found = self.hits(text, None, which);
        let direct = found.len();
        for view in &VIEWS {
            let digits = view.digits(text);
            if digits.len() == text.len() && view.shows == Digits::Base64 {
                continue;
            }
            let there = self.hits(&digits, Some(view.shows), which);
            let ranges: Vec<Range<usize>> = there.iter().map(|one| one.at.clone()).collect();
            if !ranges.is_empty() {
                let originals = view.originals(text, &ranges);
                found.extend(there.into_iter().zip(originals).map(|(one, at)| Found { at, ..one }));
            }
        }
        if found.len() > direct {
            found.sort_by_key(|one| (one.at.start, std::cmp::Reverse(one.at.end)));
            found = merge(found);
        }
        found
    }

    /// The places of the forms in a text as it is, of all or of those of one kind of digits.
    fn hits<'a>(
        &'a self,
        text: &[u8],
        digits: Option<Digits>,
        which: &impl Fn(&str) -> bool,
    ) -> Vec<Found<'a>> {
        let mut found: Vec<Found<'a>> = Vec::new();
        // Hits come in the order of their ends.
        for hit in self.forms.find_overlapping_iter(text) {
            let form = hit.pattern().as_usize();
            if digits.is_some() && self.digits.get(form).copied().flatten() != digits {
                continue;
            }
            let Some(name) = self.names.get(form).filter(|name| which(name)) else {
                continue;
            };
            let mut one = Found { at: hit.range(), name };
            while let Some(last) = found.pop_if(|last| last.at.end > one.at.start) {
                if last.at.start < one.at.start || last.at == one.at {
                    one = Found { at: last.at.start..one.at.end, name: last.name };
                }
            }
            found.push(one);
        }
        found
    }
}

/// Puts places in a decoded text back to where they stand in the text.
fn moved<'a>(encoding: &Encoding, text: &[u8], found: Vec<Found<'a>>) -> Vec<Found<'a>> {
    if found.is_empty() {
        return found;
    }
    let ranges: Vec<Range<usize>> = found.iter().map(|one| one.at.clone()).collect();
    let originals = encoding.originals(text, &ranges);
    found.into_iter().zip(originals).map(|(one, at)| Found { at, ..one }).collect()
}

/// Places that overlap become one, under the name of the first.
fn merge(found: Vec<Found<'_>>) -> Vec<Found<'_>> {
    let mut merged: Vec<Found<'_>> = Vec::with_capacity(found.len());
    for one in found {
        match merged.last_mut() {
            Some(last) if one.at.start < last.at.end => last.at.end = last.at.end.max(one.at.end),
            _ => merged.push(one),
        }
    }
    merged
}

/// The length of the token at the beginning of a valid JSON text.
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

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A form of a value, and the digits of which it is.
type Form = (Zeroizing<Vec<u8>>, Option<Digits>);

/// The forms of a value that are searched for as they are.
fn forms_of(value: &str) -> Vec<Form> {
    let bytes = value.as_bytes();
    let mut forms = Vec::new();
    for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        // On its own, with its last digit and with padding; and inside of something.
        let alone = engine.encode(bytes);
        let padding = "=".repeat((4 - alone.len() % 4) % 4);
        forms.push(format!("{alone}{padding}").into_bytes());
        forms.push(alone.into_bytes());
        for before in 0..3 {
            let shifted = Zeroizing::new([vec![0; before], bytes.to_vec()].concat());
            let digits = engine.encode(&*shifted);
            // Digits that hold bits of what stands before or behind are left out.
            let (first, end) = ((before * 8).div_ceil(6), shifted.len() * 8 / 6);
            forms.extend(digits.get(first..end).map(|core| core.as_bytes().to_vec()));
        }
    }
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let hex = [hex.to_uppercase(), hex].map(|hex| (Zeroizing::new(hex.into_bytes()), Some(Digits::Hex)));
    let base64 = forms.into_iter().map(|form| (Zeroizing::new(form), Some(Digits::Base64)));
    let mut forms: Vec<Form> = base64.chain(hex).chain([(Zeroizing::new(bytes.to_vec()), None)]).collect();
    forms.sort_by(|one, other| one.0.cmp(&other.0));
    forms.dedup_by(|one, other| one.0 == other.0);
    forms
}

#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
