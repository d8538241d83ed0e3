//! JSON Schemas (2020-12) as constants.
//!
//! `#[tool]` and `#[data]` write down what they see as a tree of constants. Text is made of it only when the host asks
//! which tools there are, by one loop for all types: no code of schemas is on the way of a call, and none is compiled
//! anew for each type. That is most of what a small plugin would otherwise consist of
//! (`docs/decisions/0028-small-plugins.md`).
//!
//! The text says what a validator needs and no more, since each byte of it stands in every prompt: no `$schema`, no
//! title, no names of Rust's number types. Properties keep the order in which they are written, which is the order in
//! which models fill them in.

mod text;
mod types;

pub(crate) use text::quote;
pub use text::{input_schema, output_schema, settings_schema};

/// A type that has a JSON Schema.
///
/// `#[data]` implements it. By hand it is written for a type whose JSON is another than its fields tell:
///
/// ```
/// use toolbay_sdk::schema::{Node, Schema, Shape};
///
/// struct Day(String);
///
/// impl Schema for Day {
///     const SCHEMA: Node = Node {
///         description: "A day, such as 2026-02-03.",
///         ..Node::new(Shape::String { format: "date" })
///     };
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no JSON Schema",
    note = "write `#[data]` above the type's definition; for a type of another crate, `#[schemars(with = \"…\")]` above the field"
)]
pub trait Schema {
    /// What the schema says.
    const SCHEMA: Node;
}

/// Returns the schema of a type. A function, so that a type can hold itself.
pub fn of<T: Schema + ?Sized>() -> &'static Node {
    const { &T::SCHEMA }
}

/// The schema of some type.
pub type Of = fn() -> &'static Node;

/// A schema.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    /// The type's name, for a type that can hold itself; otherwise empty.
    pub name: &'static str,
    /// What it is, for the model; empty if nothing is said.
    pub description: &'static str,
    /// What it looks like.
    pub shape: Shape,
}

impl Node {
    /// A schema without a name and a description.
    pub const fn new(shape: Shape) -> Self {
        Self { name: "", description: "", shape }
    }
}

/// What a JSON value looks like.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// Anything.
    Any,
    /// Nothing but `null`.
    Null,
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Integer {
        /// The smallest, if the type has one.
        minimum: Option<i64>,
        /// The largest, if the type has one.
        maximum: Option<i64>,
    },
    /// A number.
    Number,
    /// A text.
    String {
        /// Its `format`; empty: any text.
        format: &'static str,
    },
    /// One of these texts.
    Enum(&'static [&'static str]),
    /// This text.
    Const(&'static str),
    /// An array of values that look the same.
    Array {
        /// What they look like.
        items: Of,
        /// Whether none comes twice.
        unique: bool,
        /// How many there are, if the type says.
        length: Option<u64>,
    },
    /// An array of so many values that look like this.
    Tuple(&'static [Of]),
    /// An object with any keys, and values that look the same.
    Map(Of),
    /// An object with these keys.
    Object {
        /// Its members.
        fields: &'static [Field],
        /// Whether there are no others.
        closed: bool,
    },
    /// The other, or `null`.
    Nullable(Of),
    /// As the other, with a description of its own.
    Same(Of),
    /// Exactly one of these.
    OneOf(&'static [Node]),
    /// One or more of these.
    AnyOf(&'static [Node]),
}

/// A member of an object, or an argument of a tool.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its key.
    pub name: &'static str,
    /// What it is, for the model; empty: what its type says.
    pub description: &'static str,
    /// What it looks like.
    pub schema: Of,
    /// What is true of it beyond its type.
    pub limits: Limits,
    /// What it is if it is left out.
    pub default: DefaultValue,
    /// Whether it is there in what is read.
    pub input: Presence,
    /// Whether it is there in what is written.
    pub output: Presence,
    /// Whether its members stand in its place.
    pub flatten: bool,
}

impl Field {
    /// A member that is always there.
    pub const fn new(name: &'static str, schema: Of) -> Self {
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

/// Whether a member is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Never.
    Absent,
    /// It may be left out.
    Optional,
    /// Always; but what can be `null` may be left out of what is read.
    Required,
}

/// What a member is if it is left out.
#[derive(Debug, Clone, Copy)]
pub enum DefaultValue {
    /// Nothing is said about it.
    None,
    /// This JSON.
    Json(&'static str),
    /// The JSON that the function makes.
    Made(fn() -> Option<String>),
}

/// What is true of a value beyond its type.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The smallest number.
    pub minimum: Limit,
    /// The largest number.
    pub maximum: Limit,
    /// The fewest characters of a text, or elements of an array.
    pub min_length: Limit,
    /// The most of them.
    pub max_length: Limit,
    /// A regular expression that the text matches; empty: none.
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
    /// There is none.
    None,
    /// A whole number.
    Whole(i64),
    /// A number as JSON writes it.
    Json(&'static str),
}
