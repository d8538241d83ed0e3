//! `toolbay outdated`: newer versions of the plugins in the lock, by the tags of their registries. It changes nothing.

use anyhow::Result;
use chrono::{DateTime, Utc};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::json;
use toolbay::{PluginId, Policy};
use toolbay_distribution::lock::LockedPlugin;
use toolbay_distribution::registry::RegistryAccess;
use toolbay_distribution::version::{NewerVersions, TaggedVersion};

use crate::installation::status::{PluginRow, PluginStatus, print_rows};
use crate::output::{Cell, CommandStatus, Printer, TextTable};
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

type OutdatedRow = PluginRow<Option<NewerVersions>>;

pub(crate) async fn run(args: &SetupArgs) -> Result<CommandStatus> {
    let (paths, policy) = (LockPaths::find(args)?, setup::policy(args)?);
    let policy = &policy;
    let compare = |(id, plugin): (PluginId, LockedPlugin)| async move {
        let (status, details) = compare(policy, &plugin).await?;
        Ok::<_, anyhow::Error>(PluginRow { id, plugin, status, details })
    };
    let rows: Vec<OutdatedRow> =
        stream::iter(paths.read()?).map(compare).buffered(MAX_PARALLEL).try_collect().await?;
    let table = TextTable::new(["PLUGIN", "STATUS", "LOCKED", "COMPATIBLE", "NEWEST"]);
    let status = print_rows(args.printer, &rows, table, &paths.empty_note(), |row| {
        let PluginRow { plugin, details, .. } = row;
        let [compatible, newest] = tags(details.as_ref());
        let cells = [plugin.tag.as_deref(), compatible, newest].map(|tag| Cell::from(tag.unwrap_or("-")));
        let days = old_signature_days(plugin, Utc::now());
        let members = json!({
            "locked": plugin, "compatible": compatible, "newest": newest, "old_signature_days": days,
        });
        (Vec::from(cells), members)
    })?;
    if !args.printer.is_json() {
        print_advice(args.printer, &rows);
    }
    Ok(status)
}

/// The tags of the newest compatible version and of the newest one.
fn tags(newer: Option<&NewerVersions>) -> [Option<&str>; 2] {
    let versions = newer.map_or([None; 2], |newer| [newer.compatible.as_ref(), newer.newest.as_ref()]);
    versions.map(|version| version.map(|version| version.tag.as_str()))
}

/// Prints what the operator should know about the rows.
fn print_advice(printer: Printer, rows: &[OutdatedRow]) {
    for PluginRow { id, plugin, status, .. } in rows {
        let days = old_signature_days(plugin, Utc::now()).filter(|_| *status == PluginStatus::Current);
        if let Some(days) = days {
            printer.warning(&format!(
                "the newest version of `{id}` was signed {days} days ago; a registry that hides newer versions looks the same"
            ));
        }
    }
    if rows.iter().any(|row| row.status == PluginStatus::Outdated) {
        printer.help("take the compatible ones with `toolbay update`");
    }
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
