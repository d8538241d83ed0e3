//! `toolbay kv`: the key-value storage of plugins, for operators.

use std::io::Write;

use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use toolbay::{EntryInfo, PluginId, RedbStore};
use toolbay_core::session::kv::{Bucket, KvStore};
use toolbay_policy::capability::kv::KvScope;
use toolbay_policy::hidden_chars::escape_hidden;

use crate::args::{EntryArgs, KvCommand};
use crate::output::{
    self, Cell, CommandError, CommandStatus, NAME, Printer, TextTable, count_noun, host_failure,
};
use crate::setup::{self, SetupArgs, known_plugins, named_path};

pub(crate) async fn run(args: &SetupArgs, command: KvCommand) -> Result<CommandStatus> {
    let (printer, dir) = (args.printer, setup::state_dir(args)?);
    // A command that only reads creates no file.
    let store = if dir.join("kv.redb").exists() {
        RedbStore::in_dir_with_wait(&dir, args.state_wait)
    } else {
        RedbStore::in_memory()
    };
    if let Some(plugin) = command.plugin() {
        require_known(args, &store, plugin).await?;
    }
    match command {
        KvCommand::List { plugin, limit } => list(printer, &store, &plugin, limit).await,
        KvCommand::Get(entry) => get(printer, &store, &entry).await,
        KvCommand::Remove(entry) => remove(printer, &store, &entry).await,
        KvCommand::Clear { plugin } => {
            let removed = store.clear(&plugin).await.map_err(host_failure)?;
            let text = format!("removed {}", count_entries(removed));
            Ok(printer.report(&json!({ "removed": removed }), &text)?)
        }
        KvCommand::Usage => usage(printer, &store).await,
        KvCommand::Backup { file } => {
            named_path::check_is_new(&file, "name a new file")?;
            named_path::check_folder_of(&file)?;
            let entries = store.backup(&file).await.map_err(host_failure)?;
            let text = format!("copied {} to `{}`", count_entries(entries), file.display());
            Ok(printer.report(&json!({ "entries": entries }), &text)?)
        }
    }
}

/// Refuses a plugin that stores nothing and that nothing else names.
async fn require_known(args: &SetupArgs, store: &RedbStore, plugin: &PluginId) -> Result<()> {
    let usage = store.usage().await.map_err(host_failure)?;
    let stores: Vec<String> = usage.iter().map(|one| one.plugin.to_string()).collect();
    known_plugins::require(args, plugin, stores.iter().map(String::as_str))
}

fn count_entries(count: u64) -> String {
    count_noun(count, "entry", "entries")
}

fn bucket(entry: &EntryArgs) -> Result<Bucket> {
    let EntryArgs { plugin, scope, owner, .. } = entry;
    Bucket::new(plugin.clone(), *scope, owner.as_str()).map_err(|_| match scope {
        KvScope::Plugin => anyhow!("the scope `plugin` has no owner; omit `--owner`"),
        KvScope::Tool | KvScope::Session | KvScope::Agent => {
            anyhow!("name the owner with `--owner ID`, as `toolbay kv list {plugin}` shows it")
        }
    })
}

async fn list(printer: Printer, store: &RedbStore, plugin: &PluginId, limit: usize) -> Result<CommandStatus> {
    let (entries, more) = store.entries(plugin, limit).await.map_err(host_failure)?;
    if printer.is_json() {
        let entries: Vec<Value> = entries.iter().map(entry_json).collect();
        return Ok(output::print_json(&json!({ "entries": entries, "more": more }))?);
    }
    let mut table = TextTable::new(["SCOPE", "OWNER", "KEY", "BYTES"]).with_numbers_in(&[3]);
    for EntryInfo { scope, owner, key, bytes, .. } in entries {
        // A key is the plugin's text: a tab or a line break in it must not make a column or a row.
        let (owner, key) = (owner.escape_debug().to_string(), key.escape_debug().to_string());
        table.push([scope.as_str().into(), owner.into(), Cell::styled(NAME, key), bytes.to_string().into()]);
    }
    table.print()?;
    if more {
        printer.note(&format!("there are more than {limit} entries; raise `--limit`"));
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

async fn get(printer: Printer, store: &RedbStore, entry: &EntryArgs) -> Result<CommandStatus> {
    let Some(value) = store.get(&bucket(entry)?, &entry.key).await.map_err(host_failure)? else {
        return report_missing(printer);
    };
    let text = std::str::from_utf8(&value);
    if printer.is_json() {
        // A value that is not UTF-8 is shown as bytes.
        return Ok(output::print_json(
            &json!({ "found": true, "text": text.ok(), "bytes": text.is_err().then_some(&value) }),
        )?);
    }
    match text {
        Ok(text) if output::stdout_is_terminal() => writeln!(output::stdout(), "{}", escape_hidden(text))?,
        _ => std::io::stdout().lock().write_all(&value)?,
    }
    Ok(CommandStatus::Success)
}

fn report_missing(printer: Printer) -> Result<CommandStatus> {
    if printer.is_json() {
        output::print_json(&json!({ "found": false }))?;
    } else {
        CommandError::new("unknown_entry", "there is no such entry")
            .with_help("`toolbay kv list PLUGIN` shows the entries of a plugin")
            .print(printer);
    }
    Ok(CommandStatus::Failed)
}

async fn remove(printer: Printer, store: &RedbStore, entry: &EntryArgs) -> Result<CommandStatus> {
    let bucket = bucket(entry)?;
    if store.get(&bucket, &entry.key).await.map_err(host_failure)?.is_none() {
        return report_missing(printer);
    }
    store.remove(&bucket, &entry.key).await.map_err(host_failure)?;
    Ok(printer.report(&json!({ "removed": 1 }), "removed 1 entry")?)
}

async fn usage(printer: Printer, store: &RedbStore) -> Result<CommandStatus> {
    let usage = store.usage().await.map_err(host_failure)?;
    if printer.is_json() {
        let all: Vec<Value> = usage
            .iter()
            .map(|one| json!({ "plugin": one.plugin, "keys": one.keys, "bytes": one.bytes }))
            .collect();
        return Ok(output::print_json(&Value::from(all))?);
    }
    let mut table = TextTable::new(["PLUGIN", "KEYS", "BYTES"]).with_numbers_in(&[1, 2]);
    if usage.is_empty() {
        printer.note("no plugin has stored anything");
    }
    for one in usage {
        let name = Cell::styled(NAME, &one.plugin);
        table.push([name, one.keys.to_string().into(), one.bytes.to_string().into()]);
    }
    table.print()?;
    Ok(CommandStatus::Success)
}
