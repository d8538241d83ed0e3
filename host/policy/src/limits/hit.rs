//! A limit that ended a call, and the policy line that raises it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::hint::{Hint, Remedy, read_setting};

/// The limit that ended a call, and the place that sets it. A reader of records has the name as a `String`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitHit<S = &'static str> {
    /// The limit's key in the policy, such as `fuel`.
    pub name: S,
    /// Its value as the policy writes it.
    pub value: String,
    /// What raises it.
    pub setting: LimitSetting,
}

/// What raises a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum LimitSetting {
    /// A line of the policy: `[plugins.text.limits] fuel = …`.
    Key {
        /// The table with its brackets.
        table: Box<str>,
        /// The key.
        key: Box<str>,
    },
    /// Nothing, for this reason.
    Nothing(String),
}

impl LimitSetting {
    /// Starts the text of a setting if no line raises the limit. The reason follows.
    const NOTHING: &str = "nothing: ";

    /// A key in a table, which is named without its brackets.
    #[must_use]
    pub fn key(table: impl fmt::Display, key: impl Into<Box<str>>) -> Self {
        Self::Key { table: format!("[{table}]").into(), key: key.into() }
    }
}

impl LimitHit {
    /// The hint for the operator. `None` if no policy line raises the limit.
    #[must_use]
    pub fn hint(&self) -> Option<Hint> {
        match &self.setting {
            LimitSetting::Key { table, key } => {
                let (table, key, value) = (table.to_string(), key.to_string(), Some(self.value.clone()));
                Some(Remedy::Raise { table, key, value }.into())
            }
            LimitSetting::Nothing(_) => None,
        }
    }
}

impl fmt::Display for LimitHit {
    /// Writes the name, the value and, if no line raises the limit, the reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the limit `{}` is {}", self.name, self.value)?;
        match &self.setting {
            LimitSetting::Nothing(why) => write!(f, "; {why}"),
            LimitSetting::Key { .. } => Ok(()),
        }
    }
}

impl fmt::Display for LimitSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key { table, key } => write!(f, "{table} {key} = …"),
            Self::Nothing(why) => write!(f, "{}{why}", Self::NOTHING),
        }
    }
}

impl From<LimitSetting> for String {
    fn from(setting: LimitSetting) -> Self {
        setting.to_string()
    }
}

impl From<String> for LimitSetting {
    /// Reads the text of a record.
    fn from(text: String) -> Self {
        match read_setting(&text) {
            Some((table, key)) => Self::Key { table: table.into(), key: key.into() },
            None => Self::Nothing(text.strip_prefix(Self::NOTHING).unwrap_or(&text).to_owned()),
        }
    }
}
