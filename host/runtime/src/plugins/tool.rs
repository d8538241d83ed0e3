//! Runs the tool of a plugin: one fresh instance per call, unless the instance is reusable.

use std::sync::Arc;
use std::time::Instant;

use toolbay_capabilities::bindings::types::ToolResult;
use toolbay_capabilities::invoke::NestedCallAccess;
use toolbay_capabilities::state::GuestState;
use toolbay_capabilities::{CallTimes, Capabilities, Grantee, GrantsByProfile, invoke};
use toolbay_core::call::invoke::nested::{InvokeGrant, ToolCaller};
use toolbay_core::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use toolbay_core::call::{AdmittedCall, CallContext};
use toolbay_core::tool::content::ToolOutput;
use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_policy::limits::{CallLimits, Usage};
use toolbay_policy::name::ToolName;
use toolbay_sandbox::admission::{FairPermit, LentPermit};
use toolbay_sandbox::circuit_breaker::CircuitBreaker;
use toolbay_sandbox::compile::CompileError;
use toolbay_sandbox::engine::{AsyncSupport, Metering};
use toolbay_sandbox::idle_instances::{InstanceKey, UsedInstance};
use toolbay_sandbox::instance::GuestEntry;
use wasmtime::Store;

use crate::error::LoadError;
use crate::plugins::code::{Code, ContractTools, ToolExports};
use crate::plugins::memory_estimate::MemoryEstimate;
use crate::plugins::plain_component::ToolEntryPoint;
use crate::plugins::plugin::Plugin;
use crate::plugins::tool_result::{from_guest, size_of};

/// A tool of a plugin, with its grants and limits.
#[derive(Debug)]
pub(crate) struct PluginTool {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) name: ToolName,
    pub(crate) limits: Arc<CallLimits>,
    pub(crate) granted: GrantsByProfile,
    pub(crate) config: Arc<std::collections::BTreeMap<String, String>>,
    pub(crate) breaker: CircuitBreaker,
    pub(crate) entry: ToolEntryPoint,
    /// How many calls one instance may run. With 0 or 1, each call gets a fresh instance.
    pub(crate) reuse: u32,
    /// The estimate for the memory of its calls.
    pub(crate) memory_estimate: MemoryEstimate,
}

impl Invoke for PluginTool {
    fn invoke_grant(&self, profile: Option<&str>) -> Option<Arc<dyn InvokeGrant>> {
        let granted = self.granted.for_profile(profile);
        if granted.grants.invoke.is_empty() {
            return None;
        }
        Some(Arc::new(invoke::ToolInvokeGrant {
            plugin: self.plugin.id.clone(),
            grants: Arc::clone(granted),
            profile: profile.map(Arc::from),
        }))
    }

    fn calls_begin(&self) -> bool {
        true
    }

    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(self.invoke_tool(call, ctx, None))
    }

    fn invoke_with<'a>(
        &'a self,
        call: &'a AdmittedCall,
        ctx: &'a Arc<CallContext>,
        caller: Arc<dyn ToolCaller>,
    ) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(self.invoke_tool(call, ctx, Some(caller)))
    }
}

/// An instance to keep if the call succeeds.
struct ReusableInstance {
    key: InstanceKey,
    instance: Box<UsedInstance<GuestState>>,
}

impl PluginTool {
    async fn invoke_tool(
        &self,
        call: &AdmittedCall,
        ctx: &Arc<CallContext>,
        caller: Option<Arc<dyn ToolCaller>>,
    ) -> ToolOutcome {
        let mut usage = Usage { args_bytes: call.args().len() as u64, ..Usage::default() };
        ctx.update_usage(|spent| spent.args_bytes = usage.args_bytes);
        let result = self.run(call, ctx, caller, &mut usage).await;
        ToolOutcome { result, usage }
    }

    async fn run(
        &self,
        call: &AdmittedCall,
        ctx: &Arc<CallContext>,
        caller: Option<Arc<dyn ToolCaller>>,
        usage: &mut Usage,
    ) -> Result<ToolOutput, Failure> {
        let shared = &self.plugin.shared;
        self.breaker.check()?;
        // Before the run permit: other calls must not wait while this plugin is mapped or compiled.
        let metering = Metering::from_limits(&self.limits);
        let loaded = self.plugin.loaded_code(metering);
        let fetched;
        let code = match &*loaded {
            Some(code) => code,
            None => {
                // Boxed to keep the common future small: this happens once.
                fetched = Box::pin(self.code(ctx, metering)).await?;
                &fetched
            }
        };
        let Some(tools) = &code.tools else {
            return Err(Failure::Host(format!("plugin `{}` no longer exports its tools", self.plugin.id)));
        };
        let command_line = self.entry.command_line(call.parsed())?;
        // Before the run permit: a call that holds one waits for no other permit.
        let caller_permit = match &caller {
            Some(caller) => self.acquire_caller(&**caller, ctx).await?,
            None => None,
        };
        let permit =
            shared.concurrency.acquire(&self.plugin.id, self.limits.concurrency, ctx.cancel()).await?;
        usage.queued_us = permit.queued_us;
        ctx.update_usage(|spent| spent.queued_us = permit.queued_us);
        let memory = self.memory_estimate.reserve(&self.plugin.shared, &self.limits, ctx).await?;
        // After the run permit: the breaker may have opened while the call waited.
        let breaker_permit = self.breaker.try_acquire()?;
        // The call is certain to run from here on. A call that was only queued gets no start line in the audit.
        ctx.begin().map_err(|problem| Failure::from_audit_error(&problem))?;
        // Without a caller permit, the call is nested too deeply to make calls. One that can make calls lends its permit.
        let (permit, nested) = match caller.filter(|_| caller_permit.is_some()) {
            None => (Some(permit), None),
            Some(tools) => {
                (None, Some(NestedCallAccess { tools, permit: Arc::new(LentPermit::new(permit)) }))
            }
        };
        let mut state = GuestState::new(self.capabilities(ctx, nested.clone()));
        if let Some(line) = &command_line {
            state.prepare_program(line);
        }
        state.limiter.set_reservation(memory);
        let entry = GuestEntry {
            engine: code.engine(),
            plugin: &self.plugin.id,
            limits: &self.limits,
            cancel: ctx.cancel(),
        };
        let name = self.name.as_str();
        let mut kept = None;
        let (result, used) = match tools {
            // Tasks of an asynchronous component may outlive its answer.
            ToolExports::Contract(contract)
                if self.reuse > 1 && code.engine().kind.async_support == AsyncSupport::Off =>
            {
                let key = self.instance_key(ctx, code);
                Box::pin(self.run_reusable(&entry, contract, call, state, key, &mut kept)).await
            }
            _ => entry.run(state, async |store| tools.call(store, &self.entry, name, call).await).await,
        };
        *usage = Usage { args_bytes: usage.args_bytes, queued_us: usage.queued_us, ..used };
        let answer = result.and_then(|answer| {
            usage.result_bytes = size_of(&answer);
            from_guest(answer).map_err(|problem| self.contract_fault(&problem).into())
        });
        self.memory_estimate.record(usage.peak_memory_bytes);
        match &answer {
            Ok(_) => breaker_permit.record(None),
            Err(Failure::Fault(fault)) => breaker_permit.record(Some(fault.kind)),
            // A failure of the host says nothing about the tool.
            Err(Failure::Host(_) | Failure::Refused(_)) => drop(breaker_permit),
        }
        let keep = answer.is_ok() && !ctx.cancel().is_cancelled() && MemoryEstimate::leaves_room(shared);
        if let Some(ReusableInstance { key, instance }) = kept.filter(|_| keep) {
            shared.idle_instances.put(key, instance);
        }
        // Dropped last: the next call must see the result of this one.
        drop((permit, nested, caller_permit));
        Ok(answer??)
    }

    fn instance_key(&self, ctx: &CallContext, code: &Arc<Code>) -> InstanceKey {
        let granted = self.granted.for_profile(ctx.profile.as_deref());
        InstanceKey::new(&self.plugin.id, ctx, granted, code)
    }

    /// Runs the tool in an idle instance with the same key, or else in a new one. The instance is kept if the call
    /// succeeds, may run more calls, and holds no host handles.
    async fn run_reusable(
        &self,
        entry: &GuestEntry<'_>,
        contract: &ContractTools,
        call: &AdmittedCall,
        state: GuestState,
        key: InstanceKey,
        kept: &mut Option<ReusableInstance>,
    ) -> (Result<ToolResult, Failure>, Usage) {
        let (name, args) = (self.name.as_str(), call.args());
        let shared = &self.plugin.shared;
        let (mut store, guest, calls) = match shared.idle_instances.take(&key) {
            Some(used) => {
                let UsedInstance { mut store, guest, calls } = *used;
                let state = state.with_memory_of(store.data_mut());
                *store.data_mut() = state;
                (store, Some(guest), calls)
            }
            None => (entry.store(state), None, 0),
        };
        let run = async |store: &mut Store<GuestState>| {
            let guest = match guest {
                Some(guest) => guest,
                None => contract.instantiate(store).await?,
            };
            Ok((guest, contract.call_in(guest, store, name, args).await?))
        };
        let (ended, usage) = entry.run_in(&mut store, run).await;
        let ended = ended.map(|(guest, answer)| {
            let calls = calls + 1;
            if calls < self.reuse && store.data().is_reusable() {
                self.make_idle(&mut store);
                *kept =
                    Some(ReusableInstance { key, instance: Box::new(UsedInstance { store, guest, calls }) });
            }
            answer
        });
        (ended, usage)
    }

    /// Removes all state of the call from a store that becomes idle.
    fn make_idle(&self, store: &mut Store<GuestState>) {
        let nothing = Capabilities::sealed(self.plugin.id.clone(), Arc::clone(&self.limits));
        let mut state = GuestState::new(nothing).with_memory_of(store.data_mut());
        state.limiter.release_unused();
        *store.data_mut() = state;
        // The callback holds the call's CPU permit.
        store.epoch_deadline_trap();
    }

    /// Waits for the permit to make nested calls. Boxed because few calls do.
    fn acquire_caller<'a>(
        &'a self,
        caller: &dyn ToolCaller,
        ctx: &'a CallContext,
    ) -> BoxFuture<'a, Result<Option<FairPermit>, Fault>> {
        let admission = &self.plugin.shared.concurrency;
        Box::pin(admission.acquire_caller(caller.depth(), &self.plugin.id, ctx.cancel()))
    }

    /// Maps or compiles the plugin's code.
    async fn code(&self, ctx: &CallContext, metering: Metering) -> Result<Arc<Code>, Failure> {
        let code = tokio::select! {
            biased;
            () = ctx.cancel().cancelled() => {
                return Err(Fault::new(FaultKind::Cancelled, "the call was cancelled before it ran").into());
            }
            code = self.plugin.code(metering) => code,
        };
        code.map_err(|error| {
            // The error may name a setting of the policy or quote the compiler, which is for the operator.
            let id = &self.plugin.id;
            ctx.add_hint(format!("plugin `{id}` {error}"));
            Failure::Host(match error {
                LoadError::Compile(CompileError::Failed(_)) => format!("plugin `{id}` cannot be compiled"),
                _ => format!("plugin `{id}` cannot be loaded"),
            })
        })
    }

    /// The capabilities of a call that begins now.
    fn capabilities(&self, ctx: &Arc<CallContext>, nested_calls: Option<NestedCallAccess>) -> Capabilities {
        let began = Instant::now();
        self.plugin.mark_used(Metering::from_limits(&self.limits), began);
        let session = ctx.turn.session.id();
        let granted = self.granted.for_profile(ctx.profile.as_deref());
        let who = Grantee {
            plugin: self.plugin.id.clone(),
            granted: Some(Arc::clone(granted)),
            limits: Arc::clone(&self.limits),
            ctx: Some(Arc::clone(ctx)),
            hint: None,
        };
        let files = granted.files.as_ref();
        let mut capabilities = Capabilities::new(who);
        capabilities.times = Some(CallTimes { began, deadline: self.deadline(ctx, began) });
        capabilities.files = files.map(|f| f.for_call(&self.plugin.shared.reads, session, &self.limits));
        capabilities.config = Arc::clone(&self.config);
        capabilities.nested_calls = nested_calls;
        capabilities
    }

    /// The deadline of a call, at most that of the call it is nested in.
    fn deadline(&self, ctx: &CallContext, began: Instant) -> Instant {
        let own = began + self.limits.timeout;
        ctx.deadline.map_or(own, |outer| outer.min(own))
    }

    fn contract_fault(&self, problem: &str) -> Fault {
        Fault::new(FaultKind::BadOutput, format!("`{}` broke the contract: {problem}", self.plugin.id))
    }
}
