//! What a plugin is granted: the lines that the policy would get, the review of them, and what waits for the operator.

pub(crate) mod held;
mod offer;
pub(crate) mod pending;
pub(crate) mod proposal;
pub(crate) mod review;

use std::io::Write as _;

use anyhow::Result;
use serde_json::{Value, json};
use toolbay::{Host, PluginId, PluginInfo, Policy};
use toolbay_core::registry::ToolEntry;
use toolbay_policy::consent::{Authority, Consent};
use toolbay_policy::hidden_chars::escape_hidden;
use toolbay_policy::name::ToolName;

use crate::output::{self, Cell, DIM, FAILURE, HEADING, NAME, SUCCESS, TextTable, format};
use crate::policy_edit;
use crate::setup::{self, PolicyFile, SetupArgs};
use held::HeldVersion;
pub(crate) use offer::command_for_hint;
use proposal::{GrantEdit, policy_lines};

type NamedTools = Vec<(ToolName, std::sync::Arc<ToolEntry>)>;

fn named_tools(host: &Host, id: &PluginId) -> NamedTools {
    let tools = setup::tools(host, id).into_iter();
    tools.filter_map(|entry| Some((ToolName::new(entry.def.bare()).ok()?, entry))).collect()
}

fn authority(policy: &Policy, id: &PluginId, tools: &NamedTools) -> Authority {
    Authority::from_policy(
        policy,
        id,
        tools.iter().map(|(name, entry)| (name, entry.def.capabilities.as_slice())),
    )
}

/// A policy that grants a plugin all that its tools declare, as far as the declarations alone allow.
pub(crate) fn policy_for_declared(args: &SetupArgs, host: &Host, id: &PluginId) -> Result<Policy> {
    let text = format!("version = 1\n[plugins.{id}.results]\nuntrusted = false\n");
    let file = PolicyFile::from_text(args, text)?;
    let edit = GrantEdit::propose(&file, &file.policy()?, id, &named_tools(host, id), &[], None)?;
    Ok(edit.policy)
}

/// What a person reads before the decision.
pub(crate) struct GrantPreview<'a> {
    info: &'a PluginInfo,
    tools: &'a NamedTools,
    edit: &'a GrantEdit,
    known: Option<&'a Consent>,
    granted: Authority,
}

/// One capability with the reasons of the tools that declare it.
struct RequestedCapability<'a> {
    key: &'a str,
    target: &'a str,
    optional: bool,
    reasons: Vec<&'a str>,
}

impl<'a> GrantPreview<'a> {
    /// Whether the operator already agreed to all that the plugin would get.
    pub(crate) fn grants_nothing_new(&self) -> bool {
        let workspace = self.edit.policy.workspace();
        let is_agreed = self.known.is_some_and(|known| {
            known.digest == *self.info.digest
                && self.granted.lines_not_in(&known.granted, workspace).is_empty()
        });
        self.edit.proposals.is_empty() && (is_agreed || self.granted.is_empty())
    }

    /// What the tools declare, each capability once.
    fn requested(&self) -> Vec<RequestedCapability<'a>> {
        let mut all: Vec<RequestedCapability<'a>> = Vec::new();
        for capability in self.tools.iter().flat_map(|(_, entry)| &entry.def.capabilities) {
            let key = format::capability_key(&capability.kind);
            let (target, reason) = (capability.target.as_str(), capability.reason.as_deref());
            match all.iter_mut().find(|one| one.key == key && one.target == target) {
                None => all.push(RequestedCapability {
                    key,
                    target,
                    optional: capability.optional,
                    reasons: reason.into_iter().collect(),
                }),
                Some(one) => {
                    one.optional &= capability.optional;
                    one.reasons.extend(reason.filter(|reason| !one.reasons.contains(reason)));
                }
            }
        }
        all
    }

    /// Prints the preview. After an edit, what the plugin is and asks for stands above already.
    pub(crate) fn print(&self, file: &PolicyFile, with_head: bool) -> std::io::Result<()> {
        if with_head {
            self.print_head()?;
        }
        self.print_lines(file)?;
        self.print_difference()
    }

    fn print_head(&self) -> std::io::Result<()> {
        let info = self.info;
        let version = info
            .about
            .as_ref()
            .map_or_else(String::new, |about| format!(" {}", escape_hidden(&about.version)));
        let (id, digest) = (&info.id, format::short_digest(&info.digest));
        let requested = self.requested();
        let asks = if requested.is_empty() { "asks for nothing" } else { "asks for:" };
        writeln!(output::stdout(), "{HEADING}{id}{version}{HEADING:#} (sha256 {digest}) {asks}")?;
        let mut table = TextTable::new(["", "", ""]).indented();
        for one in requested {
            let reasons =
                if one.reasons.is_empty() { "no reason given".to_owned() } else { one.reasons.join("; ") };
            table.push([
                Cell::styled(NAME, one.key),
                format::declared_target(one.target, one.optional).into(),
                reasons.into(),
            ]);
        }
        table.print()
    }

    fn print_lines(&self, file: &PolicyFile) -> std::io::Result<()> {
        let mut out = output::stdout();
        if !self.edit.proposals.is_empty() {
            writeln!(out)?;
            policy_edit::print_lines("added to", SUCCESS, file, &policy_lines(&self.edit.proposals))?;
        }
        if !self.edit.impossible.is_empty() {
            writeln!(out, "\nThese lines cannot be added:")?;
        }
        for (proposal, problem) in &self.edit.impossible {
            let (key, line) = (proposal.key.name(), escape_hidden(&proposal.line));
            writeln!(out, "  {FAILURE}{key} {line}{FAILURE:#}: {}", escape_hidden(problem))?;
        }
        Ok(())
    }

    /// The lines that the plugin gets beyond what was agreed to last time, and those that it loses.
    fn difference(&self) -> (Vec<String>, Vec<String>) {
        let workspace = self.edit.policy.workspace();
        let nothing = Authority::default();
        let before = self.known.map_or(&nothing, |known| &known.granted);
        (self.granted.lines_not_in(before, workspace), before.lines_not_in(&self.granted, workspace))
    }

    /// Prints the difference to what was agreed to last time.
    fn print_difference(&self) -> std::io::Result<()> {
        let mut out = output::stdout();
        match self.known {
            Some(known) => {
                let (at, by) = (escape_hidden(&known.at), escape_hidden(&known.by));
                let digest = format::short_digest(&known.digest);
                writeln!(out, "\nCompared with what {by} agreed to at {at} (sha256 {digest}), it gets:")?;
            }
            // The lines above are all it gets.
            None if !self.edit.proposals.is_empty() || self.granted.is_empty() => return writeln!(out),
            None => writeln!(out, "\nThe policy already grants it:")?,
        }
        let (new, lost) = self.difference();
        for line in self.granted.lines_not_in(&Authority::default(), self.edit.policy.workspace()) {
            let (style, sign) = if new.contains(&line) { (SUCCESS, "+") } else { (DIM, " ") };
            writeln!(out, "  {style}{sign} {}{style:#}", escape_hidden(&line))?;
        }
        for line in lost {
            writeln!(out, "  {FAILURE}- {}{FAILURE:#}", escape_hidden(&line))?;
        }
        writeln!(out)
    }

    pub(crate) fn json(&self, granted: bool, held: Option<&HeldVersion>) -> Value {
        let requested = self.requested();
        let asks_for = requested.iter().map(|one| {
            json!({"key": one.key, "target": one.target, "optional": one.optional, "reasons": one.reasons})
        });
        let impossible = self.edit.impossible.iter();
        let impossible = impossible.map(|(line, problem)| json!({"line": line, "problem": problem}));
        json!({
            "plugin": self.info.id.as_str(),
            "version": self.info.about.as_ref().map(|about| &about.version),
            "digest": &*self.info.digest,
            "asks_for": asks_for.collect::<Vec<_>>(),
            "lines": self.edit.proposals,
            "impossible": impossible.collect::<Vec<_>>(),
            "gets": self.granted.lines_not_in(&Authority::default(), self.edit.policy.workspace()),
            "granted": granted,
            "update": held.map(HeldVersion::json),
        })
    }
}
