//! The server for the official conformance suite (`cargo xtask test conformance`): Toolbay over HTTP, with the tools, prompts
//! and resources that the suite expects by name.
//!
//! A plugin provides most of them, `tests/guests/examples/api_everything.rs`; `tools.rs` has those that need native
//! code. Names of plugin tools start with the plugin's id, and the suite's names do not, so the server registers them
//! again under their bare names.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test, which clippy does not see"
)]

mod tools;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::net::TcpListener;
use toolbay::core::registry::event::Events;
use toolbay::core::registry::native;
use toolbay::core::registry::{Registry, ToolEntry};
use toolbay::core::tool::ToolDef;
use toolbay::core::tool::content::ToolOutput;
use toolbay::core::tool::prompts_and_resources::{PromptsAndResources, PromptsAndResourcesDocument};
use toolbay::policy::name::{QualifiedName, ToolName};
use toolbay::policy::serve::ServePolicy;
use toolbay::{Filter, Host, PluginId, Policy};
use toolbay_mcp::{KeyFetcher, McpHttpServer, Options, Server, ShutdownSignals};

/// The prefix of the suite's resource URIs.
const BASE: &str = "test://";
/// After this time a call becomes a task. The suite polls a task for ten seconds.
const TASK_AFTER: Duration = Duration::from_secs(4);

#[tokio::main]
async fn main() -> Result<()> {
    let policy = Policy::parse("version = 1", &std::env::current_dir()?, None)?;
    let host = Host::builder(policy).build()?;
    host.load_file(PluginId::new("everything")?, Path::new(guest_artifacts::API_EVERYTHING)).await?;
    let events = Events::default();
    let registry = Arc::new(Registry::new(events.clone()));
    registry.register(of_plugin(&host)?)?;
    registry.register(tools::all()?)?;
    registry.register(triggers(&registry)?)?;
    let options = Options { logging: true, task_after: TASK_AFTER, ..Options::default() };
    let server = Server::new(registry, host.pipeline().clone(), Filter::default(), options);
    let changed = server.clone();
    events.listen(move |_| changed.notify_changed());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let http = McpHttpServer::new(
        server,
        ServePolicy::default(),
        vec![address],
        KeyFetcher::disabled(),
        ShutdownSignals::default(),
    );
    println!("http://{address}/mcp");
    http.map_err(anyhow::Error::msg)?.run(vec![listener]).await;
    Ok(())
}

/// The tools of the plugin under their bare names, and its resources under the suite's URIs.
fn of_plugin(host: &Host) -> Result<Vec<ToolEntry>> {
    let info = host.plugin("everything").context("the plugin was not loaded")?;
    let document = info.prompts_and_resources.context("the plugin offers nothing")?;
    let offers = Arc::new(PromptsAndResources::from_native(&document, BASE).map_err(anyhow::Error::msg)?);
    let tools = host.registry().snapshot().bundle(|_| true).tools;
    let bare = |entry: ToolEntry| {
        let name = QualifiedName::from_native(&ToolName::new(entry.def.name.tool_part())?);
        let def = Arc::new(ToolDef { name, ..ToolDef::clone(&entry.def) });
        Ok(ToolEntry { def, prompts_and_resources: Some(Arc::clone(&offers)), ..entry })
    };
    tools.into_iter().filter(|entry| entry.def.source.plugin().is_some()).map(bare).collect()
}

/// Tools that change the list of tools and the list of prompts on each call.
fn triggers(registry: &Arc<Registry>) -> Result<Vec<ToolEntry>> {
    let prompt = r#"{"version": 1, "prompts": [{"name": "changed", "description": "There or not.",
        "messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}]}]}"#;
    let offers = PromptsAndResources::from_native(
        &PromptsAndResourcesDocument::parse(prompt).map_err(anyhow::Error::msg)?,
        BASE,
    );
    let offers = Arc::new(offers.map_err(anyhow::Error::msg)?);
    let plain = || {
        native::tool("changed_tool")
            .description("There or not.")
            .run(|_, _| async { Ok(ToolOutput::text("here")) })
    };
    let with_prompt = move || {
        let entry = native::tool("changed_prompt").description("There or not.");
        let entry = entry.run(|_, _| async { Ok(ToolOutput::text("here")) });
        entry.map(|entry| ToolEntry { prompts_and_resources: Some(Arc::clone(&offers)), ..entry })
    };
    Ok(vec![
        trigger("test_trigger_tool_change", "changed_tool", registry, plain)?,
        trigger("test_trigger_prompt_change", "changed_prompt", registry, with_prompt)?,
    ])
}

fn trigger(
    name: &str,
    changes: &'static str,
    registry: &Arc<Registry>,
    make: impl Fn() -> Result<ToolEntry, native::DefinitionError> + Send + Sync + 'static,
) -> Result<ToolEntry> {
    // Weak, because the registry holds the tool.
    let registry = Arc::downgrade(registry);
    let tool = native::tool(name).description(format!("The suite's `{name}`."));
    Ok(tool.run(move |_, _| {
        if let Some(registry) = registry.upgrade()
            && !registry.unregister(changes)
        {
            registry.register(make().unwrap()).unwrap();
        }
        async { Ok(ToolOutput::text("changed")) }
    })?)
}
