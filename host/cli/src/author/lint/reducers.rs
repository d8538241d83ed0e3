//! The checks of reducers: each runs twice on several texts.

use tokio_util::sync::CancellationToken;
use toolbay::{Host, PluginId, PluginInfo};
use toolbay_core::call::compute::ComputePool;
use toolbay_core::call::reduce::ReduceContext;
use toolbay_core::registry::ReducerEntry;
use toolbay_core::tool::content::{ToolOutput, ToolResult};

use super::LintFinding;

/// The characters that a result may have.
const BUDGET: usize = 20_000;

/// The policy that lets the reducers of a plugin run for the tools they declare.
pub(crate) fn policy(info: &PluginInfo) -> String {
    // A reducer for a tool of any plugin is tested with an invented plugin.
    let whole = |name: &str| if name.contains("__") { name.to_owned() } else { format!("any__{name}") };
    let lines: Vec<String> =
        info.reducers.iter().map(|name| serde_json::Value::from(whole(name.as_str())).to_string()).collect();
    format!("version = 1\n[plugins.{}.grant]\nreduce = [{}]\n", info.id, lines.join(", "))
}

/// Findings about the reducers of a plugin, in a host with [`policy`].
pub(crate) async fn findings(host: &Host, id: &PluginId) -> Vec<LintFinding> {
    let catalog = host.registry().snapshot();
    let mut found = Vec::new();
    for entry in catalog.reducers().filter(|entry| entry.owner.as_ref() == Some(id)) {
        for text in samples() {
            if let Some(problem) = problem(entry, &text).await {
                found.push(LintFinding::error(format!("its reducer for `{}` {problem}", entry.declared)));
                break;
            }
        }
    }
    found
}

/// Texts as tools return them: empty, short, long, repeated lines, JSON, multi-byte letters.
fn samples() -> Vec<String> {
    let lines =
        |count: usize| (0..count).map(|number| format!("line {number} of {count}\n")).collect::<String>();
    let json: Vec<_> =
        (0..300).map(|id| serde_json::json!({"id": id, "name": format!("entry {id}")})).collect();
    vec![
        String::new(),
        "one line".to_owned(),
        lines(50),
        lines(5000),
        "same\n".repeat(2000),
        "x".repeat(30_000),
        serde_json::Value::from(json).to_string(),
        "größe 👩\u{200d}💻\n".repeat(1000),
    ]
}

async fn problem(entry: &ReducerEntry, text: &str) -> Option<String> {
    let first = match run(entry, text).await {
        Ok(first) => first,
        Err(fault) => return Some(format!("faults: {fault}")),
    };
    if run(entry, text).await.ok() != Some(first.clone()) {
        return Some(
            "answers the same result differently; a reducer has to be a function of its input".to_owned(),
        );
    }
    let reduced = first?;
    if reduced.chars().count() > text.chars().count() {
        return Some(format!("makes {} characters longer", text.chars().count()));
    }
    None
}

/// The reduced text; `None`: the text stays.
async fn run(entry: &ReducerEntry, text: &str) -> Result<Option<String>, String> {
    let input: ToolResult = Ok(ToolOutput::text(text));
    let compute = ComputePool::default().queue(entry.target.as_str().into(), CancellationToken::new());
    let context = ReduceContext {
        tool_name: &entry.declared,
        args: "{}",
        turn_count: 1,
        budget_chars: BUDGET,
        compute: &compute,
    };
    match entry.reducer.reduce(&input, context).await {
        Ok(reduced) => Ok(reduced.map(|reduced| match reduced {
            Ok(output) => output.value,
            Err(error) => error.message,
        })),
        Err(fault) => Err(fault.for_operator()),
    }
}
