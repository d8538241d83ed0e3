//! `fuel` as a policy writes it: a number of units, or `"none"`.

use serde::{Deserialize, Deserializer, de};

/// The word for no fuel.
pub(crate) const NONE: &str = "none";

/// What a table says of fuel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fuel {
    /// So many units.
    Units(u64),
    /// Work is not counted.
    None,
}

impl Fuel {
    /// As a limit.
    pub(super) fn units(self) -> Option<u64> {
        match self {
            Self::Units(units) => Some(units),
            Self::None => None,
        }
    }
}

impl<'de> Deserialize<'de> for Fuel {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Read;
        impl de::Visitor<'_> for Read {
            type Value = Fuel;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "a number of units, or \"{NONE}\": `fuel` then bounds nothing, and `timeout` does")
            }

            fn visit_u64<E: de::Error>(self, units: u64) -> Result<Fuel, E> {
                Ok(Fuel::Units(units))
            }

            fn visit_i64<E: de::Error>(self, units: i64) -> Result<Fuel, E> {
                let wrong = || E::invalid_value(de::Unexpected::Signed(units), &self);
                u64::try_from(units).map(Fuel::Units).map_err(|_| wrong())
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Fuel, E> {
                if word == NONE {
                    return Ok(Fuel::None);
                }
                Err(E::invalid_value(de::Unexpected::Str(word), &self))
            }
        }
        input.deserialize_any(Read)
    }
}

/// A number of units as a policy would write it.
pub(super) fn shown(fuel: Option<u64>) -> String {
    fuel.map_or_else(|| NONE.to_owned(), |units| units.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, LimitsPatch};

    fn fuel(text: &str) -> Result<Option<u64>, String> {
        let patch = toml::from_str::<LimitsPatch>(text).map_err(|error| error.to_string())?;
        patch.check()?;
        Ok(patch.apply(Limits::default()).fuel)
    }

    #[test]
    fn fuel_is_a_number_or_none() {
        assert_eq!(fuel(""), Ok(Limits::default().fuel));
        assert!(Limits::default().fuel.is_some(), "work is counted unless the operator says otherwise");
        assert_eq!(fuel("fuel = 1_000"), Ok(Some(1000)));
        assert_eq!(fuel("fuel = \"none\""), Ok(None));
        for (text, part) in [
            ("fuel = 0", "would end every call"),
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
}
