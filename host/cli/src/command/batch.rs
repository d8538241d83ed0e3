//! `toolbay batch`.

use std::io::Write;

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use toolbay::{Session, ToolCall};
use toolbay_core::call::invoke::Failure;
use toolbay_core::pipeline;

use crate::args::{BatchArgs, read_text};
use crate::output::error::report_error;
use crate::output::{self, CommandStatus, host_failure};
use crate::setup::{ReportLevel, SetupArgs, servers, services};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchLine {
    id: Option<String>,
    tool: String,
    /// The arguments as written. The result of the call reports mistakes in them.
    args: Option<Box<RawValue>>,
}

pub(crate) async fn run(setup: &SetupArgs, options: &BatchArgs) -> Result<CommandStatus> {
    let file = &options.file;
    let text = read_text(file)?;
    let calls = parse(&text).with_context(|| format!("`{}`", file.display()))?;
    let named: Vec<String> = calls.iter().map(|call| call.tool.clone()).collect();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    let host = services::load_host_for(setup, ReportLevel::Problems, &named).await?;
    // One file is one session, so a write after a read in an earlier line is guarded.
    let turn = options.turn.context(Session::default().with_id(format!("batch-{}", std::process::id())));
    let servers = servers::connect_for(setup, &host, &named).await;
    let results = host.call_all(&servers::view(setup, &host)?, calls, turn).await;
    servers.close().await;
    let shown = results.iter().map(output::result_json);
    if setup.printer.is_json() {
        let all = json!({
            "calls": results.len(),
            "failed": results.iter().filter(|r| r.result.is_err()).count(),
            "cost_usd": pipeline::cost_usd(&results),
            "results": shown.collect::<Vec<_>>(),
        });
        output::print_json(&all)?;
    } else {
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        for result in shown {
            output::write_json_line(&mut out, &result)?;
        }
        out.flush()?;
    }
    if let Some(message) = results.iter().find_map(|r| match &r.result {
        Err(Failure::Host(message)) => Some(message),
        _ => None,
    }) {
        // stdout has its JSON values.
        return Ok(report_error(setup.printer.after_result(), host_failure(anyhow!(message.clone()))));
    }
    Ok(CommandStatus::from_success(results.iter().all(|r| r.result.is_ok())))
}

/// Parses an array, or one call in each line.
fn parse(text: &str) -> anyhow::Result<Vec<ToolCall>> {
    let calls: Vec<BatchLine> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text)?
    } else {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        lines
            .map(|(n, line)| serde_json::from_str(line).with_context(|| format!("line {}", n + 1)))
            .collect::<Result<_, _>>()?
    };
    let number = |(n, call): (usize, BatchLine)| {
        let args = call.args.map_or_else(String::new, |args| args.get().to_owned());
        ToolCall::new(call.id.unwrap_or_else(|| (n + 1).to_string()), call.tool, args)
    };
    Ok(calls.into_iter().enumerate().map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let lines = "{\"tool\":\"a\"}\n\n{\"id\":\"x\",\"tool\":\"b\",\"args\":{\"n\": 1}}\n";
        let array = r#"[{"tool":"a"},{"id":"x","tool":"b","args":{"n": 1}}]"#;
        for text in [lines, array] {
            let calls = parse(text).unwrap();
            let seen: Vec<_> = calls.iter().map(|c| (&*c.id, c.tool.as_str(), c.args.as_str())).collect();
            assert_eq!(seen, [("1", "a", ""), ("x", "b", "{\"n\": 1}")]);
        }
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn an_invalid_line_is_reported_with_its_number() {
        let error = format!("{:#}", parse("{\"tool\":\"a\"}\n{\"tol\":\"a\"}").err().unwrap());
        assert!(error.contains("line 2") && error.contains("tol"), "{error}");
    }
}
