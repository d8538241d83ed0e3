//! `context`: progress, cancellation and the identity of the running call. Sealed entries have none of them.

use toolbay_core::call::{Identity, ProgressAudience};
use toolbay_policy::GrantKey;
use toolbay_policy::capability::CapabilityKind;
use toolbay_policy::limits::CallLimits;
use toolbay_sandbox::engine::AsyncSupport;
use wasmtime::component::Linker;

use super::Capabilities;
use crate::HasCapabilities;
use crate::bindings::host::context;
use crate::capability::Capability;
use crate::event_quota::EventQuota;
use crate::state::{GuestState, capabilities_of};

/// The running call, as the guest sees it.
pub(crate) struct Context;

impl Capability for Context {
    const KEYS: &'static [GrantKey] = &[];

    type State = EventQuota;

    fn begin(limits: &CallLimits) -> EventQuota {
        EventQuota::new(limits.progress_events, limits.progress_rate)
    }

    fn link(linker: &mut Linker<GuestState>, _: AsyncSupport) -> wasmtime::Result<()> {
        context::add_to_linker::<_, HasCapabilities>(linker, capabilities_of)
    }
}

/// The attribute that lists which of the capabilities without a refusal are granted. WASI reads a clock and draws random
/// bytes, but cannot say that they are not real.
const GRANTED: &str = "granted";

impl Capabilities {
    fn granted_without_refusal(&self) -> Option<String> {
        let grants = &self.grantee.granted.as_ref()?.grants;
        let kinds = [
            (CapabilityKind::Clock, grants.clock.is_empty()),
            (CapabilityKind::Random, grants.random.is_empty()),
        ];
        let granted =
            kinds.iter().filter(|(_, is_empty)| !is_empty).map(|(kind, _)| format!("\"{}\"", kind.as_str()));
        Some(format!("[{}]", granted.collect::<Vec<_>>().join(",")))
    }

    fn identity<T>(&self, read: impl FnOnce(&Identity) -> Option<T>) -> Option<T> {
        self.grantee.ctx.as_ref().and_then(|ctx| read(&ctx.turn.identity))
    }
}

impl context::Host for Capabilities {
    fn progress(&mut self, message: String, percent: Option<f32>, audience: context::Audience) {
        let Some(ctx) = &self.grantee.ctx else { return };
        if !self.progress.try_take() {
            return;
        }
        let audience = match audience {
            context::Audience::Internal => ProgressAudience::Internal,
            context::Audience::User => ProgressAudience::User,
            context::Audience::Dashboard => ProgressAudience::Dashboard,
        };
        ctx.progress(&message, percent, audience);
    }

    fn cancelled(&mut self) -> bool {
        self.grantee.ctx.as_ref().is_some_and(|ctx| ctx.cancel().is_cancelled())
    }
    fn budget_chars(&mut self) -> u32 {
        self.grantee.ctx.as_ref().map_or(0, |ctx| u32::try_from(ctx.budget_chars).unwrap_or(u32::MAX))
    }
    fn remaining_ms(&mut self) -> Option<u64> {
        let left = self.times?.deadline.saturating_duration_since(std::time::Instant::now());
        Some(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
    }
    fn dry_run(&mut self) -> bool {
        self.grantee.ctx.as_ref().is_some_and(|ctx| ctx.turn.dry_run)
    }
    fn call_id(&mut self) -> String {
        self.grantee.ctx.as_ref().map_or_else(String::new, |ctx| ctx.call_id.to_string())
    }
    fn session_id(&mut self) -> Option<String> {
        self.grantee.ctx.as_ref()?.turn.session.id().map(str::to_owned)
    }
    fn session_key(&mut self) -> Option<String> {
        self.identity(|id| id.session_key.clone())
    }
    fn platform(&mut self) -> Option<String> {
        self.identity(|id| id.platform.clone())
    }
    fn working_dir(&mut self) -> Option<String> {
        // Relative paths resolve against the workspace. Only a tool with file grants learns its location.
        self.files.as_ref().map(|files| files.workspace().display().to_string())
    }
    fn agent_id(&mut self) -> Option<String> {
        self.identity(|id| id.agent_id.clone())
    }
    fn personality_id(&mut self) -> Option<String> {
        self.identity(|id| id.personality_id.clone())
    }
    fn team_id(&mut self) -> Option<String> {
        self.identity(|id| id.team_id.clone())
    }
    fn turn(&mut self) -> Option<u32> {
        self.identity(|id| id.turn)
    }
    fn message_count(&mut self) -> Option<u32> {
        self.identity(|id| id.message_count)
    }
    fn attribute(&mut self, name: String) -> Option<String> {
        if name == GRANTED {
            return self.granted_without_refusal();
        }
        self.identity(|id| match (id.attributes.get(&name), &id.traceparent) {
            (Some(value), _) => Some(value.to_string()),
            // Attributes are JSON, so the header value becomes a JSON string.
            (None, Some(parent)) if name == "traceparent" => Some(format!("\"{parent}\"")),
            (None, _) => None,
        })
    }
}
