//! The trace context of a request: `traceparent` of W3C Trace Context, level 1.

/// Longest accepted `traceparent`. Later versions may be longer than the 55 characters of version 00.
const MAX_LENGTH: usize = 256;

/// Parses a `traceparent`. An invalid value counts as absent, as the specification requires.
pub(crate) fn parse_traceparent(value: &str) -> Option<&str> {
    let value = value.trim();
    if value.len() > MAX_LENGTH {
        return None;
    }
    let mut parts = value.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let zero = |text: &str| text.bytes().all(|b| b == b'0');
    let well = hex(version, 2) && hex(trace, 32) && hex(span, 16) && hex(flags, 2);
    if !well || version == "ff" || zero(trace) || zero(span) {
        return None;
    }
    let rest = parts.next();
    // Extensions of later versions are not forwarded.
    match (version, rest) {
        ("00", Some(_)) => None,
        ("00", None) => Some(value),
        _ => value.get(..55),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_traceparent;

    #[test]
    fn only_valid_traceparents_are_accepted() {
        const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
        assert_eq!(parse_traceparent(GOOD), Some(GOOD));
        assert_eq!(parse_traceparent(&format!(" {GOOD} ")), Some(GOOD));
        let later = format!("cc-{}-what-comes", &GOOD[3..]);
        assert_eq!(parse_traceparent(&later), later.get(..55));
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
            assert_eq!(parse_traceparent(bad), None, "{bad:?}");
        }
        assert_eq!(parse_traceparent(&format!("cc{}", "-00".repeat(200))), None);
    }
}
