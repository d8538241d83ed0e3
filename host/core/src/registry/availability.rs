//! Availability checks of tools, for conditions beyond grants. A check runs before its tool is registered and again in
//! the background when its result is too old. A listing never waits for a check; it uses the last result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::timeout_at;

use super::Registry;
use super::availability_check::CheckResult;
use super::catalog::Catalog;
use super::draft::Draft;
use super::entry::{Bundle, ToolEntry};
use crate::registry::event::HostEvent;

/// The age after which a check runs again.
pub const AVAILABILITY_MAX_AGE: Duration = Duration::from_secs(30);
/// The timeout for all checks that run together. A tool whose check has not ended by then is unavailable.
pub const AVAILABILITY_CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Most checks that run at the same time.
const MAX_CONCURRENT_CHECKS: usize = 16;
const CHECK_PANICKED: &str = "its check panicked";

/// The time of the next check, and whether checks are running.
#[derive(Debug)]
pub(super) struct CheckSchedule {
    start: Instant,
    /// Milliseconds after `start`; `u64::MAX` means never.
    due: AtomicU64,
    refreshing: AtomicBool,
}

impl Default for CheckSchedule {
    fn default() -> Self {
        Self { start: Instant::now(), due: AtomicU64::new(u64::MAX), refreshing: AtomicBool::new(false) }
    }
}

impl CheckSchedule {
    fn ms(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.start).as_millis()).unwrap_or(u64::MAX - 1)
    }

    fn is_due(&self) -> bool {
        let due = self.due.load(Ordering::Acquire);
        due != u64::MAX && self.ms(Instant::now()) >= due && !self.refreshing.load(Ordering::Acquire)
    }

    /// Schedules the next check: when the oldest result becomes too old.
    pub(super) fn plan(&self, catalog: &Catalog) {
        let due = |entry: &Arc<ToolEntry>| {
            entry.availability.check.as_ref()?;
            Some(
                entry
                    .derived
                    .last_check
                    .as_ref()
                    .map_or(self.start, |result| result.at + AVAILABILITY_MAX_AGE),
            )
        };
        let first = catalog.tools().filter_map(due).min();
        self.due.store(first.map_or(u64::MAX, |at| self.ms(at)), Ordering::Release);
    }
}

/// Marks that checks are running. Dropping it ends the mark, even if the task is cancelled.
struct RefreshGuard<'a>(&'a AtomicBool);

impl Drop for RefreshGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl ToolEntry {
    /// Runs the check if it has no result yet and can return one without waiting.
    pub(super) fn run_immediate_check(&mut self) {
        let (Some(check), None) = (&self.availability.check, &self.derived.last_check) else { return };
        let result = catch_unwind(AssertUnwindSafe(|| check.check_now())).unwrap_or_else(|_| {
            tracing::error!(tool = %self.def.name, "the availability check of a tool panicked");
            Some(Err(CHECK_PANICKED.into()))
        });
        self.derived.last_check = result.map(CheckResult::new);
    }

    fn is_due(&self, now: Instant) -> bool {
        let old = |result: &CheckResult| now.saturating_duration_since(result.at) >= AVAILABILITY_MAX_AGE;
        self.availability.check.is_some() && self.derived.last_check.as_ref().is_none_or(old)
    }
}

/// Runs the check of one tool. Returns a result by `until`, whatever the check does.
async fn run_check(entry: &ToolEntry, until: Instant) -> Option<CheckResult> {
    let check = entry.availability.check.as_ref()?;
    let check = AssertUnwindSafe(async { check.check().await }).catch_unwind();
    let result = match timeout_at(until.into(), check).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => {
            tracing::error!(tool = %entry.def.name, "the availability check of a tool panicked");
            Err(CHECK_PANICKED.into())
        }
        Err(_) => Err("its availability check timed out".into()),
    };
    Some(CheckResult::new(result))
}

/// Runs the checks of tools, a few at a time. Returns the results in the order of the tools.
async fn run_checks<'a>(entries: impl IntoIterator<Item = &'a ToolEntry>) -> Vec<Option<CheckResult>> {
    let until = Instant::now() + AVAILABILITY_CHECK_TIMEOUT;
    let entries: Vec<&ToolEntry> = entries.into_iter().collect();
    let mut results = Vec::with_capacity(entries.len());
    for some in entries.chunks(MAX_CONCURRENT_CHECKS) {
        results.extend(join_all(some.iter().map(|entry| run_check(entry, until))).await);
    }
    results
}

impl Bundle {
    /// Runs the checks of the tools, so that the first listing is correct. It takes at most
    /// [`AVAILABILITY_CHECK_TIMEOUT`].
    pub async fn check_availability(&mut self) {
        let results = run_checks(&self.tools).await;
        for (entry, answer) in self.tools.iter_mut().zip(results) {
            entry.derived.last_check = answer;
        }
    }
}

impl Registry {
    /// Starts a background task that runs the checks whose results are too old, if there is a tokio runtime. The new
    /// results are in a later snapshot.
    pub fn refresh_availability(self: &Arc<Self>) {
        if self.check_schedule.is_due()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let registry = Arc::clone(self);
            // Detached: the task ends after at most AVAILABILITY_CHECK_TIMEOUT.
            runtime.spawn(async move { registry.check_availability().await });
        }
    }

    /// Runs the checks whose results are too old, and emits the changes. Returns at once if checks are already running.
    pub async fn check_availability(&self) {
        if self.check_schedule.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let _turn = RefreshGuard(&self.check_schedule.refreshing);
        let (catalog, now) = (self.snapshot(), Instant::now());
        let due: Vec<_> = catalog.tools().filter(|entry| entry.is_due(now)).cloned().collect();
        let results = run_checks(due.iter().map(|entry| &**entry)).await;
        self.change(|draft| {
            for (asked, answer) in due.iter().zip(results) {
                if let Some(answer) = answer {
                    draft.apply_check_result(asked, answer);
                }
            }
        });
    }
}

impl Draft {
    fn apply_check_result(&mut self, asked: &ToolEntry, answer: CheckResult) {
        let Some(there) = self.catalog.tools.get_mut(asked.def.name.as_str()) else { return };
        // A tool that was replaced meanwhile has its own result.
        let is_same = matches!((&there.availability.check, &asked.availability.check), (Some(a), Some(b)) if Arc::ptr_eq(a, b));
        if !is_same {
            return;
        }
        let before = there.derived.last_check.as_ref().and_then(|answer| answer.reason.clone());
        if before == answer.reason {
            // An unchanged result is stored for its age, without an event.
            self.silent_change = true;
        } else {
            let reason = answer.reason.as_ref().map(|refusal| refusal.for_operator());
            self.events.push(HostEvent::Availability { tool: asked.def.name.as_str().into(), reason });
            self.changed = true;
        }
        let mut next = ToolEntry::clone(there);
        next.derived.last_check = Some(answer);
        *there = Arc::new(next);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use toolbay_policy::refusal::PolicyRefusal;

    use super::*;
    use crate::call::invoke::BoxFuture;
    use crate::registry::availability_check::{AvailabilityCheck, CheckFn};
    use crate::registry::fixture::native_tool;
    use crate::registry::view::{Filter, View};

    /// Returns the result that its text selects.
    #[derive(Debug, Default)]
    struct Scripted(Mutex<&'static str>);

    impl AvailabilityCheck for Scripted {
        fn check(&self) -> BoxFuture<'_, Result<(), PolicyRefusal>> {
            Box::pin(async {
                let text = *self.0.lock().unwrap();
                match text {
                    "" => Ok(()),
                    "panic" => panic!("the check panicked"),
                    "hang" => std::future::pending().await,
                    reason => Err(reason.into()),
                }
            })
        }
    }

    fn checked(name: &str, says: &'static str) -> (ToolEntry, Arc<Scripted>) {
        let check = Arc::new(Scripted(Mutex::new(says)));
        let mut entry = native_tool(name);
        entry.availability.check = Some(Arc::clone(&check) as _);
        (entry, check)
    }

    fn why_not(registry: &Registry, name: &str) -> Option<String> {
        View::new(registry.snapshot(), Filter::default()).find(name).err().map(|error| error.message)
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_check_makes_only_its_tool_unavailable() {
        let registry = Arc::new(Registry::default());
        let tools = [("good", ""), ("bad", "no key"), ("panics", "panic"), ("hangs", "hang")];
        let mut bundle = Bundle::from(tools.map(|(name, says)| checked(name, says).0).to_vec());
        bundle.check_availability().await;
        registry.register(bundle).unwrap();
        for (name, reason) in [
            ("good", None),
            ("bad", Some("no key")),
            ("panics", Some("its check panicked")),
            ("hangs", Some("its availability check timed out")),
        ] {
            let text = reason.map(|reason| format!("Tool {name} is not currently available: {reason}"));
            assert_eq!(why_not(&registry, name), text);
        }
        assert!(!registry.check_schedule.is_due(), "a result is used until it is too old");
    }

    #[tokio::test]
    async fn a_listing_uses_the_last_result_and_checks_again_in_the_background() {
        let registry = Arc::new(Registry::default());
        let (entry, check) = checked("t", "");
        registry.register(entry).unwrap();
        *check.0.lock().unwrap() = "away";
        let mut events = registry.events().stream();
        registry.refresh_availability();
        assert_eq!(why_not(&registry, "t"), None, "a listing does not wait");
        let told = events.recv().await.unwrap();
        assert_eq!(told, HostEvent::Availability { tool: "t".into(), reason: Some("away".to_owned()) });
        assert!(why_not(&registry, "t").unwrap().ends_with("away"));
        let revision = registry.snapshot().revision();
        registry.check_availability().await;
        assert_eq!(registry.snapshot().revision(), revision, "the result is not too old yet");
    }

    #[test]
    fn a_check_function_runs_at_registration_without_a_runtime() {
        let registry = Arc::new(Registry::default());
        let tool = |name: &str, check: fn() -> Result<(), String>| {
            let mut entry = native_tool(name);
            entry.availability.check = Some(Arc::new(CheckFn(check)));
            entry
        };
        let tools = vec![
            tool("a", || Err("not here".to_owned())),
            tool("b", || panic!("boom")),
            tool("c", || Ok(())),
        ];
        registry.register(tools).unwrap();
        assert!(why_not(&registry, "a").unwrap().ends_with("not here"));
        assert!(why_not(&registry, "b").unwrap().ends_with("its check panicked"));
        assert_eq!(why_not(&registry, "c"), None);
        registry.refresh_availability();
        assert_eq!(registry.snapshot().tools().len(), 3);
    }
}
