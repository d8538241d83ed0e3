//! Merges one entry into another program's file and preserves its comments, order and white space. A file that cannot
//! be parsed stays unchanged.

use anyhow::{Context, Result, anyhow, bail};
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstRootNode};
use serde_json::Value;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table};

/// Puts `entry` under `key` and `name` into a JSON text, which may have comments and commas at the end of lists.
pub(super) fn json(text: &str, key: &str, name: &str, entry: &Value) -> Result<String> {
    if text.trim().is_empty() {
        let fresh = serde_json::json!({ key: { name: entry } });
        return Ok(format!("{}\n", serde_json::to_string_pretty(&fresh)?));
    }
    let options = ParseOptions::default();
    let document =
        jsonc_parser::parse_to_serde_value::<Option<Value>>(text, &options).context("it is not JSON")?;
    let document = document.ok_or_else(|| anyhow!("it is not JSON"))?;
    // A client reads `null` as no servers.
    let servers = document.as_object().ok_or_else(|| anyhow!("it is not a JSON object"))?.get(key);
    let servers = servers.filter(|servers| !servers.is_null());
    if servers.is_some_and(|servers| !servers.is_object()) {
        bail!("its `{key}` is not an object");
    }
    let old = servers.and_then(|servers| servers.get(name));
    let entry = &overlay(old, entry);
    if old == Some(entry) {
        return Ok(text.to_owned());
    }
    let root = CstRootNode::parse(text, &options).context("it is not JSON")?;
    let object = root.object_value().ok_or_else(|| anyhow!("it is not a JSON object"))?;
    if object.get(key).is_some() && servers.is_none() {
        object
            .get(key)
            .into_iter()
            .for_each(|property| property.set_value(CstInputValue::Object(Vec::new())));
    }
    let servers =
        object.object_value_or_create(key).ok_or_else(|| anyhow!("its `{key}` is not an object"))?;
    match servers.get(name) {
        Some(document) => document.set_value(input(entry)),
        None => drop(servers.append(name, input(entry))),
    }
    let merged = root.to_string();
    // Only the entry may differ: the parsed values are compared, as a client reads them.
    let after = jsonc_parser::parse_to_serde_value::<Option<Value>>(&merged, &options)?.unwrap_or_default();
    let mut expect = document;
    if let Some(object) = expect.as_object_mut() {
        let servers = object.entry(key).or_insert(Value::Null);
        if servers.is_null() {
            *servers = Value::Object(serde_json::Map::new());
        }
        if let Some(servers) = servers.as_object_mut() {
            servers.insert(name.to_owned(), entry.clone());
        }
    }
    if after != expect {
        bail!("its form does not allow an automatic edit; add the entry by hand");
    }
    Ok(merged)
}

/// Keys of an entry for a server at a URL. A client that finds one of them connects there, whatever `command` says.
const REMOTE_KEYS: [&str; 10] = [
    "url",
    "serverUrl",
    "httpUrl",
    "type",
    "transport",
    "headers",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "oauth",
];

/// The entry with the keys that the user added to the previous one, such as variables. Keys of a server at a URL go, because
/// the entry starts a program.
fn overlay(old: Option<&Value>, entry: &Value) -> Value {
    let (Some(old), Some(new)) = (old.and_then(Value::as_object), entry.as_object()) else {
        return entry.clone();
    };
    let mut all = old.clone();
    all.retain(|key, _| !REMOTE_KEYS.contains(&key.as_str()));
    for (key, value) in new {
        let empty = value.as_object().is_some_and(serde_json::Map::is_empty);
        if !(empty && all.contains_key(key)) {
            all.insert(key.clone(), value.clone());
        }
    }
    Value::Object(all)
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(on) => CstInputValue::Bool(*on),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(map) => {
            CstInputValue::Object(map.iter().map(|(key, value)| (key.clone(), input(value))).collect())
        }
    }
}

/// Puts `entry` under `[KEY.NAME]` into a TOML text and preserves the other keys of the table.
pub(super) fn toml(text: &str, key: &str, name: &str, entry: &Value) -> Result<String> {
    let mut document: DocumentMut = text.parse().context("it is not TOML")?;
    let servers = document.entry(key).or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let servers = servers.as_table_like_mut().ok_or_else(|| anyhow!("its `{key}` is not a table"))?;
    let own = servers.entry(name).or_insert_with(|| Item::Table(Table::new()));
    let own = own.as_table_like_mut().ok_or_else(|| anyhow!("its `{key}.{name}` is not a table"))?;
    for key in REMOTE_KEYS.iter().filter(|key| entry.get(key).is_none()) {
        own.remove(key);
    }
    for (key, value) in entry.as_object().into_iter().flatten() {
        let new = toml_from_json(value)?;
        let same = own.get(key).and_then(Item::as_value).is_some_and(|old| {
            let plain = |value: &toml_edit::Value| value.clone().decorated("", "").to_string();
            plain(old) == plain(&new) || equal(old, value)
        });
        if !same {
            own.insert(key, Item::Value(new));
        }
    }
    Ok(document.to_string())
}

/// Whether a TOML value equals a JSON one.
fn equal(old: &toml_edit::Value, new: &Value) -> bool {
    match (old, new) {
        (toml_edit::Value::String(old), Value::String(new)) => old.value() == new,
        (toml_edit::Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| equal(old, new))
        }
        _ => false,
    }
}

fn toml_from_json(value: &Value) -> Result<toml_edit::Value> {
    Ok(match value {
        Value::String(text) => text.as_str().into(),
        Value::Bool(on) => (*on).into(),
        Value::Array(items) => {
            let items = items.iter().map(toml_from_json).collect::<Result<Vec<_>>>()?;
            toml_edit::Value::Array(items.into_iter().collect::<Array>())
        }
        Value::Object(map) => {
            let mut table = InlineTable::new();
            for (key, value) in map {
                table.insert(key, toml_from_json(value)?);
            }
            table.into()
        }
        Value::Null | Value::Number(_) => bail!("`{value}` cannot be written in TOML"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn comments_and_order_are_preserved() {
        let text = "// mine\n{\n  // first\n  \"b\": 1, /* two */\n  \"servers\": {\n    // other\n    \"x\": {\"command\": \"x\",},\n  },\n  \"a\": [1, 2,],\n}\n";
        let merged = json(text, "servers", "toolbay", &json!({"command": "t"})).unwrap();
        for part in ["// mine", "// first", "/* two */", "// other", "\"a\": [1, 2,]", "\"toolbay\""] {
            assert!(merged.contains(part), "{part}: {merged}");
        }
        let changed = json(&merged, "servers", "toolbay", &json!({"command": "u"})).unwrap();
        assert!(
            changed.contains("\"u\"") && !changed.contains("\"t\"") && changed.contains("// other"),
            "{changed}"
        );
        assert!(json("{\"a\": 1}", "servers", "t", &json!({})).unwrap().contains("\"a\": 1"));
        let toml_text = "# mine\nmodel = \"o\" # m\n\n[mcp_servers.x]\ncommand = \"x\"\n\n[mcp_servers.toolbay]\ncommand = 't' # ours\nstartup_timeout_sec = 20\n";
        let entry = json!({"command": "t", "args": ["serve"]});
        let merged = toml(toml_text, "mcp_servers", "toolbay", &entry).unwrap();
        for part in [
            "# mine",
            "# m",
            "[mcp_servers.x]",
            "startup_timeout_sec = 20",
            "command = 't' # ours",
            "args = [\"serve\"]",
        ] {
            assert!(merged.contains(part), "{part}: {merged}");
        }
        assert_eq!(toml(&merged, "mcp_servers", "toolbay", &entry).unwrap(), merged);
    }

    #[test]
    fn an_entry_means_what_the_client_reads() {
        let entry = json!({"command": "t", "args": ["serve"]});
        for (there, kept) in [
            ("{\"mcpServers\": null}", json!({"mcpServers": {"toolbay": entry}})),
            // With a URL the client would connect to it, and start nothing.
            (
                "{\"mcpServers\": {\"toolbay\": {\"type\": \"http\", \"url\": \"https://a\", \"headers\": {\"a\": \"b\"}, \"env\": {\"A\": \"b\"}}}}",
                json!({"mcpServers": {"toolbay": {"command": "t", "args": ["serve"], "env": {"A": "b"}}}}),
            ),
        ] {
            let merged = json(there, "mcpServers", "toolbay", &entry).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&merged).unwrap(), kept, "{merged}");
            assert_eq!(json(&merged, "mcpServers", "toolbay", &entry).unwrap(), merged);
        }
        let there = "[mcp_servers.toolbay]\nurl = \"https://a\"\nbearer_token_env_var = \"A\"\n";
        let merged = toml(there, "mcp_servers", "toolbay", &entry).unwrap();
        assert!(
            !merged.contains("url") && !merged.contains("bearer") && merged.contains("command"),
            "{merged}"
        );
    }

    #[test]
    fn unparsable_files_are_refused() {
        for text in ["{", "[]", "7", "{\"servers\": []}", "{\"servers\": 1}", "{\"a\" 1}", "hello", "{} {}"] {
            assert!(json(text, "servers", "t", &json!({"command": "t"})).is_err(), "{text}");
        }
        for text in ["[", "mcp_servers = 1", "[mcp_servers]\ntoolbay = 1", "a = "] {
            assert!(toml(text, "mcp_servers", "toolbay", &json!({"command": "t"})).is_err(), "{text}");
        }
    }
}
