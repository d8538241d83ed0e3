//! The arguments of a tool that its schema no longer checks as its author wrote it.
//!
//! A schema of somebody else can have keywords that the host cannot evaluate. It drops them, so the schema accepts more
//! values. A rule on an argument compares texts. It cannot be evaluated on a value that only the dropped keywords would
//! have refused, such as a list in place of a text, and then it refuses the call.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most names that are kept apart. With more, all arguments count as unchecked.
const MAX_NAMES: usize = 256;

/// Keywords of an object whose loss may let a required member be absent.
const PRESENCE_KEYWORDS: [&str; 20] = [
    "",
    "$dynamicRef",
    "$recursiveRef",
    "$ref",
    "additionalProperties",
    "allOf",
    "anyOf",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "minProperties",
    "not",
    "oneOf",
    "patternProperties",
    "propertyNames",
    "required",
    "then",
    "unevaluatedProperties",
];

/// Which arguments of a tool are not checked completely.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncheckedArguments {
    /// Arguments that lost keywords.
    names: BTreeSet<String>,
    /// Whether any argument may have lost keywords.
    all: bool,
    /// Arguments that may be absent although the schema was meant to require them.
    absent: BTreeSet<String>,
    /// Whether any argument may be absent.
    any_absent: bool,
    /// Arguments whose type is still checked.
    typed: BTreeSet<String>,
}

impl UncheckedArguments {
    /// Adds a keyword of the schema that is not checked, by its JSON pointer.
    pub fn add(&mut self, pointer: &str) {
        let mut steps = pointer.split('/').skip(1);
        let (first, second) = (steps.next().unwrap_or_default(), steps.next());
        let keyword = pointer.rsplit('/').find(|step| step.parse::<u32>().is_err()).unwrap_or_default();
        if let ("properties", Some(name)) = (first, second) {
            let name = name.replace("~1", "/").replace("~0", "~");
            if pointer.split('/').count() == 4 && keyword == "required" {
                self.absent.insert(name.clone());
            }
            self.names.insert(name);
        } else {
            self.all = true;
            self.any_absent |= PRESENCE_KEYWORDS.contains(&keyword) || first == "properties";
        }
        self.bound_names();
    }

    /// Adds the arguments of another part of the same schema.
    pub fn append(&mut self, other: Self) {
        self.names.extend(other.names);
        self.absent.extend(other.absent);
        self.all |= other.all;
        self.any_absent |= other.any_absent;
        self.bound_names();
    }

    fn bound_names(&mut self) {
        if self.names.len() > MAX_NAMES {
            self.names.clear();
            self.absent.clear();
            (self.all, self.any_absent) = (true, true);
        }
    }

    /// Sets the arguments whose type the checked schema still restricts.
    pub fn set_types(&mut self, schema: &Value) {
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let typed = properties.filter(|(_, property)| property.get("type").is_some_and(Value::is_string));
        self.typed = typed.take(MAX_NAMES).map(|(name, _)| name.clone()).collect();
    }

    /// Whether the value of an argument is one that the dropped keywords might have refused, so that a rule cannot
    /// compare it. A text, a number and a boolean can always be compared.
    #[must_use]
    pub fn is_open(&self, pointer: &str, argument: Option<&Value>) -> bool {
        let Some(path) = pointer.strip_prefix('/') else { return false };
        let (name, nested) = path.split_once('/').map_or((path, false), |(name, _)| (name, true));
        let name = name.replace("~1", "/").replace("~0", "~");
        let affected = self.all || self.names.contains(&name);
        match argument {
            None => self.any_absent || self.absent.contains(&name) || (nested && affected),
            Some(Value::Null | Value::Array(_) | Value::Object(_)) => {
                affected && (nested || !self.typed.contains(&name))
            }
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn without(pointers: &[&str]) -> UncheckedArguments {
        let mut unchecked = UncheckedArguments::default();
        pointers.iter().for_each(|pointer| unchecked.add(pointer));
        unchecked.set_types(&json!({"properties": {"typed": {"type": "string"}, "path": {}}}));
        unchecked
    }

    #[test]
    fn only_the_arguments_that_lost_a_keyword_are_open() {
        let list = json!(["/etc/passwd"]);
        for (pointers, pointer, argument, open) in [
            (&["/properties/path/type"][..], "/path", Some(&list), true),
            (&["/properties/path/type"], "/path", Some(&json!(null)), true),
            (&["/properties/path/type"], "/path", Some(&json!("/etc/passwd")), false),
            (&["/properties/path/type"], "/path", Some(&json!(7)), false),
            (&["/properties/path/type"], "/path", None, false),
            (&["/properties/path/type"], "/other", Some(&list), false),
            (&["/properties/path/type"], "/path/inner", None, true),
            (&["/properties/a~1b/type"], "/a~1b", Some(&list), true),
            (&["/properties/typed/pattern"], "/typed", Some(&list), false),
            (&["/properties/path/required"], "/path", None, true),
            (&["/properties/path/properties/x/required"], "/path", None, false),
            (&["/required"], "/path", None, true),
            (&["/required"], "/path", Some(&list), true),
            (&["/allOf/1"], "/path", None, true),
            (&["/$defs/a/type"], "/path", Some(&list), true),
            (&["/$defs/a/type"], "/path", None, false),
            (&[""], "/path", None, true),
            (&[""], "", Some(&list), false),
            (&[], "/path", None, false),
        ] {
            let unchecked = without(pointers);
            assert_eq!(unchecked.is_open(pointer, argument), open, "{pointers:?} {pointer} {argument:?}");
        }
    }

    #[test]
    fn many_names_stand_for_all() {
        let pointers: Vec<String> = (0..300).map(|n| format!("/properties/p{n}/type")).collect();
        let mut unchecked = UncheckedArguments::default();
        pointers.iter().for_each(|pointer| unchecked.add(pointer));
        assert!(unchecked.is_open("/any", Some(&json!([]))) && unchecked.names.len() <= MAX_NAMES);
    }
}
