//! Translates a schema of any dialect to one of 2020-12, without the keywords that cannot be evaluated.
//!
//! | dialect | keyword | becomes |
//! |---|---|---|
//! | to 2019-09, none | `items: [A, B]`, `additionalItems: C` | `prefixItems: [A, B]`, `items: C` |
//! | draft-04, none | `minimum: 1`, `exclusiveMinimum: true` | `exclusiveMinimum: 1` |
//! | to draft-07 | keywords next to `$ref` | nothing, apart from notes |
//! | all | `dependencies` | `dependentRequired`, `dependentSchemas` |
//! | all | `$recursiveRef`, `$dynamicRef`, anchors, `$id` | `$ref` to `#/$defs/NAME` |
//! | all | `[]` in place of an object, as PHP writes it | `{}` |
//!
//! A keyword is lost if it is invalid in its dialect, is `null`, or cannot be evaluated. The result accepts everything
//! that the schema accepts. Therefore a lost keyword takes with it what would become stricter without it: `not`, `if`
//! and `unevaluatedProperties` around it, `additionalProperties` next to it. `oneOf` becomes `anyOf`.

mod keywords;
mod reference;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use serde_json::{Map, Value};

pub(super) use self::keywords::add_to_all_of;
use self::reference::Addresses;
use super::dropped::DroppedKeywords;
use super::keyword::{Dialect, Keyword, KeywordKind};
use super::pattern::{PatternReader, Patterns};
use crate::tool::json::extend_pointer;

/// Deepest nesting that is translated, in steps of a JSON pointer. The rewritten form can be deeper.
const MAX_DEPTH: usize = 64;
/// Deepest nesting of an outline.
const OUTLINE_DEPTH: usize = 2;
/// Most subschemas. A definition counts for each address that leads to it.
const MAX_NODES: usize = 50_000;

/// How much of a schema is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    /// The members of the root and their own keywords, without references, for a schema that exceeds a limit.
    Outline,
}

/// A foreign schema.
pub(super) struct SourceSchema<'a> {
    root: &'a Value,
    dialect: Option<Dialect>,
    /// The JSON pointers of duplicate members. It is unknown which one the author meant.
    duplicates: &'a BTreeSet<String>,
    /// The JSON pointers of the schemas from which keywords were removed, and of the keywords that lost names.
    incomplete: &'a HashSet<String>,
    addresses: Addresses,
}

impl<'a> SourceSchema<'a> {
    pub(super) fn new(
        root: &'a Value,
        duplicates: &'a BTreeSet<String>,
        incomplete: &'a HashSet<String>,
    ) -> Self {
        let dialect = Dialect::declared_by(root);
        Self { root, dialect, duplicates, incomplete, addresses: Addresses::find(root, dialect) }
    }

    /// Translates the schema for a reader of its patterns.
    pub(super) fn translate(
        &self,
        extent: Extent,
        reader: PatternReader,
        patterns: &mut Patterns,
        clean: &dyn Fn(&str, usize) -> String,
    ) -> Translation {
        let (mut banned, mut drops_negated_references) = (BTreeSet::new(), false);
        loop {
            let mut translator = Translator {
                source: self,
                extent,
                reader,
                banned: &banned,
                drops_negated_references,
                patterns,
                clean,
                at: String::new(),
                nodes: 0,
                losses: 0,
                references: 0,
                negated_references: false,
                lost_readable_pattern: false,
                definitions: Definitions::default(),
                dropped: DroppedKeywords::default(),
            };
            let value = translator.translate();
            let cycles = translator.definitions.cycles();
            let (losses, negated) = (translator.losses, translator.negated_references);
            let translation = Translation {
                value,
                dropped: translator.dropped,
                lost_readable_pattern: translator.lost_readable_pattern,
            };
            // Each repetition removes all cycles, or turns on the switch, so there are at most two.
            if !cycles.is_empty() && banned.is_empty() {
                banned = cycles;
            } else if losses > 0 && negated && !drops_negated_references {
                drops_negated_references = true;
            } else {
                return translation;
            }
        }
    }
}

/// A translated schema.
pub(super) struct Translation {
    pub(super) value: Value,
    pub(super) dropped: DroppedKeywords,
    /// Whether a pattern that clients support was lost.
    pub(super) lost_readable_pattern: bool,
}

struct Translator<'a> {
    source: &'a SourceSchema<'a>,
    extent: Extent,
    reader: PatternReader,
    /// The pointers of references that lead back to themselves.
    banned: &'a BTreeSet<String>,
    /// Whether negated parts with references are lost, since something else was lost.
    drops_negated_references: bool,
    patterns: &'a mut Patterns,
    clean: &'a dyn Fn(&str, usize) -> String,
    /// The JSON pointer of the current keyword in the source.
    at: String,
    nodes: usize,
    /// The number of lost keywords, including those that are not listed.
    losses: usize,
    /// The number of references.
    references: usize,
    /// Whether a negated part has references.
    negated_references: bool,
    lost_readable_pattern: bool,
    definitions: Definitions,
    dropped: DroppedKeywords,
}

/// The definitions that references lead to, in the order of their first use.
#[derive(Default)]
struct Definitions {
    pointers: Vec<(String, String)>,
    by_pointer: HashMap<String, usize>,
    names: HashSet<String>,
    /// References that apply to the same value: the definition that has the reference, its target, and the pointer of the
    /// reference. The root is definition 0.
    edges: Vec<(usize, usize, String)>,
}

/// The place of a schema in its document.
#[derive(Clone)]
struct Place {
    /// The definition that it belongs to. The root is definition 0.
    definition: usize,
    /// Whether it applies to the same value as this definition.
    same_value: bool,
    depth: usize,
    /// The pointer of the embedded schema with an address of its own, to which references are relative.
    resource: Rc<str>,
}

impl Place {
    /// The place of a schema in a keyword of this schema, `steps` levels deeper.
    fn inner(&self, steps: usize, same_value: bool) -> Self {
        let same_value = self.same_value && same_value;
        Self { depth: self.depth + steps, same_value, ..self.clone() }
    }
}

/// A schema while it is translated.
struct Node<'m> {
    map: &'m Map<String, Value>,
    place: Place,
    out: Map<String, Value>,
    lost: LostParts,
}

impl Node<'_> {
    /// Sets a keyword of the translated schema.
    fn set(&mut self, keyword: &str, value: Value) {
        self.out.insert(keyword.to_owned(), value);
    }
}

/// Lost keywords on which others depend.
#[derive(Default)]
struct LostParts {
    /// Names of properties. Without them, `additionalProperties` applies to more properties.
    names: bool,
    /// The schemas of the first items. Without them, `items` applies to these items as well.
    first_items: bool,
    /// `minContains`, whose default is 1.
    min_contains: bool,
    /// A part of `contains`, so that more items count.
    contains: bool,
}

impl Translator<'_> {
    fn translate(&mut self) -> Value {
        let resource: Rc<str> = "".into();
        let place = Place { definition: 0, same_value: true, depth: 0, resource };
        let mut root = match self.schema(self.source.root, &place) {
            Some(Value::Object(root)) => root,
            Some(_) | None => Map::new(),
        };
        let mut definitions = Map::new();
        let mut done = 0;
        while let Some((pointer, name)) = self.definitions.pointers.get(done).cloned() {
            done += 1;
            let resource = self.source.addresses.resource_of(&pointer).into();
            let place = Place { definition: done, same_value: true, depth: OUTLINE_DEPTH, resource };
            self.at.clone_from(&pointer);
            let target = self.source.root.pointer(&pointer);
            let schema = target.and_then(|target| self.schema(target, &place));
            definitions.insert(name, schema.unwrap_or_else(empty));
        }
        if !definitions.is_empty() {
            root.insert("$defs".to_owned(), Value::Object(definitions));
        }
        Value::Object(root)
    }

    /// Translates a schema. `None` if the value is none.
    fn schema(&mut self, value: &Value, place: &Place) -> Option<Value> {
        self.nodes += 1;
        match value {
            Value::Bool(_) => Some(value.clone()),
            Value::Array(items) if items.is_empty() => Some(empty()),
            Value::Object(map) => {
                let (deepest, why) = match self.extent {
                    Extent::Outline => (OUTLINE_DEPTH, ""),
                    Extent::Whole if self.nodes > MAX_NODES => (0, "the schema has too many parts"),
                    Extent::Whole => (MAX_DEPTH, "it is nested too deeply"),
                };
                if place.depth <= deepest {
                    return Some(Value::Object(self.object(map, place.clone())));
                }
                self.lose(why);
                Some(empty())
            }
            Value::Null | Value::Array(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    fn object(&mut self, map: &Map<String, Value>, place: Place) -> Map<String, Value> {
        let place = match self.source.addresses.is_resource(&self.at) {
            true => Place { resource: self.at.as_str().into(), ..place },
            false => place,
        };
        let before = (self.losses, self.references);
        self.losses += usize::from(self.source.incomplete.contains(&self.at));
        // Up to draft-07, a reference stands alone.
        let alone = map.contains_key("$ref") && self.source.dialect.is_some_and(|it| it <= Dialect::Draft7);
        let mut node = Node { map, place, out: Map::new(), lost: LostParts::default() };
        for (name, value) in map {
            let keyword = Keyword::named(name);
            let is_kept = |keyword: Keyword| {
                matches!(keyword.kind, KeywordKind::Reference | KeywordKind::Note | KeywordKind::Annotation)
            };
            match keyword {
                Some(keyword) if alone && !is_kept(keyword) => {}
                Some(keyword) => self.step(name, |this| {
                    let has_names =
                        matches!(keyword.kind, KeywordKind::SchemasByName | KeywordKind::SchemasByPattern);
                    node.lost.names |= has_names && this.source.incomplete.contains(&this.at);
                    this.keyword(name, keyword, value, &mut node);
                }),
                // Clients and this host know some of them, such as `x-mcp-header`.
                None if self.extent == Extent::Outline => {}
                None => node.set(name, value.clone()),
            }
        }
        self.drop_dependents(&mut node, before);
        node.out
    }

    /// Runs `inner` with the pointer one step further.
    fn step<T>(&mut self, name: &str, inner: impl FnOnce(&mut Self) -> T) -> T {
        let end = extend_pointer(&mut self.at, name);
        let done = inner(self);
        self.at.truncate(end);
        done
    }

    /// Counts the current keyword as lost, and lists it with the reason.
    fn lose(&mut self, why: &str) {
        self.losses += 1;
        if self.extent == Extent::Whole {
            self.dropped.add(&self.at, why, self.clean);
        }
    }

    /// Lists a part that has no effect.
    fn ignore(&mut self, why: &str) {
        if self.extent == Extent::Whole {
            self.dropped.list(&self.at, why, self.clean);
        }
    }

    /// Whether nothing was lost since these counts of losses and references. A part that is negated, or whose matches
    /// are counted, would refuse more without what was lost.
    fn is_exact_since(&mut self, (losses, references): (usize, usize)) -> bool {
        let refers = self.references > references;
        self.negated_references |= refers;
        self.losses == losses && !(refers && self.drops_negated_references)
    }

    /// Drops the keywords that depend on lost ones.
    fn drop_dependents(&mut self, node: &mut Node<'_>, before: (usize, usize)) {
        let Node { out, lost, .. } = node;
        let open = |schema: Option<&Value>| match schema {
            Some(Value::Bool(open)) => *open,
            Some(Value::Object(map)) => map.is_empty(),
            Some(_) | None => true,
        };
        let without = "a keyword on which it depends is not checked";
        let mut removed = Vec::new();
        if lost.names && !open(out.get("additionalProperties")) {
            removed.push("additionalProperties");
        }
        if lost.first_items && !open(out.get("items")) {
            removed.push("items");
        }
        if lost.min_contains {
            removed.extend(["contains", "maxContains"]);
        } else if lost.contains {
            removed.push("maxContains");
        }
        for name in removed {
            if out.shift_remove(name).is_some() {
                self.step(name, |this| this.lose(without));
            }
        }
        for (condition, dependents) in
            [("if", ["then", "else"]), ("contains", ["minContains", "maxContains"])]
        {
            if !out.contains_key(condition) {
                for name in dependents {
                    out.shift_remove(name);
                }
            }
        }
        for name in ["unevaluatedItems", "unevaluatedProperties"] {
            if out.contains_key(name) && !self.is_exact_since(before) {
                out.shift_remove(name);
                self.step(name, |this| this.lose(without));
            }
        }
    }
}

fn empty() -> Value {
    Value::Object(Map::new())
}
