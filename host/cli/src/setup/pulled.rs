//! The published files of the shared state, for the time of a command.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use tempfile::TempDir;
use toolbay_shared::publication::{NewEpoch, Publication};

use super::args::{PulledEpoch, SetupArgs};
use super::seen_epochs::{self, SeenEpochs};
use super::shared::{connect, connection_error, current, publication_error};
use super::shared_audit;
use super::shared_folder::SharedFolder;
use crate::output::host_failure;

/// What a command does with the shared state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SharedUse {
    /// The command opens the shared state on its own, or does not need it.
    Own,
    /// The command reads the published files.
    Read,
    /// The command changes the published files.
    Edit,
    /// The command reads the audit of all replicas.
    Audit,
    /// The command works on this machine only.
    Never,
}

/// Downloads the published files for a command that uses them, and makes its arguments name them. The folder is removed with
/// the returned value. `None`: the command uses the files of this machine.
pub(crate) async fn pull(args: &mut SetupArgs, shared_use: SharedUse) -> Result<Option<TempDir>> {
    if args.shared.shared.is_none() {
        return Ok(None);
    }
    let is_edit = match shared_use {
        SharedUse::Own => return Ok(None),
        SharedUse::Audit => {
            let temporary = tempfile::tempdir().map_err(host_failure)?;
            let file = temporary.path().join("audit.jsonl");
            shared_audit::download(&connect(args, "operator").await?, &file).await?;
            args.audit = Some(file);
            return Ok(Some(temporary));
        }
        SharedUse::Read => false,
        SharedUse::Edit => true,
        SharedUse::Never => {
            return Err(anyhow!("--shared: this command works on the files of this machine only"));
        }
    };
    let connection = connect(args, "operator").await?;
    let publication = Publication::open(&connection).await.map_err(connection_error)?;
    let current = current(&publication).await?;
    let temporary = tempfile::tempdir().map_err(host_failure)?;
    let folder = SharedFolder::new(temporary.path());
    folder.write(&current.bundle, &publication).await?;
    folder.name_in(args);
    if is_edit {
        let address = connection.address().clone();
        let dir = temporary.path().to_path_buf();
        args.pulled = Some(Arc::new(PulledEpoch { publication, address, current, dir }));
    }
    Ok(Some(temporary))
}

/// Publishes what a command changed.
///
/// # Errors
/// Somebody else published meanwhile, or the store does not take it. Nothing was changed.
pub(crate) async fn publish(args: &SetupArgs, pulled: &PulledEpoch) -> Result<()> {
    let PulledEpoch { publication, address, current, dir } = pulled;
    let (folder, seen) = (SharedFolder::new(dir), SeenEpochs::new(args, address)?);
    let bundle = folder.read()?.with_plugins(current.bundle.plugins().clone()).map_err(host_failure)?;
    if bundle == current.bundle {
        return Ok(());
    }
    let published = publication.publish(Some(current), &bundle, seen.highest()).await;
    let NewEpoch { epoch, gap } = published.map_err(publication_error)?;
    seen.record(epoch.number);
    seen_epochs::report_gap(args.printer, gap);
    args.printer.note(&format!("published as epoch {}", epoch.number));
    Ok(())
}
