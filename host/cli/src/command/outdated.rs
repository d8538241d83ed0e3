//! `toolbay outdated`: newer versions of the plugins in the lock, by the tags of their registries. It changes nothing.

use anyhow::Result;
use chrono::{DateTime, Utc};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::json;
use toolbay::{PluginId, Policy};
use toolbay_distribution::lock::LockedPlugin;
use toolbay_distribution::registry::RegistryAccess;
use toolbay_distribution::version::{NewerVersions, TaggedVersion};

use crate::installation::status::PluginStatus;
use crate::output::{self, Cell, CommandStatus, Printer, TextTable};
use crate::setup::locked::{self, LockPaths, MAX_PARALLEL};
use crate::setup::{self, SetupArgs};

/// Days after which a signature is called old: a registry can hide newer versions, and nothing proves that it does.
const MAX_DAYS: i64 = 180;

/// The age in days of a plugin's signature if it is an old one. The signature of a key has no time.
fn old_signature_days(plugin: &LockedPlugin, now: DateTime<Utc>) -> Option<i64> {
    let signed_at = DateTime::parse_from_rfc3339(plugin.signed_at.as_ref()?).ok()?;
    let days = now.signed_duration_since(signed_at).num_days();
    (days > MAX_DAYS).then_some(days)
}

/// What became of a plugin, and its newer versions if its registry names its tags.
type VersionOutcome = (PluginStatus, Option<NewerVersions>);

type OutdatedRow = (PluginId, LockedPlugin, VersionOutcome);

pub(crate) async fn run(args: &SetupArgs) -> Result<CommandStatus> {
    let (paths, policy) = (LockPaths::find(args)?, setup::policy(args)?);
    let policy = &policy;
    let compare = |(id, plugin): (PluginId, LockedPlugin)| async move {
        let outcome = compare(policy, &plugin).await?;
        Ok::<_, anyhow::Error>((id, plugin, outcome))
    };
    let rows: Vec<OutdatedRow> =
        stream::iter(paths.read()?).map(compare).buffered(MAX_PARALLEL).try_collect().await?;
    if args.printer.is_json() {
        let rows = rows.iter().map(|(id, plugin, (status, newer))| {
            let [compatible, newest] = tags(newer.as_ref());
            json!({
                "plugin": id.as_str(),
                "locked": plugin,
                "status": status.word(),
                "compatible": compatible,
                "newest": newest,
                "old_signature_days": old_signature_days(plugin, Utc::now()),
                "error": status.error(),
            })
        });
        output::print_json(&rows.collect::<Vec<_>>())?;
    } else {
        print(args.printer, &rows, &paths)?;
    }
    Ok(PluginStatus::command_status(rows.iter().map(|(.., (status, _))| status)))
}

/// The tags of the newest compatible version and of the newest one.
fn tags(newer: Option<&NewerVersions>) -> [Option<&str>; 2] {
    let versions = newer.map_or([None; 2], |newer| [newer.compatible.as_ref(), newer.newest.as_ref()]);
    versions.map(|version| version.map(|version| version.tag.as_str()))
}

fn print(printer: Printer, rows: &[OutdatedRow], paths: &LockPaths) -> Result<()> {
    let mut table = TextTable::new(["PLUGIN", "STATUS", "LOCKED", "COMPATIBLE", "NEWEST"]);
    for (id, plugin, (status, newer)) in rows {
        let [compatible, newest] = tags(newer.as_ref());
        let details = [plugin.tag.as_deref(), compatible, newest].map(|tag| Cell::from(tag.unwrap_or("-")));
        table.push(status.cells(id).into_iter().chain(details));
    }
    let errors = rows.iter().map(|(id, _, (status, _))| (id, status.error()));
    locked::print_table(printer, &table, errors, paths)?;
    for (id, plugin, (status, _)) in rows {
        let days = old_signature_days(plugin, Utc::now()).filter(|_| *status == PluginStatus::Current);
        if let Some(days) = days {
            printer.warning(&format!(
                "the newest version of `{id}` was signed {days} days ago; a registry that hides newer versions looks the same"
            ));
        }
    }
    if rows.iter().any(|(.., (status, _))| *status == PluginStatus::Outdated) {
        printer.help("take the compatible ones with `toolbay update`");
    }
    Ok(())
}

async fn compare(policy: &Policy, plugin: &LockedPlugin) -> Result<VersionOutcome> {
    let Some(version) = plugin.tag.as_deref().and_then(TaggedVersion::parse) else {
        return Ok((PluginStatus::Unversioned, None));
    };
    let reference = plugin.reference().map_err(anyhow::Error::msg)?;
    let client = locked::client(policy, &reference, RegistryAccess::Pull)?;
    Ok(match client.tags().await {
        Ok(tags) => {
            let newer = NewerVersions::find(&version, &tags);
            let is_outdated = newer.newest.is_some();
            (if is_outdated { PluginStatus::Outdated } else { PluginStatus::Current }, Some(newer))
        }
        Err(error) => (PluginStatus::Failed(error.to_string()), None),
    })
}

#[cfg(test)]
mod tests {
    use toolbay_distribution::digest::BlobDigest;
    use toolbay_distribution::lock::Signer;

    use super::*;

    #[test]
    fn signatures_are_old_after_half_a_year() {
        let digest = BlobDigest::of(b"a");
        let days = |signed_at: Option<&str>| {
            let plugin = LockedPlugin {
                source: "oci://registry.example/acme/hash".to_owned(),
                tag: None,
                manifest: digest,
                layer: digest,
                size: 1,
                signer: Signer::None,
                bundle: None,
                signed_at: signed_at.map(str::to_owned),
            };
            old_signature_days(&plugin, "2026-12-31T12:00:00Z".parse().unwrap())
        };
        assert_eq!(days(Some("2026-01-01T00:00:00Z")), Some(364));
        for recent in [Some("2026-07-04T12:00:00Z"), Some("2027-01-01T00:00:00Z"), Some("never"), None] {
            assert_eq!(days(recent), None, "{recent:?}");
        }
    }
}
