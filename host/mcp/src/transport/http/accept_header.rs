//! The header `Accept` (RFC 9110, section 12.5.1): which forms of a response a client takes.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

use super::headers::split_unquoted;

/// Most ranges of one request that are read. Browsers send about eight.
const MAX_RANGES: usize = 64;

/// The forms of a response that a client takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AcceptedTypes {
    /// One JSON body.
    pub(super) json: bool,
    /// A stream of events.
    pub(super) events: bool,
}

impl AcceptedTypes {
    /// Reads the header. Without one, and without a range in it, a client takes everything.
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let ranges: Vec<MediaRange<'_>> = values
            .flat_map(|value| split_unquoted(value, ','))
            .take(MAX_RANGES)
            .filter_map(MediaRange::parse)
            .collect();
        let accepts = |kind, subtype| ranges.is_empty() || is_accepted(&ranges, kind, subtype);
        Self { json: accepts("application", "json"), events: accepts("text", "event-stream") }
    }
}

/// One media range with its weight.
#[derive(Debug)]
struct MediaRange<'a> {
    kind: &'a str,
    subtype: &'a str,
    is_excluded: bool,
}

impl<'a> MediaRange<'a> {
    /// Parses `type/subtype` and the weight; other parameters do not matter here. `None` for an empty element.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let range = parts.next().filter(|range| !range.is_empty())?;
        // Older Java clients send a bare `*`.
        let (kind, subtype) = range.split_once('/').unwrap_or((range, "*"));
        let is_zero = |part: &str| {
            let weight = part.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
            weight.is_some_and(|(_, weight)| weight.trim().parse() == Ok(0.0_f32))
        };
        Some(Self { kind, subtype, is_excluded: parts.any(is_zero) })
    }

    /// How closely the range names a media type: by its whole name, by its kind, or with all others.
    fn precedence(&self, kind: &str, subtype: &str) -> Option<u8> {
        match (self.kind, self.subtype) {
            ("*", "*") => Some(0),
            (own, "*") if own.eq_ignore_ascii_case(kind) => Some(1),
            (own, exact) if own.eq_ignore_ascii_case(kind) && exact.eq_ignore_ascii_case(subtype) => Some(2),
            _ => None,
        }
    }
}

/// Whether a media type is accepted. The closest range decides; of equally close ones, any that does not exclude it.
fn is_accepted(ranges: &[MediaRange<'_>], kind: &str, subtype: &str) -> bool {
    let matching =
        ranges.iter().filter_map(|range| Some((range.precedence(kind, subtype)?, !range.is_excluded)));
    matching.max().is_some_and(|(_, accepted)| accepted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn accepted(values: &[&str]) -> (bool, bool) {
        let value = |value: &&str| (ACCEPT, HeaderValue::from_str(value).unwrap());
        let accepted = AcceptedTypes::from_headers(&values.iter().map(value).collect());
        (accepted.json, accepted.events)
    }

    #[test]
    fn ranges_and_weights_decide() {
        let all = (true, true);
        for (values, expect) in [
            (&[][..], all),
            (&[""], all),
            (&[" , "], all),
            (&["application/json, text/event-stream"], all),
            (&["application/json", "text/event-stream"], all),
            (&["*/*"], all),
            (&["*"], all),
            (&["text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"], all),
            (&["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"], all),
            (&["application/*;q=0.9, text/*;q=0.5"], all),
            (&["APPLICATION/JSON;charset=utf-8, Text/Event-Stream;Q=0.001"], all),
            (&["application/json"], (true, false)),
            (&["text/event-stream"], (false, true)),
            (&["text/*"], (false, true)),
            (&["application/json, text/event-stream;q=0"], (true, false)),
            (&["*/*, text/event-stream;q=0.0"], (true, false)),
            (&["text/event-stream ; q = 0.000, */*"], (true, false)),
            (&["*/*;q=0, application/json"], (true, false)),
            (&["application/*;q=0, application/json, text/event-stream"], all),
            (&["application/json;q=0, application/json;q=0.5"], (true, false)),
            (&["application/json;q=nonsense"], (true, false)),
            (&["text/html"], (false, false)),
            (&["*/*;q=0"], (false, false)),
            (&["application/json;q=0, text/*;q=0"], (false, false)),
            (&["application/jsonl, text/event-streams, application/vnd.x+json"], (false, false)),
            (&[r#"text/html;note="a, application/json", text/plain"#], (false, false)),
            (&[r#"text/html;note="\", application/json", text/event-stream"#], (false, true)),
            (&["nonsense"], (false, false)),
        ] {
            assert_eq!(accepted(values), expect, "{values:?}");
        }
        let many = format!("{}, application/json", "text/html, ".repeat(MAX_RANGES));
        assert_eq!(accepted(&[&many]), (false, false), "further ranges are not read");
    }
}
