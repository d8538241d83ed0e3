//! The built-in reducers as a component, for hosts that are not embedded. An operator can replace it or leave it out.
//!
//! `toolbay-reducers` has the implementation, which also runs natively. Each reducer has the name of the tools whose
//! results it reduces. The policy can bind it to any other tool.

use toolbay_reducers::{ReduceFn, ReducerInput, terminal_error};
use toolbay_sdk::prelude::*;
use toolbay_sdk::types::ToolError;

/// Counts the elements and keys of a long JSON array, and shows the first and last elements.
#[reducer("json_array")]
pub fn json_array(input: &ToolResult, ctx: &ReduceContext) -> Option<ToolResult> {
    output(input, ctx, toolbay_reducers::json_array)
}

/// Counts the tasks of a long list by status, and shows the newest open ones.
#[reducer("kanban_list")]
pub fn kanban_list(input: &ToolResult, ctx: &ReduceContext) -> Option<ToolResult> {
    output(input, ctx, toolbay_reducers::kanban_list)
}

/// Groups a long directory listing by directory and extension.
#[reducer("list_dir")]
pub fn list_dir(input: &ToolResult, ctx: &ReduceContext) -> Option<ToolResult> {
    output(input, ctx, toolbay_reducers::list_dir)
}

/// Folds repeated lines of a log, and keeps its errors and warnings.
#[reducer("log")]
pub fn log(input: &ToolResult, ctx: &ReduceContext) -> Option<ToolResult> {
    output(input, ctx, toolbay_reducers::log)
}

/// Keeps the first 200 lines of a long file, and says how to get the others.
#[reducer("read_file")]
pub fn read_file(input: &ToolResult, ctx: &ReduceContext) -> Option<ToolResult> {
    output(input, ctx, toolbay_reducers::read_file)
}

/// Groups the lines a search found by file, and counts what it leaves out.
#[reducer("search")]
pub fn search(input: &ToolResult, ctx: &ReduceContext) -> Option<ToolResult> {
    output(input, ctx, toolbay_reducers::search)
}

/// Groups the lines a search found by file, and counts what it leaves out; under the name of the plugin `files`.
#[reducer("search_files")]
pub fn search_files(input: &ToolResult, ctx: &ReduceContext) -> Option<ToolResult> {
    output(input, ctx, toolbay_reducers::search)
}

/// Shortens the output of git status, test runners, compilers, package managers, and what else is long.
#[reducer("terminal")]
pub fn terminal(input: &ToolResult, ctx: &ReduceContext) -> Option<ToolResult> {
    match input {
        Ok(_) => output(input, ctx, toolbay_reducers::terminal),
        // A failing program prints its error at the end, which the host would cut off.
        Err(error) => {
            let message = terminal_error(&error.message, &context(ctx))?;
            Some(Err(ToolError { message, ..error.clone() }))
        }
    }
}

fn context(ctx: &ReduceContext) -> ReducerInput<'_> {
    let budget_chars = usize::try_from(ctx.budget_chars).unwrap_or(usize::MAX);
    ReducerInput { args: &ctx.args, turn: ctx.turn_count, budget_chars }
}

/// Shortens the text of an output and keeps everything else. An error is unchanged.
fn output(input: &ToolResult, ctx: &ReduceContext, reduce: ReduceFn) -> Option<ToolResult> {
    let output = input.as_ref().ok()?;
    let value = reduce(&output.value, &context(ctx))?;
    Some(Ok(Output { value, ..output.clone() }))
}

plugin! {
    reducers: [json_array, kanban_list, list_dir, log, read_file, search, search_files, terminal],
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::types::{BlockBody, ErrorCode};

    use super::*;

    fn ctx(args: &str) -> ReduceContext {
        ReduceContext { tool_name: String::new(), args: args.to_owned(), turn_count: 1, budget_chars: 1000 }
    }

    #[test]
    fn everything_beside_the_text_is_kept() {
        let output = Output {
            structured: Some("{\"lines\":400}".to_owned()),
            meta: Some("{}".to_owned()),
            ..Output::new("a line\n".repeat(400))
        };
        let output = output.block(BlockBody::Text("more".to_owned())).cost_usd(0.5);
        let reduced = read_file(&Ok(output.clone()), &ctx("{}")).unwrap().unwrap();
        assert!(reduced.value.len() < output.value.len());
        assert_eq!(reduced, Output { value: reduced.value.clone(), ..output });
    }

    #[test]
    fn errors_pass_but_for_the_middle_of_a_long_one_of_a_terminal() {
        let error = |message: String| ToolError {
            code: ErrorCode::ExecutionFailed,
            message,
            subject: Some("exit 1".to_owned()),
            cost_usd: Some(0.5),
        };
        let long = error((0..400).map(|n| format!("line {n}\n")).collect());
        assert_eq!(read_file(&Err(long.clone()), &ctx("{}")), None);
        assert_eq!(terminal(&Err(error("git status: failed".to_owned())), &ctx("{}")), None);
        let reduced = terminal(&Err(long.clone()), &ctx("{}")).unwrap().unwrap_err();
        assert!(reduced.message.starts_with("line 0\n") && reduced.message.ends_with("line 399\n"));
        assert!(reduced.message.chars().count() <= 1000);
        assert_eq!(reduced, ToolError { message: reduced.message.clone(), ..long });
    }
}
