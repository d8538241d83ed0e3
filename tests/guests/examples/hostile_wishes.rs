//! Declares as much as the limits allow, in patterns that are slow to compare: with each other at load, and with
//! the arguments of a program and with a path in a call. Each tool also requests something that it cannot get.

use guest::host::files;
use guest::host::process::{self, Command, ProcessError};
use guest::{Answer, Capability, ToolDef, Value, definition, fail, json, structured};

guest::tools_by!(list, call);

/// Declarations of each kind.
const MOST: usize = 32;

fn list() -> Vec<ToolDef> {
    let tools = ["run", "read", "more"].map(|name| ToolDef { capabilities: wishes(), ..definition(name) });
    tools.into()
}

fn wishes() -> Vec<Capability> {
    let wish = |kind: &str, target: String| Capability {
        kind: kind.to_owned(),
        target,
        optional: true,
        reason: None,
    };
    let programs =
        (0..MOST).map(|n| wish("process", format!("* *{}{n:02}*{}*", "a".repeat(123), "a".repeat(123))));
    let paths =
        (0..MOST).map(|n| wish("fs-read", format!("**/*{}{n:02}*/**/{}*", "a".repeat(123), "a".repeat(120))));
    programs.chain(paths).collect()
}

fn call(name: String, args: String) -> Answer {
    let args: Value = guest::serde_json::from_str(&args).unwrap_or_default();
    let (bytes, times) = (args["bytes"].as_u64().unwrap_or(0), args["times"].as_u64().unwrap_or(1));
    let long = "a".repeat(bytes as usize);
    let mut refused = 0;
    for _ in 0..times {
        let denied = match name.as_str() {
            "run" => matches!(run(&long), Err(ProcessError::Denied(_))),
            "read" => matches!(files::read(&long, 0, None), Err(files::FileError::Denied(_))),
            _ => return fail(guest::ErrorCode::NotAvailable, name),
        };
        refused += u64::from(denied);
    }
    structured(&json!({ "refused": refused }))
}

fn run(argument: &str) -> Result<process::Completed, ProcessError> {
    process::run(&Command {
        program: "echo".to_owned(),
        args: vec![argument.to_owned()],
        cwd: None,
        env: Vec::new(),
        stdin: None,
        timeout_ms: None,
        max_output_bytes: None,
    })
}
