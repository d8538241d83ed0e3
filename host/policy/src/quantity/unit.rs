//! Units of the amounts in a policy: how each is parsed, checked, shown and described in the schema.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::{Schema, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, de};

use super::{parse_bytes, parse_duration, show_bytes, show_duration};
use crate::problem::PolicyProblem;
use crate::schema::inline_schema;

/// A day in milliseconds. Longer times are refused, because some systems cannot represent later deadlines.
pub(crate) const DAY: u64 = 24 * 3600 * 1000;
/// The range of positive amounts.
pub(crate) const POSITIVE: RangeInclusive<u64> = 1..=u64::MAX;
/// The unbounded range.
pub(crate) const ANY: RangeInclusive<u64> = 0..=u64::MAX;

/// The value of `fuel` that turns fuel counting off.
const NO_FUEL_LIMIT: &str = "none";

/// A unit in which a policy writes values of type `T`.
pub(crate) trait Unit<T> {
    /// How a value without an amount is shown.
    const NO_AMOUNT: &'static str = "none";

    fn read<'de, D: Deserializer<'de>>(input: D) -> Result<T, D::Error>;
    /// Reads a value that may be absent.
    fn read_some<'de, D: Deserializer<'de>>(input: D) -> Result<Option<T>, D::Error> {
        Self::read(input).map(Some)
    }

    /// Returns the amount: a count, bytes or milliseconds. `None` if the value has no amount.
    fn amount(value: &T) -> Option<u64>;

    /// Formats an amount as a policy writes it.
    fn show_amount(amount: u64) -> String {
        amount.to_string()
    }

    /// Formats a value as a policy writes it.
    fn show(value: &T) -> String {
        Self::amount(value).map_or_else(|| Self::NO_AMOUNT.to_owned(), Self::show_amount)
    }

    /// Completes the sentence "`key` must be …".
    fn show_range(range: &RangeInclusive<u64>) -> String {
        match (*range.start(), *range.end()) {
            (least, u64::MAX) => format!("at least {}", Self::show_amount(least)),
            (0, most) => format!("at most {}", Self::show_amount(most)),
            (least, most) => format!("from {} to {}", Self::show_amount(least), Self::show_amount(most)),
        }
    }

    /// The JSON Schema of values in a range.
    fn schema(range: &RangeInclusive<u64>) -> Schema;

    /// Checks that a value is in a range.
    fn check(key: &str, value: &T, range: &RangeInclusive<u64>) -> Result<(), PolicyProblem> {
        match Self::amount(value) {
            Some(amount) if !range.contains(&amount) => {
                Err(PolicyProblem::at_keys([key], format!("`{key}` must be {}", Self::show_range(range))))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// A whole number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Count;
/// A size: a number of bytes, or a string such as `64MiB`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bytes;
/// A size as a string such as `64MiB`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Size;
/// A time as a string such as `30s`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Time;
/// A time above zero and at most a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Timeout;
/// Fuel units, or `"none"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fuel;
/// US dollars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dollars;

/// The schema of a whole number in a range. Numbers above the largest safe integer are left to the parser.
fn whole_number(range: &RangeInclusive<u64>) -> Schema {
    let mut schema = json_schema!({"type": "integer", "minimum": range.start()});
    if *range.end() <= 1 << 53 {
        schema.insert("maximum".to_owned(), (*range.end()).into());
    }
    schema
}

/// The schema of a string of a number and a unit.
fn quantity(range: &RangeInclusive<u64>, units: &str) -> Schema {
    let digits = if *range.start() > 0 { "[0-9_]*[1-9][0-9_]*" } else { "[0-9_]*[0-9][0-9_]*" };
    json_schema!({"type": "string", "pattern": format!(r"^\s*{digits}\s*{units}\s*$")})
}

/// The units of sizes. No unit means bytes.
const SIZES: &str = "(B|KiB|MiB|GiB|kB|MB|GB)?";
/// The units of times.
const TIMES: &str = "(ms|s|m|h|d)";

macro_rules! counts {
    ($($ty:ty),*) => {$(
        impl Unit<$ty> for Count {
            fn read<'de, D: Deserializer<'de>>(input: D) -> Result<$ty, D::Error> {
                <$ty>::deserialize(input)
            }

            fn amount(value: &$ty) -> Option<u64> {
                Some(u64::try_from(*value).unwrap_or(u64::MAX))
            }

            fn schema(range: &RangeInclusive<u64>) -> Schema {
                let most = (*range.end()).min(u64::try_from(<$ty>::MAX).unwrap_or(u64::MAX));
                whole_number(&(*range.start()..=most))
            }
        }
    )*};
}

counts!(u32, u64, usize);

/// An amount that may be absent.
impl<U: Unit<u64>> Unit<Option<u64>> for U {
    const NO_AMOUNT: &'static str = <Self as Unit<u64>>::NO_AMOUNT;

    fn read<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
        <Self as Unit<u64>>::read(input).map(Some)
    }

    fn amount(value: &Option<u64>) -> Option<u64> {
        *value
    }

    fn show_amount(amount: u64) -> String {
        <Self as Unit<u64>>::show_amount(amount)
    }

    fn schema(range: &RangeInclusive<u64>) -> Schema {
        <Self as Unit<u64>>::schema(range)
    }
}

impl Unit<u64> for Bytes {
    const NO_AMOUNT: &'static str = "auto";

    fn read<'de, D: Deserializer<'de>>(input: D) -> Result<u64, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "wrong type: expected a number of bytes, or a size as a string, \"64MiB\""
        )]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(input)? {
            Written::Number(number) => Ok(number),
            Written::Text(text) => parse_bytes(&text).map_err(D::Error::custom),
        }
    }

    fn amount(value: &u64) -> Option<u64> {
        Some(*value)
    }

    fn show_amount(amount: u64) -> String {
        show_bytes(amount)
    }

    fn schema(range: &RangeInclusive<u64>) -> Schema {
        let mut schema = whole_number(range);
        schema.insert("type".to_owned(), serde_json::json!(["integer", "string"]));
        schema.insert("pattern".to_owned(), quantity(range, SIZES).get("pattern").cloned().into());
        schema
    }
}

/// Implements a unit that is written as a string: parser, expected form, conversion and formatting of amounts,
/// pattern of units.
macro_rules! texts {
    ($($Unit:ident: $ty:ty = $parse:expr, $expected:literal, $amount:expr, $show:expr, $units:expr;)*) => {$(
        impl Unit<$ty> for $Unit {
            fn read<'de, D: Deserializer<'de>>(input: D) -> Result<$ty, D::Error> {
                let text = input.deserialize_str(StringVisitor($expected))?;
                $parse(&text).map_err(D::Error::custom)
            }

            fn amount(value: &$ty) -> Option<u64> {
                Some($amount(value))
            }

            fn show_amount(amount: u64) -> String {
                $show(amount)
            }

            fn show_range(range: &RangeInclusive<u64>) -> String {
                match (*range.start(), *range.end()) {
                    (1, most) => format!("above zero and at most {}", $show(most)),
                    (0, most) => format!("at most {}", $show(most)),
                    (least, _) => format!("at least {}", $show(least)),
                }
            }

            fn schema(range: &RangeInclusive<u64>) -> Schema {
                quantity(range, $units)
            }
        }
    )*};
}

texts! {
    Size: u64 = parse_bytes, "a size as a string, \"64MiB\"", |value: &u64| *value, show_bytes, SIZES;
    Time: Duration = parse_duration, "a time as a string, \"250ms\", \"30s\", \"5m\", \"12h\" or \"90d\"", milliseconds, show_milliseconds,
        TIMES;
}

fn milliseconds(time: &Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn show_milliseconds(amount: u64) -> String {
    show_duration(Duration::from_millis(amount))
}

impl Unit<Duration> for Timeout {
    fn read<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
        let time = Time::read(input)?;
        if !(1..=DAY).contains(&milliseconds(&time)) {
            return Err(D::Error::custom(format!("a time must be {}", Time::show_range(&(1..=DAY)))));
        }
        Ok(time)
    }

    fn amount(value: &Duration) -> Option<u64> {
        Time::amount(value)
    }

    fn show_amount(amount: u64) -> String {
        show_milliseconds(amount)
    }

    fn schema(_: &RangeInclusive<u64>) -> Schema {
        Time::schema(&(1..=DAY))
    }
}

impl Unit<Option<u64>> for Fuel {
    const NO_AMOUNT: &'static str = NO_FUEL_LIMIT;

    fn read<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
        struct Read;

        impl de::Visitor<'_> for Read {
            type Value = Option<u64>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    f,
                    "a number of units, or \"{NO_FUEL_LIMIT}\", with which only `timeout` limits the work"
                )
            }

            fn visit_u64<E: de::Error>(self, units: u64) -> Result<Self::Value, E> {
                Ok(Some(units))
            }

            fn visit_i64<E: de::Error>(self, units: i64) -> Result<Self::Value, E> {
                let wrong = || E::invalid_value(de::Unexpected::Signed(units), &self);
                u64::try_from(units).map(Some).map_err(|_| wrong())
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Self::Value, E> {
                if word == NO_FUEL_LIMIT {
                    Ok(None)
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(word), &self))
                }
            }
        }

        input.deserialize_any(Read)
    }

    fn amount(value: &Option<u64>) -> Option<u64> {
        *value
    }

    fn show_range(range: &RangeInclusive<u64>) -> String {
        format!("at least {}, or `\"{NO_FUEL_LIMIT}\"` to turn counting off", range.start())
    }

    fn schema(range: &RangeInclusive<u64>) -> Schema {
        json_schema!({"anyOf": [whole_number(range), {"const": NO_FUEL_LIMIT}]})
    }
}

impl Unit<Option<f64>> for Dollars {
    fn read<'de, D: Deserializer<'de>>(input: D) -> Result<Option<f64>, D::Error> {
        f64::deserialize(input).map(Some)
    }

    fn amount(_: &Option<f64>) -> Option<u64> {
        None
    }

    fn show(value: &Option<f64>) -> String {
        value.map_or_else(|| "none".to_owned(), |amount| amount.to_string())
    }

    fn schema(_: &RangeInclusive<u64>) -> Schema {
        json_schema!({"type": "number", "exclusiveMinimum": 0})
    }

    fn check(key: &str, value: &Option<f64>, _: &RangeInclusive<u64>) -> Result<(), PolicyProblem> {
        match value {
            Some(amount) if !amount.is_finite() || *amount <= 0.0 => {
                Err(PolicyProblem::at_keys([key], format!("`{key}` must be an amount above zero")))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Reads a string. The error says which form is expected.
struct StringVisitor(&'static str);

impl de::Visitor<'_> for StringVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

/// The value of an optional key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OptionalQuantity<T, U>(pub(crate) Option<T>, PhantomData<U>);

impl<T, U> Default for OptionalQuantity<T, U> {
    fn default() -> Self {
        Self(None, PhantomData)
    }
}

impl<'de, T, U: Unit<T>> Deserialize<'de> for OptionalQuantity<T, U> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        U::read(input).map(|value| Self(Some(value), PhantomData))
    }
}

inline_schema! { [T, U: Unit<T>] OptionalQuantity<T, U>, "Amount" => U::schema(&ANY); }

#[cfg(test)]
mod tests {
    use super::*;

    fn fuel(text: &str) -> Result<Option<Option<u64>>, String> {
        #[derive(Deserialize)]
        struct Table {
            #[serde(default)]
            fuel: OptionalQuantity<Option<u64>, Fuel>,
        }
        let table: Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let checked = table.fuel.0.map(|fuel| Fuel::check("fuel", &fuel, &POSITIVE).map(|()| fuel));
        checked.transpose().map_err(|problem| problem.to_string())
    }

    #[test]
    fn fuel_is_a_number_or_none() {
        assert_eq!(fuel(""), Ok(None));
        assert_eq!(fuel("fuel = 1_000"), Ok(Some(Some(1000))));
        assert_eq!(fuel("fuel = \"none\""), Ok(Some(None)));
        for (text, part) in [
            ("fuel = 0", "at least 1, or `\"none\"`"),
            ("fuel = -1", "number of units, or \"none\""),
            ("fuel = \"much\"", "`timeout`"),
            ("fuel = \"5\"", "number of units"),
            ("fuel = true", "number of units"),
            ("fuel = 1.5", "number of units"),
        ] {
            let problem = fuel(text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }

    #[test]
    fn a_range_is_shown_in_its_unit() {
        for (shown, expected) in [
            (<Count as Unit<u32>>::show_range(&(1..=1000)), "from 1 to 1000"),
            (<Count as Unit<u32>>::show_range(&(0..=1000)), "at most 1000"),
            (<Bytes as Unit<u64>>::show_range(&(1 << 20..=u64::MAX)), "at least 1MiB"),
            (Time::show_range(&(1..=DAY)), "above zero and at most 1d"),
            (Time::show_range(&(0..=DAY)), "at most 1d"),
        ] {
            assert_eq!(shown, expected);
        }
    }
}
