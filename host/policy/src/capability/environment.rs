//! Environment variables that a guest sees, with the host's value or a fixed one.

use std::path::Path;

use crate::rule::GrantRule;

/// One line of an `env` list: `TZ` passes the host's value, `TZ=UTC` sets a fixed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvRule {
    /// The name of the variable.
    pub name: String,
    /// The fixed value. `None` passes the host's value.
    pub value: Option<String>,
}

impl GrantRule for EnvRule {
    const PATTERN: &'static str = "^[A-Za-z_][A-Za-z0-9_]*(=|$)";

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(valid) {
            return Err(format!(
                "`{text}`: write the name of one variable, `TZ`, or with its value, `TZ=UTC`"
            ));
        }
        if value.as_ref().is_some_and(|value| value.contains('\0')) {
            return Err(format!("`{name}`: the value contains a zero byte"));
        }
        Ok(Self { name: name.to_owned(), value })
    }

    fn intersect(&self, other: &Self) -> Option<Self> {
        if self.name != other.name {
            return None;
        }
        match (&self.value, &other.value) {
            (Some(a), Some(b)) if a != b => None,
            (value, None) | (None, value) | (value, Some(_)) => {
                Some(Self { name: self.name.clone(), value: value.clone() })
            }
        }
    }

    fn show(&self, _: &Path) -> String {
        match &self.value {
            Some(value) => format!("{}={value}", self.name),
            None => self.name.clone(),
        }
    }
}
