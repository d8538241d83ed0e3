//! `log`: a guest's lines in the host's log, under the target `toolbay::guest`. Lines are counted, truncated and
//! escaped.

use toolbay_policy::GrantKey;
use toolbay_policy::limits::CallLimits;
use toolbay_sandbox::engine::AsyncSupport;
use wasmtime::component::Linker;

use super::Capabilities;
use crate::bindings::host::log;
use crate::capability::Capability;
use crate::event_quota::EventQuota;
use crate::state::{GuestState, capabilities_of};
use crate::{Grantee, HasCapabilities};

/// Lines in the host's log.
pub(crate) struct Log;

impl Capability for Log {
    const KEYS: &'static [GrantKey] = &[];

    type State = EventQuota;

    fn begin(limits: &CallLimits) -> EventQuota {
        EventQuota::new(limits.log_lines, limits.log_rate)
    }

    fn link(linker: &mut Linker<GuestState>, _: AsyncSupport) -> wasmtime::Result<()> {
        log::add_to_linker::<_, HasCapabilities>(linker, capabilities_of)
    }

    fn end(quota: &EventQuota, of: &Grantee) {
        if quota.dropped > 0 {
            let (plugin, dropped) = (&of.plugin, quota.dropped);
            tracing::warn!(
                target: "toolbay::guest", %plugin, dropped,
                "dropped log lines beyond `log_lines` and `log_rate`"
            );
        }
    }
}

/// Maximum length of a message, in characters.
const MAX_MESSAGE: usize = 4000;
/// Maximum number of fields of a line.
const MAX_FIELDS: usize = 16;
/// Maximum length of a field's name and of its value, in characters.
const MAX_FIELD: usize = 200;

impl log::Host for Capabilities {
    fn write(&mut self, level: log::Level, message: String, fields: Vec<(String, String)>) {
        if !self.log.try_take() {
            return;
        }
        let mut line = self.redacted_line(&message, MAX_MESSAGE);
        for (name, value) in fields.iter().take(MAX_FIELDS) {
            line.push_str(&format!(
                " {}={:?}",
                self.redacted_line(name, MAX_FIELD),
                self.redacted_line(value, MAX_FIELD)
            ));
        }
        let plugin = &self.grantee.plugin;
        match level {
            log::Level::Trace => tracing::trace!(target: "toolbay::guest", %plugin, "{line}"),
            log::Level::Debug => tracing::debug!(target: "toolbay::guest", %plugin, "{line}"),
            log::Level::Info => tracing::info!(target: "toolbay::guest", %plugin, "{line}"),
            log::Level::Warn => tracing::warn!(target: "toolbay::guest", %plugin, "{line}"),
            log::Level::Error => tracing::error!(target: "toolbay::guest", %plugin, "{line}"),
        }
    }
}
