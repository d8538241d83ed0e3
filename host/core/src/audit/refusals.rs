//! Counts refusals that come faster than they can be listed: one line for each up to a rate, and one line with a count
//! for what is above it, per client and reason.
//!
//! Time is cut into windows. In each window the first refusals of a client for a reason are listed one by one. The rest is
//! counted, and the count is due when the window ends. A client that was counted in one window is only counted in the
//! next. What is remembered is bounded: clients beyond [`MAX_CLIENTS`] share one count per reason.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// How long refusals are counted before the count is due.
pub const WINDOW: Duration = Duration::from_secs(10);
/// Refusals of one client for one reason that are listed one by one in a window: an agent that tries a few names.
pub const LISTED_PER_CLIENT: u32 = 20;
/// Refusals of all clients that are listed one by one in a window: ten busy clients.
pub const LISTED: u32 = 200;
/// Clients that have a count of their own, for each reason.
pub const MAX_CLIENTS: usize = 64;
/// Longest name of a client that is kept, in bytes.
const MAX_NAME: usize = 400;

/// What becomes of one refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It gets a line of its own.
    Listed,
    /// It is part of a count.
    Counted,
}

/// Refusals of one client for one reason that have no line of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalCount {
    /// Who was refused; `None`: several clients beyond [`MAX_CLIENTS`].
    pub client: Option<String>,
    /// Why.
    pub reason: &'static str,
    /// What the last of them wanted: a tool or a path.
    pub last: String,
    /// How many there were.
    pub count: u64,
    /// The time from the first of the window to the count.
    pub over: Duration,
}

/// What is known of one client and one reason in this window.
#[derive(Debug, Default)]
struct Tally {
    listed: u32,
    counted: u64,
    last: String,
    /// It was counted in the window before.
    flooding: bool,
}

/// Decides which refusals are listed, and counts the others.
#[derive(Debug, Default)]
pub struct RefusalCounter {
    /// When the window began; `None`: nothing was refused since the last one.
    began: Option<Instant>,
    /// When the one before was counted.
    taken: Option<Instant>,
    listed: u32,
    tallies: BTreeMap<&'static str, Reason>,
}

#[derive(Debug, Default)]
struct Reason {
    clients: HashMap<String, Tally>,
    others: Tally,
}

impl RefusalCounter {
    /// Takes one refusal. Take what is [due](RefusalCounter::due) first.
    pub fn add(&mut self, now: Instant, client: &str, reason: &'static str, last: &str) -> Refusal {
        if self.began.is_none() {
            self.began = Some(now);
            // A window in which nothing was refused ends a flood.
            if self.taken.is_some_and(|taken| now.saturating_duration_since(taken) >= WINDOW) {
                self.tallies.clear();
            }
        }
        let client = cut(client);
        let of_reason = self.tallies.entry(reason).or_default();
        let has_room = of_reason.clients.len() < MAX_CLIENTS;
        let tally = match of_reason.clients.get_mut(client) {
            Some(tally) => tally,
            None if has_room => of_reason.clients.entry(client.to_owned()).or_default(),
            None => &mut of_reason.others,
        };
        if !tally.flooding && tally.listed < LISTED_PER_CLIENT && self.listed < LISTED {
            tally.listed += 1;
            self.listed += 1;
            return Refusal::Listed;
        }
        tally.counted += 1;
        if tally.last != last {
            cut(last).clone_into(&mut tally.last);
        }
        Refusal::Counted
    }

    /// When the window ends; `None`: nothing is counted.
    #[must_use]
    pub fn ends(&self) -> Option<Instant> {
        self.began.and_then(|began| began.checked_add(WINDOW))
    }

    /// The counts, if the window has ended. Another one begins with the next refusal.
    pub fn due(&mut self, now: Instant) -> Vec<RefusalCount> {
        if self.ends().is_some_and(|ends| ends <= now) { self.take(now) } else { Vec::new() }
    }

    /// The counts so far, for the end of the program.
    pub fn take(&mut self, now: Instant) -> Vec<RefusalCount> {
        let over = self.began.take().map(|began| now.saturating_duration_since(began)).unwrap_or_default();
        (self.taken, self.listed) = (Some(now), 0);
        let mut counts = Vec::new();
        for (reason, of_reason) in &mut self.tallies {
            let clients = of_reason.clients.iter_mut().map(|(client, tally)| (Some(client), tally));
            for (client, tally) in clients.chain([(None, &mut of_reason.others)]) {
                if tally.counted > 0 {
                    let last = std::mem::take(&mut tally.last);
                    let client = client.cloned();
                    counts.push(RefusalCount { client, reason, last, count: tally.counted, over });
                }
                *tally = Tally { flooding: tally.counted > 0, ..Tally::default() };
            }
            of_reason.clients.retain(|_, tally| tally.flooding);
        }
        self.tallies.retain(|_, of_reason| !of_reason.clients.is_empty() || of_reason.others.flooding);
        counts
    }
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_NAME)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refusals_are_listed_and_a_flood_is_one_count_per_window() {
        let (mut counter, start) = (RefusalCounter::default(), Instant::now());
        let listed = (0..1000).filter(|_| counter.add(start, "a", "not_found", "x") == Refusal::Listed);
        assert_eq!(listed.count(), LISTED_PER_CLIENT as usize);
        assert_eq!(counter.add(start, "b", "not_found", "y"), Refusal::Listed, "another client");
        assert_eq!(counter.add(start, "a", "denied", "y"), Refusal::Listed, "another reason");
        assert!(counter.due(start).is_empty());
        let counts = counter.due(start + WINDOW);
        let (client, last) = (Some("a".to_owned()), "x".to_owned());
        let first = RefusalCount { client, reason: "not_found", last, count: 980, over: WINDOW };
        assert_eq!(counts, [first]);
        // As long as it goes on, it is only counted.
        let now = start + WINDOW;
        assert_eq!(counter.add(now, "a", "not_found", "x"), Refusal::Counted);
        assert_eq!(counter.due(now + WINDOW).len(), 1);
        // A window in which nothing comes ends that.
        assert_eq!(counter.ends(), None);
        assert_eq!(counter.add(now + WINDOW * 2, "a", "not_found", "x"), Refusal::Listed);
    }

    #[test]
    fn many_clients_share_one_count_and_none_is_forgotten() {
        let (mut counter, start) = (RefusalCounter::default(), Instant::now());
        let mut listed = 0;
        for n in 0..100_000u32 {
            let name = format!("{n}{}", "x".repeat(1000));
            let reason = if n % 2 == 0 { "even" } else { "odd" };
            listed += u64::from(counter.add(start, &name, reason, &name) == Refusal::Listed);
        }
        assert!(listed <= u64::from(LISTED), "{listed}");
        let counts = counter.take(start);
        assert!(counts.len() <= 2 * (MAX_CLIENTS + 1), "{}", counts.len());
        assert_eq!(counts.iter().map(|one| one.count).sum::<u64>() + listed, 100_000);
        assert!(counts.iter().all(|one| one.last.len() <= MAX_NAME));
    }
}
