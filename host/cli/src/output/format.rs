//! Counts, sizes, times and paths as people read them.

use std::path::Path;
use std::time::{Duration, SystemTime};

use toolbay_core::audit::timestamp;
use toolbay_policy::GrantKey;
use toolbay_policy::capability::CapabilityKind;
use toolbay_policy::hidden_chars::escape_hidden;

/// A count with its noun: `1 tool`, `2 tools`, `1,204 records`.
pub(crate) fn count_noun(count: impl TryInto<u64>, one: &str, many: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
}

/// A number with a comma between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A size with two significant digits, in powers of 1000: `0.72 MB` is `720 KB`.
pub(crate) fn size(bytes: u64) -> String {
    scaled(bytes as f64, 1000.0, &["B", "KB", "MB", "GB"])
}

/// A time with two significant digits: `85 µs`, `7.2 ms`, `30 s`.
pub(crate) fn time(duration: Duration) -> String {
    scaled(duration.as_secs_f64() * 1e6, 1000.0, &["µs", "ms", "s"])
}

/// The microseconds since 1970.
pub(crate) fn micros_now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The time as records write it.
pub(crate) fn now() -> String {
    timestamp::rfc3339(micros_now())
}

/// A number in the largest unit in which it is not below one.
fn scaled(mut value: f64, factor: f64, units: &[&str]) -> String {
    let mut unit = units.first().copied().unwrap_or_default();
    for next in units.iter().skip(1) {
        // What would be shown as 1000 is one of the next unit.
        if two_digits(value) < factor {
            break;
        }
        value /= factor;
        unit = next;
    }
    let shown = two_digits(value);
    if shown < 10.0 && shown.fract() != 0.0 {
        format!("{shown:.1} {unit}")
    } else {
        format!("{shown:.0} {unit}")
    }
}

/// Rounds to two significant digits.
fn two_digits(value: f64) -> f64 {
    if value < 9.95 {
        (value * 10.0).round() / 10.0
    } else if value < 99.5 {
        value.round()
    } else {
        (value / 10.0).round() * 10.0
    }
}

/// The value that a percentage of sorted values does not exceed.
pub(crate) fn percentile<T: Copy + Default>(sorted: &[T], percent: usize) -> T {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

/// A path relative to the current directory, or with `~` for the user's home directory.
pub(crate) fn path(path: &Path) -> String {
    let working_dir = std::env::current_dir().ok();
    let path = working_dir.and_then(|working_dir| path.strip_prefix(working_dir).ok()).unwrap_or(path);
    let home = std::env::home_dir().filter(|home| home.parent().is_some());
    let below = home.and_then(|home| path.strip_prefix(home).ok().map(Path::to_path_buf));
    let text = below.map_or_else(|| path.display().to_string(), |below| format!("~/{}", below.display()));
    escape_hidden(&text).replace('\n', "\\n")
}

/// The key of the policy that grants a kind of capability, or the kind if no key does.
pub(crate) fn capability_key(kind: &CapabilityKind) -> &str {
    GrantKey::for_kind(kind).map_or_else(|| kind.as_str(), |key| key.name())
}

/// The target of a capability, and whether the tool works without it.
pub(crate) fn declared_target(target: &str, optional: bool) -> String {
    let parts = [target, if optional { "optional" } else { "" }];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// The first characters of a digest: enough to tell two versions of a plugin apart.
pub(crate) fn short_digest(digest: &str) -> String {
    digest.chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_agrees_with_its_noun() {
        let counts = [0, 1, 2, 1204, 1_000_000].map(|count| count_noun(count, "tool", "tools"));
        assert_eq!(counts, ["0 tools", "1 tool", "2 tools", "1,204 tools", "1,000,000 tools"]);
    }

    #[test]
    fn sizes_and_times_have_two_significant_digits() {
        let sizes = [0, 1, 999, 4600, 717 << 10, 999_600, 18 << 20].map(size);
        assert_eq!(sizes, ["0 B", "1 B", "1 KB", "4.6 KB", "730 KB", "1 MB", "19 MB"]);
        let times =
            [85, 7_240, 99_600, 30_000_000, 125_000_000].map(|micros| time(Duration::from_micros(micros)));
        assert_eq!(times, ["85 µs", "7.2 ms", "100 ms", "30 s", "130 s"]);
    }
}
