//! Sizes and times as an operator writes them: `64MiB`, `30s`, or a plain number of bytes.

pub(crate) mod unit;

use std::time::Duration;

/// Parses `1500`, `64KiB`, `2MiB`, `1GiB` (powers of 1024) or `10kB`, `5MB`, `1GB` (powers of 1000) into bytes.
///
/// # Errors
/// Describes the expected form.
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

/// Parses `250ms`, `30s`, `5m`, `12h` or `90d` into a duration. A bare number is refused, because seconds and
/// milliseconds are easily confused.
///
/// # Errors
/// Describes the expected form.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_unit(text);
    let seconds = |each: u64| number.and_then(|n| n.checked_mul(each)).map(Duration::from_secs);
    let duration = match unit {
        "ms" => number.map(Duration::from_millis),
        "s" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3600),
        "d" => seconds(86_400),
        _ => None,
    };
    duration.ok_or_else(|| format!("`{text}` is not a time: write `250ms`, `30s`, `5m`, `12h` or `90d`"))
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

/// Formats a duration so that [`parse_duration`] reads it back: in whole days or hours, or in whole minutes from ten
/// minutes on.
#[must_use]
pub fn show_duration(d: Duration) -> String {
    let seconds = d.as_secs();
    match seconds {
        _ if d.subsec_millis() > 0 => format!("{}ms", d.as_millis()),
        s if s > 0 && s.is_multiple_of(86_400) => format!("{}d", s / 86_400),
        s if s > 0 && s.is_multiple_of(3600) => format!("{}h", s / 3600),
        s if s >= 600 && s.is_multiple_of(60) => format!("{}m", s / 60),
        s => format!("{s}s"),
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
        for (text, ms) in
            [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000), ("90d", 90 * 86_400_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(show_bytes(64 << 20), "64MiB");
        for (ms, shown) in [
            (0, "0s"),
            (1500, "1500ms"),
            (120_000, "120s"),
            (600_000, "10m"),
            (3_601_000, "3601s"),
            (7_200_000, "2h"),
            (90 * 86_400_000, "90d"),
        ] {
            assert_eq!(show_duration(Duration::from_millis(ms)), shown);
            assert_eq!(parse_duration(shown), Ok(Duration::from_millis(ms)));
        }
    }

    #[test]
    fn vague_quantities_are_refused() {
        for text in ["", "30", "s", "-1s", "1.5s", "1y", "1M", "99999999999999999999s", "999999999999999999d"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5MiB", "1mib", "99999999999GiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
