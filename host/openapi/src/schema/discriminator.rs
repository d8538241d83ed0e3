//! Discriminators. The importer writes `oneOf` as `anyOf`, because the service judges values that fit several branches.
//! A discriminator chooses one branch: its property gets the value of the branch (OpenAPI 3.1, Discriminator Object).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::MAX_DEPTH;
use crate::document::OpenApiDocument;
use crate::scalar::{member_text, scalar_text};

/// The most values of a discriminator that lead to one branch.
const MAX_VALUES: usize = 100;
/// The longest value of a discriminator, in bytes.
const MAX_VALUE: usize = 256;

/// The references to schemas that have a name.
const SCHEMAS: &str = "#/components/schemas/";

/// The values of a discriminator that lead to one branch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BranchTag {
    property: String,
    values: Vec<String>,
    /// Whether the document lists the values. Otherwise the value is the name of the branch.
    mapped: bool,
}

/// The tags of the branches of a union.
#[derive(Debug)]
pub(super) struct BranchTags {
    /// One for each branch, in order.
    pub(super) tags: Vec<Option<BranchTag>>,
    /// The values of the mapping whose schema is not in the document.
    pub(super) broken: Vec<String>,
}

impl BranchTags {
    /// Tags of branches that are not chosen.
    pub(super) fn none(branches: &[Value]) -> Self {
        Self { tags: vec![None; branches.len()], broken: Vec::new() }
    }

    /// The tags of the branches of `union`. Only references have one. If an entry of the mapping leads to none of the
    /// branches, it may be meant for any branch without an entry, so that these have none.
    ///
    /// # Errors
    /// The budget of the document is used up.
    pub(super) fn of_union(
        document: &OpenApiDocument,
        union: &Map<String, Value>,
        branches: &[Value],
    ) -> Result<Self, String> {
        let discriminator = union.get("discriminator").and_then(Value::as_object);
        let property = discriminator.map(|one| member_text(one, "propertyName")).unwrap_or_default();
        if property.is_empty() {
            return Ok(Self::none(branches));
        }
        let mapping = discriminator.and_then(|one| one.get("mapping")).and_then(Value::as_object);
        document.work.spend(branches.len() + mapping.map_or(0, Map::len))?;
        let reference = |branch: &'_ Value| branch.get("$ref").and_then(Value::as_str).map(str::to_owned);
        let references: HashSet<String> = branches.iter().filter_map(reference).collect();
        let (mut by_reference, mut lost, mut broken) =
            (HashMap::<String, Vec<String>>::new(), false, Vec::new());
        for (value, target) in mapping.into_iter().flatten() {
            let target = scalar_text(target).unwrap_or_default();
            let full = full_reference(&target);
            if let Some(found) = [&*target, &*full].into_iter().find(|one| references.contains(*one)) {
                by_reference.entry(found.to_owned()).or_default().push(value.clone());
                continue;
            }
            lost = true;
            if document.resolve_reference(&full).is_err() {
                document.work.spend(0)?;
                broken.push(value.clone());
            }
        }
        let tag = |branch: &Value| {
            let reference = branch.get("$ref").and_then(Value::as_str)?;
            let name = schema_name(reference).into_owned();
            let (mut values, mapped) = match by_reference.get(reference) {
                Some(values) => (values.clone(), true),
                None if lost => return None,
                None => (vec![name.clone()], false),
            };
            values.sort();
            // The name of the schema stays a value beside those of the mapping, unless it is one of them.
            let is_free = mapping.is_some_and(|mapping| !mapping.contains_key(&name));
            if mapped && is_free && reference.starts_with(SCHEMAS) {
                values.push(name);
            }
            BranchTag::new(&property, values, mapped)
        };
        Ok(Self { tags: branches.iter().map(tag).collect(), broken })
    }
}

impl BranchTag {
    /// A tag, unless its values are too many or too long.
    fn new(property: &str, values: Vec<String>, mapped: bool) -> Option<Self> {
        let fits = values.len() <= MAX_VALUES && values.iter().all(|value| value.len() <= MAX_VALUE);
        fits.then(|| Self { property: property.to_owned(), values, mapped })
    }

    /// Restricts the property of the converted branch to the values. What the branch itself says of the property wins: a
    /// tag that contradicts it would leave no valid value.
    ///
    /// # Errors
    /// The budget of the document is used up.
    pub(super) fn apply(
        &self,
        document: &OpenApiDocument,
        branch: &Map<String, Value>,
        out: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let nested = branch.get("discriminator").and_then(Value::as_object);
        let is_nested = nested.is_some_and(|one| member_text(one, "propertyName") == self.property);
        if is_nested && !self.mapped {
            return Ok(());
        }
        let mut values = self.values.clone();
        self.keep_allowed(&mut values, document, branch, (&mut HashSet::new(), 0))?;
        if values.is_empty() {
            return Ok(());
        }
        let properties = out.entry("properties").or_insert_with(|| json!({}));
        let Some(properties) = properties.as_object_mut() else { return Ok(()) };
        let property = properties.entry(self.property.clone()).or_insert_with(|| json!({}));
        if !property.is_object() {
            *property = json!({});
        }
        if let Some(property) = property.as_object_mut() {
            match values.as_slice() {
                [one] => property.insert("const".to_owned(), Value::from(one.as_str())),
                several => property.insert("enum".to_owned(), json!(several)),
            };
        }
        Ok(())
    }

    /// Keeps the values that the schemas of a branch allow.
    fn keep_allowed<'a>(
        &self,
        values: &mut Vec<String>,
        document: &'a OpenApiDocument,
        branch: &'a Map<String, Value>,
        (seen, depth): (&mut HashSet<&'a str>, usize),
    ) -> Result<(), String> {
        if depth > MAX_DEPTH || values.is_empty() {
            return Ok(());
        }
        document.work.spend_entries(branch)?;
        if let Some(property) = branch.get("properties").and_then(|all| all.get(&self.property)) {
            keep_values_of(property, values, document)?;
        }
        let reference =
            branch.get("$ref").and_then(Value::as_str).filter(|reference| seen.insert(*reference));
        let target = reference.and_then(|reference| document.resolve_reference(reference).ok());
        let all = branch.get("allOf").and_then(Value::as_array).into_iter().flatten();
        for one in all.chain(target).filter_map(Value::as_object) {
            self.keep_allowed(values, document, one, (&mut *seen, depth + 1))?;
        }
        Ok(())
    }
}

/// Keeps the values that the schema of the property allows.
fn keep_values_of(
    property: &Value,
    values: &mut Vec<String>,
    document: &OpenApiDocument,
) -> Result<(), String> {
    let Ok(property) = document.resolve(property) else { return Ok(()) };
    let is_text = match property.get("type") {
        Some(Value::String(one)) => one == "string",
        Some(Value::Array(types)) => types.iter().any(|one| one == "string"),
        _ => true,
    };
    document.work.spend_value(property.get("enum").unwrap_or(&Value::Null))?;
    let listed = property.get("enum").and_then(Value::as_array);
    document.work.spend(values.len().saturating_mul(listed.map_or(1, Vec::len)))?;
    let is = |one: &Value, value: &str| scalar_text(one).is_some_and(|one| one == value);
    values.retain(|value| {
        is_text
            && listed.is_none_or(|listed| listed.iter().any(|one| is(one, value)))
            && property.get("const").is_none_or(|one| is(one, value))
    });
    Ok(())
}

/// The reference that an entry of a mapping means: a reference, or the name of a schema.
fn full_reference(target: &str) -> Cow<'_, str> {
    let is_reference = target.contains(['#', '/']);
    if is_reference { target.into() } else { format!("{SCHEMAS}{target}").into() }
}

/// The name of a schema.
fn schema_name(reference: &str) -> Cow<'_, str> {
    let last = reference.rsplit('/').next().unwrap_or_default();
    let last = percent_encoding::percent_decode_str(last).decode_utf8_lossy();
    if last.contains('~') { last.replace("~1", "/").replace("~0", "~").into() } else { last }
}
