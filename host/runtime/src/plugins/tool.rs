//! The port through which the pipeline runs a plugin's tool: one fresh instance, one call.

use std::sync::Arc;
use std::time::Instant;

use toolbay_core::call::fault::{Fault, FaultKind};
use toolbay_core::call::invoke::nested::{InvokeGrant, ToolCaller};
use toolbay_core::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use toolbay_core::call::{AdmittedCall, CallContext};
use toolbay_core::tool::content::ToolOutput;
use toolbay_policy::limits::{Limits, Usage};
use toolbay_policy::name::ToolName;
use wasmtime::Store;

use crate::capability::invoke::Caller;
use crate::capability::{CallTimes, Capabilities, GrantedUnder, Principal, invoke};
use crate::engine::Metering;
use crate::engine::admission::{FairPermit, Lent};
use crate::engine::bindings::types::ToolResult;
use crate::engine::breaker::Breaker;
use crate::engine::instance::Bounds;
use crate::engine::state::{GuestState, Seal};
use crate::engine::warm::{Owner, Used};
use crate::error::LoadError;
use crate::plugins::answer::{from_guest, size_of};
use crate::plugins::code::{Code, Contract, Tools};
use crate::plugins::foreign::Entry;
use crate::plugins::plugin::Plugin;
use crate::plugins::usual::UsualMemory;

/// One tool of a plugin with what it may use.
#[derive(Debug)]
pub(crate) struct PluginTool {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) name: ToolName,
    pub(crate) limits: Arc<Limits>,
    pub(crate) granted: GrantedUnder,
    pub(crate) config: Arc<std::collections::BTreeMap<String, String>>,
    pub(crate) breaker: Breaker,
    pub(crate) entry: Entry,
    /// How many calls an instance answers; 0 and 1: one.
    pub(crate) reuse: u32,
    /// What its calls take of the memory for guests.
    pub(crate) usual_memory: UsualMemory,
}

impl Invoke for PluginTool {
    fn invoke_grant(&self, profile: Option<&str>) -> Option<Arc<dyn InvokeGrant>> {
        let granted = self.granted.under(profile);
        if granted.grants.invoke.is_empty() {
            return None;
        }
        Some(Arc::new(invoke::Granted { plugin: self.plugin.id.clone(), all: Arc::clone(granted) }))
    }

    fn begins(&self) -> bool {
        true
    }

    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(self.invoked(call, ctx, None))
    }

    fn invoke_with<'a>(
        &'a self,
        call: &'a AdmittedCall,
        ctx: &'a Arc<CallContext>,
        caller: Arc<dyn ToolCaller>,
    ) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(self.invoked(call, ctx, Some(caller)))
    }
}

/// An instance that can be used again, if the answer is one.
struct Kept {
    owner: Owner,
    used: Box<Used>,
}

/// The place of a call while it runs.
enum Held {
    /// It keeps it.
    Kept { _place: FairPermit },
    /// It may lend it.
    Lent(Caller),
}

impl Held {
    fn of(place: FairPermit, caller: Option<Arc<dyn ToolCaller>>) -> Self {
        match caller {
            None => Self::Kept { _place: place },
            Some(caller) => Self::Lent(Caller { tools: caller, place: Arc::new(Lent::new(place)) }),
        }
    }

    fn caller(&self) -> Option<Caller> {
        match self {
            Self::Kept { .. } => None,
            Self::Lent(caller) => Some(caller.clone()),
        }
    }
}

impl PluginTool {
    async fn invoked(
        &self,
        call: &AdmittedCall,
        ctx: &Arc<CallContext>,
        caller: Option<Arc<dyn ToolCaller>>,
    ) -> ToolOutcome {
        let mut usage = Usage { args_bytes: call.args().len() as u64, ..Usage::default() };
        ctx.spend(|spent| spent.args_bytes = usage.args_bytes);
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
        // Before the place: nobody else is to wait while this plugin is mapped or compiled.
        let metering = Metering::of(&self.limits);
        let loaded = self.plugin.loaded(metering);
        let brought;
        let code = match &*loaded {
            Some(code) => code,
            None => {
                // In a box: that it happens once, each call is not to pay for in memory.
                brought = Box::pin(self.code(ctx, metering)).await?;
                &brought
            }
        };
        let Some(tools) = &code.tools else {
            return Err(Failure::Host(format!("plugin `{}` has lost its tools", self.plugin.id)));
        };
        let command_line = self.entry.command_line(call.parsed())?;
        // Before the place: whoever has one waits for nothing but it.
        let step = match &caller {
            Some(caller) => self.step(&**caller, ctx).await?,
            None => None,
        };
        let place = shared.admission.enter(&self.plugin.id, self.limits.concurrency, ctx.cancel()).await?;
        usage.queued_us = place.queued_us;
        ctx.spend(|spent| spent.queued_us = place.queued_us);
        let memory = self.usual_memory.reserve(&self.plugin.shared, &self.limits, ctx).await?;
        // After the place: it may have opened while the call waited.
        let pass = self.breaker.pass()?;
        // Nothing refuses it from here on: what was only queued has no start line.
        ctx.begin().map_err(|problem| Failure::unrecorded(&problem))?;
        let seal = Seal::Call { folders: code.folders, program: command_line.as_ref() };
        // Too deep, there is no way on.
        let place = Held::of(place, caller.filter(|_| step.is_some()));
        let mut state = self.state(ctx, seal, place.caller()).map_err(|e| Failure::Host(e.to_string()))?;
        state.limiter.hold(memory);
        let bounds = Bounds {
            engine: code.engine(),
            plugin: &self.plugin.id,
            limits: &self.limits,
            cancel: ctx.cancel(),
        };
        let name = self.name.as_str();
        let mut kept = None;
        let (result, used) = match tools {
            Tools::Contract(contract) if self.reuse > 1 => {
                let owner = self.owner(ctx, code);
                Box::pin(self.run_again(&bounds, contract, call, state, owner, &mut kept)).await
            }
            _ => bounds.enter(state, async |store| tools.call(store, &self.entry, name, call).await).await,
        };
        *usage = Usage { args_bytes: usage.args_bytes, queued_us: usage.queued_us, ..used };
        let answer = result.and_then(|answer| {
            usage.result_bytes = size_of(&answer);
            from_guest(answer).map_err(|problem| self.broken(&problem).into())
        });
        self.usual_memory.note(usage.peak_memory_bytes);
        match &answer {
            Ok(_) => pass.ended(None),
            Err(Failure::Fault(fault)) => pass.ended(Some(fault.kind)),
            // It says nothing of the tool.
            Err(Failure::Host(_) | Failure::Refused(_)) => drop(pass),
        }
        let keep = answer.is_ok() && !ctx.cancel().is_cancelled() && UsualMemory::leaves_room(shared);
        if let Some(Kept { owner, used }) = kept.filter(|_| keep) {
            shared.warm.put(owner, used);
        }
        // Not before: the next call in this place is to know what became of this one.
        drop((place, step));
        Ok(answer??)
    }

    fn owner(&self, ctx: &CallContext, code: &Arc<Code>) -> Owner {
        let granted = self.granted.under(ctx.profile.as_deref());
        Owner::new(&self.plugin.id, ctx, granted, code)
    }

    /// Runs the tool in an instance that the same owner used before, or else in a new one, which is kept if the call ends
    /// well, it has more to answer, and nothing of the call is left in it.
    async fn run_again(
        &self,
        bounds: &Bounds<'_>,
        contract: &Contract,
        call: &AdmittedCall,
        state: GuestState,
        owner: Owner,
        kept: &mut Option<Kept>,
    ) -> (Result<ToolResult, Failure>, Usage) {
        let (name, args) = (self.name.as_str(), call.args());
        let shared = &self.plugin.shared;
        let (mut store, guest, calls) = match shared.warm.take(&owner) {
            Some(used) => {
                let Used { mut store, guest, calls } = *used;
                let state = state.following(store.data_mut());
                *store.data_mut() = state;
                (store, Some(guest), calls)
            }
            None => (bounds.store(state), None, 0),
        };
        let run = async |store: &mut Store<GuestState>| {
            let guest = match guest {
                Some(guest) => guest,
                None => contract.instance(store).await?,
            };
            Ok((guest, contract.call_in(guest, store, name, args).await?))
        };
        let (ended, usage) = bounds.enter_store(&mut store, run).await;
        let ended = ended.map(|(guest, answer)| {
            let calls = calls + 1;
            if calls < self.reuse && store.data().can_rest() && self.rest(&mut store).is_ok() {
                *kept = Some(Kept { owner, used: Box::new(Used { store, guest, calls }) });
            }
            answer
        });
        (ended, usage)
    }

    /// Takes all of the call out of a store that is to wait for the next one.
    fn rest(&self, store: &mut Store<GuestState>) -> wasmtime::Result<()> {
        let nothing = Capabilities::sealed(self.plugin.id.clone(), Arc::clone(&self.limits));
        let mut state = GuestState::new(Seal::Sealed, &self.limits, nothing)?.following(store.data_mut());
        state.limiter.give_back();
        *store.data_mut() = state;
        // The callback holds the call's turn.
        store.epoch_deadline_trap();
        Ok(())
    }

    /// Waits to be one of those that call others. In a box, as what few calls do.
    fn step<'a>(
        &'a self,
        caller: &dyn ToolCaller,
        ctx: &'a CallContext,
    ) -> BoxFuture<'a, Result<Option<FairPermit>, Fault>> {
        let admission = &self.plugin.shared.admission;
        Box::pin(admission.caller(caller.depth(), &self.plugin.id, ctx.cancel()))
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
            let id = &self.plugin.id;
            match error {
                // It may name a setting of the policy.
                LoadError::Compile(_) => {
                    ctx.advise(format!("plugin `{id}` {error}"));
                    Failure::Host(format!("plugin `{id}` cannot be compiled"))
                }
                error => Failure::Host(format!("plugin `{id}` {error}")),
            }
        })
    }

    fn state(
        &self,
        ctx: &Arc<CallContext>,
        seal: Seal<'_>,
        caller: Option<Caller>,
    ) -> wasmtime::Result<GuestState> {
        let began = Instant::now();
        self.plugin.called(Metering::of(&self.limits), began);
        let session = ctx.turn.identity.session_id.as_deref();
        let granted = self.granted.under(ctx.profile.as_deref());
        let who = Principal {
            plugin: self.plugin.id.clone(),
            granted: Some(Arc::clone(granted)),
            limits: Arc::clone(&self.limits),
            ctx: Some(Arc::clone(ctx)),
        };
        let capabilities = Capabilities {
            times: Some(CallTimes { began, deadline: self.ends(ctx, began) }),
            files: (granted.files.as_ref())
                .map(|f| f.for_call(&self.plugin.shared.reads, session, &self.limits)),
            config: Arc::clone(&self.config),
            caller,
            ..Capabilities::of(who)
        };
        GuestState::new(seal, &self.limits, capabilities)
    }

    /// When a call ends at the latest: with the call in the middle of which it is made, if there is one.
    fn ends(&self, ctx: &CallContext, began: Instant) -> Instant {
        let own = began + self.limits.timeout;
        ctx.ends.map_or(own, |outer| outer.min(own))
    }

    fn broken(&self, problem: &str) -> Fault {
        Fault::new(FaultKind::BadOutput, format!("`{}` broke the contract: {problem}", self.plugin.id))
    }
}
