//! A program with a host inside: `cargo run -p toolbay --example embed -- toolbay.toml plugins "$(command -v toolbay)"`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toolbay::{Failure, Filter, Host, Policy, ProgressEvent, ProgressSink, ToolCall, TurnContext};

/// Prints the progress of running calls. The host calls it from the call's task, so it must not block.
#[derive(Debug)]
struct ProgressPrinter;

impl ProgressSink for ProgressPrinter {
    fn progress(&self, event: ProgressEvent) {
        // `{:?}` escapes: the text comes from the guest and may contain control characters.
        eprintln!("{}: {:?} {:?}", event.tool, event.message, event.percent);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(policy), Some(plugins)) = (args.next(), args.next()) else {
        return Err("usage: embed POLICY PLUGINS [TOOLBAY]".into());
    };
    // A relative `workspace` in the policy is resolved against the policy's folder.
    let text = std::fs::read_to_string(&policy)?;
    let base = policy.canonicalize()?;
    let policy = Policy::parse(&text, base.parent().unwrap_or(Path::new("/")), None)?;

    let mut builder = Host::builder(policy);
    // The command `toolbay` of the same version compiles plugins, in a sandboxed process. Its compiler is optimized, also if
    // this program is not.
    if let Some(toolbay) = args.next() {
        builder = builder.compile_worker(toolbay);
    }
    let host = builder.build()?;
    for problem in host.load_dir(&plugins).await?.problems {
        eprintln!("{}: {}", problem.file.display(), problem.error);
    }

    // One turn of a model: the definitions that it sees and the calls it may make come from one view.
    let view = host.view(Filter::default());
    println!("{} tools", view.definitions().count());
    let turn = TurnContext { progress: Some(Arc::new(ProgressPrinter)), ..TurnContext::default() };

    // All clones of the token cancel every call of the turn. This task cancels after ten seconds.
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
    // The calls run in parallel. Each gets a result, in the order of the calls; the batch itself cannot fail.
    for done in host.call_all(&view, calls, turn).await {
        match done.result {
            Ok(output) => {
                println!("{}: {} ({} fuel)", done.call_id, output.value, done.usage.fuel.unwrap_or_default());
            }
            // The tool or a check before it refused the call. The model can read the reason and correct the call.
            Err(Failure::Refused(error)) => println!("{}: {}: {error}", done.call_id, error.code.as_str()),
            // The guest trapped or reached a limit, which the message names. `done.hints` says how to raise it.
            Err(Failure::Fault(fault)) => println!("{}: {}: {fault}", done.call_id, fault.kind.as_str()),
            // The host failed. The model cannot do anything about it.
            Err(Failure::Host(problem)) => eprintln!("{}: the host failed: {problem}", done.call_id),
        }
    }
    watchdog.abort();
    Ok(())
}
