//! Differences between two versions of a tool, and whether they break callers.
//!
//! A change of the input schema is *compatible* if every valid call stays valid, and *breaking* otherwise. It is
//! *unknown* for keywords that are not compared, such as patterns and combinators.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};
use toolbay_policy::hidden_chars::escape_hidden;

use crate::tool::ToolDef;
use crate::tool::json::pointer_step;

/// Deepest nesting that is compared.
const MAX_DEPTH: usize = 32;
/// Most differences that are listed.
const MAX_CHANGES: usize = 200;

/// The impact of a change on callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Impact {
    /// Every valid call stays valid.
    Compatible,
    /// The change cannot be assessed.
    Unknown,
    /// Some valid calls become invalid.
    Breaking,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SchemaChange {
    /// An optional parameter was added.
    AddedOptional,
    /// A required parameter was added.
    AddedRequired,
    /// A parameter was removed.
    Removed,
    /// An optional parameter became required.
    NewlyRequired,
    /// A required parameter became optional.
    NewlyOptional,
    /// The schema accepts more values.
    Widened,
    /// The schema accepts fewer values.
    Narrowed,
    /// The type changed.
    TypeChanged,
    /// Only a description changed.
    DescriptionOnly,
    /// A keyword that is not compared changed.
    Other,
}

/// A difference between two versions of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The location: a JSON pointer into the input schema, `description`, or `output` followed by a pointer.
    pub at: String,
    /// The kind of change.
    pub change: SchemaChange,
    /// The impact on callers.
    pub impact: Impact,
}

/// All differences between two versions of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ToolDiff {
    /// The differences, in the order of the schema.
    pub differences: Vec<Difference>,
}

impl ToolDiff {
    /// The worst impact of all differences.
    #[must_use]
    pub fn impact(&self) -> Impact {
        self.differences.iter().map(|one| one.impact).max().unwrap_or(Impact::Compatible)
    }

    fn add(&mut self, at: &str, change: SchemaChange, impact: Impact) {
        if self.differences.len() < MAX_CHANGES {
            self.differences.push(Difference { at: at.to_owned(), change, impact });
        }
    }
}

/// The change of one tool when its source was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolChange {
    /// The tool's qualified name.
    pub tool: Arc<str>,
    /// The impact on callers: a removed tool is breaking, an added tool compatible.
    pub impact: Impact,
    /// A description of the change.
    pub what: String,
}

impl fmt::Display for ToolChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({}): {}", self.tool, self.impact, self.what)
    }
}

impl fmt::Display for Impact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compatible => "compatible",
            Self::Unknown => "unknown",
            Self::Breaking => "breaking",
        })
    }
}

impl fmt::Display for SchemaChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AddedOptional => "added, optional",
            Self::AddedRequired => "added, required",
            Self::Removed => "removed",
            Self::NewlyRequired => "now required",
            Self::NewlyOptional => "now optional",
            Self::Widened => "accepts more values",
            Self::Narrowed => "accepts fewer values",
            Self::TypeChanged => "type changed",
            Self::DescriptionOnly => "description changed",
            Self::Other => "changed",
        })
    }
}

/// Most differences of one tool in its description; the rest is counted.
const MAX_SHOWN: usize = 5;
/// Longest location in a description, in characters.
const MAX_LOCATION: usize = 80;

/// Describes the differences, the worst first.
fn describe(diff: &ToolDiff) -> String {
    let mut worst: Vec<&Difference> = diff.differences.iter().collect();
    worst.sort_by_key(|one| std::cmp::Reverse(one.impact));
    let line = |one: &&Difference| {
        // A location contains names from the guest.
        let at: String = if one.at.is_empty() {
            "arguments".to_owned()
        } else {
            escape_hidden(&one.at).replace(['\n', '\t'], " ")
        };
        format!("{} {}", at.chars().take(MAX_LOCATION).collect::<String>(), one.change)
    };
    let mut words: Vec<String> = worst.iter().take(MAX_SHOWN).map(line).collect();
    if worst.len() > MAX_SHOWN {
        words.push(format!("and {} more", worst.len() - MAX_SHOWN));
    }
    words.join(", ")
}

/// The differences between two versions of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SourceDiff {
    /// The added tools.
    pub added: Vec<Arc<str>>,
    /// The removed tools.
    pub removed: Vec<Arc<str>>,
    /// The changed tools with their differences.
    pub changed: BTreeMap<Arc<str>, ToolDiff>,
}

impl SourceDiff {
    /// Compares the old and the new tools of a source.
    pub fn new<'a>(
        old: impl IntoIterator<Item = &'a ToolDef>,
        new: impl IntoIterator<Item = &'a ToolDef>,
    ) -> Self {
        let mut before: BTreeMap<&str, &ToolDef> =
            old.into_iter().map(|tool| (tool.name.as_str(), tool)).collect();
        let mut diff = Self::default();
        for tool in new {
            let name: Arc<str> = tool.name.as_str().into();
            let Some(old) = before.remove(&*name) else {
                diff.added.push(name);
                continue;
            };
            let changes = compare(old, tool);
            if !changes.differences.is_empty() {
                diff.changed.insert(name, changes);
            }
        }
        diff.removed = before.into_keys().map(Arc::from).collect();
        diff
    }

    /// The worst impact of all changes. A removed tool is breaking.
    #[must_use]
    pub fn impact(&self) -> Impact {
        let of_removed = (!self.removed.is_empty()).then_some(Impact::Breaking);
        self.changed.values().map(ToolDiff::impact).chain(of_removed).max().unwrap_or(Impact::Compatible)
    }

    /// The changes of all tools that differ, sorted by name.
    #[must_use]
    pub fn changes(&self) -> Vec<ToolChange> {
        let change = |tool: &Arc<str>, impact, what: &str| ToolChange {
            tool: Arc::clone(tool),
            impact,
            what: what.to_owned(),
        };
        let mut changes: Vec<ToolChange> = (self.added.iter())
            .map(|tool| change(tool, Impact::Compatible, "added"))
            .chain(self.removed.iter().map(|tool| change(tool, Impact::Breaking, "removed")))
            .chain(self.changed.iter().map(|(tool, diff)| change(tool, diff.impact(), &describe(diff))))
            .collect();
        changes.sort_by(|one, other| one.tool.cmp(&other.tool));
        changes
    }
}

/// Compares two versions of one tool.
#[must_use]
pub fn compare(old: &ToolDef, new: &ToolDef) -> ToolDiff {
    let mut diff = ToolDiff::default();
    if old.description != new.description {
        diff.add("description", SchemaChange::DescriptionOnly, Impact::Compatible);
    }
    compare_schemas(old.input_schema.value(), new.input_schema.value(), "", 0, &mut diff);
    match (&old.output_schema, &new.output_schema) {
        (Some(old), Some(new)) => {
            // For readers of results the direction is reversed: the old schema must accept all new results.
            let mut output = ToolDiff::default();
            compare_schemas(new.value(), old.value(), "output", 0, &mut output);
            for one in output.differences {
                diff.add(&one.at, reversed(one.change), one.impact);
            }
        }
        (Some(_), None) => diff.add("output", SchemaChange::Removed, Impact::Breaking),
        (None, Some(_)) => diff.add("output", SchemaChange::AddedOptional, Impact::Compatible),
        (None, None) => {}
    }
    diff
}

/// The change in the other direction.
fn reversed(change: SchemaChange) -> SchemaChange {
    match change {
        SchemaChange::AddedOptional | SchemaChange::AddedRequired => SchemaChange::Removed,
        SchemaChange::Removed => SchemaChange::AddedOptional,
        SchemaChange::NewlyRequired => SchemaChange::NewlyOptional,
        SchemaChange::NewlyOptional => SchemaChange::NewlyRequired,
        SchemaChange::Widened => SchemaChange::Narrowed,
        SchemaChange::Narrowed => SchemaChange::Widened,
        same @ (SchemaChange::TypeChanged | SchemaChange::DescriptionOnly | SchemaChange::Other) => same,
    }
}

/// Keywords that do not affect validation.
const ANNOTATION_KEYWORDS: [&str; 7] =
    ["description", "title", "examples", "default", "$comment", "$schema", "deprecated"];
/// Numeric limits: the keyword, and whether a larger number accepts more values.
const BOUNDS: [(&str, bool); 10] = [
    ("minimum", false),
    ("exclusiveMinimum", false),
    ("minLength", false),
    ("minItems", false),
    ("minProperties", false),
    ("maximum", true),
    ("exclusiveMaximum", true),
    ("maxLength", true),
    ("maxItems", true),
    ("maxProperties", true),
];

fn compare_schemas(old: &Value, new: &Value, at: &str, depth: usize, diff: &mut ToolDiff) {
    if old == new {
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return match (old, new) {
            (_, Value::Bool(true)) => diff.add(at, SchemaChange::Widened, Impact::Compatible),
            (Value::Bool(false), _) => diff.add(at, SchemaChange::Widened, Impact::Compatible),
            _ => diff.add(at, SchemaChange::Narrowed, Impact::Breaking),
        };
    };
    if depth > MAX_DEPTH {
        return diff.add(at, SchemaChange::Other, Impact::Unknown);
    }
    compare_types(old, new, at, diff);
    compare_properties(old, new, at, depth, diff);
    if let (Some(old), Some(new)) = (old.get("items"), new.get("items")) {
        compare_schemas(old, new, &format!("{at}/items"), depth + 1, diff);
    }
    for (keyword, larger_is_more) in BOUNDS {
        let number = |schema: &Map<String, Value>| schema.get(keyword).and_then(Value::as_f64);
        let accepts_more = |old: &f64, new: &f64| (new > old) == larger_is_more;
        let at = format!("{at}/{keyword}");
        compare_accepted(number(old), number(new), accepts_more, SchemaChange::Narrowed, &at, diff);
    }
    compare_other_keywords(old, new, at, diff);
}

/// Compares types and enumerated values.
fn compare_types(old: &Map<String, Value>, new: &Map<String, Value>, at: &str, diff: &mut ToolDiff) {
    let kinds = |map: &Map<String, Value>| -> Option<BTreeSet<String>> {
        let name = |kind: &Value| kind.as_str().map(ToOwned::to_owned);
        let mut kinds: BTreeSet<String> = match map.get("type")? {
            Value::Array(list) => list.iter().filter_map(name).collect(),
            kind => name(kind).into_iter().collect(),
        };
        if kinds.contains("number") {
            kinds.insert("integer".to_owned());
        }
        Some(kinds)
    };
    let has_all = |old: &BTreeSet<String>, new: &BTreeSet<String>| old.is_subset(new);
    compare_accepted(kinds(old), kinds(new), has_all, SchemaChange::TypeChanged, at, diff);
    let values = |map: &Map<String, Value>| match (map.get("enum"), map.get("const")) {
        (Some(Value::Array(list)), _) => Some(list.clone()),
        (_, Some(value)) => Some(vec![value.clone()]),
        _ => None,
    };
    // Compared by their texts in a set: a list can have thousands of values.
    let has_all = |old: &Vec<Value>, new: &Vec<Value>| {
        let known: HashSet<String> = new.iter().map(Value::to_string).collect();
        old.iter().all(|value| known.contains(&value.to_string()))
    };
    compare_accepted(values(old), values(new), has_all, SchemaChange::Narrowed, at, diff);
}

/// Compares what two versions of a keyword accept: everything if the keyword is absent. `accepts_more` compares two that
/// are there, and `otherwise` is the change if the new one does not.
fn compare_accepted<T: PartialEq>(
    old: Option<T>,
    new: Option<T>,
    accepts_more: impl Fn(&T, &T) -> bool,
    otherwise: SchemaChange,
    at: &str,
    diff: &mut ToolDiff,
) {
    match (old, new) {
        (old, new) if old == new => {}
        (_, None) => diff.add(at, SchemaChange::Widened, Impact::Compatible),
        (Some(old), Some(new)) if accepts_more(&old, &new) => {
            diff.add(at, SchemaChange::Widened, Impact::Compatible);
        }
        _ => diff.add(at, otherwise, Impact::Breaking),
    }
}

fn compare_properties(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    at: &str,
    depth: usize,
    diff: &mut ToolDiff,
) {
    let empty = Map::new();
    let properties = [old, new].map(|map| map.get("properties").and_then(Value::as_object));
    let [before, after] = properties.map(|all| all.unwrap_or(&empty));
    let required = |map: &Map<String, Value>| -> BTreeSet<String> {
        let list = map.get("required").and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|name| name.as_str().map(ToOwned::to_owned)).collect()
    };
    let (needed_before, needed_after) = (required(old), required(new));
    let open = |map: &Map<String, Value>| map.get("additionalProperties") != Some(&Value::Bool(false));
    for (name, schema) in before {
        let pointer = format!("{at}/properties/{}", pointer_step(name));
        match after.get(name) {
            Some(now) => compare_schemas(schema, now, &pointer, depth + 1, diff),
            None if open(new) => diff.add(&pointer, SchemaChange::Removed, Impact::Unknown),
            None => diff.add(&pointer, SchemaChange::Removed, Impact::Breaking),
        }
    }
    let names: BTreeSet<&String> =
        before.keys().chain(after.keys()).chain(&needed_before).chain(&needed_after).collect();
    for name in names {
        let pointer = format!("{at}/properties/{}", pointer_step(name));
        let (was, is) = (needed_before.contains(name), needed_after.contains(name));
        match (before.contains_key(name), after.contains_key(name)) {
            (false, true) if is && !was => diff.add(&pointer, SchemaChange::AddedRequired, Impact::Breaking),
            (false, true) => diff.add(&pointer, SchemaChange::AddedOptional, Impact::Compatible),
            _ if is && !was => diff.add(&pointer, SchemaChange::NewlyRequired, Impact::Breaking),
            (_, true) if was && !is => diff.add(&pointer, SchemaChange::NewlyOptional, Impact::Compatible),
            _ => {}
        }
    }
    let additional = format!("{at}/additionalProperties");
    match (open(old), open(new)) {
        (true, false) => diff.add(&additional, SchemaChange::Narrowed, Impact::Breaking),
        (false, true) => diff.add(&additional, SchemaChange::Widened, Impact::Compatible),
        _ => {}
    }
}

/// Reports all keywords that the functions above do not compare.
fn compare_other_keywords(old: &Map<String, Value>, new: &Map<String, Value>, at: &str, diff: &mut ToolDiff) {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for key in keys {
        let (before, after) = (old.get(key), new.get(key));
        if before == after || is_compared(key, before, after) {
            continue;
        }
        let pointer = format!("{at}/{key}");
        if ANNOTATION_KEYWORDS.contains(&key.as_str()) {
            diff.add(&pointer, SchemaChange::DescriptionOnly, Impact::Compatible);
        } else {
            diff.add(&pointer, SchemaChange::Other, Impact::Unknown);
        }
    }
}

fn is_compared(key: &str, before: Option<&Value>, after: Option<&Value>) -> bool {
    match key {
        "type" | "enum" | "const" | "properties" | "required" => true,
        "additionalProperties" => [before, after].into_iter().flatten().all(Value::is_boolean),
        "items" => before.is_some() && after.is_some(),
        _ => BOUNDS.iter().any(|(bound, _)| *bound == key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::fixture::plugin_def;
    use crate::tool::schema::Schema;
    use serde_json::json;

    fn tool(schema: &Value) -> ToolDef {
        let mut def = plugin_def("p", "t");
        def.input_schema = Schema::input(&schema.to_string()).unwrap();
        def
    }

    /// A closed object schema with these properties.
    fn object(properties: &Value, required: &[&str]) -> Value {
        json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        })
    }

    fn check(old: &Value, new: &Value, change: SchemaChange, impact: Impact) {
        let diff = compare(&tool(old), &tool(new));
        assert_eq!(diff.differences.len(), 1, "{old} -> {new}: {diff:?}");
        assert_eq!((diff.differences[0].change, diff.impact()), (change, impact), "{old} -> {new}: {diff:?}");
        assert_eq!(compare(&tool(old), &tool(old)), ToolDiff::default());
    }

    #[test]
    fn a_source_diff_describes_each_changed_tool() {
        let def = |name: &str, schema: Value| {
            let mut def = plugin_def("p", name);
            def.input_schema = Schema::input(&schema.to_string()).unwrap();
            Arc::new(def)
        };
        let with = |names: &[&str]| {
            let all: Map<String, Value> = names.iter().map(|n| ((*n).to_owned(), json!({}))).collect();
            object(&Value::Object(all), names)
        };
        let old = [def("gone", with(&[])), def("same", with(&["a"])), def("worse", with(&[]))];
        let new = [def("new", with(&[])), def("same", with(&["a"])), def("worse", with(&["x\ny"]))];
        let told: Vec<String> = SourceDiff::new(old.iter().map(|def| &**def), new.iter().map(|def| &**def))
            .changes()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            told,
            [
                "`p__gone` (breaking): removed",
                "`p__new` (compatible): added",
                "`p__worse` (breaking): /properties/x y added, required",
            ]
        );
        let many: Vec<String> = (0..9).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let told = SourceDiff::new([&*def("t", with(&[]))], [&*def("t", with(&many))]).changes();
        assert!(told[0].what.ends_with(", and 4 more"), "{told:?}");
    }

    #[test]
    fn comparing_the_largest_schemas_takes_little_time() {
        // Each of many parts differs, at the end of a path as deep as is compared.
        let with = |kind: &str| {
            let wide: Map<String, Value> =
                (0..2_500).map(|n| (format!("p{n}"), json!({"type": "string", "title": kind}))).collect();
            let deep = (1..MAX_DEPTH).fold(
                json!({"type": "object", "properties": wide}),
                |inner, _| json!({"type": "object", "properties": {"a": inner, "b": {"type": "string"}}}),
            );
            tool(&deep)
        };
        let (old, new) = (with("x"), with("y"));
        let begun = canary::processor_time();
        let diff = compare(&old, &new);
        let took = canary::processor_time().saturating_sub(begun);
        assert!(took <= canary::MAX_DELAY, "{took:?}");
        assert_eq!(diff.differences.len(), MAX_CHANGES);
    }

    #[test]
    fn changes_of_the_parameters_are_classified() {
        use {Impact as I, SchemaChange as C};
        let (none, a) = (json!({}), json!({"a": {"type": "string"}}));
        for (old, new, change, impact) in [
            ((&none, &[][..]), (&a, &[][..]), C::AddedOptional, I::Compatible),
            ((&none, &[]), (&a, &["a"]), C::AddedRequired, I::Breaking),
            ((&a, &[]), (&none, &[]), C::Removed, I::Breaking),
            ((&a, &[]), (&a, &["a"]), C::NewlyRequired, I::Breaking),
            ((&a, &["a"]), (&a, &[]), C::NewlyOptional, I::Compatible),
        ] {
            check(&object(old.0, old.1), &object(new.0, new.1), change, impact);
        }
        let open = json!({"type": "object", "properties": {}, "required": []});
        check(&object(&none, &[]), &open, C::Widened, I::Compatible);
    }

    #[test]
    fn changes_of_the_accepted_values_are_classified() {
        use {Impact as I, SchemaChange as C};
        let list = |of: &str| json!({"type": "array", "items": {"type": of}});
        for (old, new, change, impact) in [
            (json!({"type": "string"}), json!({"type": "integer"}), C::TypeChanged, I::Breaking),
            (json!({"type": "integer"}), json!({"type": "number"}), C::Widened, I::Compatible),
            (json!({"type": ["string", "null"]}), json!({"type": "string"}), C::TypeChanged, I::Breaking),
            (json!({"enum": ["x"]}), json!({"enum": ["x", "y"]}), C::Widened, I::Compatible),
            (json!({"enum": ["x", "y"]}), json!({"enum": ["x"]}), C::Narrowed, I::Breaking),
            (json!({"maximum": 5}), json!({"maximum": 9}), C::Widened, I::Compatible),
            (json!({"minLength": 1}), json!({"minLength": 2}), C::Narrowed, I::Breaking),
            (list("string"), list("integer"), C::TypeChanged, I::Breaking),
            (json!({"pattern": "a"}), json!({"pattern": "b"}), C::Other, I::Unknown),
            (json!({"description": "x"}), json!({"description": "y"}), C::DescriptionOnly, I::Compatible),
        ] {
            check(&object(&json!({"a": old}), &[]), &object(&json!({"a": new}), &[]), change, impact);
        }
    }

    #[test]
    fn changes_of_the_output_schema_are_assessed_in_reverse() {
        let with = |schema: Option<Value>| {
            let mut def = tool(&object(&json!({}), &[]));
            def.output_schema = schema.map(|schema| Schema::output(&schema.to_string()).unwrap());
            def
        };
        let schema = |names: &[&str]| {
            let properties: Map<String, Value> =
                names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
            object(&Value::Object(properties), names)
        };
        let impact = |old, new| compare(&with(old), &with(new)).impact();
        assert_eq!(
            impact(Some(schema(&["a", "b"])), Some(schema(&["a"]))),
            Impact::Breaking,
            "a reader of `b` breaks"
        );
        assert_eq!(impact(Some(schema(&["a"])), None), Impact::Breaking);
        assert_eq!(impact(None, Some(schema(&["a"]))), Impact::Compatible);
        assert_eq!(impact(Some(schema(&["a"])), Some(schema(&["a"]))), Impact::Compatible);
    }
}
