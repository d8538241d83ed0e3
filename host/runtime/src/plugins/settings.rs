//! Validates the operator's settings of a plugin against the schema that its author declares.
//!
//! An unknown key or a value of the wrong type is a mistake in the policy: the plugin is not loaded, and the error
//! names the line. A missing setting only makes the tools unavailable, so that a plugin can be inspected before it is
//! configured.

use std::collections::BTreeMap;

use serde_json::Value;
use toolbay_core::tool::schema::Schema;
use toolbay_policy::Policy;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::name::PluginId;
use toolbay_policy::name_list::list_all_names;
use toolbay_policy::refusal::PolicyRefusal;

use crate::error::LoadError;

/// Maximum length of a setting's name in messages, in characters.
const MAX_NAME_CHARS: usize = 80;

/// Checks the settings of a plugin. Returns a refusal if a required setting is missing.
pub(crate) fn check(
    policy: &Policy,
    plugin: &PluginId,
    schema: Option<&Value>,
) -> Result<Option<PolicyRefusal>, LoadError> {
    let Some(schema) = schema else { return Ok(None) };
    let none = BTreeMap::new();
    let config = policy.config(plugin).unwrap_or(&none);
    if !config.is_empty() {
        check_present(policy, plugin, schema, config)?;
    }
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let missing = required.filter_map(Value::as_str).find(|key| !config.contains_key(*key));
    Ok(missing.map(|key| {
        let about = schema.get("properties").and_then(|all| all.get(key)?.get("description")?.as_str());
        let about = about.map(|text| format!(" ({})", one_line(text, 200))).unwrap_or_default();
        let key = one_line(key, MAX_NAME_CHARS);
        let hint = format!("Write in the policy: [plugins.{plugin}.config] {key} = …");
        PolicyRefusal::new(format!("its setting `{key}`{about} is missing"), hint)
    }))
}

/// How many calls one instance may run: the operator's value, if the author declares reuse safe.
pub(crate) fn reuse(policy: &Policy, plugin: &PluginId, reusable: bool, mut warn: impl FnMut(String)) -> u32 {
    let wanted = policy.reuse(plugin);
    if wanted > 1 && !reusable {
        warn(
            "the policy sets `reuse` for it, but it does not declare that its instances can be reused: each call gets \
             a fresh one"
                .to_owned(),
        );
        return 0;
    }
    wanted
}

fn check_present(
    policy: &Policy,
    plugin: &PluginId,
    schema: &Value,
    config: &BTreeMap<String, Value>,
) -> Result<(), LoadError> {
    let refused = |key: &str, problem: String| LoadError::InvalidSetting {
        plugin: plugin.clone(),
        key: key.to_owned(),
        line: policy.config_line(plugin, key),
        problem,
    };
    let known = schema.get("properties").and_then(Value::as_object);
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false))
        && schema.get("patternProperties").is_none();
    if is_closed
        && let Some(unknown) = config.keys().find(|key| known.is_none_or(|known| !known.contains_key(*key)))
    {
        let names = list_all_names(known.into_iter().flatten().map(|(key, _)| one_line(key, MAX_NAME_CHARS)));
        let names = if names.is_empty() { "none" } else { &names };
        return Err(refused(
            unknown,
            format!("no such setting; the settings are: {}", one_line(names, 1000)),
        ));
    }
    let mut present = schema.clone();
    if let Some(members) = present.as_object_mut() {
        members.remove("required");
    }
    let present = Schema::from_trusted(present);
    let whole = Value::Object(config.clone().into_iter().collect());
    present.check(&whole).map_err(|mismatch| {
        let step = mismatch.pointer.split('/').nth(1).unwrap_or_default();
        let key = step.replace("~1", "/").replace("~0", "~");
        refused(&key, mismatch.message)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn checked(schema: &Value, policy: &str) -> Result<Option<PolicyRefusal>, String> {
        let policy = Policy::parse(&format!("version = 1\n{policy}"), Path::new("/w"), None).unwrap();
        check(&policy, &PluginId::new("p").unwrap(), Some(schema)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_setting_is_refused_with_its_key_and_line() {
        let schema = json!({"type": "object", "additionalProperties": false, "properties": {
            "columns": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
            "days": {"type": "integer", "minimum": 1},
        }});
        assert_eq!(checked(&schema, ""), Ok(None));
        assert_eq!(checked(&schema, "[plugins.p.config]\ncolumns = [\"a\"]\ndays = 3"), Ok(None));
        for (policy, parts) in [
            ("[plugins.p.config]\n\ncolums = [\"a\"]", ["`colums`", "line 4 ", "`columns`, `days`"]),
            ("[plugins.p]\nconfig = { columns = [1] }", ["`columns`", "line 3 ", "/columns/0"]),
            ("[plugins.p.config]\ncolumns = []\ndays = 0", ["`days`", "line 4 ", "minimum"]),
            ("[plugins.p.config.columns]\na = 1", ["`columns`", "line 2 ", "array"]),
        ] {
            let problem = checked(&schema, policy).unwrap_err();
            for part in parts {
                assert!(problem.contains(part), "{part}: {problem}");
            }
        }
    }

    #[test]
    fn a_missing_setting_is_reported_and_an_open_schema_accepts_any_key() {
        let schema = json!({"type": "object", "required": ["url"], "properties": {
            "url": {"type": "string", "description": "Whom to ask."},
        }});
        let missing = checked(&schema, "").unwrap().unwrap().for_operator();
        assert!(
            missing.contains("`url` (Whom to ask.)") && missing.contains("[plugins.p.config] url = …"),
            "{missing}"
        );
        assert!(checked(&schema, "[plugins.p.config]\nother = 1").unwrap().is_some());
        assert_eq!(checked(&schema, "[plugins.p.config]\nurl = \"x\"\nother = 1"), Ok(None));
        assert!(checked(&schema, "[plugins.p.config]\nurl = 1").unwrap_err().contains("`url`"));
    }
}
