//! `Host::unload` is synchronous: it may run on every thread of the runtime while plugins are installed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use integration_tests::{cache_dir, policy};
use toolbay::{Filter, Host, PluginId};

/// A test that takes this long hangs.
const HANGS: Duration = Duration::from_secs(120);
const ROUNDS: usize = 20;

fn id(text: &str) -> PluginId {
    PluginId::new(text).unwrap()
}

/// Installs a plugin whose tools are checked, again and again, while the only thread of the runtime unloads another one.
async fn install_beside_unload() {
    let workspace = tempfile::tempdir().unwrap();
    let host = Host::builder(policy("", workspace.path())).cache_dir(cache_dir()).build().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let unloading = {
        let (host, is_over) = (host.clone(), Arc::clone(&is_over));
        tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                host.unload(&id("other"));
                tokio::task::yield_now().await;
            }
        })
    };
    for _ in 0..ROUNDS {
        for (name, guest) in [("a", guest_artifacts::API_AVAILABLE), ("other", guest_artifacts::API_ECHO)] {
            host.load_file(id(name), guest.as_ref()).await.unwrap();
        }
        assert!(host.unload(&id("a")));
    }
    is_over.store(true, Ordering::Relaxed);
    unloading.await.unwrap();
    host.load_file(id("a"), guest_artifacts::API_AVAILABLE.as_ref()).await.unwrap();
    assert!(host.view(Filter::default()).definitions().next().is_some(), "a checked tool is listed at once");
}

#[test]
fn unloading_on_every_thread_of_the_runtime_never_blocks_an_install() {
    let (ended, wait) = channel();
    // Ends with the test; a thread that hangs ends with the process.
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let install = runtime.spawn(install_beside_unload());
        ended.send(runtime.block_on(install)).unwrap();
    });
    wait.recv_timeout(HANGS).expect("an install and an unload wait for each other").unwrap();
}
