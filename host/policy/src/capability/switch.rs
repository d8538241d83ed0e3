//! Capabilities without a target (`clock = true`): a list of one rule, or of none.

use std::path::Path;

use schemars::{Schema, json_schema};

use crate::rule::Rule;

/// The capability is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch;

impl Switch {
    /// The one line of the list.
    pub(crate) const ON: &str = "true";
}

impl Rule for Switch {
    const IS_SWITCH: bool = true;
    const PATTERN: &'static str = "^true$";

    fn list_schema() -> Schema {
        json_schema!({"type": "boolean"})
    }

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        if text == Self::ON { Ok(Self) } else { Err(format!("`{text}`: write `true` or `false`")) }
    }

    /// A declaration may write any target.
    fn parse_wish(_: &str, _: &Path) -> Result<Self, String> {
        Ok(Self)
    }

    fn meet(&self, _: &Self) -> Option<Self> {
        Some(Self)
    }

    fn show(&self, _: &Path) -> String {
        Self::ON.to_owned()
    }
}
