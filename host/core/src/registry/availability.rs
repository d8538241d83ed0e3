//! Whether tools can run here and now, where the grants alone do not say: each is asked before it comes in and again
//! after a while, in the background. A listing never waits for an answer; it goes by the last one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::timeout_at;
use toolbay_policy::refusal::Refusal;

use super::Registry;
use super::catalog::Catalog;
use super::draft::Draft;
use super::entry::{Bundle, Entry};
use super::settings::reason;
use crate::call::invoke::BoxFuture;
use crate::registry::event::Event;

/// How long an answer holds.
pub const ANSWER_AGE: Duration = Duration::from_secs(30);
/// How long all tools that are asked at once have together. Who has not answered then is not available.
pub const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Tools that are asked at the same time.
const AT_ONCE: usize = 16;
const PANICKED: &str = "its check panicked";

/// The port through which a tool is asked whether it is available.
pub trait Check: Send + Sync + std::fmt::Debug {
    /// `Err` with the reason if it is not. May panic or hang: that counts as a no.
    fn check(&self) -> BoxFuture<'_, Result<(), Refusal>>;

    /// The answer, where there is no waiting for it: tools that can give one are asked when they come in.
    fn at_once(&self) -> Option<Result<(), Refusal>> {
        None
    }
}

/// A check that is a function; it must answer at once.
pub(crate) struct CheckFn<F>(pub(crate) F);

impl<F> std::fmt::Debug for CheckFn<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CheckFn")
    }
}

impl<F: Fn() -> Result<(), String> + Send + Sync> Check for CheckFn<F> {
    fn check(&self) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async { Ok((self.0)()?) })
    }

    fn at_once(&self) -> Option<Result<(), Refusal>> {
        Some((self.0)().map_err(Refusal::from))
    }
}

/// What a tool last said.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// `None`: it is available.
    pub(super) reason: Option<Arc<Refusal>>,
    at: Instant,
}

impl Answer {
    fn new(said: Result<(), Refusal>) -> Self {
        let short = |said: Refusal| Arc::new(Refusal { text: reason(&said.text).to_string(), ..said });
        Self { reason: said.err().map(short), at: Instant::now() }
    }
}

/// When the next tool has to be asked, and whether somebody asks.
#[derive(Debug)]
pub(super) struct Schedule {
    start: Instant,
    /// Milliseconds after the start; `u64::MAX`: never.
    due: AtomicU64,
    asking: AtomicBool,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { start: Instant::now(), due: AtomicU64::new(u64::MAX), asking: AtomicBool::new(false) }
    }
}

impl Schedule {
    fn ms(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.start).as_millis()).unwrap_or(u64::MAX - 1)
    }

    fn is_due(&self) -> bool {
        let due = self.due.load(Ordering::Acquire);
        due != u64::MAX && self.ms(Instant::now()) >= due && !self.asking.load(Ordering::Acquire)
    }

    /// Notes when the first answer will have grown old.
    pub(super) fn plan(&self, catalog: &Catalog) {
        let due = |entry: &Arc<Entry>| {
            entry.availability.check.as_ref()?;
            Some(entry.derived.answer.as_ref().map_or(self.start, |answer| answer.at + ANSWER_AGE))
        };
        let first = catalog.tools().filter_map(due).min();
        self.due.store(first.map_or(u64::MAX, |at| self.ms(at)), Ordering::Release);
    }
}

/// The turn of who asks; ends also when their task is dropped.
struct Asking<'a>(&'a AtomicBool);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Entry {
    /// Asks it, if it has never been asked and answers at once.
    pub(super) fn ask_at_once(&mut self) {
        let (Some(check), None) = (&self.availability.check, &self.derived.answer) else { return };
        let said = catch_unwind(AssertUnwindSafe(|| check.at_once())).unwrap_or_else(|_| {
            tracing::error!(tool = %self.def.name, "its check panicked");
            Some(Err(PANICKED.into()))
        });
        self.derived.answer = said.map(Answer::new);
    }

    fn is_due(&self, now: Instant) -> bool {
        let old = |answer: &Answer| now.saturating_duration_since(answer.at) >= ANSWER_AGE;
        self.availability.check.is_some() && self.derived.answer.as_ref().is_none_or(old)
    }
}

/// Asks one tool. Whatever it does, there is an answer by `until`.
async fn ask(entry: &Entry, until: Instant) -> Option<Answer> {
    let check = entry.availability.check.as_ref()?;
    let asked = AssertUnwindSafe(async { check.check().await }).catch_unwind();
    let said = match timeout_at(until.into(), asked).await {
        Ok(Ok(said)) => said,
        Ok(Err(_)) => {
            tracing::error!(tool = %entry.def.name, "its check panicked");
            Err(PANICKED.into())
        }
        Err(_) => Err("it did not say in time whether it is available".into()),
    };
    Some(Answer::new(said))
}

/// Asks tools that have a check, some at a time, and returns what they said in their order.
async fn ask_all<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<Option<Answer>> {
    let until = Instant::now() + ANSWER_WAIT;
    let entries: Vec<&Entry> = entries.into_iter().collect();
    let mut answers = Vec::with_capacity(entries.len());
    for some in entries.chunks(AT_ONCE) {
        answers.extend(join_all(some.iter().map(|entry| ask(entry, until))).await);
    }
    answers
}

impl Bundle {
    /// Asks its tools whether they are available, so that they are listed right from the first time on. Takes
    /// [`ANSWER_WAIT`] at most.
    pub async fn ask(&mut self) {
        let answers = ask_all(&self.tools).await;
        for (entry, answer) in self.tools.iter_mut().zip(answers) {
            entry.derived.answer = answer;
        }
    }
}

impl Registry {
    /// The state as it is now, for a view. Tools whose answers have grown old are asked again, in a task of its own
    /// where there is a tokio runtime; what they say is in a later state.
    #[must_use]
    pub fn current(self: &Arc<Self>) -> Arc<Catalog> {
        if self.schedule.is_due()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let registry = Arc::clone(self);
            // Ends when all tools have answered, after five seconds at the latest.
            runtime.spawn(async move { registry.ask().await });
        }
        self.snapshot()
    }

    /// Asks the tools whose answers have grown old whether they are available, and tells what changed. Returns at once
    /// if somebody else does so.
    pub async fn ask(&self) {
        if self.schedule.asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let _turn = Asking(&self.schedule.asking);
        let (catalog, now) = (self.snapshot(), Instant::now());
        let due: Vec<_> = catalog.tools().filter(|entry| entry.is_due(now)).cloned().collect();
        let answers = ask_all(due.iter().map(|entry| &**entry)).await;
        self.always(|draft| {
            for (asked, answer) in due.iter().zip(answers) {
                if let Some(answer) = answer {
                    draft.answered(asked, answer);
                }
            }
        });
    }
}

impl Draft {
    fn answered(&mut self, asked: &Entry, answer: Answer) {
        let Some(there) = self.catalog.tools.get_mut(asked.def.name.as_str()) else { return };
        // One that was replaced meanwhile has its own answer.
        let is_same = matches!((&there.availability.check, &asked.availability.check), (Some(a), Some(b)) if Arc::ptr_eq(a, b));
        if !is_same {
            return;
        }
        let before = there.derived.answer.as_ref().and_then(|answer| answer.reason.clone());
        if before == answer.reason {
            // That they said so again is no change that anybody wants to hear of.
            self.kept = true;
        } else {
            let reason = answer.reason.as_ref().map(|refusal| refusal.for_operator());
            self.events.push(Event::Availability { tool: asked.def.name.as_str().into(), reason });
            self.changed = true;
        }
        let mut next = Entry::clone(there);
        next.derived.answer = Some(answer);
        *there = Arc::new(next);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::registry::view::{Filter, View};
    use crate::testing::native_tool;

    /// Says what it is told to say.
    #[derive(Debug, Default)]
    struct Scripted(Mutex<&'static str>);

    impl Check for Scripted {
        fn check(&self) -> BoxFuture<'_, Result<(), Refusal>> {
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

    fn checked(name: &str, says: &'static str) -> (Entry, Arc<Scripted>) {
        let check = Arc::new(Scripted(Mutex::new(says)));
        let mut entry = native_tool(name);
        entry.availability.check = Some(Arc::clone(&check) as _);
        (entry, check)
    }

    fn why_not(registry: &Registry, name: &str) -> Option<String> {
        View::new(registry.snapshot(), Filter::default()).find(name).err().map(|error| error.message)
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_that_fails_takes_its_tool_out_and_breaks_nothing() {
        let registry = Arc::new(Registry::default());
        let tools = [("good", ""), ("bad", "no key"), ("panics", "panic"), ("hangs", "hang")];
        let mut bundle = Bundle::from(tools.map(|(name, says)| checked(name, says).0).to_vec());
        bundle.ask().await;
        registry.register(bundle).unwrap();
        for (name, reason) in [
            ("good", None),
            ("bad", Some("no key")),
            ("panics", Some("its check panicked")),
            ("hangs", Some("it did not say in time whether it is available")),
        ] {
            let text = reason.map(|reason| format!("Tool {name} is not currently available: {reason}"));
            assert_eq!(why_not(&registry, name), text);
        }
        assert!(!registry.schedule.is_due(), "an answer holds for a while");
    }

    #[tokio::test]
    async fn a_listing_goes_by_the_last_answer_and_asks_anew_behind_its_back() {
        let registry = Arc::new(Registry::default());
        let (entry, check) = checked("t", "");
        registry.register(entry).unwrap();
        *check.0.lock().unwrap() = "away";
        let mut events = registry.events().stream();
        let listed = registry.current();
        assert!(View::new(listed, Filter::default()).find("t").is_ok(), "nobody waits");
        let told = events.recv().await.unwrap();
        assert_eq!(told, Event::Availability { tool: "t".into(), reason: Some("away".to_owned()) });
        assert!(why_not(&registry, "t").unwrap().ends_with("away"));
        let revision = registry.snapshot().revision();
        registry.ask().await;
        assert_eq!(registry.snapshot().revision(), revision, "the answer is not old yet");
    }

    #[test]
    fn a_function_is_asked_when_its_tool_comes_in_also_without_a_runtime() {
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
        assert_eq!(registry.current().tools().len(), 3);
    }
}
