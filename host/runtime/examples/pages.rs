//! The code snippets of the documentation for embedders. A documentation test compares them with the pages. See `embed`
//! for a complete program.

#![allow(clippy::print_stdout, reason = "an example")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use toolbay::{
    CallResult, ConversationTurn, Filter, Host, Identity, OnCollision, PluginId, Policy, Session, ToolCall,
    ToolEntry, TurnContext,
};

type Done<T> = Result<T, Box<dyn std::error::Error>>;

#[rustfmt::skip]
async fn run_batch(base: PathBuf, cache: PathBuf, plugins: PathBuf) -> Done<Vec<CallResult>> {
    let policy = Policy::parse(&std::fs::read_to_string("toolbay.toml")?, &base, None)?;
    let host = Host::builder(policy).cache_dir(cache).build()?;
    let report = host.load_dir(&plugins).await?;
    let view = host.view(Filter::default());
    let calls = vec![ToolCall::new("1", "text__word_count", r#"{"text": "a b a"}"#)];
    let results = host.call_all(&view, calls, TurnContext::default()).await;
    println!("{} plugins", report.changes.len());
    Ok(results)
}

#[rustfmt::skip]
fn register_native(host: &Host) -> Done<()> {
    let started = Instant::now();
    use toolbay::ToolOutput;

    let now = toolbay::native_tool("now")
        .description("Says how long the program has been running.")
        .read_only()
        .run(move |_args, _ctx| async move { Ok(ToolOutput::text(format!("{:?}", started.elapsed()))) })?;
    host.register(now)?;
    host.unregister("now");
    Ok(())
}

#[rustfmt::skip]
async fn record(host: &Host, context: &TurnContext, text: String) -> Done<()> {
    let turn = ConversationTurn { role: "user".to_owned(), text, time: SystemTime::now() };
    host.record_turn(&PluginId::new("memory")?, context, &turn, Some(Duration::from_secs(90 * 86_400))).await?;
    Ok(())
}

#[rustfmt::skip]
fn add_to_view(host: &Host, tool: ToolEntry) -> Done<usize> {
    let turn = host.view(Filter::default()).with_bundle(vec![tool], OnCollision::Keep)?;
    let found = toolbay::discovery::search(&turn, "how long has it been running", 5)?;
    Ok(found.len())
}

#[rustfmt::skip]
fn add_hooks(host: &Host) {
    host.registry().add_hook(|tool| tool.has_tag("privileged").then(|| "not in this program".to_owned()));
    host.events().listen(|event| println!("{event:?}"));
}

#[rustfmt::skip]
fn reducer(host: &Host) -> Done<()> {
    use toolbay::reducers;

    let handle = host.registry().register_reducer(reducers::native("files__read_file", "read_file")?)?;
    assert!(host.registry().remove_reducer(&handle));
    Ok(())
}

#[tokio::main]
async fn main() -> Done<()> {
    let host = Host::builder(Policy::deny_all(Path::new("/"))).build()?;
    register_native(&host)?;
    add_hooks(&host);
    let identity = Identity { agent_id: Some("a".into()), ..Identity::default() };
    let session = Session::with_name("s").into();
    record(&host, &TurnContext { identity, session, ..TurnContext::default() }, "Hello!".to_owned()).await?;
    reducer(&host)?;
    let up = toolbay::native_tool("up").description("Says that the program is running.");
    let up = up.run(|_args, _ctx| async { Ok(toolbay::ToolOutput::text("yes")) })?;
    println!("{} tools found", add_to_view(&host, up)?);
    let mut args = std::env::args_os().skip(1);
    if let (Some(cache), Some(plugins)) = (args.next(), args.next()) {
        println!(
            "{} results",
            run_batch(std::env::current_dir()?, cache.into(), plugins.into()).await?.len()
        );
    }
    Ok(())
}
