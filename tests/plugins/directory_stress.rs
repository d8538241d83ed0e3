//! Hundreds of reloads under load: no call is lost, and no resource leaks.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use integration_tests::{in_a_process, outcome, policy};
use toolbay::{Filter, Host, ToolCall, TurnContext};

use super::directory_watch::{HANGS, WatchedHost, call, echo, put};
use crate::sandbox::leaks::ProcessResources;

/// Each view has the tools of one version, never of two.
fn one_version(host: &Host) -> usize {
    let view = host.view(Filter::default());
    let digests: BTreeSet<_> = view
        .definitions()
        .filter(|entry| entry.def.name.as_str().starts_with("swap__"))
        .map(|entry| format!("{:?}", entry.def.source))
        .collect();
    assert!(digests.len() <= 1, "a listing of two versions: {digests:?}");
    view.definitions().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_and_listings_continue_while_the_directory_is_rewritten() {
    let mut living = WatchedHost::new("").await;
    living.put("stay.wasm", &echo(1));
    living.put("swap.wasm", &echo(1));
    living.until_added("swap").await;
    if living.host.plugin("stay").is_none() {
        living.until_added("stay").await;
    }
    let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|n| {
            let (host, stop, answers) = (living.host.clone(), Arc::clone(&stop), Arc::clone(&answers));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    one_version(&host);
                    drop(host.explain("swap__echo", None));
                    let view = host.view(Filter::default());
                    let names = ["stay__echo", "swap__echo", "bad__echo"];
                    let calls: Vec<_> =
                        names.iter().map(|name| ToolCall::new(n.to_string(), *name, r#"{"a":1}"#)).collect();
                    let known: Vec<bool> = names.iter().map(|name| view.find(name).is_ok()).collect();
                    let delivered = host.call_all(&view, calls, TurnContext::default()).await;
                    assert_eq!(delivered.len(), 3, "every call gets its answer");
                    for (one, known) in delivered.iter().zip(known) {
                        let expected = if known { "ok" } else { "not_available" };
                        assert_eq!(outcome(one), expected, "{one:?}");
                    }
                    assert_eq!(outcome(&delivered[0]), "ok");
                    answers.fetch_add(3, Ordering::Relaxed);
                    // The compilations need the cores, too.
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            })
        })
        .collect();
    // Twenty times through each kind of change, and six new policies.
    for round in 1..=100_u8 {
        match round % 5 {
            0 => drop(fs::remove_file(living.at("swap.wasm"))),
            1 | 3 => living.put("swap.wasm", &echo(round % 4)),
            2 => living.put("swap.wasm", b"junk"),
            _ => living.put("bad.wasm", &echo(2)[..usize::from(round) * 100]),
        }
        if round.is_multiple_of(16) {
            living.watch.reload();
            living.host.reload_policy(policy("[limits]\ntimeout = \"9s\"", living.dir.path())).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        tokio::time::timeout(HANGS, caller).await.expect("a caller hangs").unwrap();
    }
    assert!(answers.load(Ordering::Relaxed) > 0);
    living.put("swap.wasm", &echo(7));
    living.put("end.wasm", &echo(7));
    living.until_added("end").await;
    living.host.rescan().await;
    assert_eq!(living.call("swap__echo", "{}").await.0, "ok");
    assert_eq!(living.digest("swap"), living.digest("end"));
    assert_eq!(living.host.available_call_permits(), living.host.policy().host().parallel_calls as usize);
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_replacements_leave_nothing() {
    if in_a_process("plugins::directory_stress::hundreds_of_replacements_leave_nothing", "ulimit -c 0") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (plugins, cache) = (dir.path().join("plugins"), dir.path().join("cache"));
    fs::create_dir(&plugins).unwrap();
    let text = "[plugins.p.grant]\nfs_read = [\"$workspace\"]\nkv = [\"tool\"]\n";
    let builder =
        Host::builder(policy(text, dir.path())).cache_dir(&cache).state_dir(dir.path().join("state"));
    let host = builder.build().unwrap();
    let watch = host.watch(&plugins, super::directory_watch::quick()).await;
    let round = async |from: usize, to: usize| {
        for n in from..to {
            put(&plugins.join("p.wasm"), &echo(u8::try_from(n % 2).unwrap()));
            if n % 10 == 5 {
                put(&plugins.join("p.wasm"), b"junk");
            }
            host.rescan().await;
            if n % 20 == 0 {
                // Another workspace each time, so other folders are opened and the old ones closed.
                let other = dir.path().join(format!("work-{}", n % 60));
                fs::create_dir_all(&other).unwrap();
                host.reload_policy(policy(text, &other)).await.unwrap();
            }
            assert_eq!(call(&host, "p__echo", "{}").await.0, "ok");
        }
    };
    // The first rounds fill the cache, the pools and the allocator's arenas.
    round(0, 100).await;
    let (before, files) = (ProcessResources::now(), fs::read_dir(&cache).unwrap().count());
    round(100, 500).await;
    let mut after = ProcessResources::now();
    // The runtime keeps idle threads for blocking work for ten seconds, and has more of them on a loaded machine.
    for _ in 0..300 {
        if after.threads <= before.threads + 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        after.threads = ProcessResources::now().threads;
    }
    println!("{before:?}\n{after:?}");
    assert_eq!(fs::read_dir(&cache).unwrap().count(), files, "two versions have two entries");
    assert!(after.resident_mib < before.resident_mib + 20, "{before:?}, then {after:?}");
    assert!(
        after.threads <= before.threads + 4 && after.files <= before.files + 2,
        "{before:?}, then {after:?}"
    );
    drop(watch);
}
