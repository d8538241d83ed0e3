//! `toolbay shared status`: the epoch, the servers, and what endangers a promise.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Error, Result};
use serde::Serialize;
use toolbay_policy::Policy;
use toolbay_policy::excerpt::one_line;
use toolbay_shared::nats::Record;
use toolbay_shared::protocol::liveness::Beat;
use toolbay_shared::publication::{EpochGap, Publication, PublishedEpoch};
use toolbay_shared::replica::{LentBudget, held_queues, lent_budgets};

use crate::output::{self, Cell, CommandStatus, DIM, NAME, Printer, TextTable, host_failure};
use crate::setup::SetupArgs;
use crate::setup::seen_epochs::SeenEpochs;
use crate::setup::shared::{connect, connection_error, current, warnings};
use crate::setup::shared_folder::POLICY;

/// Longest name of a server or a queue that is shown, in characters.
const MAX_NAME: usize = 60;

/// A server with its last heartbeat.
#[derive(Debug, Serialize)]
struct ListedServer {
    name: String,
    /// `accepts calls`, `refuses calls` or `gone`.
    state: &'static str,
    epoch: u64,
    /// Epochs that it has not applied.
    behind: u64,
}

/// What is shared.
#[derive(Debug, Serialize)]
struct SharedStatus {
    epoch: u64,
    /// The highest epoch that was in force, if the shared state went back behind it.
    went_back_from: Option<u64>,
    digest: String,
    servers: Vec<ListedServer>,
    /// The server that runs calls of each serial queue.
    queues: BTreeMap<String, String>,
    /// What servers have got of the budget of each session.
    budgets: BTreeMap<String, LentBudget>,
    warnings: Vec<String>,
}

pub(crate) async fn run(args: &SetupArgs) -> Result<CommandStatus> {
    let connection = connect(args, "operator").await?;
    let publication = Publication::open(&connection).await.map_err(connection_error)?;
    let published = current(&publication).await?;
    let text = published.bundle.file(POLICY).unwrap_or_default();
    let policy = Policy::parse(text, Path::new("/"), None).map_err(host_failure)?;
    let before = publication.heartbeats().await.map_err(host_failure)?;
    // A server that is alive beats again in this time. No clock of another machine is needed.
    tokio::time::sleep(policy.shared().stale_after / 2).await;
    let now = publication.heartbeats().await.map_err(host_failure)?;
    let epoch = published.epoch.number;
    let seen = SeenEpochs::new(args, connection.address())?;
    let gap = find_gap(&publication, &published, &seen).await?;
    let mut found = warnings(&connection, &policy).await?;
    found.extend(gap.map(|EpochGap { stored, seen }| {
        format!(
            "the shared state went back: it has epoch {stored}, and epoch {seen} was in force. Servers refuse calls until \
             `toolbay shared publish`"
        )
    }));
    let status = SharedStatus {
        epoch,
        went_back_from: gap.map(|gap| gap.seen),
        digest: published.epoch.digest.to_string(),
        servers: now.iter().map(|(name, beat)| describe(name, beat, before.get(name), epoch)).collect(),
        queues: held_queues(&connection).await.map_err(Error::new).map_err(host_failure)?,
        budgets: lent_budgets(&connection).await.map_err(Error::new).map_err(host_failure)?,
        warnings: found,
    };
    if args.printer.is_json() {
        return Ok(output::print_json(&status)?);
    }
    print(args.printer, &status)?;
    Ok(CommandStatus::Success)
}

/// How far the shared state is behind what was in force.
async fn find_gap(
    publication: &Publication,
    published: &PublishedEpoch,
    seen: &SeenEpochs,
) -> Result<Option<EpochGap>> {
    let gap = publication.gap(Some(published), seen.highest()).await.map_err(host_failure)?;
    let Some(gap) = gap else { return Ok(None) };
    // Somebody may have published meanwhile, and servers have that epoch already.
    let now = current(publication).await?;
    Ok((now.epoch.number < gap.seen).then_some(gap))
}

fn describe(name: &str, beat: &Record<Beat>, before: Option<&Record<Beat>>, epoch: u64) -> ListedServer {
    let is_alive = before.is_none_or(|before| before.revision != beat.revision);
    let state = match (is_alive, beat.value.accepts_calls) {
        (false, _) => "gone",
        (true, true) => "accepts calls",
        (true, false) => "refuses calls",
    };
    let behind = epoch.saturating_sub(beat.value.epoch);
    ListedServer { name: name.to_owned(), state, epoch: beat.value.epoch, behind }
}

fn print(printer: Printer, status: &SharedStatus) -> Result<()> {
    let mut table = TextTable::new(["SERVER", "STATE", "EPOCH", "BEHIND"]).with_numbers_in(&[2, 3]);
    for server in &status.servers {
        table.push([
            Cell::styled(NAME, one_line(&server.name, MAX_NAME)),
            server.state.into(),
            server.epoch.to_string().into(),
            server.behind.to_string().into(),
        ]);
    }
    table.print()?;
    if !status.queues.is_empty() {
        let mut table = TextTable::new(["QUEUE", "SERVER"]);
        for (queue, server) in &status.queues {
            table.push([
                Cell::styled(NAME, one_line(queue, MAX_NAME)),
                Cell::styled(DIM, one_line(server, MAX_NAME)),
            ]);
        }
        table.print_section()?;
    }
    if !status.budgets.is_empty() {
        let mut table = TextTable::new(["SESSION", "CALLS", "USD"]).with_numbers_in(&[1, 2]);
        for (session, lent) in &status.budgets {
            table.push([
                Cell::styled(NAME, one_line(session, MAX_NAME)),
                lent.calls.to_string().into(),
                format!("{:.2}", lent.cost_usd).into(),
            ]);
        }
        table.print_section()?;
    }
    for warning in &status.warnings {
        printer.warning(warning);
    }
    printer.footer(&format!("epoch {} (sha256 {})", status.epoch, status.digest))?;
    Ok(())
}
