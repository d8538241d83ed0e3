//! Addresses with gaps: `users/{id}/mails/{mail}`. Of RFC 6570 the first level: a gap takes one step or a part of it.

use std::collections::BTreeMap;

use super::fill::is_name;

/// Longest value that is taken out of an address, in bytes.
const MAX_TAKEN: usize = 1024;

/// An address with gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    /// What stands before the first gap.
    head: String,
    /// Each gap with what stands behind it.
    gaps: Vec<(String, String)>,
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = text.split('{');
        let head = pieces.next().unwrap_or_default().to_owned();
        let mut gaps: Vec<(String, String)> = Vec::new();
        for piece in pieces {
            let Some((name, rest)) = piece.split_once('}') else {
                return Err(format!("`{text}` has a `{{` without `}}`"));
            };
            if !is_name(name) {
                return Err(format!("`{text}` has the gap `{{{name}}}`, whose name is no identifier"));
            }
            if gaps.iter().any(|(other, _)| other == name) {
                return Err(format!("`{text}` has the gap `{{{name}}}` twice"));
            }
            if gaps.last().is_some_and(|(_, between)| between.is_empty()) {
                return Err(format!("`{text}` has two gaps with nothing between them"));
            }
            gaps.push((name.to_owned(), rest.to_owned()));
        }
        if head.contains('}') || gaps.iter().any(|(_, rest)| rest.contains('}')) {
            return Err(format!("`{text}` has a `}}` without `{{`"));
        }
        Ok(Self { head, gaps })
    }

    /// The names of its gaps, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.gaps.iter().map(|(name, _)| name.as_str())
    }

    /// What fills the gaps of an address; `None`: it is none of this pattern. A gap ends where what stands behind it
    /// is found first, and takes no `/`.
    #[must_use]
    pub fn matches(&self, address: &str) -> Option<BTreeMap<String, String>> {
        let mut rest = address.strip_prefix(self.head.as_str())?;
        let mut values = BTreeMap::new();
        for (index, (name, behind)) in self.gaps.iter().enumerate() {
            let last = index + 1 == self.gaps.len();
            let end = match (behind.is_empty(), last) {
                (true, _) => rest.len(),
                // To the very end, or a longer address would count as this one.
                (false, true) => rest.strip_suffix(behind.as_str())?.len(),
                (false, false) => rest.find(behind.as_str())?,
            };
            let (taken, after) = rest.split_at_checked(end)?;
            values.insert(name.clone(), decoded(taken)?);
            rest = after.strip_prefix(behind.as_str())?;
        }
        rest.is_empty().then_some(values)
    }
}

/// A value without its percent signs; `None`: it is none.
fn decoded(taken: &str) -> Option<String> {
    if taken.is_empty() || taken.len() > MAX_TAKEN || taken.contains('/') {
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
