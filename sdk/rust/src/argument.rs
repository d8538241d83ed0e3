//! Reads the arguments of a tool from JSON.
//!
//! This does not use serde: the host has validated the text against the schema, so it only has to be taken apart, and
//! serde's generic code is several times the size of a small plugin. Types that only serde can read (enums with data,
//! flattened members, …) still use it, and only then is serde part of the component.

mod reader;
mod types;

pub use reader::JsonReader;

use crate::schema::Schema;
use crate::{Error, Result};

/// A type that a tool can take as an argument. `#[data]` implements it.
#[diagnostic::on_unimplemented(
    message = "a tool cannot take `{Self}` as an argument",
    note = "write `#[data]` above the type's definition; a type of another crate goes into a type of yours"
)]
pub trait Argument: Schema + Sized {
    /// Reads a value.
    fn read(json: &mut JsonReader<'_>) -> Result<Self>;

    /// Returns the value of an omitted argument. By default an argument is required.
    fn left_out() -> Option<Self> {
        None
    }
}

/// How unknown members are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum UnknownMembers {
    Refused,
    Skipped,
}

/// The values of an object's members, in the order of the expected names.
#[derive(Debug)]
#[doc(hidden)]
pub struct Members<'a, const COUNT: usize> {
    names: &'static [&'static str; COUNT],
    values: [Option<&'a str>; COUNT],
}

impl<'a, const COUNT: usize> Members<'a, COUNT> {
    /// Reads the arguments of a call.
    pub fn of_call(args: &'a str, names: &'static [&'static str; COUNT]) -> Result<Self> {
        let mut values = [None; COUNT];
        read_call(args, names, &mut values)?;
        Ok(Self { names, values })
    }

    /// Reads an object.
    pub fn read(
        json: &mut JsonReader<'a>,
        names: &'static [&'static str; COUNT],
        unknown: UnknownMembers,
    ) -> Result<Self> {
        let mut values = [None; COUNT];
        read_members(json, names, unknown, &mut values)?;
        Ok(Self { names, values })
    }

    /// Takes the member at an index of the names.
    pub fn take<T: Argument>(&self, place: usize) -> Result<T> {
        match self.text(place) {
            Some(text) => self.parsed(place, text),
            None => T::left_out().ok_or_else(|| {
                Error::input(format!("missing field `{}`", self.name(place)))
                    .at(format!("/{}", self.name(place)))
            }),
        }
    }

    /// Takes the member at an index of the names, or its default if it is omitted.
    pub fn take_or<T: Argument>(&self, place: usize, default: impl FnOnce() -> T) -> Result<T> {
        match self.text(place) {
            Some(text) => self.parsed(place, text),
            None => Ok(default()),
        }
    }

    fn parsed<T: Argument>(&self, place: usize, text: &str) -> Result<T> {
        T::read(&mut JsonReader::new(text)).map_err(|error| error.below(self.name(place)))
    }

    fn text(&self, place: usize) -> Option<&'a str> {
        self.values.get(place).copied().flatten()
    }

    fn name(&self, place: usize) -> &'static str {
        self.names.get(place).copied().unwrap_or_default()
    }
}

fn read_call<'a>(args: &'a str, names: &[&str], values: &mut [Option<&'a str>]) -> Result<()> {
    let read = read_members(&mut JsonReader::new(args), names, UnknownMembers::Refused, values);
    read.map_err(|error| error.context("invalid arguments"))
}

/// Reads an object into slots, one for each name.
fn read_members<'a>(
    json: &mut JsonReader<'a>,
    names: &[&str],
    unknown: UnknownMembers,
    values: &mut [Option<&'a str>],
) -> Result<()> {
    json.object(&mut |key, json| {
        let value = json.value()?;
        let place = names.iter().position(|name| *name == key);
        match place.and_then(|place| values.get_mut(place)) {
            Some(slot) => *slot = Some(value),
            None if unknown == UnknownMembers::Refused => {
                return Err(Error::input(format!("unknown field `{key}`, expected {}", one_of(names))));
            }
            None => {}
        }
        Ok(())
    })
}

/// Reads one of several strings and returns its index.
#[doc(hidden)]
pub fn read_choice(json: &mut JsonReader<'_>, names: &[&str]) -> Result<usize> {
    let text = json.string()?;
    let place = names.iter().position(|name| *name == text);
    place.ok_or_else(|| Error::input(format!("unknown variant `{text}`, expected {}", one_of(names))))
}

/// Reads a value with serde.
#[doc(hidden)]
pub fn read_by_serde<T: serde::de::DeserializeOwned>(json: &mut JsonReader<'_>) -> Result<T> {
    serde_json::from_str(json.value()?).map_err(|error| Error::input(error.to_string()))
}

fn one_of(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        [name] => format!("`{name}`"),
        names => format!("one of `{}`", names.join("`, `")),
    }
}
