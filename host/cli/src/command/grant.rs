//! `toolbay grant`: shows what a plugin is, asks for and gets, and records that the operator agrees to it. An update that
//! is held for the operator is shown first, and locked with the consent.

mod editor;

use anyhow::Result;

use crate::args::{DecisionArgs, PluginDecisionArgs};
use crate::grants::review::GrantReview;
use crate::output::{self, CommandStatus};
use crate::setup::{self, SetupArgs, running_servers};
use editor::LineEditor;

pub(crate) async fn run(
    args: &SetupArgs,
    plugin: &str,
    options: &PluginDecisionArgs,
    tool: Option<&str>,
) -> Result<CommandStatus> {
    let PluginDecisionArgs { decision, only } = options;
    let json = args.printer.is_json();
    options.check_lists()?;
    let mut review = GrantReview::find(args, plugin, only, tool).await?;
    decision.check_decidable()?;
    let id = review.info.id.clone();
    let mut editor = LineEditor::new(args.printer, &id);
    let mut is_first = true;
    if let (Some(held), false) = (&review.held, json) {
        held.print()?;
    }
    let decided = loop {
        let preview = review.preview();
        if !json {
            preview.print(&review.file, is_first)?;
        }
        is_first = false;
        if review.held.is_none() && preview.grants_nothing_new() {
            args.printer.note(&format!("there is nothing to grant to `{id}`"));
            break Some(CommandStatus::Success);
        }
        match GrantReply::ask(decision)? {
            GrantReply::Yes => break None,
            GrantReply::No => break Some(decision.report_unchanged(args.printer)),
            GrantReply::Edit => {
                if let Some(edited) = editor.edit(&review.file, &review.edit)? {
                    review.edit = edited;
                }
            }
        }
    };
    if decided.is_none() {
        let audit = setup::audit_under(args, review.edit.policy.audit())?;
        review.apply(args, &setup::operator(), audit.as_deref()).await?;
        running_servers::apply_decision(args, true).await?;
        let done = if review.held.is_some() { "updated, and granted" } else { "granted" };
        args.printer.note(&format!("{done} to `{id}` from its next load on; see `toolbay list`"));
    }
    if json {
        output::print_json(&review.preview().json(decided.is_none(), review.held.as_ref()))?;
    }
    Ok(decided.unwrap_or(CommandStatus::Success))
}

/// The operator's reply to the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GrantReply {
    Yes,
    No,
    /// Change the lines first.
    Edit,
}

impl GrantReply {
    fn ask(decision: &DecisionArgs) -> Result<Self> {
        if decision.dry_run {
            return Ok(Self::No);
        }
        if decision.yes {
            return Ok(Self::Yes);
        }
        Ok(match output::read_reply("Grant? [y/N/edit]")?.as_str() {
            "y" | "yes" => Self::Yes,
            "e" | "edit" => Self::Edit,
            _ => Self::No,
        })
    }
}
