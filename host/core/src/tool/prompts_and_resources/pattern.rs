//! Address patterns: `users/{id}/mails/{mail}`, level 1 of RFC 6570. A placeholder matches a path segment or a part of
//! it.

use std::collections::BTreeMap;

use super::fill::is_name;

/// Longest value of a placeholder in an address, in bytes.
const MAX_VALUE_BYTES: usize = 1024;

/// An address with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    /// The text before the first placeholder.
    head: String,
    /// The names of the placeholders, each with the text after it.
    placeholders: Vec<(String, String)>,
}

impl PathPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The pattern is invalid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = text.split('{');
        let head = pieces.next().unwrap_or_default().to_owned();
        let mut gaps: Vec<(String, String)> = Vec::new();
        for piece in pieces {
            let Some((name, rest)) = piece.split_once('}') else {
                return Err(format!("`{text}` has an unmatched `{{`"));
            };
            if !is_name(name) {
                return Err(format!("the placeholder `{{{name}}}` of `{text}` is not an identifier"));
            }
            if gaps.iter().any(|(other, _)| other == name) {
                return Err(format!("`{text}` has the placeholder `{{{name}}}` twice"));
            }
            if gaps.last().is_some_and(|(_, between)| between.is_empty()) {
                return Err(format!("`{text}` has two placeholders without a text between them"));
            }
            gaps.push((name.to_owned(), rest.to_owned()));
        }
        if head.contains('}') || gaps.iter().any(|(_, rest)| rest.contains('}')) {
            return Err(format!("`{text}` has an unmatched `}}`"));
        }
        Ok(Self { head, placeholders: gaps })
    }

    /// The names of the placeholders, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.placeholders.iter().map(|(name, _)| name.as_str())
    }

    /// The values of the placeholders in an address; `None` if the address does not match. A placeholder ends at the
    /// first occurrence of the text after it, and does not match `/`.
    #[must_use]
    pub fn matches(&self, address: &str) -> Option<BTreeMap<String, String>> {
        let mut rest = address.strip_prefix(self.head.as_str())?;
        let mut values = BTreeMap::new();
        for (index, (name, behind)) in self.placeholders.iter().enumerate() {
            let last = index + 1 == self.placeholders.len();
            let end = match (behind.is_empty(), last) {
                (true, _) => rest.len(),
                // The last text must end the address, or longer addresses would match, too.
                (false, true) => rest.strip_suffix(behind.as_str())?.len(),
                (false, false) => rest.find(behind.as_str())?,
            };
            let (taken, after) = rest.split_at_checked(end)?;
            values.insert(name.clone(), decode_value(taken)?);
            rest = after.strip_prefix(behind.as_str())?;
        }
        rest.is_empty().then_some(values)
    }
}

/// The percent-decoded value; `None` if it is invalid.
fn decode_value(taken: &str) -> Option<String> {
    if taken.is_empty() || taken.len() > MAX_VALUE_BYTES || taken.contains('/') {
        return None;
    }
    let mut bytes = Vec::with_capacity(taken.len());
    let mut rest = taken.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}
