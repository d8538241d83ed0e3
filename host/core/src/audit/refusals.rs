//! Rate limiting of refusals in the audit: up to a rate, each refusal gets its own line; above it, one line counts the
//! refusals of a client for a reason.
//!
//! In each time window, the first refusals of a client for a reason are listed. All others are counted, and the count
//! is written when the window ends. A client that exceeded the rate in one window is only counted in the next. Memory
//! is bounded: clients beyond [`MAX_CLIENTS`] share one count per reason.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::AuditRecord;

/// The length of a window.
pub const WINDOW: Duration = Duration::from_secs(10);
/// Most listed refusals of one client for one reason in a window: enough for an agent that tries a few names.
pub const LISTED_PER_CLIENT: u32 = 20;
/// Most listed refusals of all clients in a window: enough for ten such clients.
pub const LISTED: u32 = 200;
/// Most clients with their own count for a reason.
pub const MAX_CLIENTS: usize = 64;
/// Longest name of a client that is stored, in bytes.
const MAX_NAME: usize = 400;

/// What kind of refusal it is: refusals of one kind share a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusalKind {
    /// The outcome of a call; `None` for a request.
    pub outcome: Option<&'static str>,
    /// The reason.
    pub reason: &'static str,
}

impl RefusalKind {
    /// The kind of a refused call; `None` if the call was not refused.
    #[must_use]
    pub fn of_call(record: &AuditRecord) -> Option<Self> {
        let reason = record.refusal?.as_str();
        Some(Self { outcome: Some(record.outcome), reason })
    }

    /// The kind of a refused request.
    #[must_use]
    pub const fn of_request(reason: &'static str) -> Self {
        Self { outcome: None, reason }
    }
}

/// How a refusal is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalHandling {
    /// As its own line.
    Listed,
    /// As part of a count.
    Counted,
}

/// The count of refusals of one client for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalCount {
    /// The client; `None` for all clients beyond [`MAX_CLIENTS`].
    pub client: Option<String>,
    /// The outcome of the calls; `None` for requests.
    pub outcome: Option<&'static str>,
    /// The reason.
    pub reason: &'static str,
    /// The tool or path of the last refusal.
    pub last: String,
    /// The number of refusals.
    pub count: u64,
    /// The time from the start of the window to the count.
    pub duration: Duration,
}

/// The counters of one client for one reason in this window.
#[derive(Debug, Default)]
struct ClientTally {
    listed: u32,
    counted: u64,
    last: String,
    /// Whether the client exceeded the rate in the previous window.
    flooding: bool,
}

/// Decides which refusals are listed, and counts all others.
#[derive(Debug, Default)]
pub struct RefusalCounter {
    /// The start of the window; `None` before its first refusal.
    began: Option<Instant>,
    /// The time of the previous count.
    taken: Option<Instant>,
    listed: u32,
    tallies: BTreeMap<RefusalKind, ReasonTallies>,
}

#[derive(Debug, Default)]
struct ReasonTallies {
    clients: HashMap<String, ClientTally>,
    others: ClientTally,
}

impl RefusalCounter {
    /// Adds a refusal. Call [`RefusalCounter::due_counts`] first.
    pub fn add(&mut self, now: Instant, client: &str, kind: RefusalKind, last: &str) -> RefusalHandling {
        if self.began.is_none() {
            self.began = Some(now);
            // A window without refusals ends a flood.
            if self.taken.is_some_and(|taken| now.saturating_duration_since(taken) >= WINDOW) {
                self.tallies.clear();
            }
        }
        let client = cut(client);
        let of_reason = self.tallies.entry(kind).or_default();
        let has_room = of_reason.clients.len() < MAX_CLIENTS;
        let tally = match of_reason.clients.get_mut(client) {
            Some(tally) => tally,
            None if has_room => of_reason.clients.entry(client.to_owned()).or_default(),
            None => &mut of_reason.others,
        };
        if !tally.flooding && tally.listed < LISTED_PER_CLIENT && self.listed < LISTED {
            tally.listed += 1;
            self.listed += 1;
            return RefusalHandling::Listed;
        }
        tally.counted += 1;
        if tally.last != last {
            cut(last).clone_into(&mut tally.last);
        }
        RefusalHandling::Counted
    }

    /// The end of the window; `None` if no window is open.
    #[must_use]
    pub fn window_end(&self) -> Option<Instant> {
        self.began.and_then(|began| began.checked_add(WINDOW))
    }

    /// The counts, if the window has ended. The next refusal opens a new window.
    pub fn due_counts(&mut self, now: Instant) -> Vec<RefusalCount> {
        if self.window_end().is_some_and(|ends| ends <= now) { self.take_counts(now) } else { Vec::new() }
    }

    /// The counts so far, without waiting for the end of the window. Use it at the end of the program.
    pub fn take_counts(&mut self, now: Instant) -> Vec<RefusalCount> {
        let duration =
            self.began.take().map(|began| now.saturating_duration_since(began)).unwrap_or_default();
        (self.taken, self.listed) = (Some(now), 0);
        let mut counts = Vec::new();
        for (kind, of_reason) in &mut self.tallies {
            let RefusalKind { outcome, reason } = *kind;
            let clients = of_reason.clients.iter_mut().map(|(client, tally)| (Some(client), tally));
            for (client, tally) in clients.chain([(None, &mut of_reason.others)]) {
                if tally.counted > 0 {
                    let last = std::mem::take(&mut tally.last);
                    let client = client.cloned();
                    let count = tally.counted;
                    counts.push(RefusalCount { client, outcome, reason, last, count, duration });
                }
                *tally = ClientTally { flooding: tally.counted > 0, ..ClientTally::default() };
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
    fn the_first_refusals_are_listed_and_a_flood_gets_one_count_per_window() {
        let (mut counter, start) = (RefusalCounter::default(), Instant::now());
        let listed = (0..1000).filter(|_| {
            counter.add(start, "a", RefusalKind::of_request("not_found"), "x") == RefusalHandling::Listed
        });
        assert_eq!(listed.count(), LISTED_PER_CLIENT as usize);
        assert_eq!(
            counter.add(start, "b", RefusalKind::of_request("not_found"), "y"),
            RefusalHandling::Listed,
            "another client"
        );
        assert_eq!(
            counter.add(start, "a", RefusalKind::of_request("denied"), "y"),
            RefusalHandling::Listed,
            "another reason"
        );
        assert!(counter.due_counts(start).is_empty());
        let counts = counter.due_counts(start + WINDOW);
        let (client, last) = (Some("a".to_owned()), "x".to_owned());
        let first =
            RefusalCount { client, outcome: None, reason: "not_found", last, count: 980, duration: WINDOW };
        assert_eq!(counts, [first]);
        // A flood that continues is only counted.
        let now = start + WINDOW;
        assert_eq!(
            counter.add(now, "a", RefusalKind::of_request("not_found"), "x"),
            RefusalHandling::Counted
        );
        assert_eq!(counter.due_counts(now + WINDOW).len(), 1);
        // A window without refusals ends the flood.
        assert_eq!(counter.window_end(), None);
        assert_eq!(
            counter.add(now + WINDOW * 2, "a", RefusalKind::of_request("not_found"), "x"),
            RefusalHandling::Listed
        );
    }

    #[test]
    fn many_clients_share_one_count_without_loss() {
        let (mut counter, start) = (RefusalCounter::default(), Instant::now());
        let mut listed = 0;
        for n in 0..100_000u32 {
            let name = format!("{n}{}", "x".repeat(1000));
            let reason = if n % 2 == 0 { "even" } else { "odd" };
            listed += u64::from(
                counter.add(start, &name, RefusalKind::of_request(reason), &name) == RefusalHandling::Listed,
            );
        }
        assert!(listed <= u64::from(LISTED), "{listed}");
        let counts = counter.take_counts(start);
        assert!(counts.len() <= 2 * (MAX_CLIENTS + 1), "{}", counts.len());
        assert_eq!(counts.iter().map(|one| one.count).sum::<u64>() + listed, 100_000);
        assert!(counts.iter().all(|one| one.last.len() <= MAX_NAME));
    }
}
