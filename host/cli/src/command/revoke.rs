//! `toolbay revoke`: takes back what was granted to a plugin, whether or not it can be loaded.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Result, anyhow};
use toolbay::PluginId;
use toolbay_core::audit::{GrantEvent, GrantRecord};
use toolbay_policy::consent::{Authority, Change, Consent, ConsentStore};
use toolbay_policy::text::visible;

use crate::command::args::{PluginDecisionArgs, SetupArgs};
use crate::command::policy_file;
use crate::command::setup::{self, PolicyFile};
use crate::output::{self, HEAD, WRONG};
use crate::{Verdict, host_failed};

pub(crate) fn run(args: &SetupArgs, plugin: &str, asked: &PluginDecisionArgs) -> Result<Verdict> {
    let PluginDecisionArgs { decision, only } = asked;
    super::check_decidable(decision)?;
    super::check_lists(only)?;
    let id = PluginId::new(plugin)?;
    let file = PolicyFile::find(args)?;
    let text = file.text.clone().unwrap_or_default();
    let (without, taken) = policy_file::without(&text, &id, only)?;
    if !taken.is_empty() {
        file.parse(&without)?;
    }
    let consents = setup::consents(args)?;
    // A record that cannot be read is none that could be forgotten; the lines can be taken out all the same.
    let known = consents.get(&id);
    let mut out = output::out();
    writeln!(out, "{HEAD}{id}{HEAD:#}")?;
    for line in &taken {
        writeln!(out, "  {WRONG}- {}{WRONG:#}", visible(line))?;
    }
    if let Ok(Some(known)) = &known {
        writeln!(out, "  agreed to at {} by {}", visible(&known.at), visible(&known.by))?;
    }
    drop(out);
    if taken.is_empty() && matches!(known, Ok(None)) {
        output::note("there is nothing to take back");
        return Ok(Verdict::Good);
    }
    if let Some(verdict) = super::undecided(decision, "Take this back?")? {
        return Ok(verdict);
    }
    if let (Some(place), false) = (&file.file, taken.is_empty()) {
        policy_file::write(place, file.text.as_deref(), &without).map_err(host_failed)?;
    }
    let mut left = Authority::default();
    let mut forget = |known: Option<&Consent>| match known {
        None => Change::Keep,
        Some(_) if only.is_empty() => Change::Forget,
        Some(known) => {
            let mut known = known.clone();
            known.granted.remove(only);
            left = known.granted.clone();
            Change::Put(known)
        }
    };
    let audit = setup::audit_of_decision(args)?;
    consents.update(&id, &mut forget).map_err(|e| host_failed(anyhow!(e)))?;
    if let Some(audit) = audit {
        audit.decided(GrantRecord {
            event: GrantEvent::Revoked,
            plugin: id.to_string(),
            version: None,
            digest: None,
            granted: left,
            refused: BTreeMap::new(),
            held: Vec::new(),
            by: Some(super::operator()),
        });
    }
    output::note(&format!("plugin `{id}`: what was granted is taken back; it holds from its next load on"));
    Ok(Verdict::Good)
}
