//! What operators change in the files of this server.

use futures_util::future::BoxFuture;
use toolbay::Host;
use toolbay_admin::files::{GrantError, HeldPlugin, OperatorFiles};
use toolbay_policy::excerpt::one_line;

use crate::command::switch;
use crate::grants::pending::{WaitingPlugin, waiting_plugins};
use crate::setup::{self, SetupArgs};

/// Longest id in a message, in characters.
const MAX_ID: usize = 100;

/// The files that the arguments of a server name.
pub(super) struct ServerFiles {
    args: SetupArgs,
    host: Host,
}

impl ServerFiles {
    pub(super) fn new(args: SetupArgs, host: Host) -> Self {
        Self { args, host }
    }

    async fn list(&self) -> anyhow::Result<Vec<HeldPlugin>> {
        let mut held = Vec::new();
        for waiting in waiting_plugins(&self.args, &self.host)? {
            if let Some(review) = waiting.review(&self.args).await? {
                held.push(waiting.describe(&review, &self.host));
            }
        }
        Ok(held)
    }

    async fn apply(&self, plugin: &str, digest: &str, by: &str) -> Result<(), GrantError> {
        let failed = |error: anyhow::Error| GrantError::Failed(format!("{error:#}"));
        let changed = |what: &str| GrantError::Changed(format!("`{}` {what}", one_line(plugin, MAX_ID)));
        let is_it = |waiting: &WaitingPlugin| waiting.id.as_str() == plugin;
        let waiting = waiting_plugins(&self.args, &self.host).map_err(failed)?;
        let waiting = waiting.into_iter().find(is_it).ok_or_else(|| changed("does not wait for consent"))?;
        let review = waiting.review(&self.args).await.map_err(failed)?;
        let review = review.ok_or_else(|| changed("does not wait for consent any more"))?;
        if *review.info.digest != *digest {
            return Err(changed("changed: another version waits, not the one that you saw"));
        }
        let audit = self.host.pipeline().audit();
        review.apply(&self.args, by, Some(&**audit)).await.map_err(failed)
    }
}

impl OperatorFiles for ServerFiles {
    fn switch_tool(&self, tool: &str, disabled: Option<&str>) -> Result<(), String> {
        let switches = setup::switches(&self.args).map_err(|error| format!("{error:#}"))?;
        switch::switch_tool(&switches, self.host.registry(), tool, disabled)
    }

    fn count_held_plugins(&self) -> usize {
        waiting_plugins(&self.args, &self.host).map_or(0, |waiting| waiting.len())
    }

    fn held_plugins(&self) -> BoxFuture<'_, Result<Vec<HeldPlugin>, String>> {
        Box::pin(async { self.list().await.map_err(|error| format!("{error:#}")) })
    }

    fn grant<'a>(
        &'a self,
        plugin: &'a str,
        digest: &'a str,
        by: &'a str,
    ) -> BoxFuture<'a, Result<(), GrantError>> {
        Box::pin(self.apply(plugin, digest, by))
    }
}
