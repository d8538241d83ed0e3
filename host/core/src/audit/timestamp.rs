//! Timestamps: RFC 3339 in UTC with microseconds. They always have 27 characters, so that texts sort like times. This
//! crate reads no wall clock; callers pass the microseconds since 1970.

use chrono::{DateTime, SecondsFormat};

/// The last microsecond of the year 9999, the latest time that is written.
const LAST: u64 = 253_402_300_799_999_999;

/// Formats a time as `2026-02-03T04:05:06.000007Z`. Times after the year 9999 become its last microsecond.
#[must_use]
pub fn rfc3339(micros: u64) -> String {
    let time = DateTime::from_timestamp_micros(micros.min(LAST).cast_signed()).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// Parses a time from 1970 on, with `Z` or an offset, to microseconds; `None` if it is invalid.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    u64::try_from(DateTime::parse_from_rfc3339(text).ok()?.timestamp_micros()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times_are_formatted_and_parsed() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399_999_999, "2000-02-28T23:59:59.999999Z"),
            (951_868_800_000_001, "2000-03-01T00:00:00.000001Z"),
            (1_709_164_800_000_000, "2024-02-29T00:00:00.000000Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
            (253_402_300_799_000_000, "9999-12-31T23:59:59.000000Z"),
        ] {
            assert_eq!(rfc3339(micros), text);
            assert_eq!(parse(text), Some(micros), "{text}");
        }
        assert_eq!(rfc3339(u64::MAX).len(), 27);
    }

    #[test]
    fn other_valid_forms_are_parsed_and_invalid_texts_are_not() {
        assert_eq!(parse("1970-01-01T02:00:00+02:00"), Some(0));
        assert_eq!(parse("1970-01-01t00:00:00.5z"), Some(500_000));
        assert_eq!(parse("1970-01-01 00:00:01.123456789-00:30"), Some(1_801_123_456));
        for text in [
            "",
            "T",
            "now",
            "1970-01-01",
            "1970-13-01T00:00:00Z",
            "1970-02-29T00:00:00Z",
            "2024-02-30T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:00",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00.xZ",
            "1970-01-01T00:00:00+2",
            "1970-01-01T00:00:00+99:00",
            "1970-01-01T00:00:00é",
            "٣٣٣٣-01-01T00:00:00Z",
            "1970-01-01T00:00:00+02:00",
            "1970-1-1T0:0:0Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn formatted_times_parse_back_and_sort(a in 0u64..253_402_300_799_999_999, b in 0u64..253_402_300_799_999_999) {
            prop_assert_eq!(parse(&rfc3339(a)), Some(a));
            prop_assert_eq!(rfc3339(a).cmp(&rfc3339(b)), a.cmp(&b));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            _ = parse(&text);
        }
    }
}
