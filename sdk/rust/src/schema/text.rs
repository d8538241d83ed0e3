//! The text of a schema.

use super::{DefaultValue, Field, Limit, Limits, Node, Presence, Schema, SchemaOf, SchemaShape};

/// Returns the schema of a tool's arguments.
pub fn input_schema(fields: &'static [Field]) -> String {
    let mut text = SchemaText::new(Nesting::Input);
    text.open('{');
    text.member("type", "\"object\"");
    text.key("additionalProperties");
    text.out.push_str("false");
    text.properties(fields);
    text.definitions();
    text.close('}');
    text.out
}

/// Returns the schema of `T` as structured output.
///
/// The schema mirrors the conversion of the value: an object is unchanged, anything else is wrapped under `result`. Where
/// the type does not tell (an `Option`, an enum), the schema allows both.
pub fn output_schema<T: Schema + ?Sized>() -> String {
    output_schema_of(super::of::<T>)
}

fn output_schema_of(schema: SchemaOf) -> String {
    let mut text = SchemaText::new(Nesting::Output);
    match wrapping(schema) {
        Wrapping::Never => text.schema(schema),
        Wrapping::Always => text.wrapped(schema),
        Wrapping::Perhaps => {
            text.open('{');
            text.member("type", "\"object\"");
            text.key("anyOf");
            text.open('[');
            text.comma();
            text.schema(schema);
            text.comma();
            text.wrapped(schema);
            text.close(']');
            text.close('}');
        }
    }
    text.whole()
}

/// Returns the schema of the operator's settings. Unknown keys are forbidden, because they would be ignored and are most
/// likely typos.
pub fn settings_schema(schema: SchemaOf) -> String {
    let node = schema();
    let mut text = SchemaText::new(Nesting::Input);
    match node.shape {
        SchemaShape::Object { fields, closed: false } if !fields.iter().any(|field| field.flatten) => {
            let closed = Node { shape: SchemaShape::Object { fields, closed: true }, ..*node };
            if !node.name.is_empty() {
                text.inside.push(address(schema));
            }
            text.object(&closed, DepthExceeded::NOTHING.or_description(node.description));
        }
        _ => text.schema(schema),
    }
    text.whole()
}

enum Wrapping {
    Never,
    Always,
    Perhaps,
}

fn wrapping(schema: SchemaOf) -> Wrapping {
    match schema().shape {
        SchemaShape::Object { .. } | SchemaShape::Map(_) => Wrapping::Never,
        SchemaShape::Same(other) => wrapping(other),
        SchemaShape::Any | SchemaShape::Nullable(_) | SchemaShape::OneOf(_) | SchemaShape::AnyOf(_) => {
            Wrapping::Perhaps
        }
        SchemaShape::Null
        | SchemaShape::Boolean
        | SchemaShape::Integer { .. }
        | SchemaShape::Number
        | SchemaShape::String { .. }
        | SchemaShape::Enum(_)
        | SchemaShape::Const(_)
        | SchemaShape::Array { .. }
        | SchemaShape::Tuple(_) => Wrapping::Always,
    }
}

/// The direction: a member may be missing from input but not from output, or the reverse.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nesting {
    Input,
    Output,
}

/// What a member adds to the schema of its type.
#[derive(Clone, Copy)]
struct DepthExceeded {
    description: &'static str,
    limits: Limits,
    default: DefaultValue,
}

impl DepthExceeded {
    const NOTHING: Self = Self { description: "", limits: Limits::NONE, default: DefaultValue::None };

    fn or_description(self, description: &'static str) -> Self {
        if self.description.is_empty() { Self { description, ..self } } else { self }
    }

    fn is_nothing(&self) -> bool {
        self.description.is_empty() && matches!(self.default, DefaultValue::None)
    }
}

struct SchemaText {
    out: String,
    way: Nesting,
    /// Whether the next member is the first of its object or array.
    first: bool,
    /// The named types that are being written.
    inside: Vec<usize>,
    /// The types that contain themselves.
    recursive: Vec<SchemaOf>,
}

impl SchemaText {
    fn new(way: Nesting) -> Self {
        Self { out: String::new(), way, first: true, inside: Vec::new(), recursive: Vec::new() }
    }

    /// Finishes the text with the definitions, which belong to the root object.
    fn whole(mut self) -> String {
        if !self.recursive.is_empty() && self.out.pop().is_some() {
            self.first = false;
            self.definitions();
            self.out.push('}');
        }
        self.out
    }

    fn open(&mut self, bracket: char) {
        self.out.push(bracket);
        self.first = true;
    }

    fn close(&mut self, bracket: char) {
        self.out.push(bracket);
        self.first = false;
    }

    fn comma(&mut self) {
        if !self.first {
            self.out.push(',');
        }
        self.first = false;
    }

    fn key(&mut self, key: &str) {
        self.comma();
        quote(&mut self.out, key);
        self.out.push(':');
    }

    /// A member whose value is already JSON.
    fn member(&mut self, key: &str, json: &str) {
        self.key(key);
        self.out.push_str(json);
    }

    fn string(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.key(key);
            quote(&mut self.out, value);
        }
    }

    fn limit(&mut self, key: &str, limit: Limit) {
        match limit {
            Limit::None => {}
            Limit::Whole(number) => self.member(key, &number.to_string()),
            Limit::Json(json) => self.member(key, json),
        }
    }

    fn schema(&mut self, schema: SchemaOf) {
        self.typed(schema, DepthExceeded::NOTHING, false);
    }

    /// A schema with additions, optionally with `null` as an alternative.
    fn typed(&mut self, schema: SchemaOf, beyond: DepthExceeded, null: bool) {
        let node = schema();
        let inside = address(schema);
        if !node.name.is_empty() && self.inside.contains(&inside) {
            self.reference(schema, node, beyond, null);
            return;
        }
        if !node.name.is_empty() {
            self.inside.push(inside);
        }
        let described = beyond.or_description(node.description);
        match node.shape {
            SchemaShape::Nullable(other) => self.typed(other, described, true),
            SchemaShape::Same(other) => self.typed(other, described, null),
            SchemaShape::OneOf(_) | SchemaShape::AnyOf(_) if null => {
                self.or_null(beyond, |text| {
                    text.object(node, DepthExceeded::NOTHING.or_description(node.description));
                });
            }
            SchemaShape::Any if described.is_nothing() => self.out.push_str("true"),
            _ => {
                self.open('{');
                self.members(node, described, null);
                self.close('}');
            }
        }
        if !node.name.is_empty() {
            self.inside.pop();
        }
    }

    fn object(&mut self, node: &Node, beyond: DepthExceeded) {
        self.open('{');
        self.members(node, beyond, false);
        self.close('}');
    }

    fn or_null(&mut self, beyond: DepthExceeded, other: impl FnOnce(&mut Self)) {
        self.open('{');
        self.string("description", beyond.description);
        self.default(beyond.default);
        self.key("anyOf");
        self.open('[');
        self.comma();
        other(self);
        self.comma();
        self.out.push_str("{\"type\":\"null\"}");
        self.close(']');
        self.close('}');
    }

    /// The reference to a type that is nested in itself.
    fn reference(&mut self, schema: SchemaOf, node: &'static Node, beyond: DepthExceeded, null: bool) {
        if null {
            return self.or_null(beyond, |text| text.reference(schema, node, DepthExceeded::NOTHING, false));
        }
        let known = self.recursive.iter().position(|one| address(*one) == address(schema));
        let place = known.unwrap_or_else(|| {
            self.recursive.push(schema);
            self.recursive.len() - 1
        });
        let target = format!("#/$defs/{}", definition(node, place));
        self.open('{');
        self.string("$ref", &target);
        self.string("description", beyond.description);
        self.close('}');
    }

    fn members(&mut self, node: &Node, beyond: DepthExceeded, null: bool) {
        let Limits { minimum, maximum, min_length, max_length, pattern } = beyond.limits;
        let name = match node.shape {
            SchemaShape::Any
            | SchemaShape::Nullable(_)
            | SchemaShape::Same(_)
            | SchemaShape::OneOf(_)
            | SchemaShape::AnyOf(_) => "",
            SchemaShape::Null => "null",
            SchemaShape::Boolean => "boolean",
            SchemaShape::Integer { .. } => "integer",
            SchemaShape::Number => "number",
            SchemaShape::String { .. } | SchemaShape::Enum(_) | SchemaShape::Const(_) => "string",
            SchemaShape::Array { .. } | SchemaShape::Tuple(_) => "array",
            SchemaShape::Map(_) | SchemaShape::Object { .. } => "object",
        };
        match (name, null) {
            ("", _) => {}
            (name, true) => self.member("type", &format!("[\"{name}\",\"null\"]")),
            (name, false) => self.string("type", name),
        }
        self.string("description", beyond.description);
        match node.shape {
            SchemaShape::Any
            | SchemaShape::Null
            | SchemaShape::Boolean
            | SchemaShape::Nullable(_)
            | SchemaShape::Same(_) => {}
            SchemaShape::Integer { minimum: least, maximum: most } => {
                self.limit("minimum", or(minimum, least));
                self.limit("maximum", or(maximum, most));
            }
            SchemaShape::Number => {
                self.limit("minimum", minimum);
                self.limit("maximum", maximum);
            }
            SchemaShape::String { format } => {
                self.string("format", format);
                self.limit("minLength", min_length);
                self.limit("maxLength", max_length);
                self.string("pattern", pattern);
            }
            SchemaShape::Const(text) => {
                self.key("const");
                quote(&mut self.out, text);
            }
            SchemaShape::Enum(texts) => self.texts("enum", texts, null),
            SchemaShape::Array { items, unique, length } => {
                self.key("items");
                self.schema(items);
                if unique {
                    self.member("uniqueItems", "true");
                }
                let length = length.and_then(|length| i64::try_from(length).ok());
                self.limit("minItems", or(min_length, length));
                self.limit("maxItems", or(max_length, length));
            }
            SchemaShape::Tuple(items) => self.tuple(items),
            SchemaShape::Map(values) => {
                self.key("additionalProperties");
                self.schema(values);
            }
            SchemaShape::Object { fields, closed } => {
                if closed {
                    self.member("additionalProperties", "false");
                }
                self.properties(fields);
            }
            SchemaShape::OneOf(nodes) => self.choices("oneOf", nodes),
            SchemaShape::AnyOf(nodes) => self.choices("anyOf", nodes),
        }
        self.default(beyond.default);
    }

    fn default(&mut self, default: DefaultValue) {
        match default {
            DefaultValue::None => {}
            DefaultValue::Json(json) => self.member("default", json),
            DefaultValue::Made(make) => {
                if let Some(json) = make() {
                    self.member("default", &json);
                }
            }
        }
    }

    fn tuple(&mut self, items: &[SchemaOf]) {
        self.key("prefixItems");
        self.open('[');
        for item in items {
            self.comma();
            self.schema(*item);
        }
        self.close(']');
        let count = items.len().to_string();
        self.member("minItems", &count);
        self.member("maxItems", &count);
    }

    fn texts(&mut self, key: &str, texts: &[&str], null: bool) {
        self.key(key);
        self.open('[');
        for text in texts {
            self.comma();
            quote(&mut self.out, text);
        }
        if null {
            self.comma();
            self.out.push_str("null");
        }
        self.close(']');
    }

    /// The schema wrapped under `result`.
    fn wrapped(&mut self, schema: SchemaOf) {
        self.open('{');
        self.member("type", "\"object\"");
        self.key("properties");
        self.open('{');
        self.key("result");
        self.schema(schema);
        self.close('}');
        self.texts("required", &["result"], false);
        self.close('}');
    }

    fn choices(&mut self, key: &str, nodes: &'static [Node]) {
        self.key(key);
        self.open('[');
        for node in nodes {
            self.comma();
            match node.shape {
                SchemaShape::Same(other) => {
                    self.typed(other, DepthExceeded::NOTHING.or_description(node.description), false);
                }
                _ => self.object(node, DepthExceeded::NOTHING.or_description(node.description)),
            }
        }
        self.close(']');
    }

    /// The keys `properties` and `required`, including flattened members.
    fn properties(&mut self, fields: &'static [Field]) {
        self.key("properties");
        self.open('{');
        let mut required = Vec::new();
        let mut rest = None;
        self.fields(fields, true, &mut required, &mut rest);
        self.close('}');
        if !required.is_empty() {
            self.texts("required", &required, false);
        }
        if let Some(values) = rest {
            self.key("additionalProperties");
            self.schema(values);
        }
    }

    fn fields(
        &mut self,
        fields: &'static [Field],
        needed: bool,
        required: &mut Vec<&'static str>,
        rest: &mut Option<SchemaOf>,
    ) {
        for field in fields {
            let presence = if self.way == Nesting::Input { field.input } else { field.output };
            if presence == Presence::Absent {
                continue;
            }
            let may_be_left_out = self.way == Nesting::Input && is_nullable(field.schema);
            let needed = needed && presence == Presence::Required && !may_be_left_out;
            if field.flatten {
                match shape_of(field.schema) {
                    SchemaShape::Object { fields, .. } => self.fields(fields, needed, required, rest),
                    SchemaShape::Map(values) => *rest = Some(values),
                    // The members that an enum contributes are left open.
                    _ => {}
                }
                continue;
            }
            if needed {
                required.push(field.name);
            }
            self.key(field.name);
            let Field { description, limits, default, .. } = *field;
            self.typed(field.schema, DepthExceeded { description, limits, default }, false);
        }
    }

    /// The self-referential types, under `$defs`.
    fn definitions(&mut self) {
        if self.recursive.is_empty() {
            return;
        }
        self.key("$defs");
        self.open('{');
        let mut place = 0;
        // A definition may lead to another one.
        while let Some(schema) = self.recursive.get(place).copied() {
            self.key(&definition(schema(), place));
            self.inside.clear();
            self.schema(schema);
            place += 1;
        }
        self.close('}');
    }
}

/// The name of a type in `$defs`. Two types of one name get different names.
fn definition(node: &Node, place: usize) -> String {
    if place == 0 { node.name.to_owned() } else { format!("{}{place}", node.name) }
}

fn address(schema: SchemaOf) -> usize {
    schema as usize
}

fn or(limit: Limit, other: Option<i64>) -> Limit {
    match (limit, other) {
        (Limit::None, Some(number)) => Limit::Whole(number),
        (limit, _) => limit,
    }
}

fn is_nullable(schema: SchemaOf) -> bool {
    match schema().shape {
        SchemaShape::Nullable(_) => true,
        SchemaShape::Same(other) => is_nullable(other),
        _ => false,
    }
}

/// The shape behind names and `null`.
fn shape_of(schema: SchemaOf) -> SchemaShape {
    match schema().shape {
        SchemaShape::Same(other) | SchemaShape::Nullable(other) => shape_of(other),
        shape => shape,
    }
}

/// Writes a string as JSON.
pub(crate) fn quote(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                let digit = |four_bits: u32| char::from_digit(four_bits, 16).unwrap_or('0');
                out.push_str("\\u00");
                out.push(digit(u32::from(c) >> 4));
                out.push(digit(u32::from(c) & 15));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::schema::of;

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// A self-referential type, as `#[data]` generates it.
    struct SchemaTree;

    impl Schema for SchemaTree {
        const SCHEMA: Node = Node {
            name: "Tree",
            description: "A tree.",
            shape: SchemaShape::Object {
                fields: &[Field::new("children", of::<Vec<Self>>), Field::new("parent", of::<Option<Self>>)],
                closed: false,
            },
        };
    }

    #[test]
    fn a_type_that_holds_itself_refers_to_itself() {
        let expected = json!({
            "type": "object", "description": "A tree.",
            "properties": {
                "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
                "parent": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]},
            },
            "required": ["children", "parent"],
        });
        let mut root = expected.clone();
        root["$defs"] = json!({"Tree": expected});
        assert_eq!(parsed(&output_schema::<SchemaTree>()), root);

        static FIELDS: &[Field] = &[Field::new("tree", of::<SchemaTree>)];
        let input = parsed(&input_schema(FIELDS));
        assert_eq!(input["properties"]["tree"]["required"], json!(["children"]));
        assert_eq!(
            input["$defs"]["Tree"]["properties"]["children"]["items"],
            json!({"$ref": "#/$defs/Tree"})
        );
    }

    #[test]
    fn texts_are_escaped() {
        let mut out = String::new();
        quote(&mut out, "a\"b\\c\n\t\u{1}\u{1f}ü");
        assert_eq!(parsed(&out), json!("a\"b\\c\n\t\u{1}\u{1f}ü"));
    }

    #[test]
    fn collections_have_schemas() {
        let of = |text: String| parsed(&text)["properties"]["result"].clone();
        assert_eq!(
            of(output_schema::<(u8, bool)>()),
            json!({"type": "array", "prefixItems": [
                {"type": "integer", "minimum": 0, "maximum": 255}, {"type": "boolean"},
            ], "minItems": 2, "maxItems": 2})
        );
        assert_eq!(
            of(output_schema::<[i64; 3]>()),
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 3})
        );
        let map = parsed(&output_schema::<std::collections::BTreeMap<String, f64>>());
        assert_eq!(map, json!({"type": "object", "additionalProperties": {"type": "number"}}));
    }
}
