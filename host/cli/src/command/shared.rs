//! `toolbay shared`, and what each command does with the shared state.

mod publish;
mod status;

use std::io::Write as _;

use anyhow::Result;
use toolbay_shared::nats::{Permissions, Role};

use crate::args::{Command, SharedCommand};
use crate::output::{self, CommandStatus};
use crate::setup::pulled::SharedUse;
use crate::setup::shared::{address, storing_plugins};
use crate::setup::{self, SetupArgs};

/// Runs `toolbay shared`.
pub(crate) async fn run(args: &SetupArgs, command: SharedCommand) -> Result<CommandStatus> {
    match command {
        SharedCommand::Publish => publish::run(args).await,
        SharedCommand::Status => status::run(args).await,
        SharedCommand::Permissions { operator } => {
            let (address, policy) = (address(args)?, setup::policy(args)?);
            let role = if operator { Role::Operator } else { Role::Replica };
            let permissions = Permissions::new(address.prefix(), role, storing_plugins(&policy));
            if args.printer.is_json() {
                return Ok(output::print_json(&permissions.publish())?);
            }
            writeln!(output::stdout(), "{permissions}")?;
            Ok(CommandStatus::Success)
        }
    }
}

/// What a command does with the shared state.
pub(super) fn shared_use(command: &Command) -> SharedUse {
    match command {
        Command::Serve { .. }
        | Command::Shared { .. }
        | Command::Man { .. }
        | Command::Completions { .. } => SharedUse::Own,
        Command::List { .. }
        | Command::Prompts
        | Command::Resources
        | Command::Inspect { .. }
        | Command::Explain { .. }
        | Command::Search { .. }
        | Command::Schemas(_) => SharedUse::Read,
        Command::Enable { .. }
        | Command::Disable { .. }
        | Command::Grant { .. }
        | Command::Revoke { .. }
        | Command::Stop { .. }
        | Command::Resume => SharedUse::Edit,
        Command::Log(options) if !options.follow => SharedUse::Audit,
        _ => SharedUse::Never,
    }
}
