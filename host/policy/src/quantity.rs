//! Sizes and times as an operator writes them: `64MiB`, `30s`, or a plain number of bytes.

pub(crate) mod unit;

use std::time::Duration;

/// Parses `1500`, `64KiB`, `2MiB`, `1GiB` (powers of 1024) or `10kB`, `5MB`, `1GB` (powers of 1000) into bytes.
///
/// # Errors
/// Says which form is expected.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let factor: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return Err(format!("`{text}` is not a size: write `64MiB`, `512KiB` or a number of bytes")),
    };
    number
        .and_then(|n| n.checked_mul(factor))
        .ok_or_else(|| format!("`{text}` is not a size: write `64MiB`, `512KiB` or a number of bytes"))
}

/// Parses `250ms`, `30s` or `5m` into a duration. A bare number is refused, because seconds and milliseconds are
/// easily confused.
///
/// # Errors
/// Says which form is expected.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_unit(text);
    let duration = number.and_then(|n| match unit {
        "ms" => Some(Duration::from_millis(n)),
        "s" => Some(Duration::from_secs(n)),
        "m" => n.checked_mul(60).map(Duration::from_secs),
        _ => None,
    });
    duration.ok_or_else(|| format!("`{text}` is not a time: write `250ms`, `30s` or `5m`"))
}

/// Parses an age: `12h`, `90d`, or a form that [`parse_duration`] accepts.
///
/// # Errors
/// Says which form is expected.
pub fn parse_age(text: &str) -> Result<Duration, String> {
    match split_unit(text) {
        (Some(n), "h") if n < 1 << 32 => Ok(Duration::from_secs(n * 3600)),
        (Some(n), "d") if n < 1 << 32 => Ok(Duration::from_secs(n * 86_400)),
        _ => parse_duration(text).map_err(|_| format!("`{text}` is not an age: write `12h` or `90d`")),
    }
}

/// Formats an age so that [`parse_age`] reads it back: in days or hours if it has no smaller part.
#[must_use]
pub fn show_age(age: Duration) -> String {
    match age.as_secs() {
        seconds if age.subsec_nanos() > 0 || seconds == 0 || seconds % 3600 != 0 => show_duration(age),
        seconds if seconds % 86_400 == 0 => format!("{}d", seconds / 86_400),
        seconds => format!("{}h", seconds / 3600),
    }
}

/// Formats bytes so that [`parse_bytes`] reads them back.
#[must_use]
pub fn show_bytes(n: u64) -> String {
    for (factor, unit) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if n >= factor && n.is_multiple_of(factor) {
            return format!("{}{unit}", n / factor);
        }
    }
    n.to_string()
}

/// Formats a duration so that [`parse_duration`] reads it back: in whole minutes from ten minutes on.
#[must_use]
pub fn show_duration(d: Duration) -> String {
    match d.as_millis() {
        ms if ms >= 600_000 && ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        ms if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

fn split_unit(text: &str) -> (Option<u64>, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.replace('_', "").parse().ok(), unit.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_read_back() {
        for (text, n) in [("0", 0), ("1_000", 1000), ("64MiB", 64 << 20), ("2 KiB", 2048), ("5MB", 5_000_000)]
        {
            assert_eq!(parse_bytes(text), Ok(n), "{text}");
        }
        for (text, ms) in [("250ms", 250), ("30s", 30_000), ("5m", 300_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for (text, seconds) in [("1h", 3600), ("90d", 90 * 86_400), ("30s", 30)] {
            assert_eq!(parse_age(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert!(parse_age("1y").is_err() && parse_age("99999999999d").is_err());
        assert_eq!(show_bytes(64 << 20), "64MiB");
        for (ms, shown) in [(1500, "1500ms"), (120_000, "120s"), (600_000, "10m"), (3_601_000, "3601s")] {
            assert_eq!(show_duration(Duration::from_millis(ms)), shown);
        }
    }

    #[test]
    fn vague_quantities_are_refused() {
        for text in ["", "30", "s", "-1s", "1.5s", "1h", "99999999999999999999s", "999999999999999999m"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5MiB", "1mib", "99999999999GiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
