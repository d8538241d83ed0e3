//! How amounts and durations are read from a policy.

use std::time::Duration;

use serde::Deserialize;

use crate::quantity;

pub(crate) fn read_duration<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
    struct Read;
    impl serde::de::Visitor<'_> for Read {
        type Value = Duration;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a time as a string, \"250ms\", \"30s\" or \"5m\"")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Duration, E> {
            quantity::duration(text).map_err(E::custom)
        }
    }
    input.deserialize_str(Read)
}

/// Reads how old something may become; what is absent has no bound.
pub(crate) fn read_age<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(input)?;
    quantity::age(&text).map(Some).map_err(serde::de::Error::custom)
}

pub(crate) fn read_duration_option<'de, D: serde::Deserializer<'de>>(
    input: D,
) -> Result<Option<Duration>, D::Error> {
    read_duration(input).map(Some)
}

/// Reads a number of bytes, or a text with a unit.
pub(crate) fn read_bytes<'de, D: serde::Deserializer<'de>>(input: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "wrong type: expected a number of bytes, or a size as a string, \"64MiB\"")]
    enum Size {
        Number(u64),
        Text(String),
    }
    match Size::deserialize(input)? {
        Size::Number(n) => Ok(n),
        Size::Text(text) => quantity::bytes(&text).map_err(serde::de::Error::custom),
    }
}

/// The same for a key that may be absent.
pub(crate) fn read_bytes_option<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    read_bytes(input).map(Some)
}
