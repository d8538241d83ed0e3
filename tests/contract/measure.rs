//! The cost of a call: in a fresh instance, and in an instance that has served calls before (`reuse`). Only the
//! instance is measured, without the pipeline around it.

use std::sync::Arc;

use anyhow::Result;
use integration_tests::TestHost;
use toolbay::core::session::Session;
use toolbay::{Filter, ToolCall, TurnContext};

use crate::{BuiltPlugin, ID};

/// Calls before the measured ones, and the measured ones.
const WARM: usize = 50;
const CALLS: usize = 400;
/// How far a result on a shared test machine may exceed the goal.
const SLACK: f64 = 3.0;

/// A host for one language, with or without reused instances.
struct LanguageFigures {
    host: TestHost,
    session: Arc<Session>,
    times: Vec<u64>,
    memory: u64,
}

impl LanguageFigures {
    async fn new(language: &BuiltPlugin, policy: &str) -> Self {
        let host = language.host(policy);
        host.load(ID, &language.component.to_string_lossy()).await;
        Self { host, session: Arc::new(Session::with_random_key()), times: Vec::new(), memory: 0 }
    }

    async fn call(&mut self, counts: bool) {
        let call = ToolCall::new("1", format!("{ID}__echo"), r#"{"text": "hello"}"#);
        let turn = TurnContext { session: Arc::clone(&self.session), ..TurnContext::default() };
        let view = self.host.host.view(Filter::default());
        let delivered = self.host.host.call_all(&view, vec![call], turn).await.pop().unwrap();
        assert_eq!(integration_tests::value(&delivered), "hello");
        self.memory = delivered.usage.peak_memory_bytes;
        if counts {
            self.times.push(delivered.usage.wall_us);
        }
    }
}

/// Measures `echo` in each language in turn, so that other load affects all of them alike.
pub(crate) async fn run(languages: &[BuiltPlugin]) -> Result<()> {
    let (mut hosts, mut reused) = (Vec::new(), Vec::new());
    for language in languages {
        hosts.push(LanguageFigures::new(language, "").await);
        reused.push(LanguageFigures::new(language, &format!("[plugins.{ID}]\nreuse = 1000")).await);
    }
    for round in 0..WARM + CALLS {
        for host in hosts.iter_mut().chain(&mut reused) {
            host.call(round >= WARM).await;
        }
    }
    for (language, host) in languages.iter().zip(&reused) {
        assert_eq!(host.host.host.idle_instances(), 1, "{} leaves nothing open", language.name);
    }
    let median = |LanguageFigures { times, .. }: &mut LanguageFigures| {
        times.sort_unstable();
        times[times.len() / 2].max(1) as f64
    };
    let medians: Vec<f64> = hosts.iter_mut().map(median).collect();
    let again: Vec<f64> = reused.iter_mut().map(median).collect();
    println!("\n{:<12}{:>12}{:>10}{:>8}{:>12}{:>10}", "", "fresh call", "x Rust", "goal", "memory", "reused");
    let memory = hosts.iter().map(|host| host.memory);
    for (((language, time), again), bytes) in languages.iter().zip(&medians).zip(&again).zip(memory) {
        let ratio = time / medians[0];
        let BuiltPlugin { name, goal, .. } = language;
        println!("{name:<12}{time:>9} us{ratio:>9.1}x{goal:>7}x{:>8} KiB{again:>7} us", bytes / 1024);
        assert!(ratio <= goal * SLACK, "{name} takes {ratio:.1} times what Rust takes");
    }
    Ok(())
}
