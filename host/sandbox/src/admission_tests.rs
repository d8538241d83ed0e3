use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use super::fair_semaphore::RETAINED_QUEUES;
use super::*;

fn id(name: &str) -> PluginId {
    PluginId::new(name).unwrap()
}

fn admission(parallel_calls: u32, queued_calls: u32, queue_timeout: Duration) -> Arc<ConcurrencyLimiter> {
    let limits = HostLimits { parallel_calls, queued_calls, queue_timeout, ..HostLimits::default() };
    Arc::new(ConcurrencyLimiter::new(limits))
}

fn is_idle(admission: &ConcurrencyLimiter) -> bool {
    let state = admission.permits.state.lock();
    (state.free, state.waiting) == (admission.limits.parallel_calls, 0)
        && state.queues.len() <= RETAINED_QUEUES
        && state.queues.values().all(|queue| queue.running == 0 && queue.waiting.is_empty())
        && state.runnable.is_empty()
}

async fn wait_until_queued(admission: &ConcurrencyLimiter, waiting: u32) {
    while admission.permits.state.lock().waiting != waiting {
        tokio::task::yield_now().await;
    }
}

type Admission = tokio::task::JoinHandle<Result<(), Fault>>;

/// Acquires a permit in a task, and waits until the task is in the queue.
async fn enqueue(admission: &Arc<ConcurrencyLimiter>, plugin: &str, cancel: &CancellationToken) -> Admission {
    let before = admission.permits.state.lock().waiting;
    let task = tokio::spawn({
        let (admission, plugin, cancel) = (Arc::clone(admission), id(plugin), cancel.clone());
        async move { admission.acquire(&plugin, 1000, &cancel).await.map(drop) }
    });
    wait_until_queued(admission, before + 1).await;
    task
}

#[tokio::test]
async fn a_call_beyond_the_queue_is_busy() {
    let admission = admission(1, 1, Duration::from_millis(50));
    let cancel = CancellationToken::new();
    let first = admission.acquire(&id("a"), 9, &cancel).await.unwrap();
    let second = enqueue(&admission, "a", &cancel).await;
    let third = admission.acquire(&id("a"), 9, &cancel).await.unwrap_err();
    assert_eq!((third.kind, third.limit.as_ref().unwrap().name), (FaultKind::Busy, "queued_calls"));
    assert!(third.retry_after_ms.is_some_and(|ms| (10..=60_000).contains(&ms)), "{third:?}");
    let timed_out = second.await.unwrap().unwrap_err();
    assert_eq!(timed_out.limit.unwrap().name, "queue_timeout");
    drop(first);
    assert!(is_idle(&admission));
    assert!(admission.acquire(&id("a"), 9, &cancel).await.is_ok());
    assert!(is_idle(&admission));
}

#[tokio::test]
async fn ten_thousand_calls_of_one_plugin_delay_another_by_one_round() {
    let admission = admission(2, 20_000, Duration::from_secs(60));
    let cancel = CancellationToken::new();
    let running = [
        admission.acquire(&id("greedy"), 1000, &cancel).await.unwrap(),
        admission.acquire(&id("greedy"), 1000, &cancel).await.unwrap(),
    ];
    let (order, mut tasks) = (Arc::new(Mutex::new(Vec::new())), Vec::new());
    for n in 0..10_001 {
        // The quiet plugin comes last.
        let plugin = id(if n == 10_000 { "quiet" } else { "greedy" });
        let (admission, cancel, order) = (Arc::clone(&admission), cancel.clone(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let permit = admission.acquire(&plugin, 1000, &cancel).await.unwrap();
            order.lock().unwrap().push(plugin);
            drop(permit);
        }));
    }
    wait_until_queued(&admission, 10_001).await;
    drop(running);
    for task in tasks {
        task.await.unwrap();
    }
    let order = order.lock().unwrap();
    let served = order.iter().position(|plugin| plugin.as_str() == "quiet").unwrap();
    assert!(served <= 3, "{served} calls of the greedy plugin came first");
    assert!(is_idle(&admission));
}

#[tokio::test]
async fn a_plugin_at_its_bound_waits_without_a_permit() {
    let admission = admission(4, 100, Duration::from_millis(100));
    let cancel = CancellationToken::new();
    let two = [
        admission.acquire(&id("a"), 2, &cancel).await.unwrap(),
        admission.acquire(&id("a"), 2, &cancel).await.unwrap(),
    ];
    let busy = admission.acquire(&id("a"), 2, &cancel).await.unwrap_err();
    assert_eq!(busy.limit.unwrap().setting.to_string(), "[plugins.a.limits] concurrency = …");
    assert_eq!(admission.free_permits(), 2);
    let other = admission.acquire(&id("b"), 2, &cancel).await.unwrap();
    assert_eq!((admission.free_permits(), other.queued_us), (1, 0));
    drop(two);
    assert!(admission.acquire(&id("a"), 2, &cancel).await.is_ok());
    drop(other);
    assert!(is_idle(&admission));
}

/// The permit of a plugin at its bound goes to the plugin's next call, though other permits were free all the time.
#[tokio::test]
async fn a_queue_at_its_bound_advances_when_a_call_ends() {
    let admission = admission(4, 100, Duration::from_secs(10));
    let cancel = CancellationToken::new();
    let first = admission.acquire(&id("a"), 1, &cancel).await.unwrap();
    let second = tokio::spawn({
        let (admission, cancel) = (Arc::clone(&admission), cancel.clone());
        async move { admission.acquire(&id("a"), 1, &cancel).await.map(|permit| permit.queued_us) }
    });
    wait_until_queued(&admission, 1).await;
    drop(first);
    assert!(second.await.unwrap().is_ok());
    assert!(is_idle(&admission));
}

#[tokio::test]
async fn a_raised_bound_admits_waiting_calls() {
    let admission = admission(4, 100, Duration::from_secs(10));
    let cancel = CancellationToken::new();
    let first = admission.acquire(&id("a"), 1, &cancel).await.unwrap();
    let enter = |bound| {
        let (admission, cancel) = (Arc::clone(&admission), cancel.clone());
        tokio::spawn(async move { admission.acquire(&id("a"), bound, &cancel).await })
    };
    let second = enter(1);
    wait_until_queued(&admission, 1).await;
    let (third, second) = (enter(3).await.unwrap(), second.await.unwrap());
    assert!(second.is_ok() && third.is_ok());
    drop((first, second, third));
    assert!(is_idle(&admission));
}

#[tokio::test]
async fn a_full_queue_evicts_from_the_longest_queue() {
    let admission = admission(1, 4, Duration::from_secs(10));
    let cancel = CancellationToken::new();
    let running = admission.acquire(&id("greedy"), 9, &cancel).await.unwrap();
    let mut greedy = Vec::new();
    for _ in 0..4 {
        greedy.push(enqueue(&admission, "greedy", &cancel).await);
    }
    let quiet = tokio::spawn({
        let (admission, cancel) = (Arc::clone(&admission), cancel.clone());
        async move { admission.acquire(&id("quiet"), 9, &cancel).await.map(drop) }
    });
    let evicted = greedy.pop().unwrap().await.unwrap().unwrap_err();
    assert_eq!((evicted.kind, evicted.limit.unwrap().name), (FaultKind::Busy, "queued_calls"));
    assert!(
        admission.acquire(&id("greedy"), 9, &cancel).await.is_err(),
        "the plugin with the longest queue is refused"
    );
    drop(running);
    quiet.await.unwrap().unwrap();
    for task in greedy {
        task.await.unwrap().unwrap();
    }
    assert!(is_idle(&admission));
}

#[tokio::test]
async fn a_call_that_gives_up_leaves_the_queue_at_once() {
    let admission = admission(1, 10, Duration::from_secs(60));
    let (cancel, other) = (CancellationToken::new(), CancellationToken::new());
    let running = admission.acquire(&id("a"), 9, &cancel).await.unwrap();
    let cancelled = enqueue(&admission, "a", &other).await;
    let aborted = enqueue(&admission, "b", &cancel).await;
    other.cancel();
    assert_eq!(cancelled.await.unwrap().unwrap_err().kind, FaultKind::Cancelled);
    aborted.abort();
    assert!(aborted.await.is_err());
    assert_eq!(admission.permits.state.lock().waiting, 0);
    drop(running);
    assert!(is_idle(&admission));
}

/// A permit granted to a waiter that gave up at the same moment must not be lost. The task is never polled again after
/// the grant.
#[tokio::test]
async fn a_permit_granted_to_a_call_that_gave_up_is_released() {
    let admission = admission(1, 10, Duration::from_secs(60));
    let cancel = CancellationToken::new();
    let running = admission.acquire(&id("a"), 9, &cancel).await.unwrap();
    let plugin = id("b");
    let mut waiting = Box::pin(admission.acquire(&plugin, 9, &cancel));
    assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    drop(running);
    assert_eq!(admission.free_permits(), 0, "the permit is granted");
    drop(waiting);
    assert!(is_idle(&admission));
}

/// Counts the holders of permits, also when a task is aborted.
struct PermitHolder {
    all: Arc<AtomicU32>,
    each: Arc<Vec<AtomicU32>>,
    plugin: usize,
    before: (u32, u32),
    _place: FairPermit,
}

impl PermitHolder {
    fn with(permit: FairPermit, all: &Arc<AtomicU32>, each: &Arc<Vec<AtomicU32>>, plugin: usize) -> Self {
        let before = (all.fetch_add(1, SeqCst), each[plugin].fetch_add(1, SeqCst));
        Self { all: Arc::clone(all), each: Arc::clone(each), plugin, before, _place: permit }
    }
}

impl Drop for PermitHolder {
    fn drop(&mut self) {
        // Runs before the permit is released: fields are dropped after this.
        self.all.fetch_sub(1, SeqCst);
        self.each[self.plugin].fetch_sub(1, SeqCst);
    }
}

/// Random plugins, bounds, cancellations, aborts and time-outs on several threads. The limits hold in total and per
/// plugin, every call is answered, and in the end all permits are free.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_permit_is_lost_under_random_load() {
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    for round in 0..20u32 {
        let (permits, bound) = (1 + round % 5, 1 + round % 3);
        let admission =
            admission(permits, 50 + 100 * (round % 3), Duration::from_millis(5 + 200 * u64::from(round % 2)));
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
                let Ok(permit) = admission.acquire(&id(&format!("p{plugin}")), bound, &cancel).await else {
                    return;
                };
                let holder = PermitHolder::with(permit, &all, &each, plugin);
                assert!(holder.before.0 < permits && holder.before.1 < bound, "{:?}", holder.before);
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
                tokio::time::timeout(Duration::from_secs(60), task).await.expect("a waiter is never woken");
            assert!(ended.is_ok() || ended.unwrap_err().is_cancelled());
        }
        assert!(is_idle(&admission), "round {round}: {:?}", admission.permits.state.lock());
    }
}

#[tokio::test]
async fn a_lent_permit_is_reclaimed_before_a_new_call_starts() {
    let admission = admission(1, 10, Duration::from_secs(60));
    let cancel = CancellationToken::new();
    let lent = LentPermit::new(admission.acquire(&id("a"), 1, &cancel).await.unwrap());
    lent.lend();
    assert!(is_idle(&admission));
    // A nested call of the same plugin may run, too.
    let inner = admission.acquire(&id("a"), 1, &cancel).await.unwrap();
    let newcomer = enqueue(&admission, "b", &cancel).await;
    let back = tokio::spawn(async move {
        lent.reclaim().await;
        lent
    });
    while admission.permits.state.lock().returning.is_empty() {
        tokio::task::yield_now().await;
    }
    drop(inner);
    let lent = back.await.unwrap();
    assert!(!newcomer.is_finished() && admission.permits.state.lock().free == 0);
    drop(lent);
    newcomer.await.unwrap().unwrap();
    assert!(is_idle(&admission));
}

#[tokio::test]
async fn a_single_reclaim_gets_the_next_permit() {
    let admission = admission(1, 10, Duration::from_secs(60));
    let cancel = CancellationToken::new();
    let lent = LentPermit::new(admission.acquire(&id("a"), 9, &cancel).await.unwrap());
    lent.lend();
    let other = admission.acquire(&id("b"), 9, &cancel).await.unwrap();
    let mut back = Box::pin(lent.reclaim());
    assert!(futures_util::poll!(&mut back).is_pending());
    drop(other);
    tokio::time::timeout(Duration::from_secs(20), back).await.expect("the permit was not granted");
    drop(lent);
    assert!(is_idle(&admission));
}

#[tokio::test]
async fn a_dropped_reclaim_leaves_no_trace() {
    let admission = admission(1, 10, Duration::from_secs(60));
    let cancel = CancellationToken::new();
    let lent = LentPermit::new(admission.acquire(&id("a"), 9, &cancel).await.unwrap());
    lent.lend();
    let other = admission.acquire(&id("b"), 9, &cancel).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(20), lent.reclaim()).await.is_err());
    assert!(admission.permits.state.lock().returning.is_empty());
    // Granted, and dropped before it was polled.
    let mut back = Box::pin(lent.reclaim());
    assert!(futures_util::poll!(&mut back).is_pending());
    drop(other);
    drop(back);
    assert!(is_idle(&admission));
    drop(lent);
    assert!(is_idle(&admission));
}

#[tokio::test]
async fn callers_are_counted_at_each_depth() {
    let admission = admission(4, 1, Duration::from_millis(50));
    let (cancel, a) = (CancellationToken::new(), id("a"));
    let first = admission.acquire_caller(1, &a, &cancel).await.unwrap();
    assert!(first.is_some());
    let deeper = admission.acquire_caller(2, &a, &cancel).await.unwrap();
    assert!(deeper.is_some());
    for depth in [0, MAX_DEPTH + 1] {
        assert!(admission.acquire_caller(depth, &a, &cancel).await.unwrap().is_none());
    }
    // One call waits until the queue time-out; another exceeds the queue.
    let (waits, refused) =
        tokio::join!(admission.acquire_caller(1, &a, &cancel), admission.acquire_caller(1, &a, &cancel));
    let [waits, refused] = [waits, refused].map(|busy| busy.unwrap_err().limit.unwrap().name);
    assert_eq!([waits, refused], ["parallel_calls", "queued_calls"]);
    drop(first);
    assert!(admission.acquire_caller(1, &a, &cancel).await.unwrap().is_some());
    let given_up = CancellationToken::new();
    given_up.cancel();
    let held = admission.acquire_caller(1, &a, &cancel).await.unwrap();
    assert_eq!(admission.acquire_caller(1, &a, &given_up).await.unwrap_err().kind, FaultKind::Cancelled);
    drop((held, deeper));
}

/// Acquires all permits that a plugin gets without waiting.
fn acquire_all(permits: &FairSemaphore, plugin: &str, bound: u32) -> Vec<FairPermit> {
    std::iter::from_fn(|| permits.try_acquire(&id(plugin), bound)).collect()
}

#[tokio::test]
async fn waiting_plugins_leave_permits_to_plugins_that_run_none_or_few() {
    let bound = toolbay_policy::limits::CallLimits::default().concurrency;
    // With the default bound, and with a policy that effectively removes it.
    for (bound, few) in [(bound, 2), (64, 1)] {
        let admission = admission(64, 20_000, Duration::from_secs(60));
        let held: Vec<_> =
            ["a", "b", "c", "d"].map(|name| acquire_all(&admission.permits, name, bound)).into();
        assert!(held.iter().all(|held| held.len() >= few), "each plugin has its share");
        let fifth = acquire_all(&admission.permits, "e", bound);
        assert!(
            fifth.len() >= few && admission.free_permits() >= 8,
            "{bound}: {} {}",
            fifth.len(),
            admission.free_permits()
        );
        let more: Vec<_> = (0..8).map(|n| acquire_all(&admission.permits, &format!("p{n}"), bound)).collect();
        assert!(more.iter().all(|held| !held.is_empty()), "{bound}");
        drop((held, fifth, more));
        assert!(is_idle(&admission));
    }
    let alone = admission(64, 1, Duration::from_secs(60));
    assert_eq!(acquire_all(&alone.permits, "a", 64).len(), 48);
    // Too few permits to reserve any.
    for permits in 1..4 {
        let alone = admission(permits, 1, Duration::from_secs(60));
        assert_eq!(acquire_all(&alone.permits, "a", 64).len(), permits as usize);
    }
}

/// As many plugins as permits fill the host. A new plugin is served before those that had a permit already.
#[tokio::test]
async fn among_many_plugins_a_newcomer_is_next() {
    let admission = admission(16, 1000, Duration::from_secs(60));
    let mut held: Vec<_> =
        (0..16).map(|n| admission.permits.try_acquire(&id(&format!("p{n}")), 9).unwrap()).collect();
    let cancel = CancellationToken::new();
    let mut waiting = Vec::new();
    for n in 0..48 {
        waiting.push(enqueue(&admission, &format!("p{}", n % 16), &cancel).await);
    }
    let newcomer = tokio::spawn({
        let (admission, cancel) = (Arc::clone(&admission), cancel.clone());
        async move { admission.acquire(&id("new"), 9, &cancel).await }
    });
    wait_until_queued(&admission, 49).await;
    drop(held.remove(3));
    let permit =
        tokio::time::timeout(Duration::from_secs(20), newcomer).await.expect("others are served first");
    assert_eq!(
        (admission.permits.state.lock().waiting, waiting.iter().any(|one| one.is_finished())),
        (48, false)
    );
    drop((permit, held));
    for task in waiting {
        task.await.unwrap().unwrap();
    }
    assert!(is_idle(&admission));
}

/// Calls that reclaim a lent permit do not take reserved permits.
#[tokio::test]
async fn lent_permits_are_not_reclaimed_from_the_reserve() {
    let admission = admission(8, 100, Duration::from_secs(60));
    let lent: Vec<_> = acquire_all(&admission.permits, "a", 64).into_iter().map(LentPermit::new).collect();
    assert_eq!(lent.len(), 6);
    lent.iter().for_each(LentPermit::lend);
    let slow = acquire_all(&admission.permits, "b", 64);
    assert_eq!(slow.len(), 6);
    let mut back: Vec<_> = lent.iter().map(|lent| Box::pin(lent.reclaim())).collect();
    let mut came = 0;
    for back in &mut back {
        came += usize::from(futures_util::poll!(back).is_ready());
    }
    assert_eq!((came, admission.free_permits()), (1, 1));
    let third = admission.permits.try_acquire(&id("c"), 64);
    assert!(third.is_some(), "one permit is left for a plugin that runs nothing");
    drop((third, slow));
    for back in back.into_iter().skip(came) {
        tokio::time::timeout(Duration::from_secs(20), back).await.expect("the permit is never granted");
    }
    drop(lent);
    assert!(is_idle(&admission));
}

#[tokio::test]
async fn callers_leave_room_for_callers_of_other_plugins() {
    let admission = admission(64, 100, Duration::from_millis(50));
    let cancel = CancellationToken::new();
    let mut held = Vec::new();
    for name in ["a", "b"] {
        while let Ok(caller) = admission.acquire_caller(1, &id(name), &cancel).await {
            held.push(caller);
        }
    }
    assert!(held.len() >= 8, "{}", held.len());
    for name in ["c", "d", "e"] {
        held.push(admission.acquire_caller(1, &id(name), &cancel).await.unwrap());
    }
}
