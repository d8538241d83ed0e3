//! `toolbay mcp add`: writes a server into the policy. The new text is parsed before it is written.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use serde_json::json;
use toml_edit::{Array, InlineTable, Item, Table, Value};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::name::PluginId;

use crate::args::AddArgs;
use crate::output::{self, CommandError, CommandStatus};
use crate::policy_edit;
use crate::policy_edit::new_secrets::{NewSecrets, SecretReceiver};
use crate::setup::{self, PolicyFile, SetupArgs};

pub(super) async fn run(args: &SetupArgs, new: &AddArgs) -> Result<CommandStatus> {
    let file = PolicyFile::find_or_new(args, true)?;
    let path = file.path()?;
    let text = file.text_or_new();
    let (after, lines) = add_server(&text, new)?;
    file.parse_edit(&after)?;
    if args.printer.is_json() {
        if !new.dry_run {
            policy_edit::write(&file, &after)?;
        }
        let lines: Vec<&str> = lines.lines().collect();
        let report = json!({"server": new.name, "file": path, "lines": lines, "written": !new.dry_run});
        return Ok(output::print_json(&report)?);
    }
    for line in lines.lines() {
        args.printer.note(line);
    }
    if new.dry_run {
        args.printer.note(&format!("nothing was written to `{}`", path.display()));
        return Ok(CommandStatus::Success);
    }
    policy_edit::write(&file, &after)?;
    let open = new.url.is_some() && new.bearer.is_none() && new.header.is_empty();
    let required = if open { super::login::is_required(args, &new.name).await } else { Ok(false) };
    let login = required.unwrap_or_else(|error| {
        args.printer.warning(&format!("the server was not reached: {error}"));
        false
    });
    let next = if login { "the server requires a login: " } else { "try it with " };
    let verb = if login { "login" } else { "check" };
    args.printer.note(&format!("written to `{}`; {next}`toolbay mcp {verb} {}`", path.display(), new.name));
    Ok(CommandStatus::Success)
}

/// Adds a server to the text of a policy. Returns the text and its new lines.
fn add_server(text: &str, new: &AddArgs) -> Result<(String, String)> {
    let name =
        PluginId::new(&new.name).map_err(|e| anyhow!(e.to_string().replacen("plugin id", "the name", 1)))?;
    let mut document = policy_edit::parse(text)?;
    let receiver = new.url.as_deref().map_or(Ok(SecretReceiver::Program), SecretReceiver::of_url)?;
    let mut secrets = NewSecrets::new("mcp", name.as_str(), receiver);
    let section = match &new.url {
        Some(url) => by_url(new, url, &mut secrets)?,
        None => by_command(new, &mut secrets)?,
    };
    let before = document.to_string();
    let servers = policy_edit::sections(&mut document, "mcp")?;
    if servers.contains_key(name.as_str()) && !new.replace {
        let text = format!("the policy has a server `{name}` already");
        return Err(CommandError::new("exists", text)
            .with_help("`--replace` puts this one in its place")
            .into());
    }
    servers.remove(name.as_str());
    servers.insert(name.as_str(), Item::Table(section));
    secrets.write(&mut document)?;
    let after = document.to_string();
    let known: std::collections::BTreeSet<&str> = before.lines().collect();
    let lines: Vec<&str> = after.lines().filter(|line| !line.is_empty() && !known.contains(line)).collect();
    let lines = lines.join("\n");
    Ok((after, lines))
}

fn list(texts: &[String]) -> Value {
    Value::Array(texts.iter().map(String::as_str).collect::<Array>())
}

fn put_common(section: &mut Table, new: &AddArgs) {
    for (key, texts) in [("tools", &new.tool), ("exclude", &new.exclude)] {
        if !texts.is_empty() {
            section.insert(key, Item::Value(list(texts)));
        }
    }
    if new.ask {
        section.insert("permission", toml_edit::value("ask"));
    }
}

fn by_command(new: &AddArgs, secrets: &mut NewSecrets) -> Result<Table> {
    let (program, rest) = new.command.split_first().ok_or_else(|| anyhow!("name the program behind `--`"))?;
    let program = find_program(program)?;
    let shown = program.to_str().ok_or_else(|| anyhow!("`{}` is not UTF-8", program.display()))?;
    let command: Vec<String> = std::iter::once(shown.to_owned()).chain(rest.iter().cloned()).collect();
    let mut section = Table::new();
    section.insert("command", Item::Value(list(&command)));
    let lists = [
        ("env", &new.env),
        ("fs_read", &new.fs_read),
        ("fs_write", &new.fs_write),
        ("execute", &new.execute),
    ];
    for (key, texts) in lists {
        if !texts.is_empty() {
            let texts: Vec<String> = if key == "env" {
                texts.clone()
            } else {
                texts.iter().map(|path| absolute(path)).collect::<Result<_>>()?
            };
            section.insert(key, Item::Value(list(&texts)));
        }
    }
    if !new.env_secret.is_empty() {
        let mut variables = InlineTable::new();
        for (variable, of) in &new.env_secret {
            variables.insert(variable.as_str(), secrets.reference(variable, of, None).into());
        }
        section.insert("env_secrets", Item::Value(variables.into()));
    }
    for (key, is_set) in [("network", new.network), ("chmod", new.chmod)] {
        if is_set {
            section.insert(key, toml_edit::value(true));
        }
    }
    if let Some(word) = &new.sandbox {
        section.insert("sandbox", toml_edit::value(word.as_str()));
    }
    put_common(&mut section, new);
    Ok(section)
}

fn by_url(new: &AddArgs, url: &str, secrets: &mut NewSecrets) -> Result<Table> {
    let mut section = Table::new();
    section.insert("url", toml_edit::value(url));
    if let Some(of) = &new.bearer {
        section.insert("bearer", toml_edit::value(secrets.reference("bearer", of, None)));
    }
    if !new.header.is_empty() {
        let mut headers = InlineTable::new();
        for (name, value) in &new.header {
            headers.insert(name.trim(), value.trim().into());
        }
        section.insert("headers", Item::Value(headers.into()));
    }
    policy_edit::put_route(&mut section, new.ca.as_deref(), new.proxy.as_deref())?;
    put_common(&mut section, new);
    Ok(section)
}

/// The program's file: an absolute path, or the first match on `PATH`.
fn find_program(program: &str) -> Result<PathBuf> {
    let path = Path::new(program);
    if path.is_absolute() {
        return Ok(path.to_path_buf());
    }
    if program.contains('/') {
        return Ok(PathBuf::from(absolute(program)?));
    }
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let mut files =
        std::env::split_paths(&search_path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(program));
    files.find(|file| file.is_file()).ok_or_else(|| {
        anyhow!(
            "there is no program `{}` in the directories of `PATH`: write its path",
            one_line(program, 100)
        )
    })
}

/// An absolute path for the policy; `$workspace` stays.
fn absolute(path: &str) -> Result<String> {
    if path.starts_with('/') || path.starts_with('$') {
        return Ok(path.to_owned());
    }
    let working_dir = setup::current_dir()?;
    let full = toolbay_policy::capability::path_rule::normalize(&working_dir.join(path))
        .unwrap_or_else(|| working_dir.join(path));
    full.to_str().map(ToOwned::to_owned).ok_or_else(|| anyhow!("`{}` is not UTF-8", full.display()))
}
