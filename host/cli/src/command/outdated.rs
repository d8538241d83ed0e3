//! `toolbay outdated`: newer versions of the plugins in the lock, by the tags of their registries. It changes nothing.

use anyhow::Result;
use chrono::{DateTime, Utc};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::json;
use toolbay::{PluginId, Policy};
use toolbay_distribution::lock::LockedPlugin;
use toolbay_distribution::registry::RegistryAccess;
use toolbay_distribution::version::{NewerVersions, TaggedVersion};

use crate::output::{self, Cell, CommandStatus, DIM, FAILURE, NAME, Printer, SUCCESS, TextTable};
use crate::setup::locked::{self, LockPaths, MAX_PARALLEL};
use crate::setup::{self, SetupArgs};

/// Days after which a signature is called old: a registry can hide newer versions, and nothing proves that it does.
const MAX_DAYS: i64 = 180;

/// What the tags of a repository say about a plugin.
enum VersionStatus {
    /// Its tag is no version.
    Unversioned,
    Known(NewerVersions),
    Failed(String),
}

impl VersionStatus {
    fn word(&self) -> &'static str {
        match self {
            Self::Unversioned => "unversioned",
            Self::Known(NewerVersions { newest: None, .. }) => "current",
            Self::Known(_) => "outdated",
            Self::Failed(_) => "failed",
        }
    }

    fn newer(&self) -> Option<&NewerVersions> {
        match self {
            Self::Known(newer) => Some(newer),
            Self::Unversioned | Self::Failed(_) => None,
        }
    }

    fn error(&self) -> Option<&str> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Unversioned | Self::Known(_) => None,
        }
    }
}

/// The age in days of a plugin's signature if it is an old one. The signature of a key has no time.
fn old_signature_days(plugin: &LockedPlugin, now: DateTime<Utc>) -> Option<i64> {
    let signed_at = DateTime::parse_from_rfc3339(plugin.signed_at.as_ref()?).ok()?;
    let days = now.signed_duration_since(signed_at).num_days();
    (days > MAX_DAYS).then_some(days)
}

type OutdatedRow = (PluginId, LockedPlugin, VersionStatus);

pub(crate) async fn run(args: &SetupArgs) -> Result<CommandStatus> {
    let (paths, policy) = (LockPaths::find(args)?, setup::policy(args)?);
    let policy = &policy;
    let compare = |(id, plugin): (PluginId, LockedPlugin)| async move {
        let status = compare(policy, &plugin).await?;
        Ok::<_, anyhow::Error>((id, plugin, status))
    };
    let rows: Vec<OutdatedRow> =
        stream::iter(paths.read()?).map(compare).buffered(MAX_PARALLEL).try_collect().await?;
    if args.printer.is_json() {
        let tag = |version: Option<&TaggedVersion>| version.map(|version| version.tag.clone());
        let rows = rows.iter().map(|(id, plugin, status)| {
            let newer = status.newer();
            json!({
                "plugin": id.as_str(),
                "locked": plugin,
                "status": status.word(),
                "compatible": tag(newer.and_then(|newer| newer.compatible.as_ref())),
                "newest": tag(newer.and_then(|newer| newer.newest.as_ref())),
                "old_signature_days": old_signature_days(plugin, Utc::now()),
                "error": status.error(),
            })
        });
        output::print_json(&rows.collect::<Vec<_>>())?;
    } else {
        print(args.printer, &rows, &paths)?;
    }
    let is_good = |status: &VersionStatus| matches!(status.word(), "current" | "unversioned");
    let all_good = rows.iter().all(|(.., status)| is_good(status));
    Ok(if all_good { CommandStatus::Success } else { CommandStatus::Failed })
}

fn print(printer: Printer, rows: &[OutdatedRow], paths: &LockPaths) -> Result<()> {
    let mut table = TextTable::new(["PLUGIN", "STATUS", "LOCKED", "COMPATIBLE", "NEWEST"]);
    for (id, plugin, status) in rows {
        let style = match status {
            VersionStatus::Unversioned => DIM,
            VersionStatus::Known(NewerVersions { newest: None, .. }) => SUCCESS,
            VersionStatus::Known(_) | VersionStatus::Failed(_) => FAILURE,
        };
        let tag = |version: Option<&TaggedVersion>| {
            version.map_or_else(|| "-".to_owned(), |version| version.tag.clone())
        };
        let newer = status.newer();
        table.push([
            Cell::styled(NAME, id.as_str()),
            Cell::styled(style, status.word()),
            plugin.tag.clone().unwrap_or_else(|| "-".to_owned()).into(),
            tag(newer.and_then(|newer| newer.compatible.as_ref())).into(),
            tag(newer.and_then(|newer| newer.newest.as_ref())).into(),
        ]);
    }
    let errors = rows.iter().map(|(id, _, status)| (id, status.error()));
    locked::print_table(printer, &table, errors, paths)?;
    for (id, plugin, status) in rows {
        let days = old_signature_days(plugin, Utc::now()).filter(|_| status.word() == "current");
        if let Some(days) = days {
            printer.warning(&format!(
                "the newest version of `{id}` was signed {days} days ago; a registry that hides newer versions looks the same"
            ));
        }
    }
    if rows.iter().any(|(.., status)| status.word() == "outdated") {
        printer.help("take the compatible ones with `toolbay update`");
    }
    Ok(())
}

async fn compare(policy: &Policy, plugin: &LockedPlugin) -> Result<VersionStatus> {
    let Some(version) = plugin.tag.as_deref().and_then(TaggedVersion::parse) else {
        return Ok(VersionStatus::Unversioned);
    };
    let reference = plugin.reference().map_err(anyhow::Error::msg)?;
    let client = locked::client(policy, &reference, RegistryAccess::Pull)?;
    Ok(match client.tags().await {
        Ok(tags) => VersionStatus::Known(NewerVersions::find(&version, &tags)),
        Err(error) => VersionStatus::Failed(error.to_string()),
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
