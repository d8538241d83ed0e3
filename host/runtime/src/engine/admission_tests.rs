use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use super::fair::{KEPT_QUEUES, lock};
use super::*;

fn id(name: &str) -> PluginId {
    PluginId::new(name).unwrap()
}

fn admission(parallel_calls: u32, queued_calls: u32, queue_timeout: Duration) -> Arc<Admission> {
    let limits = HostLimits { parallel_calls, queued_calls, queue_timeout, ..HostLimits::default() };
    Arc::new(Admission::new(limits))
}

fn idle(admission: &Admission) -> bool {
    let state = lock(&admission.places.state);
    (state.free, state.waiting) == (admission.limits.parallel_calls, 0)
        && state.queues.len() <= KEPT_QUEUES
        && state.queues.values().all(|queue| queue.running == 0 && queue.waiting.is_empty())
        && state.turns.is_empty()
}

async fn until(admission: &Admission, waiting: u32) {
    while lock(&admission.places.state).waiting != waiting {
        tokio::task::yield_now().await;
    }
}

type Entered = tokio::task::JoinHandle<Result<(), Fault>>;

/// Enters in a task of its own and waits until it stands in the queue.
async fn queued(admission: &Arc<Admission>, plugin: &str, cancel: &CancellationToken) -> Entered {
    let before = lock(&admission.places.state).waiting;
    let task = tokio::spawn({
        let (admission, plugin, cancel) = (Arc::clone(admission), id(plugin), cancel.clone());
        async move { admission.enter(&plugin, 1000, &cancel).await.map(drop) }
    });
    until(admission, before + 1).await;
    task
}

#[tokio::test]
async fn beyond_the_queue_the_answer_is_busy() {
    let admission = admission(1, 1, Duration::from_millis(50));
    let cancel = CancellationToken::new();
    let first = admission.enter(&id("a"), 9, &cancel).await.unwrap();
    let second = queued(&admission, "a", &cancel).await;
    let third = admission.enter(&id("a"), 9, &cancel).await.unwrap_err();
    assert_eq!((third.kind, third.limit.as_ref().unwrap().name), (FaultKind::Busy, "queued_calls"));
    assert!(third.retry_after_ms.is_some_and(|ms| (10..=60_000).contains(&ms)), "{third:?}");
    let timed_out = second.await.unwrap().unwrap_err();
    assert_eq!(timed_out.limit.unwrap().name, "queue_timeout");
    drop(first);
    assert!(idle(&admission));
    assert!(admission.enter(&id("a"), 9, &cancel).await.is_ok());
    assert!(idle(&admission));
}

#[tokio::test]
async fn ten_thousand_of_one_delay_another_by_one_round() {
    let admission = admission(2, 20_000, Duration::from_secs(60));
    let cancel = CancellationToken::new();
    let running = [
        admission.enter(&id("greedy"), 1000, &cancel).await.unwrap(),
        admission.enter(&id("greedy"), 1000, &cancel).await.unwrap(),
    ];
    let (order, mut tasks) = (Arc::new(Mutex::new(Vec::new())), Vec::new());
    for n in 0..10_001 {
        // The quiet one comes last.
        let plugin = id(if n == 10_000 { "quiet" } else { "greedy" });
        let (admission, cancel, order) = (Arc::clone(&admission), cancel.clone(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let place = admission.enter(&plugin, 1000, &cancel).await.unwrap();
            order.lock().unwrap().push(plugin);
            drop(place);
        }));
    }
    until(&admission, 10_001).await;
    drop(running);
    for task in tasks {
        task.await.unwrap();
    }
    let order = order.lock().unwrap();
    let served = order.iter().position(|plugin| plugin.as_str() == "quiet").unwrap();
    assert!(served <= 3, "{served} calls of the greedy one came before");
    assert!(idle(&admission));
}

#[tokio::test]
async fn a_plugin_at_its_bound_waits_without_a_place() {
    let admission = admission(4, 100, Duration::from_millis(100));
    let cancel = CancellationToken::new();
    let two = [
        admission.enter(&id("a"), 2, &cancel).await.unwrap(),
        admission.enter(&id("a"), 2, &cancel).await.unwrap(),
    ];
    let busy = admission.enter(&id("a"), 2, &cancel).await.unwrap_err();
    assert_eq!(busy.limit.unwrap().setting, "[plugins.a.limits] concurrency = …");
    assert_eq!(admission.free(), 2);
    let other = admission.enter(&id("b"), 2, &cancel).await.unwrap();
    assert_eq!((admission.free(), other.queued_us), (1, 0));
    drop(two);
    assert!(admission.enter(&id("a"), 2, &cancel).await.is_ok());
    drop(other);
    assert!(idle(&admission));
}

/// The place of one that was at its bound goes to its next, though others were free all the time.
#[tokio::test]
async fn a_lane_at_its_bound_goes_on_when_one_of_its_calls_ends() {
    let admission = admission(4, 100, Duration::from_secs(10));
    let cancel = CancellationToken::new();
    let first = admission.enter(&id("a"), 1, &cancel).await.unwrap();
    let second = tokio::spawn({
        let (admission, cancel) = (Arc::clone(&admission), cancel.clone());
        async move { admission.enter(&id("a"), 1, &cancel).await.map(|place| place.queued_us) }
    });
    until(&admission, 1).await;
    drop(first);
    assert!(second.await.unwrap().is_ok());
    assert!(idle(&admission));
}

#[tokio::test]
async fn a_raised_bound_lets_the_waiting_in() {
    let admission = admission(4, 100, Duration::from_secs(10));
    let cancel = CancellationToken::new();
    let first = admission.enter(&id("a"), 1, &cancel).await.unwrap();
    let enter = |bound| {
        let (admission, cancel) = (Arc::clone(&admission), cancel.clone());
        tokio::spawn(async move { admission.enter(&id("a"), bound, &cancel).await })
    };
    let second = enter(1);
    until(&admission, 1).await;
    let (third, second) = (enter(3).await.unwrap(), second.await.unwrap());
    assert!(second.is_ok() && third.is_ok());
    drop((first, second, third));
    assert!(idle(&admission));
}

#[tokio::test]
async fn a_full_queue_costs_the_longest_lane() {
    let admission = admission(1, 4, Duration::from_secs(10));
    let cancel = CancellationToken::new();
    let running = admission.enter(&id("greedy"), 9, &cancel).await.unwrap();
    let mut greedy = Vec::new();
    for _ in 0..4 {
        greedy.push(queued(&admission, "greedy", &cancel).await);
    }
    let quiet = tokio::spawn({
        let (admission, cancel) = (Arc::clone(&admission), cancel.clone());
        async move { admission.enter(&id("quiet"), 9, &cancel).await.map(drop) }
    });
    let evicted = greedy.pop().unwrap().await.unwrap().unwrap_err();
    assert_eq!((evicted.kind, evicted.limit.unwrap().name), (FaultKind::Busy, "queued_calls"));
    assert!(admission.enter(&id("greedy"), 9, &cancel).await.is_err(), "who has the longest lane is refused");
    drop(running);
    quiet.await.unwrap().unwrap();
    for task in greedy {
        task.await.unwrap().unwrap();
    }
    assert!(idle(&admission));
}

#[tokio::test]
async fn who_gives_up_leaves_at_once() {
    let admission = admission(1, 10, Duration::from_secs(60));
    let (cancel, other) = (CancellationToken::new(), CancellationToken::new());
    let running = admission.enter(&id("a"), 9, &cancel).await.unwrap();
    let cancelled = queued(&admission, "a", &other).await;
    let aborted = queued(&admission, "b", &cancel).await;
    other.cancel();
    assert_eq!(cancelled.await.unwrap().unwrap_err().kind, FaultKind::Cancelled);
    aborted.abort();
    assert!(aborted.await.is_err());
    assert_eq!(lock(&admission.places.state).waiting, 0);
    drop(running);
    assert!(idle(&admission));
}

/// Granted and given up in the same moment: the place must not be lost. The task is never polled again after it was
/// granted its place.
#[tokio::test]
async fn a_place_granted_to_one_that_gave_up_is_given_on() {
    let admission = admission(1, 10, Duration::from_secs(60));
    let cancel = CancellationToken::new();
    let running = admission.enter(&id("a"), 9, &cancel).await.unwrap();
    let plugin = id("b");
    let mut waiting = Box::pin(admission.enter(&plugin, 9, &cancel));
    assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    drop(running);
    assert_eq!(admission.free(), 0, "it is granted");
    drop(waiting);
    assert!(idle(&admission));
}

/// Who holds a place, counted; also when the task that holds it is aborted.
struct Inside {
    all: Arc<AtomicU32>,
    each: Arc<Vec<AtomicU32>>,
    plugin: usize,
    before: (u32, u32),
    _place: FairPermit,
}

impl Inside {
    fn with(place: FairPermit, all: &Arc<AtomicU32>, each: &Arc<Vec<AtomicU32>>, plugin: usize) -> Self {
        let before = (all.fetch_add(1, SeqCst), each[plugin].fetch_add(1, SeqCst));
        Self { all: Arc::clone(all), each: Arc::clone(each), plugin, before, _place: place }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // Before the place is given back, which is dropped after this.
        self.all.fetch_sub(1, SeqCst);
        self.each[self.plugin].fetch_sub(1, SeqCst);
    }
}

/// Many plugins, bounds, cancellations, aborts and time-outs at random, on several threads: never more run than may,
/// neither in all nor of one plugin, everybody is answered, and in the end nothing is taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_happens_no_place_is_lost() {
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    for round in 0..20u32 {
        let (places, bound) = (1 + round % 5, 1 + round % 3);
        let admission =
            admission(places, 50 + 100 * (round % 3), Duration::from_millis(5 + 200 * u64::from(round % 2)));
        let all = Arc::new(AtomicU32::new(0));
        let each: Arc<Vec<AtomicU32>> = Arc::new((0..7).map(|_| AtomicU32::new(0)).collect());
        let mut tasks = Vec::new();
        for n in 0..600usize {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let (dice, plugin) = (seed, if seed.is_multiple_of(3) { n % 7 } else { 0 });
            let (admission, all, each) = (Arc::clone(&admission), Arc::clone(&all), Arc::clone(&each));
            let task = tokio::spawn(async move {
                let cancel = CancellationToken::new();
                if dice % 5 == 1 {
                    let cancel = cancel.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_micros(dice >> 8 & 0xfff)).await;
                        cancel.cancel();
                    });
                }
                let Ok(place) = admission.enter(&id(&format!("p{plugin}")), bound, &cancel).await else {
                    return;
                };
                let inside = Inside::with(place, &all, &each, plugin);
                assert!(inside.before.0 < places && inside.before.1 < bound, "{:?}", inside.before);
                match dice >> 20 & 3 {
                    0 => tokio::time::sleep(Duration::from_micros(dice >> 24 & 0x3ff)).await,
                    1 => tokio::task::yield_now().await,
                    _ => {}
                }
            });
            if dice.is_multiple_of(11) {
                task.abort();
            }
            tasks.push(task);
        }
        for task in tasks {
            let ended =
                tokio::time::timeout(Duration::from_secs(60), task).await.expect("somebody is never woken");
            assert!(ended.is_ok() || ended.unwrap_err().is_cancelled());
        }
        assert!(idle(&admission), "round {round}: {:?}", lock(&admission.places.state));
    }
}

#[tokio::test]
async fn a_place_that_was_lent_comes_back_before_anybody_begins() {
    let admission = admission(1, 10, Duration::from_secs(60));
    let cancel = CancellationToken::new();
    let lent = Lent::new(admission.enter(&id("a"), 1, &cancel).await.unwrap());
    lent.give();
    assert!(idle(&admission));
    // Also for its own plugin, one of which may run.
    let inner = admission.enter(&id("a"), 1, &cancel).await.unwrap();
    let newcomer = queued(&admission, "b", &cancel).await;
    let back = tokio::spawn(async move {
        lent.take_back().await;
        lent
    });
    while lock(&admission.places.state).returning.is_empty() {
        tokio::task::yield_now().await;
    }
    drop(inner);
    let lent = back.await.unwrap();
    assert!(!newcomer.is_finished() && lock(&admission.places.state).free == 0);
    drop(lent);
    newcomer.await.unwrap().unwrap();
    assert!(idle(&admission));
}

#[tokio::test]
async fn who_alone_waits_for_its_place_gets_the_next() {
    let admission = admission(1, 10, Duration::from_secs(60));
    let cancel = CancellationToken::new();
    let lent = Lent::new(admission.enter(&id("a"), 9, &cancel).await.unwrap());
    lent.give();
    let other = admission.enter(&id("b"), 9, &cancel).await.unwrap();
    let mut back = Box::pin(lent.take_back());
    assert!(futures_util::poll!(&mut back).is_pending());
    drop(other);
    tokio::time::timeout(Duration::from_secs(20), back).await.expect("nobody gave it the place");
    drop(lent);
    assert!(idle(&admission));
}

#[tokio::test]
async fn who_gives_up_waiting_for_its_place_leaves_nothing() {
    let admission = admission(1, 10, Duration::from_secs(60));
    let cancel = CancellationToken::new();
    let lent = Lent::new(admission.enter(&id("a"), 9, &cancel).await.unwrap());
    lent.give();
    let other = admission.enter(&id("b"), 9, &cancel).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(20), lent.take_back()).await.is_err());
    assert!(lock(&admission.places.state).returning.is_empty());
    // Granted, and dropped before it was looked at.
    let mut back = Box::pin(lent.take_back());
    assert!(futures_util::poll!(&mut back).is_pending());
    drop(other);
    drop(back);
    assert!(idle(&admission));
    drop(lent);
    assert!(idle(&admission));
}

#[tokio::test]
async fn those_that_call_others_are_counted_on_each_step() {
    let admission = admission(4, 1, Duration::from_millis(50));
    let (cancel, a) = (CancellationToken::new(), id("a"));
    let first = admission.caller(1, &a, &cancel).await.unwrap();
    assert!(first.is_some());
    let deeper = admission.caller(2, &a, &cancel).await.unwrap();
    assert!(deeper.is_some());
    for depth in [0, MAX_DEPTH + 1] {
        assert!(admission.caller(depth, &a, &cancel).await.unwrap().is_none());
    }
    // One waits, for as long as for a place; one more is too many.
    let (waits, refused) = tokio::join!(admission.caller(1, &a, &cancel), admission.caller(1, &a, &cancel));
    let [waits, refused] = [waits, refused].map(|busy| busy.unwrap_err().limit.unwrap().name);
    assert_eq!([waits, refused], ["parallel_calls", "queued_calls"]);
    drop(first);
    assert!(admission.caller(1, &a, &cancel).await.unwrap().is_some());
    let given_up = CancellationToken::new();
    given_up.cancel();
    let held = admission.caller(1, &a, &cancel).await.unwrap();
    assert_eq!(admission.caller(1, &a, &given_up).await.unwrap_err().kind, FaultKind::Cancelled);
    drop((held, deeper));
}

/// Takes all permits that a plugin gets without waiting.
fn all_of(permits: &FairSemaphore, plugin: &str, bound: u32) -> Vec<FairPermit> {
    std::iter::from_fn(|| permits.try_acquire(&id(plugin), bound)).collect()
}

#[tokio::test]
async fn plugins_that_wait_leave_places_to_those_that_run_none_or_few() {
    let bound = toolbay_policy::limits::Limits::default().concurrency;
    // With the default bound, and with a policy that undoes it.
    for (bound, few) in [(bound, 2), (64, 1)] {
        let admission = admission(64, 20_000, Duration::from_secs(60));
        let held: Vec<_> = ["a", "b", "c", "d"].map(|name| all_of(&admission.places, name, bound)).into();
        assert!(held.iter().all(|held| held.len() >= few), "each has its part");
        let fifth = all_of(&admission.places, "e", bound);
        assert!(fifth.len() >= few && admission.free() >= 8, "{bound}: {} {}", fifth.len(), admission.free());
        let more: Vec<_> = (0..8).map(|n| all_of(&admission.places, &format!("p{n}"), bound)).collect();
        assert!(more.iter().all(|held| !held.is_empty()), "{bound}");
        drop((held, fifth, more));
        assert!(idle(&admission));
    }
    let alone = admission(64, 1, Duration::from_secs(60));
    assert_eq!(all_of(&alone.places, "a", 64).len(), 48);
    // Too few to reserve any.
    for places in 1..4 {
        let alone = admission(places, 1, Duration::from_secs(60));
        assert_eq!(all_of(&alone.places, "a", 64).len(), places as usize);
    }
}

/// As many plugins as places fill the host; who comes then is served before those that had a place already.
#[tokio::test]
async fn among_many_plugins_a_newcomer_is_next() {
    let admission = admission(16, 1000, Duration::from_secs(60));
    let mut held: Vec<_> =
        (0..16).map(|n| admission.places.try_acquire(&id(&format!("p{n}")), 9).unwrap()).collect();
    let cancel = CancellationToken::new();
    let mut waiting = Vec::new();
    for n in 0..48 {
        waiting.push(queued(&admission, &format!("p{}", n % 16), &cancel).await);
    }
    let newcomer = tokio::spawn({
        let (admission, cancel) = (Arc::clone(&admission), cancel.clone());
        async move { admission.enter(&id("new"), 9, &cancel).await }
    });
    until(&admission, 49).await;
    drop(held.remove(3));
    let place = tokio::time::timeout(Duration::from_secs(20), newcomer).await.expect("others come first");
    assert_eq!(
        (lock(&admission.places.state).waiting, waiting.iter().any(|one| one.is_finished())),
        (48, false)
    );
    drop((place, held));
    for task in waiting {
        task.await.unwrap().unwrap();
    }
    assert!(idle(&admission));
}

/// Calls that come back for the place they lent do not take what is reserved for others.
#[tokio::test]
async fn places_that_were_lent_come_back_from_what_is_not_reserved() {
    let admission = admission(8, 100, Duration::from_secs(60));
    let lent: Vec<_> = all_of(&admission.places, "a", 64).into_iter().map(Lent::new).collect();
    assert_eq!(lent.len(), 6);
    lent.iter().for_each(Lent::give);
    let slow = all_of(&admission.places, "b", 64);
    assert_eq!(slow.len(), 6);
    let mut back: Vec<_> = lent.iter().map(|lent| Box::pin(lent.take_back())).collect();
    let mut came = 0;
    for back in &mut back {
        came += usize::from(futures_util::poll!(back).is_ready());
    }
    assert_eq!((came, admission.free()), (1, 1));
    let third = admission.places.try_acquire(&id("c"), 64);
    assert!(third.is_some(), "one is left to a plugin that runs none");
    drop((third, slow));
    for back in back.into_iter().skip(came) {
        tokio::time::timeout(Duration::from_secs(20), back).await.expect("it is never given its place");
    }
    drop(lent);
    assert!(idle(&admission));
}

#[tokio::test]
async fn those_that_call_others_leave_room_for_those_of_other_plugins() {
    let admission = admission(64, 100, Duration::from_millis(50));
    let cancel = CancellationToken::new();
    let mut held = Vec::new();
    for name in ["a", "b"] {
        while let Ok(caller) = admission.caller(1, &id(name), &cancel).await {
            held.push(caller);
        }
    }
    assert!(held.len() >= 8, "{}", held.len());
    for name in ["c", "d", "e"] {
        held.push(admission.caller(1, &id(name), &cancel).await.unwrap());
    }
}
