//! Runs the sample plugins of the SDKs, each under the policy beside it.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use toolbay::core::session::Session;
use toolbay::{Filter, Host, PluginId, Policy, ToolCall, TurnContext};

/// Plugin, folder of its policy, tool, arguments, and a part of the expected result.
type SampleCall = (&'static str, &'static str, &'static str, fn() -> Value, &'static str);

const CALLS: [SampleCall; 6] = [
    ("tables", "sdk/js/example", "describe_table", || json!({"path": "c.csv"}), r#""rows":3"#),
    (
        "tables",
        "sdk/js/example",
        "query_table",
        || json!({"path": "c.csv", "where": "people", "is": "at-least", "value": "150000", "sort": "people", "columns": ["city"]}),
        "| city |\n| --- |\n| Basel |\n| Genf |",
    ),
    ("numeric", "sdk/python/example", "calculate", || json!({"expression": "0.1 + 0.2"}), "0.3 (3/10)"),
    (
        "numeric",
        "sdk/python/example",
        "summarize",
        || json!({"path": "c.csv", "column": "people"}),
        r#""count":3,"mean":170666.66666666666"#,
    ),
    (
        "bytes",
        "sdk/c/example",
        "hex_dump",
        || json!({"path": "c.csv", "bytes": 8}),
        "63 69 74 79 2c 70 65 6f",
    ),
    ("bytes", "sdk/c/example", "checksum", || json!({"path": "c.csv"}), r#"{"crc32":"d93c7cbb","bytes":49}"#),
];

const CITIES: &str = "city,people\nBern,134000\nBasel,175000\nGenf,203000\n";

/// A guest that exceeds its memory limit gets an error, and the hint names the line that raises the limit.
async fn names_the_limit(components: &Path, root: &Path) -> Result<()> {
    let policy = Policy::parse("version = 1\n[plugins.numeric.limits]\nmemory = \"8MiB\"", root, None)?;
    let host = Host::builder(policy).cache_dir(integration_tests::cache_dir()).build()?;
    let file = components.join("numeric.wasm");
    let said = match host.load_file(PluginId::new("numeric")?, &file).await {
        Err(error) => error.to_string(),
        Ok(_) => {
            let call = ToolCall::new("1", "numeric__calculate", r#"{"expression": "1"}"#);
            let view = host.view(Filter::default());
            let delivered = host.call_all(&view, vec![call], TurnContext::default()).await;
            let hints = delivered.iter().flat_map(|delivered| &delivered.hints.lines);
            hints.map(ToString::to_string).collect()
        }
    };
    ensure!(said.contains("[plugins.numeric.limits] memory"), "it says only: {said}");
    Ok(())
}

/// Calls each tool.
pub(crate) async fn run(components: &Path) -> Result<()> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = tempfile::tempdir()?;
    let root = folder.path().canonicalize()?;
    std::fs::write(root.join("c.csv"), CITIES)?;
    for (plugin, example, tool, args, expected) in CALLS {
        let policy = std::fs::read_to_string(project.join(example).join("toolbay.toml"))?;
        let policy =
            Policy::parse(&policy, &root, None).with_context(|| format!("the policy of `{plugin}`"))?;
        let mut builder = Host::builder(policy).cache_dir(integration_tests::cache_dir());
        if example == "sdk/python/example" {
            builder = builder.compile_base(crate::interpreter(components));
        }
        let host = builder.build()?;
        host.load_file(PluginId::new(plugin)?, &components.join(plugin).with_extension("wasm")).await?;
        let call = ToolCall::new("1", format!("{plugin}__{tool}"), args().to_string());
        let turn = TurnContext { session: std::sync::Arc::new(Session::default()), ..TurnContext::default() };
        let delivered = host
            .call_all(&host.view(Filter::default()), vec![call], turn)
            .await
            .pop()
            .context("no result")?;
        let value = integration_tests::words(&delivered);
        ensure!(value.contains(expected), "{plugin}__{tool} said\n{value}\nand not\n{expected}");
    }
    names_the_limit(components, &root).await
}
