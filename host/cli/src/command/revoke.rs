//! `toolbay revoke`: takes back what was granted to a plugin, whether or not it can be loaded.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Result, anyhow};
use serde_json::json;
use toolbay::PluginId;
use toolbay_core::audit::{GrantEvent, GrantRecord};
use toolbay_policy::consent::{Authority, Consent, ConsentChange, ConsentStore};
use toolbay_policy::hidden_chars::escape_hidden;

use crate::args::PluginDecisionArgs;
use crate::output::{self, CommandStatus, FAILURE, HEADING, host_failure};
use crate::policy_edit;
use crate::setup::{self, PolicyFile, SetupArgs, known_plugins, running_servers};

pub(crate) async fn run(
    args: &SetupArgs,
    plugin: &str,
    options: &PluginDecisionArgs,
) -> Result<CommandStatus> {
    let PluginDecisionArgs { decision, only } = options;
    let json = args.printer.is_json();
    options.check_lists()?;
    let id = PluginId::new(plugin)?;
    let file = PolicyFile::find(args)?;
    let text = file.text.clone().unwrap_or_default();
    let (without, taken) = policy_edit::without_grant(&text, &id, only)?;
    if !taken.is_empty() {
        file.parse(&without)?;
    }
    let consents = setup::consents(args)?;
    // A record that cannot be read is none that could be forgotten; the lines can be taken out all the same.
    let known = consents.get(&id);
    if taken.is_empty() && matches!(known, Ok(None)) {
        known_plugins::require(args, &id, [])?;
    }
    decision.check_decidable()?;
    if !json {
        print_preview(&id, &taken, known.as_ref().ok().and_then(Option::as_ref), &file)?;
    }
    let decided = if taken.is_empty() && matches!(known, Ok(None)) {
        args.printer.note(&format!("nothing is granted to `{id}`"));
        Some(CommandStatus::Success)
    } else {
        decision.decline(args.printer, "Revoke?")?
    };
    let print_json = |revoked: bool| -> std::io::Result<()> {
        if json {
            output::print_json(&json!({"plugin": id.as_str(), "lines": taken, "revoked": revoked}))?;
        }
        Ok(())
    };
    if let Some(status) = decided {
        print_json(false)?;
        return Ok(status);
    }
    if !taken.is_empty() {
        policy_edit::write(&file, &without)?;
    }
    let mut left = Authority::default();
    let mut forget = |known: Option<&Consent>| match known {
        None => ConsentChange::Keep,
        Some(_) if only.is_empty() => ConsentChange::Remove,
        Some(known) => {
            let mut known = known.clone();
            known.granted.remove(only);
            left = known.granted.clone();
            ConsentChange::Replace(known)
        }
    };
    let audit = setup::audit_for_decision(args)?;
    consents.update(&id, &mut forget).map_err(|e| host_failure(anyhow!(e)))?;
    if let Some(audit) = audit {
        audit.record_grant(GrantRecord {
            event: GrantEvent::Revoked,
            plugin: id.to_string(),
            version: None,
            digest: None,
            origin: None,
            granted: left,
            refused: BTreeMap::new(),
            held: Vec::new(),
            by: Some(setup::operator()),
        });
    }
    running_servers::apply_decision(args, true).await?;
    print_json(true)?;
    args.printer.note(&format!("revoked from `{id}` from its next load on; see `toolbay list --all`"));
    Ok(CommandStatus::Success)
}

fn print_preview(
    id: &PluginId,
    taken: &[String],
    known: Option<&Consent>,
    file: &PolicyFile,
) -> std::io::Result<()> {
    let mut out = output::stdout();
    if let Some(known) = known {
        let (at, by) = (escape_hidden(&known.at), escape_hidden(&known.by));
        writeln!(out, "{HEADING}{id}{HEADING:#}: {by} agreed to it at {at}")?;
    }
    if taken.is_empty() {
        return Ok(());
    }
    let table = format!("[plugins.{id}.grant]");
    let lines: Vec<&str> = std::iter::once(&table).chain(taken).map(String::as_str).collect();
    policy_edit::print_lines("removed from", FAILURE, file, &lines)
}
