//! Availability checks: asks a plugin in an [isolated](IsolatedEntry) instance whether a tool is available.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::registry::AvailabilityCheck;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::limits::{CallLimits, HostLimits};
use toolbay_policy::name::ToolName;
use toolbay_policy::refusal::PolicyRefusal;

use crate::plugins::isolated_entry::{IsolatedEntry, lost_export};
use crate::plugins::plugin::Plugin;

/// Upper bounds of a check. They are low because the check runs repeatedly for every tool.
const CHECK_FUEL: u64 = 200_000_000;
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of a reason in messages, in characters.
const MAX_REASON: usize = 300;

/// The entry for availability checks, if the plugin exports them. All its tools share one entry, because they share one
/// export.
pub(crate) fn availability_entry(
    plugin: &Arc<Plugin>,
    limits: &CallLimits,
    config: &Arc<BTreeMap<String, String>>,
    host: &HostLimits,
) -> Option<Arc<IsolatedEntry>> {
    let mut limits = limits.clone();
    limits.cap_fuel_and_timeout(CHECK_FUEL, CHECK_TIMEOUT);
    let what = format!("the check of `{}`", plugin.id);
    let entry = || Arc::new(IsolatedEntry::new(plugin, limits, Arc::clone(config), what, host));
    plugin.descriptor.availability.then(entry)
}

/// The availability check of one tool.
#[derive(Debug)]
pub(crate) struct ToolCheck {
    pub(crate) entry: Arc<IsolatedEntry>,
    pub(crate) tool: ToolName,
}

impl AvailabilityCheck for ToolCheck {
    fn check(&self) -> BoxFuture<'_, Result<(), PolicyRefusal>> {
        Box::pin(async {
            let tool = self.tool.as_str();
            let asked = self.entry.run(
                async |code, store| {
                    let pre = code.availability.as_ref().ok_or_else(|| lost_export("check"))?;
                    let guest = pre.instantiate_async(&mut *store).await?;
                    guest.toolbay_plugin_availability().call_check(store, tool).await
                },
                Ok,
            );
            match asked.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(reason)) => Err(format!("its plugin says: {}", one_line(&reason, MAX_REASON)).into()),
                Err(fault) => {
                    let reason = one_line(&fault.to_string(), MAX_REASON);
                    let text = format!("its plugin failed in the availability check: {reason}");
                    Err(PolicyRefusal { text, hint: fault.hint() })
                }
            }
        })
    }
}
