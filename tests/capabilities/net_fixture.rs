//! A host whose plugin sends requests to servers of the test.

use std::time::Duration;

use integration_tests::TestHost;
use serde_json::{Value, json};

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

pub(crate) fn kind(said: &Value) -> &str {
    said["error"].as_str().unwrap_or("ok")
}

pub(crate) fn message(said: &Value) -> &str {
    said["message"].as_str().unwrap_or("")
}

pub(crate) fn hello(_: &crate::loopback::ReceivedRequest) -> LoopbackReply {
    response(200, "x-a: b\r\n", "hello")
}
