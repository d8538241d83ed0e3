//! JSON Schemas (2020-12) as constants.
//!
//! `#[tool]` and `#[data]` generate a tree of constants. One loop for all types turns it into text, and only when the host
//! queries the tools. Calls therefore run no schema code, and no schema code is compiled for each type. Such code would
//! be the largest part of a small plugin
//! (`docs/decisions/0028-small-plugins.md`).
//!
//! The text has only what a validator needs, because each byte of it stands in every prompt: no `$schema`, no title, no
//! names of Rust's number types. Properties keep the order of their fields, which is the order in
//! which models fill them in.

mod text;
mod types;

pub(crate) use text::quote;
pub use text::{input_schema, output_schema, settings_schema};

/// A type that has a JSON Schema.
///
/// `#[data]` implements it. Implement it by hand for a type whose JSON differs from its fields:
///
/// ```
/// use toolbay_sdk::schema::{Node, Schema, SchemaShape};
///
/// struct Day(String);
///
/// impl Schema for Day {
///     const SCHEMA: Node = Node {
///         description: "A day, such as 2026-02-03.",
///         ..Node::new(SchemaShape::String { format: "date" })
///     };
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no JSON Schema",
    note = "write `#[data]` above the type's definition; for a type of another crate, `#[schemars(with = \"…\")]` above the field"
)]
pub trait Schema {
    /// The schema of the type.
    const SCHEMA: Node;
}

/// Returns the schema of a type. It is a function so that a type can contain itself.
pub fn of<T: Schema + ?Sized>() -> &'static Node {
    const { &T::SCHEMA }
}

/// The schema of some type.
pub type SchemaOf = fn() -> &'static Node;

/// A schema.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    /// The type's name, for a type that can contain itself; otherwise empty.
    pub name: &'static str,
    /// The description for the model, possibly empty.
    pub description: &'static str,
    /// The shape of the values.
    pub shape: SchemaShape,
}

impl Node {
    /// A schema without a name and a description.
    pub const fn new(shape: SchemaShape) -> Self {
        Self { name: "", description: "", shape }
    }
}

/// The shape of a JSON value.
#[derive(Debug, Clone, Copy)]
pub enum SchemaShape {
    /// Any value.
    Any,
    /// Only `null`.
    Null,
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Integer {
        /// The minimum, if the type has one.
        minimum: Option<i64>,
        /// The maximum, if the type has one.
        maximum: Option<i64>,
    },
    /// A number.
    Number,
    /// A string.
    String {
        /// The `format` of the string, possibly empty.
        format: &'static str,
    },
    /// One of these strings.
    Enum(&'static [&'static str]),
    /// This string.
    Const(&'static str),
    /// An array with elements of one shape.
    Array {
        /// The shape of the elements.
        items: SchemaOf,
        /// Whether the elements are unique.
        unique: bool,
        /// The number of elements, if it is fixed.
        length: Option<u64>,
    },
    /// An array with one shape for each element.
    Tuple(&'static [SchemaOf]),
    /// An object with arbitrary keys and values of one shape.
    Map(SchemaOf),
    /// An object with these keys.
    Object {
        /// The members.
        fields: &'static [Field],
        /// Whether other keys are forbidden.
        closed: bool,
    },
    /// The other schema, or `null`.
    Nullable(SchemaOf),
    /// The other schema with its own description.
    Same(SchemaOf),
    /// Exactly one of these.
    OneOf(&'static [Node]),
    /// At least one of these.
    AnyOf(&'static [Node]),
}

/// A member of an object, or an argument of a tool.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The key.
    pub name: &'static str,
    /// The description for the model. If it is empty, the description of the type applies.
    pub description: &'static str,
    /// The schema of the value.
    pub schema: SchemaOf,
    /// Constraints beyond the type.
    pub limits: Limits,
    /// The value of an omitted member.
    pub default: DefaultValue,
    /// Whether the member is present in input.
    pub input: Presence,
    /// Whether the member is present in output.
    pub output: Presence,
    /// Whether its members are flattened into the object.
    pub flatten: bool,
}

impl Field {
    /// A required member.
    pub const fn new(name: &'static str, schema: SchemaOf) -> Self {
        Self {
            name,
            description: "",
            schema,
            limits: Limits::NONE,
            default: DefaultValue::None,
            input: Presence::Required,
            output: Presence::Required,
            flatten: false,
        }
    }
}

/// Whether a member is present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Never.
    Absent,
    /// Optional.
    Optional,
    /// Required, except that a nullable member may be missing from input.
    Required,
}

/// The default of a member.
#[derive(Debug, Clone, Copy)]
pub enum DefaultValue {
    /// No default.
    None,
    /// This JSON.
    Json(&'static str),
    /// The JSON that the function returns.
    Made(fn() -> Option<String>),
}

/// Constraints on a value beyond its type.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The minimum of a number.
    pub minimum: Limit,
    /// The maximum of a number.
    pub maximum: Limit,
    /// The minimum number of characters of a string, or of elements of an array.
    pub min_length: Limit,
    /// The maximum number of characters or elements.
    pub max_length: Limit,
    /// A regular expression that the string must match, possibly empty.
    pub pattern: &'static str,
}

impl Limits {
    /// No limits.
    pub const NONE: Self = Self {
        minimum: Limit::None,
        maximum: Limit::None,
        min_length: Limit::None,
        max_length: Limit::None,
        pattern: "",
    };
}

/// A number of a schema.
#[derive(Debug, Clone, Copy)]
pub enum Limit {
    /// No constraint.
    None,
    /// A whole number.
    Whole(i64),
    /// A number as JSON writes it.
    Json(&'static str),
}
