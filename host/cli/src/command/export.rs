//! `toolbay export`: plugins of the lock, with their signatures and the keys that the policy trusts for them, in one file.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use serde_json::json;
use toolbay::Policy;
use toolbay_distribution::archive::{self, ArchiveError, ArchiveSummary, ArchivedIdentity, ArchivedRule};
use toolbay_distribution::lock::LockedPlugins;
use toolbay_distribution::signature::AcceptedSigners;
use toolbay_distribution::signature::key::PublicKey;
use toolbay_distribution::store::BlobStore;
use toolbay_policy::quantity::show_duration;
use toolbay_policy::trust::{TrustRequirement, TrustedSigners};

use crate::args::ExportArgs;
use crate::installation::trust;
use crate::output::{self, CommandError, CommandStatus, count_noun, format, host_failure, run_blocking};
use crate::setup::locked::LockPaths;
use crate::setup::named_path::{folder_of, path_failure};
use crate::setup::{self, SetupArgs};

pub(crate) async fn run(args: &SetupArgs, options: &ExportArgs) -> Result<CommandStatus> {
    let (paths, policy) = (LockPaths::find(args)?, setup::policy(args)?);
    let plugins = paths.select(&options.ids)?;
    let rules = rules(&policy, &plugins)?;
    let (file, store) = (options.file.clone(), paths.store);
    let written = run_blocking(move || write(&file, &store, &plugins, &rules)).await?;
    let (ArchiveSummary { plugins, blobs }, bytes) = written?;
    if args.printer.is_json() {
        return Ok(output::print_json(
            &json!({"file": options.file, "plugins": plugins, "blobs": blobs, "bytes": bytes}),
        )?);
    }
    let (file, size) = (options.file.display(), format::size(bytes));
    args.printer.note(&format!("`{file}` has {} ({size})", count_noun(plugins, "plugin", "plugins")));
    args.printer.help(&format!("on the other machine, lock them with `toolbay import {file}`"));
    Ok(CommandStatus::Success)
}

/// The rules of the policy that cover the plugins, with their keys.
fn rules(policy: &Policy, plugins: &LockedPlugins) -> Result<Vec<ArchivedRule>> {
    let mut rules = BTreeMap::new();
    for plugin in plugins.values() {
        let reference = plugin.reference().map_err(anyhow::Error::msg)?;
        let Some(rule) = policy.trust_for(&reference.host, &reference.repository) else { continue };
        let TrustRequirement::Signed(trusted) = &rule.requirement else { continue };
        let scope = rule.scope.to_string();
        let rule = archived(&scope, trusted).with_context(|| format!("the [[trust]] for `{scope}`"))?;
        rules.insert(scope, rule);
    }
    Ok(rules.into_values().collect())
}

/// A rule with the content of the files that it names.
fn archived(scope: &str, trusted: &TrustedSigners) -> Result<ArchivedRule> {
    let AcceptedSigners { keys, keyless } = trust::accepted(trusted)?;
    let keyless = keyless.map(|rule| ArchivedIdentity {
        identity: rule.identity.to_string(),
        issuer: rule.issuer,
        root: rule.root.text().to_owned(),
        min_age: rule.min_age.map(show_duration),
    });
    let keys = keys.iter().map(PublicKey::to_pem).collect();
    Ok(ArchivedRule { scope: scope.to_owned(), keys, keyless })
}

/// Writes the archive beside its final name, which it gets at the end. Blocks.
fn write(
    file: &Path,
    store: &BlobStore,
    plugins: &LockedPlugins,
    rules: &[ArchivedRule],
) -> Result<(ArchiveSummary, u64)> {
    let unwritable = |error: io::Error| {
        path_failure(anyhow!(error).context(format!("`{}` cannot be written", file.display())))
    };
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    let mut builder = tempfile::Builder::new();
    let mut out = builder.permissions(mode).tempfile_in(folder_of(file)).map_err(unwritable)?;
    let written = archive::write(store, plugins, rules, io::BufWriter::new(out.as_file_mut()));
    let summary = written.map_err(|error| match error {
        ArchiveError::Missing(_) => {
            let error = CommandError::new("missing", error.to_string());
            error.with_help("`toolbay fetch` downloads what the lock names").into()
        }
        ArchiveError::Refused(_) => CommandError::new("refused", error.to_string()).into(),
        ArchiveError::Io(error) => unwritable(error),
        ArchiveError::Storage(error) => host_failure(error),
    })?;
    let bytes = out.as_file().metadata().map_err(unwritable)?.len();
    out.as_file().sync_all().map_err(unwritable)?;
    out.persist(file).map_err(|error| unwritable(error.error))?;
    Ok((summary, bytes))
}
