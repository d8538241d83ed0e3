//! Programs through `toolbay:plugin/process`. A refusal of the host is a normal result: `{"error": "denied", …}`.

use guest::host::process::{self, Command, Completed, ProcessError};
use guest::{Answer, Args, Value, json, structured, tool};

const ALL: &[(&str, &str, bool)] =
    &[("process", "*", true), ("fs-read", "**", true), ("fs-write", "**", true)];

guest::tools!(
    tool("run", run).needs(ALL),
    // Several programs in one call.
    tool("runs", runs).needs(ALL),
    tool("no_files", run).needs(&[("process", "*", true)]),
    // Requests less than all output.
    tool("named", run).needs(&[("process", "echo", true), ("fs-read", "**", true)]),
    tool("exact", run).needs(&[("process", "echo hello <arg>", true)]),
    tool("must", run).needs(&[("process", "echo hello *", false)]),
    tool("must_any", run).needs(&[("process", "*", false)]),
    tool("undeclared", run),
);

fn run(args: &Args) -> Answer {
    structured(&said(process::run(&command(args))))
}

/// Like `run`, `count` times in sequence; returns the last result.
fn runs(args: &Args) -> Answer {
    let command = command(args);
    let mut last = None;
    for _ in 0..args.number("count", 1) {
        last = Some(process::run(&command));
    }
    structured(&last.map_or(Value::Null, said))
}

fn command(args: &Args) -> Command {
    let text = |key: &str| args.all().get(key).and_then(Value::as_str).map(str::to_owned);
    let number = |key: &str| args.all().get(key).and_then(Value::as_u64).map(|n| n as u32);
    let listed = args.all().get("args").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut list: Vec<String> = listed.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    // Arguments that are too large to be passed in: created here.
    if let Some(bytes) = number("long_arg") {
        list.push("x".repeat(bytes as usize));
    }
    let env = args.all().get("env").and_then(Value::as_object).cloned().unwrap_or_default();
    let stdin = number("stdin_bytes").map(|bytes| vec![b'x'; bytes as usize]);
    Command {
        program: args.text("program", "sh").to_owned(),
        args: list,
        cwd: text("cwd"),
        env: env.iter().map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect(),
        stdin: stdin.or_else(|| text("stdin").map(String::into_bytes)),
        timeout_ms: number("timeout_ms"),
        max_output_bytes: number("max_output_bytes"),
    }
}

fn said(result: Result<Completed, ProcessError>) -> Value {
    match result {
        Ok(done) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]).into_owned();
            json!({
                "code": done.exit_code,
                "stdout": text(&done.stdout),
                "stderr": text(&done.stderr),
                "stdout_bytes": done.stdout.len(),
                "stderr_bytes": done.stderr.len(),
                "truncated": done.truncated,
            })
        }
        Err(ProcessError::Denied(message)) => json!({ "error": "denied", "message": message }),
        Err(ProcessError::NotFound(name)) => json!({ "error": "not-found", "name": name }),
        Err(ProcessError::Timeout) => json!({ "error": "timeout" }),
        Err(ProcessError::Cancelled) => json!({ "error": "cancelled" }),
        Err(ProcessError::Other(message)) => json!({ "error": "other", "message": message }),
    }
}
