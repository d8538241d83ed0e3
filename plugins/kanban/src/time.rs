//! The times of tasks, in Unix milliseconds. Without the capability `clock` the time is constant.
//!
//! Version 0.1.0 stored RFC 3339 texts (`2026-02-03T04:05:06Z`), which are still read.

use std::time::{SystemTime, UNIX_EPOCH};

use toolbay_sdk::serde_json::Value;

/// Now, in Unix milliseconds.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A stored time in Unix milliseconds. `None` if it is no time.
pub(crate) fn from_stored(stored: &Value) -> Option<u64> {
    match stored {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => parse_rfc3339(text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Parses `YYYY-MM-DDThh:mm:ssZ`, the only form that was stored.
fn parse_rfc3339(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, separator| -> Option<[u64; 3]> {
        let numbers: Vec<u64> = text.split(separator).map(str::parse).collect::<Result<_, _>>().ok()?;
        numbers.try_into().ok()
    };
    let ([year, month, day], [hours, minutes, seconds]) = (numbers(date, '-')?, numbers(time, ':')?);
    let is_date = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let is_time = hours < 24 && minutes < 60 && seconds < 61;
    let of_day = hours * 3600 + minutes * 60 + seconds;
    (is_date && is_time).then(|| (days(year, month, day) * 86_400 + of_day) * 1000)
}

/// Days since 1970 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_texts_are_times() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00Z", 951_782_400),
            ("2024-12-31T23:59:59Z", 1_735_689_599),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(from_stored(&text.into()), Some(seconds * 1000), "{text}");
        }
        assert_eq!(from_stored(&7.into()), Some(7));
        for text in
            ["", "2026", "2026-02-03", "2026-13-03T04:05:06Z", "1969-12-31T00:00:00Z", "2026-02-03T04:05Z"]
        {
            assert_eq!(from_stored(&text.into()), None, "{text}");
        }
        assert_eq!(from_stored(&Value::Null), None);
    }
}
