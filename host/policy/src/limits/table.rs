//! Tables of limits. One entry declares a limit completely.
//!
//! `limit_table!` generates from one list of entries: the struct of values, the patch that a policy writes, the range
//! check, the rows of `toolbay explain`, the rows of the documentation and the JSON Schema.

use std::ops::RangeInclusive;

use schemars::Schema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::problem::PolicyProblem;

/// The declaration of one limit.
#[derive(Debug)]
pub struct LimitEntry {
    /// The key in the policy.
    pub key: &'static str,
    /// The lines of its doc comment: what it limits, an empty line, then the reason for the default.
    pub(crate) doc: &'static [&'static str],
    /// The default in words, if it is not an amount.
    pub(crate) default: Option<&'static str>,
    pub(crate) range: RangeInclusive<u64>,
    /// What happens when the limit is reached.
    pub(crate) hit: &'static str,
    pub(crate) notes: &'static [LimitFlag],
    pub(crate) schema: fn(&RangeInclusive<u64>) -> Schema,
}

/// A property that only some limits have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitFlag {
    /// The limit also applies to tools without guest code: services of OpenAPI documents.
    AppliesToServices,
    /// The limit applies to a whole plugin and cannot be set for one tool.
    PerPlugin,
    /// A running host takes over a new value when the policy is reloaded.
    Reloadable,
}

impl LimitEntry {
    /// Returns what it limits, and the reason for the default.
    fn paragraphs(&self) -> (String, String) {
        let mut parts = self.doc.split(|line| line.trim().is_empty()).map(|lines| {
            let lines: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
            lines.join(" ")
        });
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    }

    pub(crate) fn has(&self, note: LimitFlag) -> bool {
        self.notes.contains(&note)
    }
}

/// A table of limits.
pub trait LimitTable: Default {
    /// The part of a policy that sets its values.
    type Patch;
    /// The entries, in the order of the documentation.
    const ENTRIES: &'static [LimitEntry];

    /// The values in the order of the entries, as a policy writes them.
    fn values(&self) -> Vec<String>;

    /// The keys that a patch sets.
    fn keys_of(patch: &Self::Patch) -> Vec<&'static str>;

    /// Checks that all values are in their ranges.
    ///
    /// # Errors
    /// Names the key and the range.
    fn check_ranges(&self) -> Result<(), PolicyProblem>;

    /// The entries with their values.
    fn rows(&self) -> impl Iterator<Item = (&'static LimitEntry, String)> {
        Self::ENTRIES.iter().zip(self.values())
    }

    /// The rows of the documentation: key, default, what it limits, what happens when it is reached.
    #[must_use]
    fn documentation() -> Vec<String> {
        let row = |(entry, default): (&LimitEntry, String)| {
            let what = as_cell_text(&entry.paragraphs().0);
            let default =
                entry.default.map_or_else(|| format!("`{}`", format_value(&default)), str::to_owned);
            let cells = [format!("`{}`", entry.key), default, what, entry.hit.to_owned()];
            let cells: Vec<String> = cells.into_iter().filter(|cell| !cell.is_empty()).collect();
            format!("| {} |", cells.join(" | "))
        };
        Self::default().rows().map(row).collect()
    }
}

/// The schema of a table, restricted to the entries that match `taken`.
pub(crate) fn table_schema<T: LimitTable>(taken: impl Fn(&LimitEntry) -> bool) -> Schema {
    let property = |(entry, default): (&'static LimitEntry, String)| {
        let mut schema = (entry.schema)(&entry.range);
        let (what, why) = entry.paragraphs();
        let default = entry.default.unwrap_or(&default);
        let text = [what, format!("Default: {default}."), why].join(" ");
        schema.insert("description".to_owned(), crate::schema::without_links(text.trim()).into());
        (entry.key.to_owned(), schema.to_value())
    };
    let properties: Map<String, Value> =
        T::default().rows().filter(|(entry, _)| taken(entry)).map(property).collect();
    schemars::json_schema!({"type": "object", "properties": properties, "additionalProperties": false})
}

/// Formats a value for the documentation: texts in quotes, long numbers in groups of three digits.
fn format_value(value: &str) -> String {
    if !value.bytes().all(|b| b.is_ascii_digit()) {
        return format!("{value:?}");
    }
    let group = |(at, digit): (usize, char)| {
        let is_start = at > 0 && (value.len() - at).is_multiple_of(3) && value.len() > 4;
        is_start.then_some('_').into_iter().chain([digit])
    };
    value.chars().enumerate().flat_map(group).collect()
}

/// Turns a sentence into the text of a table cell: without capital letter and full stop.
fn as_cell_text(sentence: &str) -> String {
    let sentence = sentence.strip_suffix('.').unwrap_or(sentence);
    let mut chars = sentence.chars();
    let first = chars.next();
    let is_name = chars.clone().next().is_some_and(|second| second.is_ascii_uppercase());
    match first {
        Some(first) if !is_name => first.to_lowercase().chain(chars).collect(),
        _ => sentence.to_owned(),
    }
}

/// Declares a table of limits. An entry has this form:
///
/// ```text
/// /// What it limits.
/// ///
/// /// The reason for the default.
/// [Variant] key: type as Unit = default => "default in words", range, "what happens when it is hit", LimitFlag;
/// ```
///
/// The variant is present in tables whose limits cause faults of calls. `keys` names the enum of these variants.
macro_rules! limit_table {
    (
        $(#[$meta:meta])*
        pub struct $Table:ident { $($(#[$extra_meta:meta])* pub $extra:ident: $Extra:ty,)* }
        patch $Patch:ident; keys [$($Key:ident)?];
        $(
            $(#[doc = $doc:literal])*
            $([$Variant:ident])? $key:ident: $ty:ty as $Unit:ident = $default:expr $(=> $words:literal)?,
            $range:expr, $hit:literal $(, $note:ident)*;
        )*
    ) => {
        $(#[$meta])*
        pub struct $Table {
            $($(#[doc = $doc])* pub $key: $ty,)*
            $($(#[$extra_meta])* pub $extra: $Extra,)*
        }

        impl Default for $Table {
            fn default() -> Self {
                Self { $($key: $default,)* $($extra: Default::default(),)* }
            }
        }

        #[doc = concat!("The part of a policy that sets [`", stringify!($Table), "`]. An absent key changes nothing.")]
        #[derive(Debug, Clone, Default, PartialEq, ::serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $Patch {
            $($key: $crate::quantity::unit::OptionalQuantity<$ty, $crate::quantity::unit::$Unit>,)*
        }

        impl $Patch {
            /// Applies the patch to `table`.
            #[must_use]
            pub fn apply(&self, mut table: $Table) -> $Table {
                $(if let Some(value) = self.$key.0 { table.$key = value; })*
                table
            }
        }

        impl From<$Patch> for $Table {
            fn from(patch: $Patch) -> Self {
                patch.apply(Self::default())
            }
        }

        impl $crate::limits::table::LimitTable for $Table {
            type Patch = $Patch;
            const ENTRIES: &'static [$crate::limits::table::LimitEntry] = &[$($crate::limits::table::LimitEntry {
                key: stringify!($key),
                doc: &[$($doc),*],
                default: $crate::limits::table::limit_table!(@words $($words)?),
                range: $range,
                hit: $hit,
                notes: &[$($crate::limits::table::LimitFlag::$note),*],
                schema: <$crate::quantity::unit::$Unit as $crate::quantity::unit::Unit<$ty>>::schema,
            },)*];

            fn values(&self) -> Vec<String> {
                use $crate::quantity::unit::{self, Unit};
                vec![$(<unit::$Unit as Unit<$ty>>::show(&self.$key),)*]
            }

            fn keys_of(patch: &$Patch) -> Vec<&'static str> {
                let keys = [$(patch.$key.0.is_some().then_some(stringify!($key)),)*];
                keys.into_iter().flatten().collect()
            }

            fn check_ranges(&self) -> Result<(), $crate::problem::PolicyProblem> {
                use $crate::quantity::unit::{self, Unit};
                $(<unit::$Unit as Unit<$ty>>::check(stringify!($key), &self.$key, &$range)?;)*
                Ok(())
            }
        }

        $crate::limits::table::limit_table!(@schema $Patch $Table);
        $crate::limits::table::limit_table!(@schema $Table $Table);
        $crate::limits::table::limit_table!(@keys [$($Key)?] $($([$Variant])? $key)*);
    };
    (@words) => { None };
    (@words $words:literal) => { Some($words) };
    (@schema $Type:ident $Table:ident) => {
        impl ::schemars::JsonSchema for $Type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($Table).into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                $crate::limits::table::table_schema::<$Table>(|_| true)
            }
        }
    };
    (@keys [] $($rest:tt)*) => {};
    (@keys [$Key:ident] $([$Variant:ident] $key:ident)*) => {
        /// The limits by key.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $Key {
            $(#[doc = concat!("`", stringify!($key), "`")] $Variant,)*
        }

        impl $Key {
            /// The key in the policy.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Variant => stringify!($key),)* }
            }
        }
    };
}

pub(crate) use limit_table;

/// A limit that applies, for `toolbay explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitRow {
    /// The key in the policy.
    pub key: &'static str,
    /// The value as the policy writes it.
    pub value: String,
    /// The place that set it: a policy table, `default`, or the tool's author.
    pub set: String,
    /// The policy line that raises it, or the reason why no line does.
    pub raise: String,
}
