//! A limit that ended a call, and the line of the policy that raises it.

use std::fmt;

use serde::Serialize;

use crate::refusal;

/// Which limit ended a call, and where it is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitHit {
    /// The limit's key in the policy, for instance `fuel`.
    pub name: &'static str,
    /// Its value, as an operator writes it.
    pub value: String,
    /// The line that raises it, for instance `[plugins.text.limits] fuel = …`.
    pub setting: String,
}

impl LimitHit {
    /// How a setting begins that is none: what follows says why nothing raises the limit.
    pub const NO_SETTING_PREFIX: &str = "nothing: ";

    /// The line that raises it, for the operator; `None`: no line does.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        (!self.setting.starts_with(Self::NO_SETTING_PREFIX)).then(|| refusal::raise_hint(&self.setting))
    }
}

impl fmt::Display for LimitHit {
    /// Name and value, for anybody, and why nothing raises it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the limit `{}` is {}", self.name, self.value)?;
        match self.setting.strip_prefix(Self::NO_SETTING_PREFIX) {
            Some(why) => write!(f, "; {why}"),
            None => Ok(()),
        }
    }
}
