//! A form for the arguments of a tool, from its schema. Arguments that a form cannot show are written as JSON.

use std::collections::HashMap;

use maud::{Markup, html};
use serde_json::{Map, Value};

use toolbay_core::tool::schema::without_null;

use super::layout::plain;

/// Most fields. A schema with more properties gets one field for all arguments.
const MAX_FIELDS: usize = 60;
/// Most choices of a field. One with more is a text.
const MAX_CHOICES: usize = 200;
/// The name of the field for all arguments.
const ALL: &str = "arguments";

/// The fields of a tool.
#[derive(Debug)]
pub(super) enum ArgumentForm {
    /// One field for each property.
    Fields(Vec<Field>),
    /// One field for the whole object.
    Json,
}

/// The field of one property.
#[derive(Debug)]
pub(super) struct Field {
    name: String,
    description: Option<String>,
    required: bool,
    default: Option<Value>,
    kind: FieldKind,
}

/// What a field takes.
#[derive(Debug, PartialEq)]
enum FieldKind {
    Text,
    Integer,
    Number,
    Boolean,
    Choice(Vec<String>),
    Json,
}

impl ArgumentForm {
    /// The form for an input schema.
    pub(super) fn new(schema: &Value) -> Self {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Self::Json };
        let takes_any =
            properties.is_empty() && schema.get("additionalProperties") != Some(&Value::Bool(false));
        if takes_any || properties.len() > MAX_FIELDS {
            return Self::Json;
        }
        let required =
            schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let field = |(name, property): (&String, &Value)| Field {
            name: name.clone(),
            description: property.get("description").and_then(Value::as_str).map(str::to_owned),
            required: required.iter().any(|one| one == name.as_str()),
            default: property.get("default").cloned(),
            kind: FieldKind::of(property),
        };
        Self::Fields(properties.iter().map(field).collect())
    }

    /// The fields with the values of the last submission.
    pub(super) fn render(&self, sent: &HashMap<String, String>) -> Markup {
        html! { @match self {
            Self::Json => {
                label for="all" { "Arguments, as JSON" }
                textarea #all name=(ALL) rows="6" spellcheck="false" { (sent.get(ALL).map_or("{}", String::as_str)) }
            }
            Self::Fields(fields) => @for (at, field) in fields.iter().enumerate() { (field.render(at, sent)) }
        } }
    }

    /// The arguments that a person sent.
    pub(super) fn arguments(&self, sent: &HashMap<String, String>) -> Result<String, String> {
        match self {
            Self::Json => Ok(sent
                .get(ALL)
                .filter(|text| !text.trim().is_empty())
                .cloned()
                .unwrap_or_else(|| "{}".to_owned())),
            Self::Fields(fields) => {
                let mut arguments = Map::new();
                for (at, field) in fields.iter().enumerate() {
                    let text = sent.get(&field_name(at)).map_or("", String::as_str);
                    if let Some(value) = field.parse(text)? {
                        arguments.insert(field.name.clone(), value);
                    }
                }
                Ok(Value::Object(arguments).to_string())
            }
        }
    }
}

/// The name of a field. A plugin chooses the names of properties, so they are not used.
fn field_name(at: usize) -> String {
    format!("field-{at}")
}

impl FieldKind {
    fn of(property: &Value) -> Self {
        let property = without_null(property);
        let choices = property.get("enum").and_then(Value::as_array);
        if let Some(choices) =
            choices.filter(|choices| choices.len() <= MAX_CHOICES && choices.iter().all(Value::is_string))
        {
            return Self::Choice(choices.iter().filter_map(Value::as_str).map(str::to_owned).collect());
        }
        match type_of(property) {
            Some("string") => Self::Text,
            Some("integer") => Self::Integer,
            Some("number") => Self::Number,
            Some("boolean") => Self::Boolean,
            _ => Self::Json,
        }
    }
}

/// The one type besides `null`.
fn type_of(property: &Value) -> Option<&str> {
    let named = |value: &'_ Value| -> bool { value.as_str().is_some_and(|name| name != "null") };
    match property.get("type") {
        Some(Value::String(name)) => Some(name),
        Some(Value::Array(names)) => match names.iter().filter(|name| named(name)).collect::<Vec<_>>()[..] {
            [one] => one.as_str(),
            _ => None,
        },
        _ => None,
    }
}

impl Field {
    fn render(&self, at: usize, sent: &HashMap<String, String>) -> Markup {
        let (name, id) = (field_name(at), format!("argument-{at}"));
        let default = self
            .default
            .as_ref()
            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        let value = sent.get(&name).cloned().or(default).unwrap_or_default();
        let about = self.description.as_ref().map(|_| format!("about-{at}"));
        html! {
            div.field {
                label for=(id) { (plain(&self.name)) @if self.required { " (required)" } }
                @match &self.kind {
                    FieldKind::Text => textarea id=(id) name=(name) rows="1" aria-describedby=[about.as_ref()] { (value) },
                    FieldKind::Integer => input id=(id) name=(name) type="number" step="1" value=(value) aria-describedby=[about.as_ref()];,
                    FieldKind::Number => input id=(id) name=(name) type="number" step="any" value=(value) aria-describedby=[about.as_ref()];,
                    FieldKind::Boolean => (select(&id, &name, &value, &["true".to_owned(), "false".to_owned()], about.as_ref())),
                    FieldKind::Choice(choices) => (select(&id, &name, &value, choices, about.as_ref())),
                    FieldKind::Json => textarea id=(id) name=(name) rows="3" spellcheck="false" placeholder="JSON" aria-describedby=[about.as_ref()] { (value) },
                }
                @if let (Some(text), Some(about)) = (&self.description, &about) { p.quiet id=(about) { (plain(text)) } }
            }
        }
    }

    /// The value; `None` if the field is empty.
    fn parse(&self, text: &str) -> Result<Option<Value>, String> {
        let trimmed = text.trim();
        let bad = |what: &str| Err(format!("`{}` must be {what}", self.name));
        match &self.kind {
            FieldKind::Text if text.is_empty() && !self.required => Ok(None),
            // Browsers send line breaks of text areas as CRLF.
            FieldKind::Text => Ok(Some(text.replace("\r\n", "\n").into())),
            _ if trimmed.is_empty() => Ok(None),
            FieldKind::Integer => match serde_json::from_str::<Value>(trimmed) {
                Ok(value) if value.is_i64() || value.is_u64() => Ok(Some(value)),
                _ => bad("a whole number"),
            },
            FieldKind::Number => match serde_json::from_str::<Value>(trimmed) {
                Ok(value) if value.is_number() => Ok(Some(value)),
                _ => bad("a number"),
            },
            FieldKind::Boolean => Ok(Some((trimmed == "true").into())),
            FieldKind::Choice(_) => Ok(Some(text.into())),
            FieldKind::Json => {
                serde_json::from_str(trimmed).map(Some).or_else(|error| bad(&format!("JSON: {error}")))
            }
        }
    }
}

fn select(id: &str, name: &str, value: &str, choices: &[String], about: Option<&String>) -> Markup {
    html! {
        select id=(id) name=(name) aria-describedby=[about] {
            option value="" {}
            @for choice in choices { option value=(choice) selected[choice == value] { (plain(choice)) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sent(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn fields_become_arguments_of_their_types() {
        let form = ArgumentForm::new(&json!({
            "type": "object",
            "required": ["text"],
            "properties": {
                "text": {"type": "string"},
                "count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "ratio": {"type": "number"},
                "deep": {"type": "boolean"},
                "mode": {"enum": ["a", "b"]},
                "list": {"type": "array"}
            }
        }));
        let all = sent(&[
            ("field-0", "a\r\nb"),
            ("field-1", "3"),
            ("field-2", "0.5"),
            ("field-3", "true"),
            ("field-4", "b"),
            ("field-5", "[1]"),
        ]);
        let expected =
            json!({"text": "a\nb", "count": 3, "ratio": 0.5, "deep": true, "mode": "b", "list": [1]});
        assert_eq!(serde_json::from_str::<Value>(&form.arguments(&all).unwrap()).unwrap(), expected);
        assert_eq!(form.arguments(&sent(&[])).unwrap(), r#"{"text":""}"#);
        for (field, text, problem) in
            [("field-1", "3.5", "whole number"), ("field-2", "x", "a number"), ("field-5", "[", "JSON")]
        {
            assert!(form.arguments(&sent(&[(field, text)])).unwrap_err().contains(problem));
        }
    }

    #[test]
    fn a_hostile_schema_stays_text() {
        let evil = "\"><script>alert(1)</script>";
        let form = ArgumentForm::new(
            &json!({"properties": {evil: {"type": "string", "description": evil, "default": evil, "enum": [evil]}}}),
        );
        let page = form.render(&sent(&[])).into_string();
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;"), "{page}");
        let many: Map<String, Value> = (0..=MAX_FIELDS).map(|at| (at.to_string(), json!({}))).collect();
        assert!(matches!(ArgumentForm::new(&json!({"properties": many})), ArgumentForm::Json));
        assert!(matches!(ArgumentForm::new(&json!({"type": "object"})), ArgumentForm::Json));
    }
}
