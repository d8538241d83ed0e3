//! The plugins that wait for consent, for the page of operators.

use std::path::PathBuf;

use anyhow::Result;
use toolbay::{Host, LoadError, PluginId};
use toolbay_admin::files::{AskedCapability, HeldPlugin};

use super::proposal::policy_lines;
use super::review::GrantReview;
use crate::installation;
use crate::installation::version_diff::{DiffReport, PluginVersion};
use crate::setup::locked::LockPaths;
use crate::setup::{self, SetupArgs};

/// Most plugins that are shown. Each one is loaded.
const MAX_HELD: usize = 50;

/// A plugin that waits.
pub(crate) struct WaitingPlugin {
    pub(crate) id: PluginId,
    /// Why a file of the plugin directory waits, and the file; `None` for an update of the lock.
    file: Option<(String, PathBuf)>,
}

/// The plugins of a running host that wait.
pub(crate) fn waiting_plugins(args: &SetupArgs, host: &Host) -> Result<Vec<WaitingPlugin>> {
    let mut waiting = Vec::new();
    for problem in host.problems() {
        if let (LoadError::ConsentRequired(why), Some(id)) = (&*problem.error, problem.plugin) {
            waiting.push(WaitingPlugin { id, file: Some((why.clone(), problem.file)) });
        }
    }
    for plugin in host.plugins() {
        if let (Some(why), Some(file)) = (plugin.held, plugin.file) {
            waiting.push(WaitingPlugin { id: plugin.id, file: Some((why, file)) });
        }
    }
    if let Ok(paths) = LockPaths::find(args) {
        let held = setup::held_updates(args, &paths.lock)?.all().map_err(anyhow::Error::msg)?;
        let ids = held.into_keys().filter_map(|id| PluginId::new(&id).ok());
        waiting.extend(ids.map(|id| WaitingPlugin { id, file: None }));
    }
    waiting.truncate(MAX_HELD);
    Ok(waiting)
}

impl WaitingPlugin {
    /// What a grant would do; `None` if nothing waits any more.
    pub(crate) async fn review(&self, args: &SetupArgs) -> Result<Option<GrantReview>> {
        match &self.file {
            Some((_, file)) => GrantReview::of_file(args, &self.id, file).await.map(Some),
            None => {
                let review = GrantReview::find(args, self.id.as_str(), &[], None).await?;
                Ok(review.held.is_some().then_some(review))
            }
        }
    }

    /// What the operator reads before the decision. `running` has the version that the new one is compared with.
    pub(crate) fn describe(&self, review: &GrantReview, running: &Host) -> HeldPlugin {
        let (info, preview) = (&review.info, review.preview());
        let (gains, loses) = preview.difference();
        let asked = preview.requested().into_iter().map(|one| AskedCapability {
            key: one.key.to_owned(),
            target: one.target.to_owned(),
            optional: one.optional,
            reasons: one.reasons.iter().map(|reason| (*reason).to_owned()).collect(),
        });
        let (origin, reasons, changes) = match (&review.held, &self.file) {
            (Some(held), _) => {
                let origin = installation::origin_facts(&held.origin());
                let origin = origin.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
                (origin, held.reasons().to_vec(), held.report().map(DiffReport::changes))
            }
            (None, Some((why, _))) => {
                let old = running.plugin(self.id.as_str()).filter(|old| old.digest != info.digest);
                let report = old.map(|old| {
                    let new = PluginVersion::of(&review.host, info);
                    DiffReport::compare(&PluginVersion::of(running, &old), &new).changes()
                });
                (Vec::new(), vec![why.clone()], report)
            }
            (None, None) => (Vec::new(), Vec::new(), None),
        };
        HeldPlugin {
            plugin: info.id.to_string(),
            version: info.about.as_ref().map(|about| about.version.clone()),
            digest: info.digest.to_string(),
            origin,
            reasons,
            asks_for: asked.collect(),
            lines: policy_lines(&review.edit.proposals),
            gains,
            loses,
            changes,
        }
    }
}
