//! `toolbay kv`: what plugins keep, for operators.

use std::io::Write;
use std::path::Path;

use anyhow::{Error, Result, anyhow};
use serde_json::{Value, json};
use toolbay::{EntryInfo, PluginId, RedbStore};
use toolbay_core::session::kv::{Bucket, KvError, KvStore};
use toolbay_policy::capability::kv::Scope;
use toolbay_policy::rule::Rule;
use toolbay_policy::text::visible;

use crate::command::args::{EntryArgs, KvCommand, SetupArgs};
use crate::command::setup;
use crate::{Verdict, host_failed, output};

pub(crate) async fn run(args: &SetupArgs, command: KvCommand, json: bool) -> Result<Verdict> {
    let dir = setup::state_dir(args)?;
    // Looking makes no file.
    let store = if dir.join("kv.redb").exists() {
        RedbStore::in_dir_with_wait(&dir, args.state_wait)
    } else {
        RedbStore::in_memory()
    };
    match command {
        KvCommand::List { plugin, limit } => list(&store, &id(&plugin)?, limit, json).await,
        KvCommand::Get(entry) => get(&store, &entry, json).await,
        KvCommand::Remove(entry) => remove(&store, &entry, json).await,
        KvCommand::Clear { plugin } => {
            let removed = store.clear(&id(&plugin)?).await.map_err(failed)?;
            told(json, &json!({ "removed": removed }), &format!("{removed} entries are removed"))
        }
        KvCommand::Usage => usage(&store, json).await,
        KvCommand::Backup { file } => {
            let entries = store.backup(&file).await.map_err(failed)?;
            let text = format!("{entries} entries are copied to {}", visible(&file.display().to_string()));
            told(json, &json!({ "entries": entries }), &text)
        }
    }
}

fn failed(error: KvError) -> Error {
    host_failed(error)
}

fn id(plugin: &str) -> Result<PluginId> {
    Ok(PluginId::new(plugin)?)
}

fn bucket(entry: &EntryArgs) -> Result<Bucket> {
    let wrong = |problem: String| anyhow!(problem);
    let scope = Scope::parse(&entry.scope, Path::new("/")).map_err(wrong)?;
    let owner = entry.owner.as_str();
    Bucket::new(id(&entry.plugin)?, scope, owner).map_err(|_| {
        wrong(match scope {
            Scope::Plugin => "the scope `plugin` has no owner: leave out --owner".to_owned(),
            Scope::Tool | Scope::Session | Scope::Agent => {
                format!("say whose entry it is: --owner ID, as `toolbay kv list {}` shows it", entry.plugin)
            }
        })
    })
}

async fn list(store: &RedbStore, plugin: &PluginId, limit: usize, json: bool) -> Result<Verdict> {
    let (entries, more) = store.entries(plugin, limit).await.map_err(failed)?;
    if json {
        let entries: Vec<Value> = entries.iter().map(entry_json).collect();
        return print_json(&json!({ "entries": entries, "more": more }));
    }
    let mut out = output::out();
    for EntryInfo { scope, owner, key, bytes, .. } in entries {
        // A key is the plugin's text: a tab or a line break in it must not make a column or a row.
        let (owner, key) = (owner.escape_debug(), key.escape_debug());
        writeln!(out, "{}\t{owner}\t{key}\t{bytes}", scope.as_str())?;
    }
    if more {
        output::note(&format!("there are more than {limit}: raise --limit"));
    }
    Ok(Verdict::Good)
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

async fn get(store: &RedbStore, entry: &EntryArgs, json: bool) -> Result<Verdict> {
    let Some(value) = store.get(&bucket(entry)?, &entry.key).await.map_err(failed)? else {
        return missing(json);
    };
    let text = std::str::from_utf8(&value);
    if json {
        // What is no text is shown as bytes.
        return print_json(
            &json!({ "found": true, "text": text.ok(), "bytes": text.is_err().then_some(&value) }),
        );
    }
    match text {
        Ok(text) if output::stdout_is_terminal() => writeln!(output::out(), "{}", visible(text))?,
        _ => std::io::stdout().lock().write_all(&value)?,
    }
    Ok(Verdict::Good)
}

fn missing(json: bool) -> Result<Verdict> {
    if json {
        print_json(&json!({ "found": false }))?;
    } else {
        output::complain("there is no such entry");
    }
    Ok(Verdict::Bad)
}

async fn remove(store: &RedbStore, entry: &EntryArgs, json: bool) -> Result<Verdict> {
    let bucket = bucket(entry)?;
    if store.get(&bucket, &entry.key).await.map_err(failed)?.is_none() {
        return missing(json);
    }
    store.remove(&bucket, &entry.key).await.map_err(failed)?;
    told(json, &json!({ "removed": 1 }), "the entry is removed")
}

async fn usage(store: &RedbStore, json: bool) -> Result<Verdict> {
    let usage = store.usage().await.map_err(failed)?;
    if json {
        let all: Vec<Value> = usage
            .iter()
            .map(|one| json!({ "plugin": one.plugin, "keys": one.keys, "bytes": one.bytes }))
            .collect();
        return print_json(&Value::from(all));
    }
    let mut out = output::out();
    for one in usage {
        writeln!(out, "{}\t{} keys\t{} bytes", one.plugin, one.keys, one.bytes)?;
    }
    Ok(Verdict::Good)
}

fn told(json: bool, value: &Value, text: &str) -> Result<Verdict> {
    if json {
        return print_json(value);
    }
    output::note(text);
    Ok(Verdict::Good)
}

fn print_json(value: &Value) -> Result<Verdict> {
    output::print_json(value)?;
    Ok(Verdict::Good)
}
