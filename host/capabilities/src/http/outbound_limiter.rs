//! Permits for outbound connections. The host has a fixed number of them, and each user at most a share, so that the
//! slow requests of one plugin leave room for all others.
//!
//! One in [`RESERVED_ONE_IN`] of the host's permits is reserved for the first connection of a user: a user without a
//! connection gets a permit at once, even when other users hold all they can. Every further connection takes one of
//! the remaining permits.
//!
//! A request acquires its permits in this order: one of its user, one of the additional permits unless it is the
//! user's first, and one of the host. A user therefore never waits in the host's queue more often than its share is
//! large.

use std::collections::HashMap;
use std::future::ready;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use toolbay_policy::limits::HostLimits;

use super::call_network::NetError;
use super::connect::{ConnectionPool, ConnectionUser};

/// One in this many of the host's permits is reserved for first connections.
const RESERVED_ONE_IN: u32 = 4;

/// Limits the outbound connections of one host.
#[derive(Debug)]
pub(super) struct OutboundLimiter {
    all: Arc<Semaphore>,
    /// The permits for connections after a user's first.
    additional: Arc<Semaphore>,
    max_connections: u32,
    /// The share of one user.
    per_user: u32,
    /// The users that hold a permit or wait for one.
    users: Mutex<HashMap<ConnectionUser, Weak<UserPermits>>>,
    /// Maximum wait of a request for a permit.
    queue_timeout: Duration,
}

/// The permits of one user.
#[derive(Debug)]
struct UserPermits {
    first: Arc<Semaphore>,
    more: Arc<Semaphore>,
    /// The host's permits for all connections but the first.
    additional: Arc<Semaphore>,
}

/// A permit for one connection. Dropping it releases it.
#[derive(Debug)]
pub(super) struct OutboundPermit {
    user: UserPermit,
    host_permit: OwnedSemaphorePermit,
}

/// A permit of a user's share.
#[derive(Debug)]
struct UserPermit {
    permits: Arc<UserPermits>,
    _permit: OwnedSemaphorePermit,
    /// Held by every connection but the first.
    _additional: Option<OwnedSemaphorePermit>,
}

impl OutboundPermit {
    /// Whether a request may be waiting for this permit.
    pub(super) fn may_have_waiters(&self) -> bool {
        let taken = |permits: &Semaphore| permits.available_permits() == 0;
        let UserPermits { first, more, additional: rest } = &*self.user.permits;
        taken(self.host_permit.semaphore()) || taken(rest) || (taken(first) && taken(more))
    }
}

impl OutboundLimiter {
    pub(super) fn new(limits: &HostLimits) -> Self {
        let max = limits.http_connections;
        Self {
            all: semaphore(max),
            additional: semaphore(max - max / RESERVED_ONE_IN),
            max_connections: max,
            per_user: limits.connections_per_source(),
            users: Mutex::default(),
            queue_timeout: limits.queue_timeout,
        }
    }

    /// Waits for a permit, for at most half of the time `left` to the request, so that the caller still receives a
    /// refusal. Closes idle connections to make room.
    ///
    /// # Errors
    /// When no permit becomes free in time.
    pub(super) async fn acquire(
        &self,
        user: &ConnectionUser,
        pool: &ConnectionPool,
        left: Duration,
    ) -> Result<OutboundPermit, NetError> {
        let until = Instant::now() + self.queue_timeout.min(left / 2);
        let share = self.user_permits(user);
        let own = match try_permit(&share.first) {
            Some(permit) => UserPermit { permits: share, _permit: permit, _additional: None },
            None => self.acquire_additional(user, share, pool, until).await?,
        };
        let host = acquire_until(&self.all, until, || pool.clear()).await;
        let host = host.ok_or_else(|| {
            self.busy(&format!("all {} connections of the host are in use", self.max_connections))
        })?;
        Ok(OutboundPermit { user: own, host_permit: host })
    }

    /// A further permit of a user whose first is taken: the first again when it becomes free, or an additional one.
    async fn acquire_additional(
        &self,
        user: &ConnectionUser,
        share: Arc<UserPermits>,
        pool: &ConnectionPool,
        until: Instant,
    ) -> Result<UserPermit, NetError> {
        let (first, more) = (Arc::clone(&share.first), Arc::clone(&share.more));
        let clear = || pool.clear_user(user);
        let another = async {
            let permit = acquire_until(&more, until, clear).await;
            let permit = permit.ok_or_else(|| {
                let one = if self.per_user == 1 { "connection" } else { "connections" };
                self.busy(&format!(
                    "{user} has {} {one} open, its share of the host's {}",
                    self.per_user, self.max_connections
                ))
            })?;
            let rest = acquire_until(&self.additional, until, || pool.clear()).await.ok_or_else(|| {
                self.busy(&format!(
                    "all of the host's {} connections are in use, except those reserved for users without one",
                    self.max_connections
                ))
            })?;
            Ok((permit, Some(rest)))
        };
        let (permit, rest) = tokio::select! {
            biased;
            permit = first.acquire_owned() => (permit.map_err(|_| self.busy("the host is shutting down"))?, None),
            done = another => done?,
        };
        Ok(UserPermit { permits: share, _permit: permit, _additional: rest })
    }

    /// A permit, if one is free.
    pub(super) fn try_acquire(&self, user: &ConnectionUser, pool: &ConnectionPool) -> Option<OutboundPermit> {
        let share = self.user_permits(user);
        let own = self.try_acquire_user(&share).or_else(|| {
            pool.clear_user(user);
            self.try_acquire_user(&share)
        });
        // A user that has used up its share must not close the idle connections of others.
        let own = own.or_else(|| {
            if share.more.available_permits() == 0 {
                return None;
            }
            pool.clear();
            self.try_acquire_user(&share)
        })?;
        let host = try_permit(&self.all).or_else(|| {
            pool.clear();
            try_permit(&self.all)
        })?;
        Some(OutboundPermit { user: own, host_permit: host })
    }

    fn try_acquire_user(&self, share: &Arc<UserPermits>) -> Option<UserPermit> {
        let (permit, rest) = match try_permit(&share.first) {
            Some(permit) => (permit, None),
            None => (try_permit(&share.more)?, Some(try_permit(&self.additional)?)),
        };
        Some(UserPermit { permits: Arc::clone(share), _permit: permit, _additional: rest })
    }

    /// The permits of a user. They exist while any request holds one or waits for one.
    fn user_permits(&self, user: &ConnectionUser) -> Arc<UserPermits> {
        let mut users = self.users.lock();
        if let Some(share) = users.get(user).and_then(Weak::upgrade) {
            return share;
        }
        users.retain(|_, share| share.strong_count() > 0);
        let more = semaphore(self.per_user.saturating_sub(1));
        let share =
            Arc::new(UserPermits { first: semaphore(1), more, additional: Arc::clone(&self.additional) });
        users.insert(user.clone(), Arc::downgrade(&share));
        share
    }

    fn busy(&self, what: &str) -> NetError {
        let text = "try again later; the operator can raise the limit `http_connections` of the host";
        NetError::Transport(format!("busy: {what}; {text}"))
    }
}

/// A permit of the semaphore, if one is free and no task waits.
fn try_permit(permits: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(permits).try_acquire_owned().ok()
}

fn semaphore(permits: u32) -> Arc<Semaphore> {
    let permits = usize::try_from(permits).unwrap_or(Semaphore::MAX_PERMITS);
    Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)))
}

/// Waits in the semaphore's queue. `clear` closes idle connections that hold a permit.
async fn acquire_until(
    permits: &Arc<Semaphore>,
    until: Instant,
    clear: impl Fn(),
) -> Option<OwnedSemaphorePermit> {
    if let Some(permit) = try_permit(permits) {
        return Some(permit);
    }
    let mut permit = pin!(Arc::clone(permits).acquire_owned());
    // The queue comes first: while a task waits in it, no permit counts as free and no connection is kept idle.
    // `clear` closes those that were idle before.
    tokio::select! {
        biased;
        permit = &mut permit => return permit.ok(),
        () = ready(()) => clear(),
    }
    timeout_at(until, permit).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use toolbay_policy::name::PluginId;

    const SOON: Duration = Duration::from_millis(40);

    fn limiter(max: u32) -> (OutboundLimiter, Arc<ConnectionPool>) {
        let limits = HostLimits { http_connections: max, ..HostLimits::default() };
        (OutboundLimiter::new(&limits), Arc::default())
    }

    fn user(name: &str) -> ConnectionUser {
        ConnectionUser::Plugin(PluginId::new(name).unwrap())
    }

    #[tokio::test]
    async fn one_user_cannot_exceed_its_share() {
        let (limiter, pool) = limiter(8);
        let (one, other) = (user("one"), user("other"));
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(limiter.acquire(&one, &pool, SOON).await.unwrap());
        }
        let refused = limiter.acquire(&one, &pool, SOON).await.unwrap_err().to_string();
        for part in
            ["plugin `one` has 2 connections open", "its share of the host's 8", "limit `http_connections`"]
        {
            assert!(refused.contains(part), "{refused}");
        }
        assert!(limiter.try_acquire(&one, &pool).is_none());
        held.push(limiter.acquire(&other, &pool, SOON).await.unwrap());
        // A server with the same name is another user.
        held.push(
            limiter.try_acquire(&ConnectionUser::Server(PluginId::new("one").unwrap()), &pool).unwrap(),
        );
        assert_eq!(limiter.all.available_permits(), 4);
        held.remove(0);
        assert!(limiter.acquire(&one, &pool, SOON).await.is_ok(), "the permit was released");
    }

    #[tokio::test]
    async fn a_full_host_refuses_and_returns_the_user_permit() {
        let (limiter, pool) = limiter(4);
        let all: Vec<_> =
            ["a", "b", "c", "d"].map(|name| limiter.try_acquire(&user(name), &pool).unwrap()).into();
        let refused = limiter.acquire(&user("e"), &pool, SOON).await.unwrap_err().to_string();
        assert!(refused.contains("all 4 connections of the host are in use"), "{refused}");
        assert!(all.iter().all(OutboundPermit::may_have_waiters));
        drop(all);
        // A request that timed out holds no permit of its user.
        assert!(!limiter.acquire(&user("e"), &pool, SOON).await.unwrap().host_permit.semaphore().is_closed());
        assert_eq!(limiter.all.available_permits(), 4);
    }

    #[tokio::test]
    async fn a_waiting_request_gets_the_released_permit() {
        let (limiter, pool) = limiter(4);
        let one = user("one");
        let held = limiter.try_acquire(&one, &pool).unwrap();
        let (waited, ()) = tokio::join!(limiter.acquire(&one, &pool, Duration::from_secs(20)), async {
            tokio::task::yield_now().await;
            drop(held);
        });
        assert!(waited.is_ok());
    }

    #[tokio::test]
    async fn a_user_without_connections_gets_a_reserved_permit() {
        let (limiter, pool) = limiter(20);
        let mut held = Vec::new();
        for name in ["a", "b", "c", "d"] {
            while let Some(permit) = limiter.try_acquire(&user(name), &pool) {
                held.push(permit);
            }
        }
        assert_eq!(held.len(), 19, "5 each, without the reserved permit");
        let refused = limiter.acquire(&user("d"), &pool, SOON).await.unwrap_err().to_string();
        assert!(
            refused.contains("all of the host's 20 connections are in use, except those reserved"),
            "{refused}"
        );
        let fifth = limiter.acquire(&user("e"), &pool, Duration::ZERO).await.unwrap();
        assert!(limiter.try_acquire(&user("e"), &pool).is_none(), "one connection and no second");
        // After the release, both the user and others can take a permit.
        drop(fifth);
        assert!(limiter.try_acquire(&user("e"), &pool).is_some());
        held.remove(0);
        assert!(limiter.try_acquire(&user("a"), &pool).is_some());
        drop(held);
        assert_eq!((limiter.all.available_permits(), limiter.additional.available_permits()), (20, 15));
    }

    #[tokio::test]
    async fn a_released_first_permit_serves_a_waiter_for_any_permit() {
        let (limiter, pool) = limiter(20);
        let one = user("one");
        let first = limiter.try_acquire(&one, &pool).unwrap();
        let rest = Arc::clone(&limiter.additional).try_acquire_many_owned(15).unwrap();
        assert!(first.may_have_waiters(), "no connection is kept idle while others may wait");
        let (waited, ()) = tokio::join!(limiter.acquire(&one, &pool, Duration::from_secs(20)), async {
            tokio::task::yield_now().await;
            drop(first);
        });
        assert!(waited.is_ok_and(|permit| permit.user._additional.is_none()));
        drop(rest);
    }

    #[tokio::test]
    async fn idle_users_are_forgotten() {
        let (limiter, pool) = limiter(8);
        let kept = limiter.try_acquire(&user("kept"), &pool).unwrap();
        for n in 0..100 {
            limiter.try_acquire(&user(&format!("p{n}")), &pool).unwrap();
        }
        assert!(limiter.users.lock().len() <= 2);
        drop(kept);
    }
}
