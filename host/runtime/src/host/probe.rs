//! One tiny call, which shows whether this process can run calls at all. It needs what every call needs: the compile
//! worker, a writable temporary folder, address space for a memory, and executable pages. It takes no run permit, so a
//! busy host does not fail the probe.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use serde_json::json;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use toolbay_capabilities::Capabilities;
use toolbay_capabilities::state::GuestState;
use toolbay_core::call::invoke::Failure;
use toolbay_policy::name::PluginId;
use toolbay_policy::quantity::show_bytes;
use toolbay_sandbox::engine::{AsyncSupport, EngineKind, Metering};
use toolbay_sandbox::instance::GuestEntry;

use crate::error::LoadError;
use crate::host::Host;
use crate::plugins::code::{Code, ToolExports};
use crate::plugins::plain_component::ExportPath;
use crate::plugins::run_blocking;

/// A component that exports the function `one`, which returns 1, and has a memory of one page.
const COMPONENT: &[u8] =
    b"\x00asm\x0d\x00\x01\x00\x01)\x00asm\x01\x00\x00\x00\x01\x05\x01`\x00\x01\x7f\x03\x02\x01\x00\x05\x03\x01\x00\x01\x07\x07\x01\x03one\x00\x00\x0a\x06\x01\x04\x00A\x01\x0b\x02\x04\x01\x00\x00\x00\x07\x05\x01@\x00\x00y\x06\x09\x01\x00\x00\x01\x00\x03one\x08\x06\x01\x00\x00\x00\x00\x00\x0b\x09\x01\x00\x03one\x01\x00\x00";

/// Upper bounds of the call.
const FUEL: u64 = 1_000_000;
const TIMEOUT: Duration = Duration::from_secs(5);

/// The compiled component of the last probe.
#[derive(Default)]
pub(crate) struct CallProbe(Mutex<Option<Arc<Code>>>);

impl Host {
    /// Runs one tiny call, which shows whether this process can run calls at all. The first one compiles; the next ones take
    /// less than a millisecond.
    ///
    /// # Errors
    /// The process lacks a resource. The error names it, and the limit that is the probable cause.
    pub async fn probe(&self) -> Result<(), String> {
        self.run_probe().await.map_err(|problem| match probable_cause() {
            Some(cause) => format!("{problem}; {cause}"),
            None => problem,
        })
    }

    async fn run_probe(&self) -> Result<(), String> {
        let id = PluginId::new("toolbay-probe").map_err(|error| error.to_string())?;
        let mut limits = self.installed.services().policy.limits(&id, None);
        limits.cap_fuel_and_timeout(FUEL, TIMEOUT);
        let limits = Arc::new(limits);
        let mut compiled = self.probe.0.lock().await;
        let code = match &*compiled {
            Some(code) => Arc::clone(code),
            None => {
                let code = self.compile_probe(Metering::from_limits(&limits)).await;
                Arc::clone(compiled.insert(code.map_err(|error| describe_load_error(&error))?))
            }
        };
        drop(compiled);
        let state = GuestState::new(Capabilities::sealed(id.clone(), Arc::clone(&limits)));
        let cancel = CancellationToken::new();
        let entry = GuestEntry { engine: code.engine(), plugin: &id, limits: &limits, cancel: &cancel };
        let called = entry.run(state, async |store| match &code.tools {
            Some(ToolExports::Plain(plain)) => {
                plain.call(store, &ExportPath::top_level("one"), &json!({})).await
            }
            Some(ToolExports::Contract(_)) | None => Err(wasmtime::format_err!("it exports no function")),
        });
        match called.await.0 {
            Err(Failure::Host(problem)) => Err(format!("a guest cannot run: {problem}")),
            // On a busy host it may wait until its deadline.
            Ok(_) | Err(Failure::Fault(_) | Failure::Refused(_)) => Ok(()),
        }
    }

    async fn compile_probe(&self, metering: Metering) -> Result<Arc<Code>, LoadError> {
        let shared = &self.installed.shared;
        let linked = Arc::clone(shared.engine(EngineKind { metering, async_support: AsyncSupport::Off })?);
        let compiled =
            shared.compiler.compile(&linked.engine, linked.cache.as_ref(), COMPONENT.to_vec()).await?;
        run_blocking(move || Ok(Arc::new(Code::link(&linked, &compiled.component)?))).await
    }
}

fn describe_load_error(error: &LoadError) -> String {
    match error {
        LoadError::Host(problem) => format!("a component cannot be loaded: {problem}"),
        // These begin with a verb.
        of_component => format!("a component {of_component}"),
    }
}

/// The limit of this process that probably keeps guests from running.
fn probable_cause() -> Option<String> {
    let limited = |resource, unit: fn(u64) -> String| getrlimit(resource).current.map(unit);
    // Below this, wasmtime cannot reserve the memories of a few guests.
    if let Some(max) = getrlimit(Resource::As).current {
        return Some(format!(
            "the address space of this process is limited to {} (`ulimit -v`, `LimitAS`): remove the limit, and bound its \
             memory with `guest_memory` of [host] or a control group",
            show_bytes(max)
        ));
    }
    if let Some(max) = limited(Resource::Fsize, show_bytes) {
        return Some(format!("this process may write files of {max} only (`ulimit -f`, `LimitFSIZE`)"));
    }
    None
}
