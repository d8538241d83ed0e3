//! `toolbay kv`: the key-value storage of plugins, for operators.

use std::io::Write;
use std::path::Path;

use anyhow::{Error, Result, anyhow};
use serde_json::{Value, json};
use toolbay::{EntryInfo, PluginId, RedbStore};
use toolbay_core::session::kv::{Bucket, KvError, KvStore};
use toolbay_policy::capability::kv::KvScope;
use toolbay_policy::hidden_chars::escape_hidden;
use toolbay_policy::rule::GrantRule;

use crate::command::args::{EntryArgs, KvCommand, SetupArgs};
use crate::command::{known_plugins, named_path, setup};
use crate::output::NAME;
use crate::output::error::CommandError;
use crate::output::format::count_noun;
use crate::output::table::{Cell, TextTable};
use crate::{CommandStatus, host_failure, output};

pub(crate) async fn run(args: &SetupArgs, command: KvCommand, json: bool) -> Result<CommandStatus> {
    let dir = setup::state_dir(args)?;
    // A command that only reads creates no file.
    let store = if dir.join("kv.redb").exists() {
        RedbStore::in_dir_with_wait(&dir, args.state_wait)
    } else {
        RedbStore::in_memory()
    };
    if let Some(plugin) = command.plugin() {
        require_known(args, &store, &id(plugin)?).await?;
    }
    match command {
        KvCommand::List { plugin, limit } => list(&store, &id(&plugin)?, limit, json).await,
        KvCommand::Get(entry) => get(&store, &entry, json).await,
        KvCommand::Remove(entry) => remove(&store, &entry, json).await,
        KvCommand::Clear { plugin } => {
            let removed = store.clear(&id(&plugin)?).await.map_err(store_failure)?;
            report(
                json,
                &json!({ "removed": removed }),
                &format!(
                    "removed {}",
                    count_noun(usize::try_from(removed).unwrap_or(usize::MAX), "entry", "entries")
                ),
            )
        }
        KvCommand::Usage => usage(&store, json).await,
        KvCommand::Backup { file } => {
            if file.symlink_metadata().is_ok() {
                let text = format!("`{}` already exists", file.display());
                return Err(CommandError::new("exists", text).with_help("name a new file").into());
            }
            named_path::check_folder_of(&file)?;
            let entries = store.backup(&file).await.map_err(store_failure)?;
            let count = count_noun(usize::try_from(entries).unwrap_or(usize::MAX), "entry", "entries");
            let text = format!("copied {count} to `{}`", escape_hidden(&file.display().to_string()));
            report(json, &json!({ "entries": entries }), &text)
        }
    }
}

/// Refuses a plugin that stores nothing and that nothing else names.
async fn require_known(args: &SetupArgs, store: &RedbStore, plugin: &PluginId) -> Result<()> {
    let usage = store.usage().await.map_err(store_failure)?;
    let stores: Vec<String> = usage.iter().map(|one| one.plugin.to_string()).collect();
    known_plugins::require(args, plugin, stores.iter().map(String::as_str))
}

fn store_failure(error: KvError) -> Error {
    host_failure(error)
}

fn id(plugin: &str) -> Result<PluginId> {
    Ok(PluginId::new(plugin)?)
}

fn bucket(entry: &EntryArgs) -> Result<Bucket> {
    let wrong = |problem: String| anyhow!(problem);
    let scope = KvScope::parse(&entry.scope, Path::new("/")).map_err(wrong)?;
    let owner = entry.owner.as_str();
    Bucket::new(id(&entry.plugin)?, scope, owner).map_err(|_| {
        wrong(match scope {
            KvScope::Plugin => "the scope `plugin` has no owner; omit `--owner`".to_owned(),
            KvScope::Tool | KvScope::Session | KvScope::Agent => {
                format!("name the owner with `--owner ID`, as `toolbay kv list {}` shows it", entry.plugin)
            }
        })
    })
}

async fn list(store: &RedbStore, plugin: &PluginId, limit: usize, json: bool) -> Result<CommandStatus> {
    let (entries, more) = store.entries(plugin, limit).await.map_err(store_failure)?;
    if json {
        let entries: Vec<Value> = entries.iter().map(entry_json).collect();
        return print_json(&json!({ "entries": entries, "more": more }));
    }
    let mut table = TextTable::new(["SCOPE", "OWNER", "KEY", "BYTES"]).with_numbers_in(&[3]);
    for EntryInfo { scope, owner, key, bytes, .. } in entries {
        // A key is the plugin's text: a tab or a line break in it must not make a column or a row.
        let (owner, key) = (owner.escape_debug().to_string(), key.escape_debug().to_string());
        table.push([scope.as_str().into(), owner.into(), Cell::styled(NAME, key), bytes.to_string().into()]);
    }
    table.print()?;
    if more {
        output::print_note(&format!("there are more than {limit} entries; raise `--limit`"));
    }
    Ok(CommandStatus::Success)
}

fn entry_json(entry: &EntryInfo) -> Value {
    json!({
        "scope": entry.scope,
        "owner": entry.owner,
        "key": entry.key,
        "bytes": entry.bytes,
        "expires_ms": entry.expires_ms,
    })
}

async fn get(store: &RedbStore, entry: &EntryArgs, json: bool) -> Result<CommandStatus> {
    let Some(value) = store.get(&bucket(entry)?, &entry.key).await.map_err(store_failure)? else {
        return report_missing(json);
    };
    let text = std::str::from_utf8(&value);
    if json {
        // A value that is not UTF-8 is shown as bytes.
        return print_json(
            &json!({ "found": true, "text": text.ok(), "bytes": text.is_err().then_some(&value) }),
        );
    }
    match text {
        Ok(text) if output::stdout_is_terminal() => writeln!(output::stdout(), "{}", escape_hidden(text))?,
        _ => std::io::stdout().lock().write_all(&value)?,
    }
    Ok(CommandStatus::Success)
}

fn report_missing(json: bool) -> Result<CommandStatus> {
    if json {
        print_json(&json!({ "found": false }))?;
    } else {
        CommandError::new("unknown_entry", "there is no such entry")
            .with_help("`toolbay kv list PLUGIN` shows the entries of a plugin")
            .print();
    }
    Ok(CommandStatus::Failed)
}

async fn remove(store: &RedbStore, entry: &EntryArgs, json: bool) -> Result<CommandStatus> {
    let bucket = bucket(entry)?;
    if store.get(&bucket, &entry.key).await.map_err(store_failure)?.is_none() {
        return report_missing(json);
    }
    store.remove(&bucket, &entry.key).await.map_err(store_failure)?;
    report(json, &json!({ "removed": 1 }), "removed 1 entry")
}

async fn usage(store: &RedbStore, json: bool) -> Result<CommandStatus> {
    let usage = store.usage().await.map_err(store_failure)?;
    if json {
        let all: Vec<Value> = usage
            .iter()
            .map(|one| json!({ "plugin": one.plugin, "keys": one.keys, "bytes": one.bytes }))
            .collect();
        return print_json(&Value::from(all));
    }
    let mut table = TextTable::new(["PLUGIN", "KEYS", "BYTES"]).with_numbers_in(&[1, 2]);
    if usage.is_empty() {
        output::print_note("no plugin has stored anything");
    }
    for one in usage {
        let name = Cell::styled(NAME, &one.plugin);
        table.push([name, one.keys.to_string().into(), one.bytes.to_string().into()]);
    }
    table.print()?;
    Ok(CommandStatus::Success)
}

fn report(json: bool, value: &Value, text: &str) -> Result<CommandStatus> {
    if json {
        return print_json(value);
    }
    output::print_note(text);
    Ok(CommandStatus::Success)
}

fn print_json(value: &Value) -> Result<CommandStatus> {
    output::print_json(value)?;
    Ok(CommandStatus::Success)
}
