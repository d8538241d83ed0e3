//! Idle instances: instances kept for another call, of plugins that declare reuse safe and for which the operator sets
//! `reuse = N`. Off by default, because a fresh instance for each call isolates the calls.
//!
//! Guest state must not leak between callers. An instance is reused only by a call with the same session, agent, tool,
//! grants and code. Session, grants and code are compared by address and held weakly: after a session ends, a plugin is
//! reloaded or the policy changes, no call matches the instance and it is dropped. An idle instance holds neither the
//! context of the previous call nor host handles.

use std::any::Any;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use toolbay_core::call::CallContext;
use toolbay_core::session::Session;
use toolbay_policy::limits::HostLimits;
use toolbay_policy::name::PluginId;
use wasmtime::Store;
use wasmtime::component::Instance;

/// Maximum number of idle instances of one plugin, so that one plugin's batch does not evict all others.
const MAX_PER_PLUGIN: usize = 4;

/// The ids of the agent, the personality and the team.
type AgentKey = [Option<String>; 3];

/// What is compared by address.
type Identity = Weak<dyn Any + Send + Sync>;

/// Identifies the calls that may reuse an instance.
pub struct InstanceKey {
    plugin: PluginId,
    session: Weak<Session>,
    agent: AgentKey,
    /// The grants of one tool under one policy. Profiles that grant the same share them.
    grants: Identity,
    profile: Option<Arc<str>>,
    code: Identity,
}

impl InstanceKey {
    /// The key of a call with these grants and this code.
    pub fn new<G: Send + Sync + 'static, C: Send + Sync + 'static>(
        plugin: &PluginId,
        ctx: &CallContext,
        grants: &Arc<G>,
        code: &Arc<C>,
    ) -> Self {
        let who = &ctx.turn.identity;
        Self {
            plugin: plugin.clone(),
            session: Arc::downgrade(&ctx.turn.session),
            agent: [who.agent_id.clone(), who.personality_id.clone(), who.team_id.clone()],
            grants: Arc::downgrade(grants) as Identity,
            profile: ctx.profile.clone(),
            code: Arc::downgrade(code) as Identity,
        }
    }

    fn matches(&self, other: &Self) -> bool {
        self.session.ptr_eq(&other.session)
            && self.grants.ptr_eq(&other.grants)
            && self.profile == other.profile
            && self.code.ptr_eq(&other.code)
            && self.agent == other.agent
    }

    /// Whether no future call can match this key.
    fn is_expired(&self) -> bool {
        self.session.strong_count() == 0 || self.grants.strong_count() == 0 || self.code.strong_count() == 0
    }
}

/// An instance that has run at least one call.
pub struct UsedInstance<D: 'static> {
    /// The store of the instance.
    pub store: Store<D>,
    /// The instance.
    pub guest: Instance,
    /// The number of calls that the instance has run.
    pub calls: u32,
}

/// The idle instances of one host.
pub struct IdleInstances<D: 'static> {
    capacity: usize,
    idle_timeout: Duration,
    queue: Mutex<IdleQueue<D>>,
}

struct IdleQueue<D: 'static> {
    /// Longest idle first.
    idle: Vec<IdleInstance<D>>,
    sweeper_runs: bool,
}

struct IdleInstance<D: 'static> {
    key: InstanceKey,
    instance: Box<UsedInstance<D>>,
    idle_since: Instant,
}

impl<D: Send + 'static> IdleInstances<D> {
    /// Keeps as many instances as these limits allow.
    #[must_use]
    pub fn new(limits: &HostLimits) -> Arc<Self> {
        Arc::new(Self {
            capacity: usize::try_from(limits.idle_instances).unwrap_or(usize::MAX),
            idle_timeout: limits.instance_idle_timeout,
            queue: Mutex::new(IdleQueue { idle: Vec::new(), sweeper_runs: false }),
        })
    }

    /// The number of idle instances.
    pub fn count(&self) -> usize {
        self.queue.lock().idle.len()
    }

    /// Takes the most recently used instance that matches the key.
    pub fn take(&self, key: &InstanceKey) -> Option<Box<UsedInstance<D>>> {
        let mut inner = self.queue.lock();
        let expired = inner.remove_expired(self.idle_timeout);
        let at = inner.idle.iter().rposition(|one| one.key.matches(key));
        let taken = at.map(|at| inner.idle.remove(at).instance);
        drop(inner);
        // Dropped without the lock: dropping an instance takes time.
        drop(expired);
        taken
    }

    /// Adds an instance. When the plugin or the host has too many, drops the one that has been idle longest.
    pub fn put(self: &Arc<Self>, key: InstanceKey, used: Box<UsedInstance<D>>) {
        let mut inner = self.queue.lock();
        let mut removed = inner.remove_expired(self.idle_timeout);
        let of_plugin = |one: &IdleInstance<D>| one.key.plugin == key.plugin;
        if inner.idle.iter().filter(|one| of_plugin(one)).count() >= MAX_PER_PLUGIN
            && let Some(oldest) = inner.idle.iter().position(of_plugin)
        {
            removed.push(inner.idle.remove(oldest));
        }
        inner.idle.push(IdleInstance { key, instance: used, idle_since: Instant::now() });
        while inner.idle.len() > self.capacity {
            removed.push(inner.idle.remove(0));
        }
        let sweep = !inner.idle.is_empty() && !std::mem::replace(&mut inner.sweeper_runs, true);
        drop(inner);
        drop(removed);
        if sweep {
            // The task ends when no instance is idle or the host is dropped.
            tokio::spawn(sweep_until_empty(Arc::downgrade(self), self.idle_timeout));
        }
    }

    /// Drops the instance that has been idle longest. Returns `false` if there is none.
    pub fn drop_oldest(&self) -> bool {
        let mut inner = self.queue.lock();
        let oldest = (!inner.idle.is_empty()).then(|| inner.idle.remove(0));
        drop(inner);
        oldest.is_some()
    }

    /// Drops instances whose key has expired or that have been idle too long.
    pub fn drop_expired(&self) {
        let expired = self.queue.lock().remove_expired(self.idle_timeout);
        drop(expired);
    }
}

impl<D: 'static> IdleQueue<D> {
    fn remove_expired(&mut self, idle: Duration) -> Vec<IdleInstance<D>> {
        let now = Instant::now();
        let is_old = |one: &mut IdleInstance<D>| {
            one.key.is_expired() || now.saturating_duration_since(one.idle_since) >= idle
        };
        self.idle.extract_if(.., is_old).collect()
    }
}

/// Drops expired instances periodically, until none is idle or the host is dropped.
async fn sweep_until_empty<D: Send + 'static>(all: Weak<IdleInstances<D>>, idle: Duration) {
    let pause = (idle / 4).clamp(Duration::from_millis(10), Duration::from_secs(10));
    loop {
        tokio::time::sleep(pause).await;
        let Some(all) = all.upgrade() else { return };
        all.drop_expired();
        let mut inner = all.queue.lock();
        if inner.idle.is_empty() {
            inner.sweeper_runs = false;
            return;
        }
    }
}
