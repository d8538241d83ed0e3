//! Instances that wait for another call, of plugins that declare it safe and for which the operator wants it
//! (`reuse = N`). Off by default: a fresh instance for each call is what keeps calls apart.
//!
//! What a guest remembers must not pass between those who call it. So an instance is given only to a call of the same
//! session, the same acting agent and the same tool under the same grants, in the same code; all of these are compared by
//! what they are in memory, and held weakly: when a session ends, a plugin is loaded again or the policy is another, nobody
//! can get the instance any more, and it goes. What waits holds nothing of the call before: neither its context nor a
//! handle of the host, which an instance that is kept must have given back.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use toolbay_core::call::CallContext;
use toolbay_core::session::Session;
use toolbay_policy::limits::HostLimits;
use toolbay_policy::name::PluginId;
use wasmtime::Store;
use wasmtime::component::Instance;

use crate::capability::Granted;
use crate::engine::state::GuestState;
use crate::plugins::code::Code;

/// Most instances of one plugin that wait at the same time: one plugin's batch is not to push out all others.
const OF_ONE_PLUGIN: usize = 4;

/// The acting agent, personality and team.
type Agent = [Option<String>; 3];

/// Whose an instance is.
pub(crate) struct Owner {
    plugin: PluginId,
    session: Weak<Session>,
    agent: Agent,
    /// A tool's, under a profile and a policy.
    granted: Weak<Granted>,
    code: Weak<Code>,
}

impl Owner {
    pub(crate) fn new(
        plugin: &PluginId,
        ctx: &CallContext,
        granted: &Arc<Granted>,
        code: &Arc<Code>,
    ) -> Self {
        let who = &ctx.turn.identity;
        Self {
            plugin: plugin.clone(),
            session: Arc::downgrade(&ctx.turn.session),
            agent: [who.agent_id.clone(), who.personality_id.clone(), who.team_id.clone()],
            granted: Arc::downgrade(granted),
            code: Arc::downgrade(code),
        }
    }

    fn is(&self, other: &Self) -> bool {
        self.session.ptr_eq(&other.session)
            && self.granted.ptr_eq(&other.granted)
            && self.code.ptr_eq(&other.code)
            && self.agent == other.agent
    }

    /// Whether no call can come that is this owner's.
    fn is_gone(&self) -> bool {
        self.session.strong_count() == 0 || self.granted.strong_count() == 0 || self.code.strong_count() == 0
    }
}

/// An instance that has answered calls.
pub(crate) struct Used {
    pub(crate) store: Store<GuestState>,
    pub(crate) guest: Instance,
    /// How many.
    pub(crate) calls: u32,
}

/// All that wait, of one host.
pub(crate) struct WarmInstances {
    most: usize,
    idle: Duration,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// In the order in which they began to wait.
    waiting: Vec<Waiting>,
    swept: bool,
}

struct Waiting {
    owner: Owner,
    used: Box<Used>,
    since: Instant,
}

impl WarmInstances {
    pub(crate) fn new(limits: &HostLimits) -> Arc<Self> {
        Arc::new(Self {
            most: usize::try_from(limits.idle_instances).unwrap_or(usize::MAX),
            idle: limits.instance_idle_timeout,
            inner: Mutex::default(),
        })
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.inner.lock().waiting.len()
    }

    /// The instance that its owner used last.
    pub(crate) fn take(&self, owner: &Owner) -> Option<Box<Used>> {
        let mut inner = self.inner.lock();
        let gone = inner.outdated(self.idle);
        let at = inner.waiting.iter().rposition(|one| one.owner.is(owner));
        let taken = at.map(|at| inner.waiting.remove(at).used);
        drop(inner);
        // Not before: to end an instance takes time.
        drop(gone);
        taken
    }

    /// Lets an instance wait; the one that waits longest goes if there are too many, of its plugin or of all.
    pub(crate) fn put(self: &Arc<Self>, owner: Owner, used: Box<Used>) {
        let mut inner = self.inner.lock();
        let mut gone = inner.outdated(self.idle);
        let of_plugin = |one: &Waiting| one.owner.plugin == owner.plugin;
        if inner.waiting.iter().filter(|one| of_plugin(one)).count() >= OF_ONE_PLUGIN
            && let Some(oldest) = inner.waiting.iter().position(of_plugin)
        {
            gone.push(inner.waiting.remove(oldest));
        }
        inner.waiting.push(Waiting { owner, used, since: Instant::now() });
        while inner.waiting.len() > self.most {
            gone.push(inner.waiting.remove(0));
        }
        let sweep = !inner.waiting.is_empty() && !std::mem::replace(&mut inner.swept, true);
        drop(inner);
        drop(gone);
        if sweep {
            // Ends when no instance waits for another call.
            tokio::spawn(sweep_until_empty(Arc::downgrade(self), self.idle));
        }
    }

    /// Ends the one that waits longest; returns whether there was one.
    pub(crate) fn end_oldest(&self) -> bool {
        let mut inner = self.inner.lock();
        let oldest = (!inner.waiting.is_empty()).then(|| inner.waiting.remove(0));
        drop(inner);
        oldest.is_some()
    }

    /// Ends those whose owner is gone, and those that have waited too long.
    pub(crate) fn sweep(&self) {
        let gone = self.inner.lock().outdated(self.idle);
        drop(gone);
    }
}

impl Inner {
    fn outdated(&mut self, idle: Duration) -> Vec<Waiting> {
        let now = Instant::now();
        let is_old =
            |one: &mut Waiting| one.owner.is_gone() || now.saturating_duration_since(one.since) >= idle;
        self.waiting.extract_if(.., is_old).collect()
    }
}

/// Looks at those that wait until none does, or the host is gone.
async fn sweep_until_empty(all: Weak<WarmInstances>, idle: Duration) {
    let pause = (idle / 4).clamp(Duration::from_millis(10), Duration::from_secs(10));
    loop {
        tokio::time::sleep(pause).await;
        let Some(all) = all.upgrade() else { return };
        all.sweep();
        let mut inner = all.inner.lock();
        if inner.waiting.is_empty() {
            inner.swept = false;
            return;
        }
    }
}
