//! Capabilities without a target (`clock = true`): a list of one rule, or an empty list.

use std::path::Path;

use schemars::{Schema, json_schema};

use crate::rule::GrantRule;

/// The rule of a granted switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchRule;

impl SwitchRule {
    /// The only line of the list.
    pub(crate) const ON: &str = "true";
}

impl GrantRule for SwitchRule {
    const IS_SWITCH: bool = true;
    const PATTERN: &'static str = "^true$";

    fn list_schema() -> Schema {
        json_schema!({"type": "boolean"})
    }

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        if text == Self::ON { Ok(Self) } else { Err(format!("`{text}`: write `true` or `false`")) }
    }

    /// The target of a declaration is ignored.
    fn parse_declared(_: &str, _: &Path) -> Result<Self, String> {
        Ok(Self)
    }

    fn intersect(&self, _: &Self) -> Option<Self> {
        Some(Self)
    }

    fn show(&self, _: &Path) -> String {
        Self::ON.to_owned()
    }
}
