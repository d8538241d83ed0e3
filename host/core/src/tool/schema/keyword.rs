//! The keywords of JSON Schema, from draft-04 to 2020-12: what each holds, and the dialects that have it.

use serde_json::Value;

use crate::tool::json::pointer_step;

/// A dialect of JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dialect {
    Draft4,
    Draft6,
    Draft7,
    Draft201909,
    Draft202012,
}

use Dialect::{Draft4, Draft6, Draft7, Draft201909, Draft202012};

impl Dialect {
    /// The dialect that a schema declares with `$schema`. Draft-03 is read as draft-04. `None` if it declares none, or
    /// one that is not known.
    pub(super) fn declared_by(schema: &Value) -> Option<Self> {
        let uri = schema.get("$schema")?.as_str()?.trim();
        let named = uri.trim_end_matches('#').trim_end_matches('/');
        let name = named.split_once("json-schema.org/")?.1;
        Some(match name {
            "draft-03/schema" | "draft-04/schema" => Draft4,
            "draft-05/schema" | "draft-06/schema" => Draft6,
            "draft-07/schema" => Draft7,
            "draft/2019-09/schema" => Draft201909,
            "draft/2020-12/schema" => Draft202012,
            _ => return None,
        })
    }
}

/// What a keyword holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeywordKind {
    /// A schema.
    Schema,
    /// A list of schemas that is not empty.
    Schemas,
    /// Schemas by name.
    SchemasByName,
    /// Schemas by pattern.
    SchemasByPattern,
    /// The name of a type, or a list of names.
    Types,
    /// A list of values.
    Values,
    /// A value.
    Value,
    /// A number that is at least 0 and whole.
    Count,
    /// A number.
    Number,
    /// A number above 0.
    Factor,
    /// `true` or `false`.
    Switch,
    /// A list of names.
    Names,
    /// Lists of names by name.
    NamesByName,
    /// A regular expression.
    Pattern,
    /// A reference to a schema.
    Reference,
    /// Definitions, which only apply through references.
    Definitions,
    /// An address of a schema, its dialect or its vocabulary.
    Address,
    /// `items` of all dialects: a schema or a list of schemas.
    Items,
    /// `additionalItems`: a schema for the items behind those of a list.
    AdditionalItems,
    /// A bound, or whether a bound excludes its value.
    ExclusiveBound,
    /// Lists of names, or schemas, by name.
    Dependencies,
    /// A text for people or programs, which validation ignores.
    Note,
    /// Any other value that validation ignores.
    Annotation,
}

use KeywordKind as Kind;

/// A keyword with the dialects that have it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keyword {
    pub(super) kind: KeywordKind,
    first: Dialect,
    last: Dialect,
}

impl Keyword {
    /// The keyword of this name; `None` if no dialect has it.
    pub(super) fn named(name: &str) -> Option<Self> {
        let (kind, first, last) = match name {
            "$schema" | "$id" | "id" | "$anchor" | "$dynamicAnchor" | "$recursiveAnchor" | "$vocabulary" => {
                (Kind::Address, Draft4, Draft202012)
            }
            "$defs" | "definitions" => (Kind::Definitions, Draft4, Draft202012),
            "$ref" => (Kind::Reference, Draft4, Draft202012),
            "$dynamicRef" => (Kind::Reference, Draft202012, Draft202012),
            "$recursiveRef" => (Kind::Reference, Draft201909, Draft201909),
            "type" => (Kind::Types, Draft4, Draft202012),
            "enum" => (Kind::Values, Draft4, Draft202012),
            "const" => (Kind::Value, Draft6, Draft202012),
            "multipleOf" => (Kind::Factor, Draft4, Draft202012),
            "minimum" | "maximum" => (Kind::Number, Draft4, Draft202012),
            "exclusiveMinimum" | "exclusiveMaximum" => (Kind::ExclusiveBound, Draft4, Draft202012),
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
                (Kind::Count, Draft4, Draft202012)
            }
            "minContains" | "maxContains" => (Kind::Count, Draft201909, Draft202012),
            "pattern" => (Kind::Pattern, Draft4, Draft202012),
            "uniqueItems" => (Kind::Switch, Draft4, Draft202012),
            "required" => (Kind::Names, Draft4, Draft202012),
            "dependentRequired" => (Kind::NamesByName, Draft201909, Draft202012),
            "dependencies" => (Kind::Dependencies, Draft4, Draft202012),
            "properties" => (Kind::SchemasByName, Draft4, Draft202012),
            "dependentSchemas" => (Kind::SchemasByName, Draft201909, Draft202012),
            "patternProperties" => (Kind::SchemasByPattern, Draft4, Draft202012),
            "additionalProperties" | "not" => (Kind::Schema, Draft4, Draft202012),
            "contains" | "propertyNames" => (Kind::Schema, Draft6, Draft202012),
            "if" | "then" | "else" => (Kind::Schema, Draft7, Draft202012),
            "unevaluatedItems" | "unevaluatedProperties" => (Kind::Schema, Draft201909, Draft202012),
            "items" => (Kind::Items, Draft4, Draft202012),
            "additionalItems" => (Kind::AdditionalItems, Draft4, Draft201909),
            "prefixItems" => (Kind::Schemas, Draft202012, Draft202012),
            "allOf" | "anyOf" | "oneOf" => (Kind::Schemas, Draft4, Draft202012),
            "title" | "description" | "$comment" | "format" | "contentEncoding" | "contentMediaType" => {
                (Kind::Note, Draft4, Draft202012)
            }
            "default" | "examples" | "deprecated" | "readOnly" | "writeOnly" | "contentSchema" => {
                (Kind::Annotation, Draft4, Draft202012)
            }
            _ => return None,
        };
        Some(Self { kind, first, last })
    }

    /// Whether the keyword takes part in validation.
    pub(super) fn is_checked(&self) -> bool {
        !matches!(self.kind, Kind::Note | Kind::Annotation | Kind::Address | Kind::Definitions)
    }

    /// Whether a dialect has the keyword. A schema that declares no dialect may use those of all.
    pub(super) fn is_in(&self, dialect: Option<Dialect>) -> bool {
        dialect.is_none_or(|dialect| (self.first..=self.last).contains(&dialect))
    }
}

/// Where a keyword of 2020-12 holds schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// A schema; in older dialects also a list of schemas.
    Schema,
    /// In a list.
    Schemas,
    /// By name.
    SchemasByName,
    /// Nowhere.
    Data,
}

impl Content {
    /// What the keyword of this name holds.
    pub(super) fn of(name: &str) -> Self {
        match Keyword::named(name).map(|keyword| keyword.kind) {
            Some(Kind::Schema | Kind::Items | Kind::AdditionalItems) => Self::Schema,
            Some(Kind::Schemas) => Self::Schemas,
            Some(Kind::SchemasByName | Kind::SchemasByPattern | Kind::Definitions) => Self::SchemasByName,
            Some(_) | None => Self::Data,
        }
    }
}

/// The schemas in the keywords of a schema of 2020-12, each with the steps of its JSON pointer.
pub(crate) fn subschemas(schema: &Value) -> Box<dyn Iterator<Item = (String, &Value)> + '_> {
    let Some(map) = schema.as_object() else { return Box::new(std::iter::empty()) };
    Box::new(map.iter().flat_map(|(keyword, value)| -> Box<dyn Iterator<Item = (String, &Value)> + '_> {
        match (Content::of(keyword), value) {
            (Content::SchemasByName, Value::Object(named)) => Box::new(
                named.iter().map(move |(name, inner)| (format!("{keyword}/{}", pointer_step(name)), inner)),
            ),
            (Content::Schemas | Content::Schema, Value::Array(list)) => {
                Box::new(list.iter().enumerate().map(move |(n, inner)| (format!("{keyword}/{n}"), inner)))
            }
            (Content::Schema, inner) => Box::new(std::iter::once((keyword.clone(), inner))),
            _ => Box::new(std::iter::empty()),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_dialect_is_the_one_that_the_schema_declares() {
        for (uri, dialect) in [
            ("http://json-schema.org/draft-04/schema#", Some(Draft4)),
            ("https://json-schema.org/draft-06/schema", Some(Draft6)),
            (" http://json-schema.org/draft-07/schema# ", Some(Draft7)),
            ("https://json-schema.org/draft/2019-09/schema", Some(Draft201909)),
            ("https://json-schema.org/draft/2020-12/schema#", Some(Draft202012)),
            ("http://json-schema.org/schema#", None),
            ("https://example.org/draft-04/schema#", None),
            ("", None),
        ] {
            assert_eq!(Dialect::declared_by(&json!({"$schema": uri})), dialect, "{uri}");
        }
        assert_eq!(Dialect::declared_by(&json!({"$schema": 7})), None);
    }
}
