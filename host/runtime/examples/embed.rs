//! A program with a host inside: `cargo run -p toolbay --example embed -- toolbay.toml plugins`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toolbay::core::call::invoke::Failure;
use toolbay::core::call::{Progress, ProgressSink};
use toolbay::{Filter, Host, Policy, ToolCall, TurnContext};

/// Shows what running calls say. It is called from the call itself, so it must not block.
#[derive(Debug)]
struct Show;

impl ProgressSink for Show {
    fn progress(&self, event: Progress) {
        // With `{:?}`: the text is the guest's and may hold control characters.
        eprintln!("{}: {:?} {:?}", event.tool, event.message, event.percent);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(policy), Some(plugins)) = (args.next(), args.next()) else {
        return Err("usage: embed POLICY PLUGINS".into());
    };
    // A relative `workspace` in the policy is meant against the policy's own folder.
    let text = std::fs::read_to_string(&policy)?;
    let base = policy.canonicalize()?;
    let policy = Policy::parse(&text, base.parent().unwrap_or(Path::new("/")), None)?;

    let host = Host::builder(policy).build()?;
    for problem in host.load_dir(&plugins).await?.problems {
        eprintln!("{}: {}", problem.file.display(), problem.error);
    }

    // One turn of a model: what it sees and what it may call come from one view.
    let view = host.view(Filter::default());
    println!("{} tools", view.definitions().count());
    let turn = TurnContext { progress: Some(Arc::new(Show)), ..TurnContext::default() };

    // Clones of a token are one token: whoever fires it ends every call of the turn, here after ten seconds.
    let cancel = turn.cancel.clone();
    let watchdog = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(10)).await;
        cancel.cancel();
    });
    let calls = vec![
        ToolCall::new("1", "text__word_count", r#"{"text": "to be or not to be"}"#),
        ToolCall::new("2", "files__read_file", r#"{"path": "notes/plan.md"}"#),
        ToolCall::new("3", "text__no_such_tool", "{}"),
    ];
    // All run at once. Each gets a result, in the order of the calls; the batch itself cannot fail.
    for done in host.call_all(&view, calls, turn).await {
        match done.result {
            Ok(output) => {
                println!("{}: {} ({} fuel)", done.call_id, output.value, done.usage.fuel.unwrap_or_default());
            }
            // The tool, or a gate before it, said no: the model can read why and do better.
            Err(Failure::Refused(error)) => println!("{}: {}: {error}", done.call_id, error.code.as_str()),
            // The guest trapped or hit a limit: the message names the limit. What raises it is in `done.hints`.
            Err(Failure::Fault(fault)) => println!("{}: {}: {fault}", done.call_id, fault.kind.as_str()),
            // Our side failed: nothing that the model could do about.
            Err(Failure::Host(problem)) => eprintln!("{}: the host failed: {problem}", done.call_id),
        }
    }
    watchdog.abort();
    Ok(())
}
