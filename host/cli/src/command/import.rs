//! `toolbay import`: plugins of an archive into the lock. Each is verified by the policy of this machine, and compared with
//! the locked version, as by `add` and `update`. No network is used.

mod trust_rules;

use anyhow::{Result, anyhow};
use serde_json::json;
use toolbay::Policy;
use toolbay_distribution::archive::{ArchiveError, PluginArchive};
use toolbay_distribution::lock::{LockedPlugin, Signer};
use toolbay_distribution::store::BlobStore;

use crate::args::{AddPluginArgs, ImportArgs};
use crate::installation::install::{self, InstallRefusal, StoredVersion};
use crate::installation::status::{PluginRow, PluginStatus, print_rows};
use crate::installation::trust::TrustDecision;
use crate::installation::verification;
use crate::output::{CommandError, CommandStatus, TextTable, host_failure, run_blocking};
use crate::setup::locked::LockPaths;
use crate::setup::named_path::path_failure;
use crate::setup::{self, SetupArgs};

pub(crate) async fn run(args: &SetupArgs, options: &ImportArgs) -> Result<CommandStatus> {
    let paths = LockPaths::find(args)?;
    let file = options.file.clone();
    let opened = run_blocking(move || PluginArchive::open(&file)).await?;
    let mut archive = opened.map_err(|error| archive_error(options, error))?;
    if options.trust {
        trust_rules::add(args, archive.trust())?;
    } else if !args.printer.is_json() {
        trust_rules::show_new(args, archive.trust())?;
    }
    let policy = setup::policy(args)?;
    // A preview leaves the store of the user as it is.
    let preview = options.dry_run.then(tempfile::tempdir).transpose().map_err(host_failure)?;
    let store = match &preview {
        Some(folder) => BlobStore::new(folder.path()),
        None => paths.store.clone(),
    };
    let plugins = archive.plugins().clone();
    let into = store.clone();
    let stored = run_blocking(move || archive.store_blobs(&into)).await?;
    stored.map_err(|error| archive_error(options, error))?;
    let mut rows = Vec::new();
    // One after the other: each shows its changes.
    for (id, plugin) in plugins {
        let version = StoredVersion { id: id.clone(), plugin: plugin.clone(), store: store.clone() };
        let status = match lock(args, options, (policy.clone(), paths.clone()), version).await {
            Ok(status) => status,
            Err(error) => match InstallRefusal::from_error(error)? {
                InstallRefusal::Held(why) => PluginStatus::Held(why),
                InstallRefusal::Refused(why) => PluginStatus::Failed(why),
            },
        };
        rows.push(PluginRow { id, plugin, status, details: () });
    }
    let table = TextTable::new(["PLUGIN", "STATUS", "SIGNER", "SOURCE"]);
    let empty_note = format!("`{}` has no plugins", options.file.display());
    print_rows(args.printer, &rows, table, &empty_note, |PluginRow { plugin, .. }| {
        let cells = vec![plugin.signer.to_string().into(), plugin.origin().reference.into()];
        (cells, json!({ "archived": plugin }))
    })
}

/// An archive that is not accepted: exit code 1. A store that cannot be written: exit code 3.
fn archive_error(options: &ImportArgs, error: ArchiveError) -> anyhow::Error {
    let file = options.file.display();
    match error {
        ArchiveError::Refused(_) | ArchiveError::Missing(_) => {
            let error = CommandError::new("refused", format!("`{file}` is refused: {error}"));
            error.with_help("export the plugins again").into()
        }
        ArchiveError::Io(error) => path_failure(anyhow!(error).context(format!("`{file}` cannot be read"))),
        ArchiveError::Storage(error) => host_failure(error),
    }
}

/// Forgets a signature that this policy does not check.
fn unsign(plugin: &mut LockedPlugin) {
    (plugin.signer, plugin.bundle, plugin.signed_at) = (Signer::None, None, None);
}

/// Locks one plugin. A refusal is an error here.
async fn lock(
    args: &SetupArgs,
    options: &ImportArgs,
    (policy, paths): (Policy, LockPaths),
    StoredVersion { id, mut plugin, store }: StoredVersion,
) -> Result<PluginStatus> {
    let reference = plugin.reference().map_err(anyhow::Error::msg)?;
    let decision = TrustDecision::find(&policy, &reference)?;
    match decision {
        TrustDecision::Signed { .. } => {}
        // What the archive says about a signer counts only if this policy can check it.
        TrustDecision::Digest => unsign(&mut plugin),
        TrustDecision::NoRule => {
            decision.check_flag(&reference, options.unsigned)?;
            unsign(&mut plugin);
        }
    }
    if paths.read()?.get(&id) == Some(&plugin) {
        return Ok(PluginStatus::Unchanged);
    }
    if let Some(problem) = verification::check(&policy, &store, &plugin).await? {
        return Err(CommandError::new(problem.word(), problem.message().to_owned()).into());
    }
    let request = AddPluginArgs {
        reference: plugin.origin().reference,
        id: Some(id.clone()),
        unsigned: options.unsigned,
        replace: true,
        downgrade: false,
        dry_run: options.dry_run,
    };
    let version = StoredVersion { id, plugin, store };
    install::lock_version(args, &request, (policy, paths), version).await?;
    Ok(if options.dry_run { PluginStatus::Available } else { PluginStatus::Imported })
}
