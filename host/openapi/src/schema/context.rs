//! Where a schema stands. The same schema is converted differently in another place.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::discriminator::BranchTag;
use super::read_only::ReadOnlyNames;

/// The part of a form that a schema describes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FormPart {
    /// Nothing, or the inside of a part that is sent as JSON.
    #[default]
    None,
    /// The whole form.
    Whole,
    /// A field. `binary`: its encoding is that of a file, so a schema without a type is one.
    Field { binary: bool },
    /// A member of a field's list.
    Item { binary: bool },
}

impl FormPart {
    /// Where a property stands.
    pub(super) fn property(self, name: &str, binary_fields: &BTreeSet<String>) -> Self {
        match self {
            Self::Whole => Self::Field { binary: binary_fields.contains(name) },
            Self::None | Self::Field { .. } | Self::Item { .. } => Self::None,
        }
    }

    /// Where a member of a list stands.
    pub(super) fn item(self) -> Self {
        match self {
            Self::Field { binary } => Self::Item { binary },
            Self::None | Self::Whole | Self::Item { .. } => Self::None,
        }
    }
}

/// Where a schema stands, as far as its conversion depends on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SchemaContext {
    /// Read-only properties of the same object that other schemas of it declare.
    pub(super) read_only: Option<Arc<ReadOnlyNames>>,
    pub(super) form: FormPart,
    /// The value of a discriminator that chooses this schema.
    pub(super) tag: Option<BranchTag>,
    /// Whether a weaker schema would refuse more: below `not` and `if`.
    pub(super) exact: bool,
}

impl SchemaContext {
    /// Below `not` and `if`.
    pub(super) fn negated() -> Self {
        Self { exact: true, ..Self::default() }
    }

    /// Another value than the one of this schema.
    pub(super) fn inner(&self, form: FormPart) -> Self {
        Self { form, exact: self.exact, ..Self::default() }
    }

    /// Another schema of the same value.
    pub(super) fn same_value(&self, read_only: Option<Arc<ReadOnlyNames>>) -> Self {
        Self { read_only, form: self.form, tag: None, exact: self.exact }
    }
}
