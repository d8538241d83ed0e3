//! Places for connections: so many of the host, and of these a share at most for one user, so that the slow requests of
//! one plugin leave room for all others.
//!
//! A part of the host's places ([`KEPT`]) is for the first connection of a user: however few users together hold all
//! that they may, one that has none gets one at once. Whoever has one already takes its next from the rest.
//!
//! Who wants one takes a place of its own first, then one of the rest if it is not its first, and then one of the host,
//! each in turn. So in the queue for the host's no user stands more often than its share is large.

use std::collections::HashMap;
use std::future::ready;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use toolbay_policy::limits::HostLimits;

use super::connect::{Pool, User};
use super::session::NetError;

/// Of so many of the host's places one is kept for first connections.
const KEPT: u32 = 4;

/// The places of one host.
#[derive(Debug)]
pub(super) struct Places {
    host: Arc<Semaphore>,
    /// Those that may be more than a user's first.
    rest: Arc<Semaphore>,
    most: u32,
    /// Of one user.
    share: u32,
    /// The users that hold a place or wait for one.
    users: Mutex<HashMap<User, Weak<Share>>>,
    /// How long a request may wait for a place.
    patience: Duration,
}

/// The places of one user.
#[derive(Debug)]
struct Share {
    first: Arc<Semaphore>,
    more: Arc<Semaphore>,
    /// The host's, for all but the first.
    rest: Arc<Semaphore>,
}

/// A place for one connection. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Place {
    own: Own,
    host: OwnedSemaphorePermit,
}

/// A place of a user's share.
#[derive(Debug)]
struct Own {
    share: Arc<Share>,
    _place: OwnedSemaphorePermit,
    /// One that is not the first is one of the rest, too.
    _rest: Option<OwnedSemaphorePermit>,
}

impl Place {
    /// Whether somebody may be waiting for it.
    pub(super) fn is_wanted(&self) -> bool {
        let taken = |places: &Semaphore| places.available_permits() == 0;
        let Share { first, more, rest } = &*self.own.share;
        taken(self.host.semaphore()) || taken(rest) || (taken(first) && taken(more))
    }
}

impl Places {
    pub(super) fn new(limits: &HostLimits) -> Self {
        let most = limits.http_connections;
        Self {
            host: semaphore(most),
            rest: semaphore(most - most / KEPT),
            most,
            share: limits.connections_of_one(),
            users: Mutex::default(),
            patience: limits.queue_timeout,
        }
    }

    /// Waits for a place, for half of what is `left` to the request at most: a refusal is to be heard. Connections that
    /// nobody uses make room.
    ///
    /// # Errors
    /// When there is none in time.
    pub(super) async fn take(&self, user: &User, pool: &Pool, left: Duration) -> Result<Place, NetError> {
        let until = Instant::now() + self.patience.min(left / 2);
        let share = self.of(user);
        let own = match one(&share.first) {
            Some(place) => Own { share, _place: place, _rest: None },
            None => self.next(user, share, pool, until).await?,
        };
        let host = wait(&self.host, until, || pool.clear()).await;
        let host =
            host.ok_or_else(|| self.busy(&format!("all {} connections of the host are taken", self.most)))?;
        Ok(Place { own, host })
    }

    /// A place of the share of a user that has its first: the first again, when that becomes free, or another.
    async fn next(
        &self,
        user: &User,
        share: Arc<Share>,
        pool: &Pool,
        until: Instant,
    ) -> Result<Own, NetError> {
        let (first, more) = (Arc::clone(&share.first), Arc::clone(&share.more));
        let clear = || pool.clear_of(user);
        let another = async {
            let place = wait(&more, until, clear).await;
            let place = place.ok_or_else(|| {
                let one = if self.share == 1 { "connection" } else { "connections" };
                self.busy(&format!(
                    "{user} has {} {one} open, its share of the {} of the host",
                    self.share, self.most
                ))
            })?;
            let rest = wait(&self.rest, until, || pool.clear()).await.ok_or_else(|| {
                self.busy(&format!(
                    "all connections of the host are taken but those that are kept for who has none, of {}",
                    self.most
                ))
            })?;
            Ok((place, Some(rest)))
        };
        let (place, rest) = tokio::select! {
            biased;
            place = first.acquire_owned() => (place.map_err(|_| self.busy("the host ends"))?, None),
            done = another => done?,
        };
        Ok(Own { share, _place: place, _rest: rest })
    }

    /// A place, if there is one now.
    pub(super) fn try_take(&self, user: &User, pool: &Pool) -> Option<Place> {
        let share = self.of(user);
        let own = self.try_own(&share).or_else(|| {
            pool.clear_of(user);
            self.try_own(&share)
        });
        // Not for who has all that it may have: others would pay for it.
        let own = own.or_else(|| {
            if share.more.available_permits() == 0 {
                return None;
            }
            pool.clear();
            self.try_own(&share)
        })?;
        let host = one(&self.host).or_else(|| {
            pool.clear();
            one(&self.host)
        })?;
        Some(Place { own, host })
    }

    fn try_own(&self, share: &Arc<Share>) -> Option<Own> {
        let (place, rest) = match one(&share.first) {
            Some(place) => (place, None),
            None => (one(&share.more)?, Some(one(&self.rest)?)),
        };
        Some(Own { share: Arc::clone(share), _place: place, _rest: rest })
    }

    /// The share of a user. It is there for as long as anybody holds a place of it or waits for one.
    fn of(&self, user: &User) -> Arc<Share> {
        let mut users = self.users.lock();
        if let Some(share) = users.get(user).and_then(Weak::upgrade) {
            return share;
        }
        users.retain(|_, share| share.strong_count() > 0);
        let more = semaphore(self.share.saturating_sub(1));
        let share = Arc::new(Share { first: semaphore(1), more, rest: Arc::clone(&self.rest) });
        users.insert(user.clone(), Arc::downgrade(&share));
        share
    }

    fn busy(&self, what: &str) -> NetError {
        let text = "try again later; the operator can raise the limit `http_connections` of the host";
        NetError::Transport(format!("busy: {what}; {text}"))
    }
}

/// One of the places, if one is free and nobody waits for it.
fn one(places: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(places).try_acquire_owned().ok()
}

fn semaphore(places: u32) -> Arc<Semaphore> {
    let places = usize::try_from(places).unwrap_or(Semaphore::MAX_PERMITS);
    Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)))
}

/// Waits in turn. `clear` closes what holds a place and is not used.
async fn wait(places: &Arc<Semaphore>, until: Instant, clear: impl Fn()) -> Option<OwnedSemaphorePermit> {
    if let Some(place) = one(places) {
        return Some(place);
    }
    let mut place = pin!(Arc::clone(places).acquire_owned());
    // In the queue first: from now on no place is free, and nothing is kept that becomes idle. What was kept before is
    // closed here.
    tokio::select! {
        biased;
        place = &mut place => return place.ok(),
        () = ready(()) => clear(),
    }
    timeout_at(until, place).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use toolbay_policy::name::PluginId;

    const SOON: Duration = Duration::from_millis(40);

    fn places(most: u32) -> (Places, Arc<Pool>) {
        let limits = HostLimits { http_connections: most, ..HostLimits::default() };
        (Places::new(&limits), Arc::default())
    }

    fn user(name: &str) -> User {
        User::Plugin(PluginId::new(name).unwrap())
    }

    #[tokio::test]
    async fn one_user_has_its_share_and_others_have_theirs() {
        let (places, pool) = places(8);
        let (one, other) = (user("one"), user("other"));
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(places.take(&one, &pool, SOON).await.unwrap());
        }
        let refused = places.take(&one, &pool, SOON).await.unwrap_err().to_string();
        for part in
            ["plugin `one` has 2 connections open", "of the 8 of the host", "limit `http_connections`"]
        {
            assert!(refused.contains(part), "{refused}");
        }
        assert!(places.try_take(&one, &pool).is_none());
        held.push(places.take(&other, &pool, SOON).await.unwrap());
        // A server of the same name is somebody else.
        held.push(places.try_take(&User::Server(PluginId::new("one").unwrap()), &pool).unwrap());
        assert_eq!(places.host.available_permits(), 4);
        held.remove(0);
        assert!(places.take(&one, &pool, SOON).await.is_ok(), "given back");
    }

    #[tokio::test]
    async fn a_full_host_says_so_and_what_waited_is_given_back() {
        let (places, pool) = places(4);
        let all: Vec<_> =
            ["a", "b", "c", "d"].map(|name| places.try_take(&user(name), &pool).unwrap()).into();
        let refused = places.take(&user("e"), &pool, SOON).await.unwrap_err().to_string();
        assert!(refused.contains("all 4 connections of the host are taken"), "{refused}");
        assert!(all.iter().all(Place::is_wanted));
        drop(all);
        // Who waited in vain holds no place of its own share.
        assert!(!places.take(&user("e"), &pool, SOON).await.unwrap().host.semaphore().is_closed());
        assert_eq!(places.host.available_permits(), 4);
    }

    #[tokio::test]
    async fn a_waiting_request_gets_the_place_that_becomes_free() {
        let (places, pool) = places(4);
        let one = user("one");
        let held = places.try_take(&one, &pool).unwrap();
        let (waited, ()) = tokio::join!(places.take(&one, &pool, Duration::from_secs(20)), async {
            tokio::task::yield_now().await;
            drop(held);
        });
        assert!(waited.is_ok());
    }

    #[tokio::test]
    async fn who_has_none_gets_one_whatever_the_others_hold() {
        let (places, pool) = places(20);
        let mut held = Vec::new();
        for name in ["a", "b", "c", "d"] {
            while let Some(place) = places.try_take(&user(name), &pool) {
                held.push(place);
            }
        }
        assert_eq!(held.len(), 19, "5 each, but for what is kept");
        let refused = places.take(&user("d"), &pool, SOON).await.unwrap_err().to_string();
        assert!(refused.contains("but those that are kept for who has none, of 20"), "{refused}");
        let fifth = places.take(&user("e"), &pool, Duration::ZERO).await.unwrap();
        assert!(places.try_take(&user("e"), &pool).is_none(), "one, and no second");
        // Its first is free again for itself, and so is any other's.
        drop(fifth);
        assert!(places.try_take(&user("e"), &pool).is_some());
        held.remove(0);
        assert!(places.try_take(&user("a"), &pool).is_some());
        drop(held);
        assert_eq!((places.host.available_permits(), places.rest.available_permits()), (20, 15));
    }

    #[tokio::test]
    async fn a_first_place_that_becomes_free_is_for_who_waits_for_any() {
        let (places, pool) = places(20);
        let one = user("one");
        let first = places.try_take(&one, &pool).unwrap();
        let rest = Arc::clone(&places.rest).try_acquire_many_owned(15).unwrap();
        assert!(first.is_wanted(), "nothing is kept idle while others may wait");
        let (waited, ()) = tokio::join!(places.take(&one, &pool, Duration::from_secs(20)), async {
            tokio::task::yield_now().await;
            drop(first);
        });
        assert!(waited.is_ok_and(|place| place.own._rest.is_none()));
        drop(rest);
    }

    #[tokio::test]
    async fn users_that_are_gone_are_forgotten() {
        let (places, pool) = places(8);
        let kept = places.try_take(&user("kept"), &pool).unwrap();
        for n in 0..100 {
            places.try_take(&user(&format!("p{n}")), &pool).unwrap();
        }
        assert!(places.users.lock().len() <= 2);
        drop(kept);
    }
}
