//! How an operator decides about a change: on the terminal, or by a flag.

use std::io::IsTerminal as _;

use anyhow::{Result, anyhow};
use toolbay_policy::GrantKey;

use crate::output::{self, CommandStatus, Printer};

/// How the operator decides.
#[derive(Debug, clap::Args)]
pub(crate) struct DecisionArgs {
    /// Agree without being asked; required without a terminal.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Show what would change, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// How the operator decides about a plugin.
#[derive(Debug, clap::Args)]
pub(crate) struct PluginDecisionArgs {
    #[command(flatten)]
    pub(crate) decision: DecisionArgs,
    /// Only these lists of the policy: `net,fs_read`.
    #[arg(long, value_name = "LISTS", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
}

impl DecisionArgs {
    /// Refuses to decide without a person: it takes a terminal, `--yes` or `--dry-run`.
    pub(crate) fn check_decidable(&self) -> Result<()> {
        let has_terminal = || std::io::stdin().is_terminal() && output::stderr_is_terminal();
        if self.yes || self.dry_run || has_terminal() {
            return Ok(());
        }
        Err(anyhow!("there is no terminal to ask on; preview with `--dry-run`, agree with `--yes`"))
    }

    /// The status of a command whose question is declined; `None`: the operator agrees.
    pub(crate) fn decline(&self, printer: Printer, question: &str) -> Result<Option<CommandStatus>> {
        let agrees = || -> Result<bool> {
            Ok(self.yes || matches!(output::read_reply(&format!("{question} [y/N]"))?.as_str(), "y" | "yes"))
        };
        if !self.dry_run && agrees()? {
            return Ok(None);
        }
        Ok(Some(self.report_unchanged(printer)))
    }

    /// Reports that the operator changed nothing. Returns the status.
    pub(crate) fn report_unchanged(&self, printer: Printer) -> CommandStatus {
        printer.note("nothing was changed");
        CommandStatus::from_success(self.dry_run)
    }
}

impl PluginDecisionArgs {
    /// Checks the names of `--only` against the lists of a grant.
    pub(crate) fn check_lists(&self) -> Result<()> {
        let known: Vec<&str> = GrantKey::ALL.iter().map(|key| key.name()).chain(["reduce"]).collect();
        match self.only.iter().find(|list| !known.contains(&list.as_str())) {
            None => Ok(()),
            Some(list) => {
                let known = known.join("`, `");
                Err(anyhow!("--only `{list}`: the policy has `{known}`"))
            }
        }
    }
}
