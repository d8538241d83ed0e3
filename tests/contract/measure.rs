//! What a call costs: a fresh instance each time, the time of the instance alone, without the way of the call around it.

use anyhow::Result;
use integration_tests::TestHost;
use toolbay::core::session::Session;
use toolbay::{Filter, ToolCall, TurnContext};

use crate::{ID, Language};

/// Calls before the ones that count, and those.
const WARM: usize = 50;
const CALLS: usize = 400;
/// How far beyond a goal the shared machines of tests may be.
const SLACK: f64 = 3.0;

/// Measures `echo` in each language, in turns, so that what else the machine does meets all alike.
pub(crate) async fn run(languages: &[Language]) -> Result<()> {
    let mut hosts = Vec::new();
    for language in languages {
        let host = TestHost::empty("");
        host.load(ID, &language.component.to_string_lossy()).await;
        hosts.push((host, Vec::new()));
    }
    let mut memory = vec![0; hosts.len()];
    for round in 0..WARM + CALLS {
        for (index, (host, times)) in hosts.iter_mut().enumerate() {
            let call = ToolCall::new("1", format!("{ID}__echo"), r#"{"text": "hello"}"#);
            let turn =
                TurnContext { session: std::sync::Arc::new(Session::default()), ..TurnContext::default() };
            let view = host.host.view(Filter::default());
            let delivered = host.host.call_all(&view, vec![call], turn).await.pop().unwrap();
            assert_eq!(integration_tests::value(&delivered), "hello");
            memory[index] = delivered.usage.peak_memory_bytes;
            if round >= WARM {
                times.push(delivered.usage.wall_us);
            }
        }
    }
    let median = |times: &mut Vec<u64>| {
        times.sort_unstable();
        times[times.len() / 2].max(1) as f64
    };
    let medians: Vec<f64> = hosts.iter_mut().map(|(_, times)| median(times)).collect();
    println!("\n{:<12}{:>12}{:>10}{:>8}{:>12}", "", "fresh call", "x Rust", "goal", "memory");
    for ((language, time), bytes) in languages.iter().zip(&medians).zip(memory) {
        let ratio = time / medians[0];
        let Language { name, goal, .. } = language;
        println!("{name:<12}{time:>9} us{ratio:>9.1}x{goal:>7}x{:>8} KiB", bytes / 1024);
        assert!(ratio <= goal * SLACK, "{name} takes {ratio:.1} times what Rust takes");
    }
    Ok(())
}
