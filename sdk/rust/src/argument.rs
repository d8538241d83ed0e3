//! Arguments of a tool, out of JSON.
//!
//! Not by serde: the host checked the text against the schema already, what is left is to take it apart, and serde's
//! machinery for any format and any message is several times the size of a small plugin. Types that serde alone can
//! read (enums with data, flattened members, …) still go through it, and only then it is in the component.

mod reader;
mod types;

pub use reader::Reader;

use crate::schema::Schema;
use crate::{Error, Result};

/// A type that a tool can take as an argument. `#[data]` implements it.
#[diagnostic::on_unimplemented(
    message = "a tool cannot take `{Self}` as an argument",
    note = "write `#[data]` above the type's definition; a type of another crate goes into a type of yours"
)]
pub trait Argument: Schema + Sized {
    /// Reads a value.
    fn read(json: &mut Reader<'_>) -> Result<Self>;

    /// Returns what it is if it is left out; by default it may not be.
    fn left_out() -> Option<Self> {
        None
    }
}

/// What is done with members that nobody asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum Unknown {
    Refused,
    Skipped,
}

/// The members of an object, each at the place of its name.
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
        json: &mut Reader<'a>,
        names: &'static [&'static str; COUNT],
        unknown: Unknown,
    ) -> Result<Self> {
        let mut values = [None; COUNT];
        read_members(json, names, unknown, &mut values)?;
        Ok(Self { names, values })
    }

    /// Takes the member at a place of the names.
    pub fn take<T: Argument>(&self, place: usize) -> Result<T> {
        match self.text(place) {
            Some(text) => self.parsed(place, text),
            None => T::left_out().ok_or_else(|| {
                Error::input(format!("missing field `{}`", self.name(place)))
                    .at(format!("/{}", self.name(place)))
            }),
        }
    }

    /// Takes the member at a place of the names, or what it is if it is left out.
    pub fn take_or<T: Argument>(&self, place: usize, default: impl FnOnce() -> T) -> Result<T> {
        match self.text(place) {
            Some(text) => self.parsed(place, text),
            None => Ok(default()),
        }
    }

    fn parsed<T: Argument>(&self, place: usize, text: &str) -> Result<T> {
        T::read(&mut Reader::new(text)).map_err(|error| error.below(self.name(place)))
    }

    fn text(&self, place: usize) -> Option<&'a str> {
        self.values.get(place).copied().flatten()
    }

    fn name(&self, place: usize) -> &'static str {
        self.names.get(place).copied().unwrap_or_default()
    }
}

fn read_call<'a>(args: &'a str, names: &[&str], values: &mut [Option<&'a str>]) -> Result<()> {
    let read = read_members(&mut Reader::new(args), names, Unknown::Refused, values);
    read.map_err(|error| error.context("invalid arguments"))
}

/// Reads an object, each value to the place of its name.
fn read_members<'a>(
    json: &mut Reader<'a>,
    names: &[&str],
    unknown: Unknown,
    values: &mut [Option<&'a str>],
) -> Result<()> {
    json.object(&mut |key, json| {
        let value = json.value()?;
        let place = names.iter().position(|name| *name == key);
        match place.and_then(|place| values.get_mut(place)) {
            Some(slot) => *slot = Some(value),
            None if unknown == Unknown::Refused => {
                return Err(Error::input(format!("unknown field `{key}`, expected {}", one_of(names))));
            }
            None => {}
        }
        Ok(())
    })
}

/// Reads one of some texts, and returns its place among them.
#[doc(hidden)]
pub fn read_choice(json: &mut Reader<'_>, names: &[&str]) -> Result<usize> {
    let text = json.string()?;
    let place = names.iter().position(|name| *name == text);
    place.ok_or_else(|| Error::input(format!("unknown variant `{text}`, expected {}", one_of(names))))
}

/// Reads a value as serde does.
#[doc(hidden)]
pub fn read_by_serde<T: serde::de::DeserializeOwned>(json: &mut Reader<'_>) -> Result<T> {
    serde_json::from_str(json.value()?).map_err(|error| Error::input(error.to_string()))
}

fn one_of(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        [name] => format!("`{name}`"),
        names => format!("one of `{}`", names.join("`, `")),
    }
}
