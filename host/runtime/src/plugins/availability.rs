//! The port through which a plugin is asked whether one of its tools is available, in a [sealed](SealedEntry) instance.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::registry::Check;
use toolbay_policy::limits::{HostLimits, Limits};
use toolbay_policy::name::ToolName;
use toolbay_policy::refusal::Refusal;
use toolbay_policy::text::one_line;

use crate::plugins::plugin::Plugin;
use crate::plugins::sealed::{SealedEntry, lost};

/// Bounds of a check, unless the plugin's own are lower: it is asked for every tool, again and again.
const FUEL: u64 = 200_000_000;
const TIMEOUT: Duration = Duration::from_secs(1);
/// Longest reason that is shown, in characters.
const MAX_REASON: usize = 300;

/// What asks a plugin, if it can say: one for all its tools, as it is one function that is asked.
pub(crate) fn of(
    plugin: &Arc<Plugin>,
    limits: &Limits,
    config: &Arc<BTreeMap<String, String>>,
    host: &HostLimits,
) -> Option<Arc<SealedEntry>> {
    let mut limits = limits.clone();
    limits.seal(FUEL, TIMEOUT);
    let what = format!("the check of `{}`", plugin.id);
    let entry = || Arc::new(SealedEntry::new(plugin, limits, Arc::clone(config), what, host));
    plugin.descriptor.availability.then(entry)
}

/// The check of one tool.
#[derive(Debug)]
pub(crate) struct ToolCheck {
    pub(crate) entry: Arc<SealedEntry>,
    pub(crate) tool: ToolName,
}

impl Check for ToolCheck {
    fn check(&self) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async {
            let tool = self.tool.as_str();
            let asked = self.entry.run(
                async |code, store| {
                    let pre = code.availability.as_ref().ok_or_else(|| lost("check"))?;
                    let guest = pre.instantiate_async(&mut *store).await?;
                    guest.toolbay_plugin_availability().call_check(store, tool).await
                },
                Ok,
            );
            match asked.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(reason)) => Err(format!("its plugin says: {}", one_line(&reason, MAX_REASON)).into()),
                Err(fault) => {
                    let said = one_line(&fault.to_string(), MAX_REASON);
                    let text = format!("its plugin failed when asked for it: {said}");
                    Err(Refusal { text, hint: fault.hint() })
                }
            }
        })
    }
}
