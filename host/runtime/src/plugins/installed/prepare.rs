//! Joins plugins with their grants, for a plan that needs them.
//!
//! This blocks on folders, consents and the availability checks of guests, which need the threads of the runtime. So no lock
//! may be held meanwhile: a thread of the runtime that waits for the lock (`Host::unload` is synchronous) would never run
//! the check. A plan under the lock takes what is prepared and names what is missing ([`super::plan`]).

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};
use tokio::runtime::Handle;
use toolbay_capabilities::Services;
use toolbay_policy::consent::AskingVersion;
use toolbay_policy::name::PluginId;

use crate::error::LoadError;
use crate::plugins::consent_gate::{AskingPlugin, HeldVersion};
use crate::plugins::loader::{DefinedPlugin, Loader};
use crate::plugins::plugin::Plugin;
use crate::plugins::state::{ActivePlugin, PreparedPlugin};

/// Maximum number of plugins whose availability is checked at the same time.
const MAX_CONCURRENT_PLUGINS: usize = 8;

/// A plugin that a plan needs.
#[derive(Debug, Clone)]
pub(super) struct MissingPlugin {
    pub(super) plugin: Arc<Plugin>,
    pub(super) version: AskingVersion,
}

/// A plugin with its grants, or the reason why it cannot have them.
pub(super) type Preparation = Result<Arc<PreparedPlugin>, Arc<LoadError>>;

/// The plugins that were prepared for one plan.
#[derive(Default)]
pub(super) struct Preparations(HashMap<PluginId, Vec<Prepared>>);

struct Prepared {
    plugin: Arc<Plugin>,
    version: AskingVersion,
    /// The services, and so the policy, under which it was prepared.
    services: Arc<Services>,
    result: Preparation,
}

impl Preparations {
    /// What was prepared for a plugin under these services.
    pub(super) fn get(
        &self,
        plugin: &Arc<Plugin>,
        version: AskingVersion,
        services: &Arc<Services>,
    ) -> Option<&Preparation> {
        let is_it = |one: &&Prepared| {
            Arc::ptr_eq(&one.plugin, plugin) && one.version == version && Arc::ptr_eq(&one.services, services)
        };
        self.0.get(&plugin.id)?.iter().find(is_it).map(|one| &one.result)
    }

    /// Prepares plugins, with one read of the consents for all. The checks of their tools run on `runtime`; without
    /// one, the registry runs them later. Blocks.
    pub(super) fn add(&mut self, missing: Vec<MissingPlugin>, loader: &Loader, runtime: Option<&Handle>) {
        let defined: Vec<_> = missing.iter().map(|one| loader.define(&one.plugin)).collect();
        let asking = missing.iter().zip(&defined).filter_map(|(one, defined)| {
            let tools = &defined.as_ref().ok()?.names;
            Some(AskingPlugin { plugin: &one.plugin, version: one.version, tools })
        });
        let asking: Vec<_> = asking.collect();
        let mut held = loader.consent_gate.admit(&loader.services.policy, &asking).into_iter();
        drop(asking);
        let join = |defined: Result<DefinedPlugin<'_>, LoadError>| {
            defined.map(|defined| join(loader, defined, held.next().flatten()))
        };
        let mut joined: Vec<_> = defined.into_iter().map(join).collect();
        if let Some(runtime) = runtime {
            check_availability(&mut joined, runtime);
        }
        for (MissingPlugin { plugin, version }, result) in missing.into_iter().zip(joined) {
            let (services, result) = (Arc::clone(&loader.services), result.map(Arc::new).map_err(Arc::new));
            let of_plugin = self.0.entry(plugin.id.clone()).or_default();
            of_plugin.push(Prepared { plugin, version, services, result });
        }
    }
}

fn join(loader: &Loader, defined: DefinedPlugin<'_>, held: Option<HeldVersion>) -> PreparedPlugin {
    let plugin = Arc::clone(defined.plugin);
    let agreed = held.as_ref().and_then(|held| loader.older_version(&plugin, held.agreed_digest.as_ref()?));
    let mut warnings = Vec::new();
    let refusal = held.map(|held| held.refusal);
    let (bundle, held) = loader.bundle(defined, refusal, |warning| warnings.push(warning));
    let services = Arc::clone(&loader.services);
    PreparedPlugin { active: Arc::new(ActivePlugin { plugin, services, held, warnings }), bundle, agreed }
}

/// Runs the checks of the tools, so that the first listing is correct.
fn check_availability(joined: &mut [Result<PreparedPlugin, LoadError>], runtime: &Handle) {
    let bundles = joined.iter_mut().filter_map(|one| one.as_mut().ok()).map(|one| &mut one.bundle);
    let mut checked =
        bundles.filter(|bundle| bundle.tools.iter().any(|tool| tool.availability.check.is_some())).peekable();
    if checked.peek().is_some() {
        let check = |bundle| toolbay_core::registry::Bundle::check_availability(bundle);
        runtime.block_on(stream::iter(checked).for_each_concurrent(MAX_CONCURRENT_PLUGINS, check));
    }
}
