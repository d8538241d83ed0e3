//! `traceparent` of W3C Trace Context, level 1.

use std::fmt;

use serde::{Serialize, Serializer};

/// Longest accepted text. Later versions may be longer than the 55 characters of version 00.
const MAX_LENGTH: usize = 256;
/// The flag of a trace that is recorded.
const SAMPLED: u8 = 1;

/// The position of a span in a trace: a valid `traceparent`.
///
/// ```
/// use toolbay_core::call::trace::TraceParent;
///
/// let text = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
/// let parent = TraceParent::parse(text).unwrap();
/// assert!(parent.is_sampled());
/// assert_eq!(parent.to_string(), text);
/// assert_eq!(TraceParent::parse("00-1"), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    version: u8,
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
}

impl TraceParent {
    /// Parses a `traceparent`. An invalid value counts as absent, as the specification requires. Extensions of later
    /// versions are dropped.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() > MAX_LENGTH {
            return None;
        }
        let mut parts = text.split('-');
        let parent = Self {
            version: u8::from_be_bytes(parse_hex(parts.next()?)?),
            trace_id: parse_hex(parts.next()?)?,
            span_id: parse_hex(parts.next()?)?,
            flags: u8::from_be_bytes(parse_hex(parts.next()?)?),
        };
        let is_valid = parent.version != 0xff
            && parent.trace_id != [0; 16]
            && parent.span_id != [0; 8]
            && (parent.version != 0 || parts.next().is_none());
        is_valid.then_some(parent)
    }

    pub(super) fn new(trace_id: [u64; 2], span_id: [u8; 8], is_sampled: bool) -> Self {
        let [high, low] = trace_id;
        let trace_id = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        Self { version: 0, trace_id, span_id, flags: if is_sampled { SAMPLED } else { 0 } }
    }

    /// Another span of the same trace, in version 00.
    #[must_use]
    pub(super) fn with_span(self, span_id: [u8; 8]) -> Self {
        Self { version: 0, span_id, flags: self.flags & SAMPLED, ..self }
    }

    /// The id of the trace.
    #[must_use]
    pub fn trace_id(&self) -> [u8; 16] {
        self.trace_id
    }

    /// The id of the span.
    #[must_use]
    pub fn span_id(&self) -> [u8; 8] {
        self.span_id
    }

    /// Whether the trace is recorded.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

impl fmt::Display for TraceParent {
    /// Writes the value of the header.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, trace_id, span_id, flags } = self;
        let (trace_id, span_id) = (u128::from_be_bytes(*trace_id), u64::from_be_bytes(*span_id));
        write!(f, "{version:02x}-{trace_id:032x}-{span_id:016x}-{flags:02x}")
    }
}

impl fmt::Debug for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for TraceParent {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

/// Parses `2 * N` digits in lower case.
fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let &[high, low] = pair else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::TraceParent;

    #[test]
    fn only_valid_traceparents_are_accepted() {
        const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
        let parse = |text: &str| TraceParent::parse(text).map(|parent| parent.to_string());
        assert_eq!(parse(GOOD).as_deref(), Some(GOOD));
        assert_eq!(parse(&format!(" {GOOD} ")).as_deref(), Some(GOOD));
        let later = format!("cc-{}-what-comes", &GOOD[3..]);
        assert_eq!(parse(&later).as_deref(), later.get(..55));
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7",
            "00-0AF7651916CD43DD8448EB211C80319C-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
            "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01-x",
            "00-0af7651916cd43dd8448eb211c80319g-00f067aa0ba902b7-01",
            "00-0af7651916cd43dd8448eb211c8031\n9-00f067aa0ba902b7-01",
            "00-\u{e9}af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        assert_eq!(parse(&format!("cc{}", "-00".repeat(200))), None);
    }
}
