//! The lines that a grant adds to the policy.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde_json::Value;
use toolbay::{PluginId, Policy};
use toolbay_policy::ProposedLine;

use super::NamedTools;
use crate::policy_edit;
use crate::setup::PolicyFile;

/// What would be written into the policy.
#[derive(Debug)]
pub(crate) struct GrantEdit {
    /// The lines to add.
    pub(crate) proposals: BTreeSet<ProposedLine>,
    /// Lines that the policy would not take, and why.
    pub(crate) impossible: Vec<(ProposedLine, String)>,
    /// The policy's text with the lines.
    pub(crate) text: String,
    /// The policy with the lines.
    pub(crate) policy: Policy,
}

impl GrantEdit {
    /// The lines that would grant what is declared and refused, one after the other: each must leave a policy that
    /// can be read.
    pub(crate) fn propose(
        file: &PolicyFile,
        policy: &Policy,
        id: &PluginId,
        tools: &NamedTools,
        only: &[String],
        tool: Option<&str>,
    ) -> Result<Self> {
        let text = file.text_or_new();
        let mut edit =
            Self { proposals: BTreeSet::new(), impossible: Vec::new(), text, policy: policy.clone() };
        let wanted = tools.iter().filter(|(name, _)| tool.is_none_or(|tool| tool == name.as_str()));
        for (name, entry) in wanted {
            for capability in &entry.def.capabilities {
                let Some(proposal) = edit.policy.proposal(id, name, capability) else { continue };
                if !only.is_empty() && !only.iter().any(|key| key == proposal.key.name()) {
                    continue;
                }
                edit.apply(file, proposal)?;
            }
        }
        Ok(edit)
    }

    /// The edit that adds exactly these lines.
    ///
    /// # Errors
    /// The policy would have mistakes.
    pub(crate) fn from_lines(file: &PolicyFile, proposals: BTreeSet<ProposedLine>) -> Result<Self> {
        let lines: Vec<ProposedLine> = proposals.iter().cloned().collect();
        let text = policy_edit::with_proposals(&file.text_or_new(), &lines)?;
        let policy = file.parse(&text)?;
        Ok(Self { proposals, impossible: Vec::new(), text, policy })
    }

    fn apply(&mut self, file: &PolicyFile, proposal: ProposedLine) -> Result<()> {
        let text = policy_edit::with_proposals(&self.text, std::slice::from_ref(&proposal))?;
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

/// The lines as the policy writes them: a table, then its lists.
pub(crate) fn policy_lines(proposals: &BTreeSet<ProposedLine>) -> Vec<String> {
    let mut tables: BTreeMap<String, BTreeMap<&str, Vec<String>>> = BTreeMap::new();
    for one in proposals {
        let lists = tables.entry(one.table.join(".")).or_default();
        let value =
            if one.key.is_switch() { "true".to_owned() } else { Value::from(one.line.as_str()).to_string() };
        lists.entry(one.key.name()).or_default().push(value);
    }
    let mut lines = Vec::new();
    for (table, lists) in tables {
        lines.push(format!("[{table}]"));
        for (key, values) in lists {
            let is_switch = values == ["true"];
            let values = values.join(", ");
            lines.push(if is_switch { format!("{key} = {values}") } else { format!("{key} = [{values}]") });
        }
    }
    lines
}
