//! The text of a schema.

use super::{DefaultValue, Field, Limit, Limits, Node, Of, Presence, Schema, Shape};

/// Returns the schema of a tool's arguments.
pub fn input_schema(fields: &'static [Field]) -> String {
    let mut text = Text::new(Way::Input);
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
/// It mirrors what happens to the value: an object stays, anything else comes under `result`. Where the type alone does
/// not tell (an `Option`, an enum), both shapes are allowed.
pub fn output_schema<T: Schema + ?Sized>() -> String {
    output_schema_of(super::of::<T>)
}

fn output_schema_of(schema: Of) -> String {
    let mut text = Text::new(Way::Output);
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

/// Returns the schema of the operator's settings. An object takes no key that is not in it: nobody would read it, and most
/// likely it is misspelt.
pub fn settings_schema(schema: Of) -> String {
    let node = schema();
    let mut text = Text::new(Way::Input);
    match node.shape {
        Shape::Object { fields, closed: false } if !fields.iter().any(|field| field.flatten) => {
            let closed = Node { shape: Shape::Object { fields, closed: true }, ..*node };
            if !node.name.is_empty() {
                text.inside.push(address(schema));
            }
            text.object(&closed, Beyond::NOTHING.or_description(node.description));
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

fn wrapping(schema: Of) -> Wrapping {
    match schema().shape {
        Shape::Object { .. } | Shape::Map(_) => Wrapping::Never,
        Shape::Same(other) => wrapping(other),
        Shape::Any | Shape::Nullable(_) | Shape::OneOf(_) | Shape::AnyOf(_) => Wrapping::Perhaps,
        Shape::Null
        | Shape::Boolean
        | Shape::Integer { .. }
        | Shape::Number
        | Shape::String { .. }
        | Shape::Enum(_)
        | Shape::Const(_)
        | Shape::Array { .. }
        | Shape::Tuple(_) => Wrapping::Always,
    }
}

/// Whether values are read or written: members may be left out of one and not of the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Input,
    Output,
}

/// What a member says beyond what its type says.
#[derive(Clone, Copy)]
struct Beyond {
    description: &'static str,
    limits: Limits,
    default: DefaultValue,
}

impl Beyond {
    const NOTHING: Self = Self { description: "", limits: Limits::NONE, default: DefaultValue::None };

    fn or_description(self, description: &'static str) -> Self {
        if self.description.is_empty() { Self { description, ..self } } else { self }
    }

    fn is_nothing(&self) -> bool {
        self.description.is_empty() && matches!(self.default, DefaultValue::None)
    }
}

struct Text {
    out: String,
    way: Way,
    /// Whether the next member is the first of its object or array.
    first: bool,
    /// The types with names that are being written.
    inside: Vec<usize>,
    /// The types that were found inside of themselves.
    recursive: Vec<Of>,
}

impl Text {
    fn new(way: Way) -> Self {
        Self { out: String::new(), way, first: true, inside: Vec::new(), recursive: Vec::new() }
    }

    /// All of it, with the definitions, which belong at the root, that is closed by now.
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

    /// A member whose value is JSON already.
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

    fn schema(&mut self, schema: Of) {
        self.typed(schema, Beyond::NOTHING, false);
    }

    /// A schema, with what is said beyond it, and perhaps with `null` as another value.
    fn typed(&mut self, schema: Of, beyond: Beyond, null: bool) {
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
            Shape::Nullable(other) => self.typed(other, described, true),
            Shape::Same(other) => self.typed(other, described, null),
            Shape::OneOf(_) | Shape::AnyOf(_) if null => {
                self.or_null(beyond, |text| {
                    text.object(node, Beyond::NOTHING.or_description(node.description));
                });
            }
            Shape::Any if described.is_nothing() => self.out.push_str("true"),
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

    fn object(&mut self, node: &Node, beyond: Beyond) {
        self.open('{');
        self.members(node, beyond, false);
        self.close('}');
    }

    fn or_null(&mut self, beyond: Beyond, other: impl FnOnce(&mut Self)) {
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

    /// What stands where a type is inside of itself.
    fn reference(&mut self, schema: Of, node: &'static Node, beyond: Beyond, null: bool) {
        if null {
            return self.or_null(beyond, |text| text.reference(schema, node, Beyond::NOTHING, false));
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

    fn members(&mut self, node: &Node, beyond: Beyond, null: bool) {
        let Limits { minimum, maximum, min_length, max_length, pattern } = beyond.limits;
        let name = match node.shape {
            Shape::Any | Shape::Nullable(_) | Shape::Same(_) | Shape::OneOf(_) | Shape::AnyOf(_) => "",
            Shape::Null => "null",
            Shape::Boolean => "boolean",
            Shape::Integer { .. } => "integer",
            Shape::Number => "number",
            Shape::String { .. } | Shape::Enum(_) | Shape::Const(_) => "string",
            Shape::Array { .. } | Shape::Tuple(_) => "array",
            Shape::Map(_) | Shape::Object { .. } => "object",
        };
        match (name, null) {
            ("", _) => {}
            (name, true) => self.member("type", &format!("[\"{name}\",\"null\"]")),
            (name, false) => self.string("type", name),
        }
        self.string("description", beyond.description);
        match node.shape {
            Shape::Any | Shape::Null | Shape::Boolean | Shape::Nullable(_) | Shape::Same(_) => {}
            Shape::Integer { minimum: least, maximum: most } => {
                self.limit("minimum", or(minimum, least));
                self.limit("maximum", or(maximum, most));
            }
            Shape::Number => {
                self.limit("minimum", minimum);
                self.limit("maximum", maximum);
            }
            Shape::String { format } => {
                self.string("format", format);
                self.limit("minLength", min_length);
                self.limit("maxLength", max_length);
                self.string("pattern", pattern);
            }
            Shape::Const(text) => {
                self.key("const");
                quote(&mut self.out, text);
            }
            Shape::Enum(texts) => self.texts("enum", texts, null),
            Shape::Array { items, unique, length } => {
                self.key("items");
                self.schema(items);
                if unique {
                    self.member("uniqueItems", "true");
                }
                let length = length.and_then(|length| i64::try_from(length).ok());
                self.limit("minItems", or(min_length, length));
                self.limit("maxItems", or(max_length, length));
            }
            Shape::Tuple(items) => self.tuple(items),
            Shape::Map(values) => {
                self.key("additionalProperties");
                self.schema(values);
            }
            Shape::Object { fields, closed } => {
                if closed {
                    self.member("additionalProperties", "false");
                }
                self.properties(fields);
            }
            Shape::OneOf(nodes) => self.choices("oneOf", nodes),
            Shape::AnyOf(nodes) => self.choices("anyOf", nodes),
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

    fn tuple(&mut self, items: &[Of]) {
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

    /// The same under `result`.
    fn wrapped(&mut self, schema: Of) {
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
                Shape::Same(other) => {
                    self.typed(other, Beyond::NOTHING.or_description(node.description), false);
                }
                _ => self.object(node, Beyond::NOTHING.or_description(node.description)),
            }
        }
        self.close(']');
    }

    /// The keys `properties` and `required`, and what flattened members bring.
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
        rest: &mut Option<Of>,
    ) {
        for field in fields {
            let presence = if self.way == Way::Input { field.input } else { field.output };
            if presence == Presence::Absent {
                continue;
            }
            let may_be_left_out = self.way == Way::Input && is_nullable(field.schema);
            let needed = needed && presence == Presence::Required && !may_be_left_out;
            if field.flatten {
                match shape_of(field.schema) {
                    Shape::Object { fields, .. } => self.fields(fields, needed, required, rest),
                    Shape::Map(values) => *rest = Some(values),
                    // An enum among the members: which ones it brings, the schema leaves open.
                    _ => {}
                }
                continue;
            }
            if needed {
                required.push(field.name);
            }
            self.key(field.name);
            let Field { description, limits, default, .. } = *field;
            self.typed(field.schema, Beyond { description, limits, default }, false);
        }
    }

    /// The types that hold themselves, under `$defs`.
    fn definitions(&mut self) {
        if self.recursive.is_empty() {
            return;
        }
        self.key("$defs");
        self.open('{');
        let mut place = 0;
        // One definition may lead to another.
        while let Some(schema) = self.recursive.get(place).copied() {
            self.key(&definition(schema(), place));
            self.inside.clear();
            self.schema(schema);
            place += 1;
        }
        self.close('}');
    }
}

/// Under which name a type stands in `$defs`: two of one name are two.
fn definition(node: &Node, place: usize) -> String {
    if place == 0 { node.name.to_owned() } else { format!("{}{place}", node.name) }
}

fn address(schema: Of) -> usize {
    schema as usize
}

fn or(limit: Limit, other: Option<i64>) -> Limit {
    match (limit, other) {
        (Limit::None, Some(number)) => Limit::Whole(number),
        (limit, _) => limit,
    }
}

fn is_nullable(schema: Of) -> bool {
    match schema().shape {
        Shape::Nullable(_) => true,
        Shape::Same(other) => is_nullable(other),
        _ => false,
    }
}

/// The shape behind names and `null`.
fn shape_of(schema: Of) -> Shape {
    match schema().shape {
        Shape::Same(other) | Shape::Nullable(other) => shape_of(other),
        shape => shape,
    }
}

/// Writes a text as JSON.
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

    /// Holds itself, as `#[data]` would write it down.
    struct Tree;

    impl Schema for Tree {
        const SCHEMA: Node = Node {
            name: "Tree",
            description: "A tree.",
            shape: Shape::Object {
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
        assert_eq!(parsed(&output_schema::<Tree>()), root);

        static FIELDS: &[Field] = &[Field::new("tree", of::<Tree>)];
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
