//! `toolbay grant`: shows what a plugin is, asks for and gets, and records that the operator agrees to it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use anyhow::{Context, Result, anyhow, bail};
use toolbay::{Agreement, FileConsents, Host, PluginId, PluginInfo, Policy};
use toolbay_core::audit::{GrantEvent, GrantRecord};
use toolbay_core::registry::Entry;
use toolbay_policy::Proposal;
use toolbay_policy::consent::{Authority, Change, Consent, ConsentStore};
use toolbay_policy::name::ToolName;
use toolbay_policy::text::visible;

use crate::command::args::{PluginDecisionArgs, SetupArgs};
use crate::command::policy_file;
use crate::command::setup::{self, PolicyFile};
use crate::output::{self, DIM, GOOD, HEAD, NAME, WRONG};
use crate::{Verdict, host_failed};

pub(crate) async fn run(
    args: &SetupArgs,
    plugin: &str,
    asked: &PluginDecisionArgs,
    tool: Option<&str>,
) -> Result<Verdict> {
    let PluginDecisionArgs { decision, only } = asked;
    super::check_decidable(decision)?;
    super::check_lists(only)?;
    let file = PolicyFile::find_or_new(args, true)?;
    let Some((host, info)) = setup::named_or_complain(args, file.policy()?, plugin).await? else {
        return Ok(Verdict::Bad);
    };
    let id = info.id.clone();
    let tools = named_tools(&host, &id);
    if let Some(name) = tool
        && !tools.iter().any(|(own, _)| own.as_str() == name)
    {
        bail!("--tool `{name}`: the plugin has no such tool");
    }
    let consents = setup::consents(args)?;
    let known = consents.get(&id).map_err(|e| host_failed(anyhow!(e)))?;
    let change = Edit::propose(&file, &host.policy(), &id, &tools, only, tool)?;
    let granted = authority(&change.policy, &id, &tools);
    show(&info, &tools, &change, known.as_ref(), &granted)?;
    let agreed = known.as_ref().is_some_and(|known| {
        known.digest == *info.digest && granted.beyond(&known.granted, host.policy().workspace()).is_empty()
    });
    if change.proposals.is_empty() && (agreed || granted.is_empty()) {
        output::note("there is nothing to agree to");
        return Ok(Verdict::Good);
    }
    if let Some(verdict) = super::undecided(decision, "Agree to this?")? {
        return Ok(verdict);
    }
    if !change.proposals.is_empty() {
        let place =
            file.file.as_deref().context("there is no place for a policy: give one with --config FILE")?;
        policy_file::write(place, file.text.as_deref(), &change.text).map_err(host_failed)?;
    }
    record(args, &consents, &info, granted)?;
    output::note(&format!("plugin `{id}` is agreed to; it holds from its next load on"));
    Ok(Verdict::Good)
}

fn record(args: &SetupArgs, consents: &FileConsents, info: &PluginInfo, granted: Authority) -> Result<()> {
    let by = super::operator();
    let version = info.about.as_ref().map(|about| about.version.as_str());
    let agreement = Agreement { digest: &info.digest, version, granted: granted.clone(), by: &by };
    let consent = agreement.consent();
    let audit = setup::audit_of_decision(args)?;
    consents.update(&info.id, &mut |_| Change::Put(consent.clone())).map_err(|e| host_failed(anyhow!(e)))?;
    if let Some(audit) = audit {
        audit.decided(GrantRecord {
            event: GrantEvent::Granted,
            plugin: info.id.to_string(),
            version: version.map(ToOwned::to_owned),
            digest: Some(info.digest.to_string()),
            granted,
            refused: BTreeMap::new(),
            held: Vec::new(),
            by: Some(by),
        });
    }
    Ok(())
}

type Tools = Vec<(ToolName, std::sync::Arc<Entry>)>;

fn named_tools(host: &Host, id: &PluginId) -> Tools {
    let tools = super::tools(host, id).into_iter();
    tools.filter_map(|entry| Some((ToolName::new(entry.def.bare()).ok()?, entry))).collect()
}

fn authority(policy: &Policy, id: &PluginId, tools: &Tools) -> Authority {
    Authority::of(policy, id, tools.iter().map(|(name, entry)| (name, entry.def.capabilities.as_slice())))
}

/// A policy that grants a plugin all that its tools declare, as far as a policy can say it without more being known.
pub(crate) fn declared(args: &SetupArgs, host: &Host, id: &PluginId) -> Result<Policy> {
    let text = format!("version = 1\n[plugins.{id}.results]\nuntrusted = false\n");
    let file = PolicyFile::of_text(args, text)?;
    let edit = Edit::propose(&file, &file.policy()?, id, &named_tools(host, id), &[], None)?;
    Ok(edit.policy)
}

/// What would be written into the policy.
struct Edit {
    proposals: BTreeSet<Proposal>,
    /// Lines that the policy would not take, and why.
    impossible: Vec<(Proposal, String)>,
    text: String,
    policy: Policy,
}

impl Edit {
    /// The lines that would grant what is declared and refused, one after the other: each must leave a policy that
    /// can be read.
    fn propose(
        file: &PolicyFile,
        policy: &Policy,
        id: &PluginId,
        tools: &Tools,
        only: &[String],
        tool: Option<&str>,
    ) -> Result<Self> {
        let text = file.text_or_new();
        let mut edit =
            Self { proposals: BTreeSet::new(), impossible: Vec::new(), text, policy: policy.clone() };
        let wanted = tools.iter().filter(|(name, _)| tool.is_none_or(|tool| tool == name.as_str()));
        for (name, entry) in wanted {
            for wish in &entry.def.capabilities {
                let Some(proposal) = edit.policy.proposal(id, name, wish) else { continue };
                if !only.is_empty() && !only.iter().any(|key| key == proposal.key.name()) {
                    continue;
                }
                edit.try_line(file, proposal)?;
            }
        }
        Ok(edit)
    }

    fn try_line(&mut self, file: &PolicyFile, proposal: Proposal) -> Result<()> {
        let text = policy_file::with(&self.text, std::slice::from_ref(&proposal))?;
        match file.parse(&text) {
            Ok(policy) => {
                (self.text, self.policy) = (text, policy);
                self.proposals.insert(proposal);
            }
            Err(error) => self.impossible.push((proposal, error.root_cause().to_string())),
        }
        Ok(())
    }
}

fn show(
    info: &PluginInfo,
    tools: &Tools,
    change: &Edit,
    known: Option<&Consent>,
    granted: &Authority,
) -> std::io::Result<()> {
    let mut out = output::out();
    writeln!(out, "{HEAD}{}{HEAD:#}", info.id)?;
    if let Some(about) = &info.about {
        writeln!(out, "  {} {}", visible(&about.name), visible(&about.version))?;
    }
    writeln!(out, "  {DIM}sha256{DIM:#} {}", info.digest)?;
    writeln!(out, "  {DIM}size  {DIM:#} {} bytes", info.bytes)?;
    writeln!(out, "\n{HEAD}what it asks for{HEAD:#}")?;
    for (name, entry) in tools.iter().filter(|(_, entry)| !entry.def.capabilities.is_empty()) {
        writeln!(out, "  {NAME}{name}{NAME:#}")?;
        for wish in &entry.def.capabilities {
            let reason = wish.reason.as_deref().unwrap_or("no reason given");
            let need = if wish.optional { ", optional" } else { "" };
            let (kind, target) = (visible(wish.kind.as_str()), visible(&wish.target));
            writeln!(out, "    {kind} of {target}{need}: {}", visible(reason))?;
        }
    }
    show_difference(&mut out, known, granted, change.policy.workspace())?;
    if !change.proposals.is_empty() {
        writeln!(out, "\n{HEAD}what would be written into the policy{HEAD:#}")?;
        for proposal in &change.proposals {
            let line = serde_json::Value::from(proposal.line.as_str());
            let line = if proposal.key.is_switch() { "true".to_owned() } else { line.to_string() };
            let key = proposal.key.name();
            writeln!(out, "  [{}] {key}: {GOOD}+ {}{GOOD:#}", proposal.table.join("."), visible(&line))?;
        }
    }
    for (proposal, problem) in &change.impossible {
        let (key, line) = (proposal.key.name(), visible(&proposal.line));
        writeln!(out, "  {WRONG}cannot be granted yet{WRONG:#}: {key} {line}: {}", visible(problem))?;
    }
    out.flush()
}

/// What it gets, beside what was agreed to last time.
fn show_difference(
    out: &mut impl Write,
    known: Option<&Consent>,
    granted: &Authority,
    workspace: &std::path::Path,
) -> std::io::Result<()> {
    let nothing = Authority::default();
    let before = known.map_or(&nothing, |known| &known.granted);
    match known {
        None => {
            writeln!(out, "\n{HEAD}what it would get{HEAD:#} {DIM}(nothing was agreed to so far){DIM:#}")?;
        }
        Some(known) => writeln!(
            out,
            "\n{HEAD}what it would get{HEAD:#} {DIM}(against what was agreed to at {} by {}, for {:.12}…){DIM:#}",
            visible(&known.at),
            visible(&known.by),
            known.digest
        )?,
    }
    let new = granted.beyond(before, workspace);
    for line in granted.beyond(&nothing, workspace) {
        if new.contains(&line) {
            writeln!(out, "  {GOOD}+ {}{GOOD:#}", visible(&line))?;
        } else {
            writeln!(out, "    {}", visible(&line))?;
        }
    }
    for line in before.beyond(granted, workspace) {
        writeln!(out, "  {WRONG}- {}{WRONG:#}", visible(&line))?;
    }
    if granted.is_empty() {
        writeln!(out, "    nothing")?;
    }
    Ok(())
}
