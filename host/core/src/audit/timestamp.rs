//! Points in time as text: RFC 3339, UTC, microseconds, always 27 characters, so that texts sort as times do.
//! The core has no wall clock: whoever has one gives the microseconds since 1970.

const MICROS: u64 = 1_000_000;
const DAY: u64 = 86_400;
/// Days from 0000-03-01 to 1970-01-01; years are counted from March on, so that a leap day is the last of its year.
const TO_1970: u64 = 719_468;
/// Days of four hundred years.
const ERA: u64 = 146_097;

/// Writes a point in time, `2026-02-03T04:05:06.000007Z`. What is after the year 9999 is its end.
#[must_use]
pub fn rfc3339(micros: u64) -> String {
    let seconds = (micros / MICROS).min(253_402_300_799);
    let (days, rest) = (seconds / DAY + TO_1970, seconds % DAY);
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months from March on have 31, 30, 31, 30, 31 days, and again.
    let month = (5 * day + 2) / 153;
    let (day, march) = (day - (153 * month + 2) / 5 + 1, month < 10);
    let (month, year) = if march { (month + 3, year) } else { (month - 9, year + 1) };
    let fields = [
        (0, 4, year + era * 400),
        (5, 2, month),
        (8, 2, day),
        (11, 2, rest / 3600),
        (14, 2, rest / 60 % 60),
        (17, 2, rest % 60),
        (20, 6, micros % MICROS),
    ];
    // Each call has one in its record: digits are put where they belong, without a formatter.
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    for (at, width, mut value) in fields {
        for digit in text.iter_mut().skip(at).take(width).rev() {
            *digit += u8::try_from(value % 10).unwrap_or_default();
            value /= 10;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads a point in time from 1970 on, with `Z` or an offset, into microseconds; `None` if it is none.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut date = date.splitn(3, '-').map(|part| number(part, &[2, 4]));
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at_checked(zone)?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut clock = clock.splitn(3, ':').map(|part| number(part, &[2]));
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if !(1..=12).contains(&month) || day == 0 || hour > 23 || minute > 59 || second > 60 || year < 1970 {
        return None;
    }
    let days = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    if day > *days.get(usize::try_from(month - 1).ok()?)? {
        return None;
    }
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (years / 400, years % 400);
    let of_year = (153 * months + 2) / 5 + day - 1;
    let days = era * ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - TO_1970;
    let seconds = days * DAY + hour * 3600 + minute * 60 + second;
    let seconds = seconds.checked_add_signed(-offset(zone)?)?;
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    fraction.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
    Some(seconds * MICROS + number(&digits, &[6])?)
}

fn leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Seconds that a zone is ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) = zone.split_at_checked(1)?;
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes) = (number(hours, &[2])?, number(minutes, &[2])?);
    let ahead = i64::try_from(hours * 3600 + minutes * 60).ok()?;
    (hours < 24 && minutes < 60).then_some(if sign == "-" { -ahead } else { ahead })
}

fn number(text: &str, digits: &[usize]) -> Option<u64> {
    let fits = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    fits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_points_in_time() {
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
    fn other_forms_are_read_and_nonsense_is_not() {
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
        fn what_is_written_is_read_back_and_sorts(a in 0u64..253_402_300_799_999_999, b in 0u64..253_402_300_799_999_999) {
            prop_assert_eq!(parse(&rfc3339(a)), Some(a));
            prop_assert_eq!(rfc3339(a).cmp(&rfc3339(b)), a.cmp(&b));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            _ = parse(&text);
        }
    }
}
