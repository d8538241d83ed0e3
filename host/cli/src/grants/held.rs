//! The held update of a plugin: the version that the operator reviews instead of the loaded one.

use std::io::Write as _;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use toolbay::{HeldUpdate, Host, PluginId, PluginInfo, Policy};
use toolbay_core::tool::PluginOrigin;
use toolbay_distribution::lock::LockedPlugin;
use toolbay_policy::excerpt::one_line;

use crate::installation::install::{self, LockChange, NewVersion, VersionChange};
use crate::installation::version_diff::{DiffReport, PluginVersion};
use crate::installation::{self, verification};
use crate::output::{self, Cell, CommandError, FAILURE, HEADING, TextTable, host_failure};
use crate::setup::locked::LockPaths;
use crate::setup::{self, SetupArgs};

/// Longest reason that is shown, in characters.
const MAX_REASON: usize = 500;

/// A held version, loaded without running a tool.
pub(crate) struct HeldVersion {
    pub(crate) host: Host,
    pub(crate) info: PluginInfo,
    update: HeldUpdate,
    /// The locked version.
    old: LockedPlugin,
    paths: LockPaths,
    change: VersionChange,
}

impl HeldVersion {
    /// Finds the held update of a plugin. One for a version that is not locked any more is dropped. Content and signature
    /// are checked again, because the policy may have changed.
    pub(crate) async fn find(args: &SetupArgs, policy: &Policy, plugin: &str) -> Result<Option<Self>> {
        let (Ok(id), Ok(paths)) = (PluginId::new(plugin), LockPaths::find(args)) else { return Ok(None) };
        let updates = setup::held_updates(args, &paths.lock)?;
        let failed = |problem: String| host_failure(anyhow!(problem));
        let Some(update) = updates.get(&id).map_err(failed)? else { return Ok(None) };
        let locked = paths.read()?.remove(&id).filter(|old| old.manifest == update.replaces);
        let Some(old) = locked else {
            updates.set(&id, None).map_err(failed)?;
            return Ok(None);
        };
        let new = &update.plugin;
        let reference = new.reference().map_err(anyhow::Error::msg)?;
        if let Some(problem) = verification::check(policy, &paths.store, new).await? {
            let why = format!("the update of `{id}` to `{reference}`: {}", problem.message());
            let help = format!("`toolbay update {id}` looks for it again");
            return Err(CommandError::new(problem.word(), why).with_help(help).into());
        }
        let file = paths.store.path(&new.layer);
        let (host, info) = install::load(args, policy.clone(), (&id, &reference.to_string()), &file).await?;
        let info = PluginInfo { origin: Some(Arc::new(new.origin())), ..info };
        let version = NewVersion { plugin: new, version: PluginVersion::of(&host, &info) };
        let change = VersionChange::compare(args, &id, (&old, &paths), &version).await?;
        Ok(Some(Self { host, info, update, old, paths, change }))
    }

    /// Prints what the version is, why it is held and what it changes.
    pub(crate) fn print(&self) -> Result<()> {
        let tag = |plugin: &LockedPlugin| plugin.tag.clone().unwrap_or_else(|| plugin.manifest.to_string());
        let title =
            format!("{}: update from {} to {}", self.info.id, tag(&self.old), tag(&self.update.plugin));
        writeln!(output::stdout(), "{HEADING}{title}{HEADING:#}")?;
        let mut table = TextTable::facts();
        for (key, value) in installation::origin_facts(&self.origin()) {
            table.push_fact(key, value);
        }
        for reason in &self.change.reasons {
            table.push_fact("held", Cell::styled(FAILURE, one_line(reason, MAX_REASON)));
        }
        table.print()?;
        self.change.report.iter().try_for_each(DiffReport::show)?;
        Ok(writeln!(output::stdout())?)
    }

    /// Locks the version.
    pub(crate) async fn apply(&self, args: &SetupArgs) -> Result<()> {
        let change = LockChange {
            id: self.info.id.clone(),
            new: self.update.plugin.clone(),
            replaced: Some(self.old.clone()),
            replace: true,
        };
        change.apply(args, &self.paths, setup::plugin_folder(args)?).await
    }

    /// Where the version comes from.
    pub(crate) fn origin(&self) -> PluginOrigin {
        self.update.plugin.origin()
    }

    /// Why it is held, a sentence each.
    pub(crate) fn reasons(&self) -> &[String] {
        &self.change.reasons
    }

    /// The changes of the component; `None` if it is the same.
    pub(crate) fn report(&self) -> Option<&DiffReport> {
        self.change.report.as_ref()
    }

    pub(crate) fn json(&self) -> Value {
        let (before, after) = (&self.old, &self.update.plugin);
        let (reasons, changes) = (&self.change.reasons, &self.change.report);
        json!({"before": before, "after": after, "reasons": reasons, "changes": changes})
    }
}
