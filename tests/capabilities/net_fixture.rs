//! A host whose plugin sends requests to servers of the test.

use std::time::{Duration, Instant};

use integration_tests::{TestHost, outcome, structured};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolbay::{CallResult, Filter, Host, ToolCall, TurnContext};

use crate::loopback::{LoopbackReply, LoopbackServer, response};

pub(crate) const SOON: Duration = Duration::from_secs(25);

/// A host whose plugin `net` has these lines in its grant.
pub(crate) async fn host(grant: &str) -> TestHost {
    TestHost::new(&[("net", guest_artifacts::CAP_NET)], &format!("[plugins.net.grant]\n{grant}")).await
}

/// A host with every grant for these servers.
pub(crate) async fn open(servers: &[&LoopbackServer]) -> TestHost {
    host(&lines(servers, &["127.0.0.1"])).await
}

pub(crate) fn lines(servers: &[&LoopbackServer], private: &[&str]) -> String {
    let net: Vec<_> = servers.iter().map(|s| s.url("")).collect();
    format!("net = {}\nnet_private = {}", json!(net), json!(private))
}

pub(crate) async fn fetch(host: &TestHost, args: Value) -> Value {
    host.ask("net__fetch", args).await
}

/// Calls that wait for a server, each in a task of its own, until they are cancelled.
pub(crate) struct WaitingCalls {
    running: Vec<JoinHandle<CallResult>>,
    cancel: CancellationToken,
}

impl WaitingCalls {
    pub(crate) fn start(host: &Host, calls: Vec<ToolCall>) -> Self {
        let cancel = CancellationToken::new();
        let one = |call| {
            let (host, view) = (host.clone(), host.view(Filter::default()));
            let turn = TurnContext { cancel: cancel.clone(), ..TurnContext::default() };
            tokio::spawn(async move { host.call_all(&view, vec![call], turn).await.remove(0) })
        };
        Self { running: calls.into_iter().map(one).collect(), cancel: cancel.clone() }
    }

    /// Waits until this many have ended, and not by cancellation.
    pub(crate) async fn until_ended(&self, count: usize) {
        let start = Instant::now();
        while self.running.iter().filter(|one| one.is_finished()).count() < count {
            assert!(start.elapsed() < SOON, "too few calls end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Cancels those that still wait. The results are those that ended, then the number of cancelled calls.
    pub(crate) async fn cancel(self) -> (Vec<Value>, usize) {
        self.cancel.cancel();
        let (mut ended, mut cancelled) = (Vec::new(), 0);
        for one in self.running {
            let delivered = one.await.unwrap();
            match outcome(&delivered) {
                "cancelled" => cancelled += 1,
                _ => ended.push(structured(&delivered)),
            }
        }
        (ended, cancelled)
    }
}

pub(crate) fn kind(said: &Value) -> &str {
    said["error"].as_str().unwrap_or("ok")
}

pub(crate) fn message(said: &Value) -> &str {
    said["message"].as_str().unwrap_or("")
}

pub(crate) fn hello(_: &crate::loopback::ReceivedRequest) -> LoopbackReply {
    response(200, "x-a: b\r\n", "hello")
}
