//! A limit that ended a call, and the policy line that raises it.

use std::fmt;

use serde::Serialize;

use crate::refusal;

/// The limit that ended a call, and the place that sets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitHit {
    /// The limit's key in the policy, such as `fuel`.
    pub name: &'static str,
    /// Its value as the policy writes it.
    pub value: String,
    /// The policy line that raises it, such as `[plugins.text.limits] fuel = …`.
    pub setting: String,
}

impl LimitHit {
    /// Prefix of a setting if no line raises the limit. The reason follows.
    pub const NO_SETTING_PREFIX: &str = "nothing: ";

    /// The hint for the operator. `None` if no policy line raises the limit.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        (!self.setting.starts_with(Self::NO_SETTING_PREFIX)).then(|| refusal::raise_hint(&self.setting))
    }
}

impl fmt::Display for LimitHit {
    /// Writes the name, the value and, if no line raises the limit, the reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the limit `{}` is {}", self.name, self.value)?;
        match self.setting.strip_prefix(Self::NO_SETTING_PREFIX) {
            Some(why) => write!(f, "; {why}"),
            None => Ok(()),
        }
    }
}
