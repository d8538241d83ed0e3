//! The capabilities of guests. Each one is a folder, whose `mod.rs` has the type that implements [`Capability`]. The
//! table below lists all of them; no other code does.

use std::fmt::Debug;

use toolbay_policy::GrantKey;
use toolbay_policy::limits::CallLimits;
use toolbay_sandbox::engine::AsyncSupport;
use wasmtime::component::Linker;
use wasmtime_wasi::WasiCtxBuilder;

use crate::state::GuestState;
use crate::{CallTimes, Grantee};

/// Something that a guest can reach, through one or several interfaces.
pub trait Capability {
    /// The keys of the policy that grant it. The audit counts its uses under them.
    const KEYS: &'static [GrantKey];

    /// Its state in one guest entry, such as quotas and counters.
    type State: Debug;

    /// The state when an entry with these limits begins.
    fn begin(limits: &CallLimits) -> Self::State;

    /// Links every interface through which guests reach it: those of the contract, and those of each generation of WASI.
    fn link(linker: &mut Linker<GuestState>, async_support: AsyncSupport) -> wasmtime::Result<()>;

    /// Adds what the entry was granted to its WASI context.
    fn configure(_wasi: &mut WasiCtxBuilder, _of: &Capabilities) {}

    /// Ends the state of an entry, also of one that was abandoned.
    fn end(_state: &Self::State, _of: &Grantee) {}
}

/// Generates [`Capabilities`] and the functions over all capabilities from the table.
macro_rules! capabilities {
    ($($(#[$doc:meta])* $vis:vis $state:ident: $Capability:ty,)*) => {
        /// The grants of one guest entry, and its state of each capability.
        #[derive(Debug)]
        pub struct Capabilities {
            pub(crate) grantee: Grantee,
            /// The start and the deadline of the running call; `None` for sealed entries.
            pub times: Option<CallTimes>,
            $($(#[$doc])* $vis $state: <$Capability as Capability>::State,)*
        }

        impl Capabilities {
            /// Creates an entry with unused quotas, without files, settings and access to other tools.
            #[must_use]
            pub fn new(grantee: Grantee) -> Self {
                let limits = std::sync::Arc::clone(&grantee.limits);
                Self { grantee, times: None, $($state: <$Capability>::begin(&limits),)* }
            }

            /// Adds what the entry was granted to its WASI context.
            pub(crate) fn configure(&self, wasi: &mut WasiCtxBuilder) {
                $(<$Capability>::configure(wasi, self);)*
            }

            /// Ends the state of each capability.
            pub(crate) fn end(&self) {
                $(<$Capability>::end(&self.$state, &self.grantee);)*
            }
        }

        /// Links every interface of every capability.
        pub(crate) fn link_each(
            linker: &mut Linker<GuestState>,
            async_support: AsyncSupport,
        ) -> wasmtime::Result<()> {
            $(<$Capability>::link(linker, async_support)?;)*
            Ok(())
        }

        #[cfg(test)]
        const KEYS: &[&[GrantKey]] = &[$(<$Capability as Capability>::KEYS),*];
    };
}

capabilities! {
    /// The attachments that the call created.
    pub(crate) attachment_usage: crate::attachments::Attachments,
    /// The operator's settings for the plugin.
    pub config: crate::config::Config,
    /// The quota of progress events.
    pub(crate) progress: crate::context::Context,
    pub(crate) environment: crate::environment::WasiEnvironment,
    /// The file grants; `None` without any.
    pub files: crate::files::Files,
    /// The network use so far.
    pub(crate) network_usage: crate::http::Network,
    /// Access to other tools, if the tool was granted any.
    pub nested_calls: crate::invoke::ToolInvoke,
    pub(crate) kv: crate::kv::Kv,
    /// The quota of log lines.
    pub(crate) log: crate::log::Log,
    /// How many programs the call has started.
    pub(crate) programs_started: crate::process::Process,
    /// The secret placeholders that the guest received.
    pub(crate) placeholders: crate::secrets::Secrets,
}

#[cfg(test)]
mod tests {
    use toolbay_sandbox::engine::{Engine, EngineKind, Metering};

    use super::*;

    #[test]
    fn every_interface_is_linked_once_in_each_kind_of_engine() {
        for async_support in [AsyncSupport::Off, AsyncSupport::On] {
            let engine =
                Engine::for_compiling(EngineKind { metering: Metering::Fuel, async_support }).unwrap();
            let mut linker = Linker::new(&engine.wasmtime);
            crate::link_all(&mut linker, async_support).unwrap();
            assert!(crate::link_all(&mut linker, async_support).is_err(), "an interface is linked once");
        }
    }

    #[test]
    fn each_key_of_the_policy_grants_one_capability() {
        for key in GrantKey::ALL {
            let capabilities = KEYS.iter().filter(|keys| keys.contains(key)).count();
            assert_eq!(capabilities, 1, "{}", key.name());
        }
    }
}
