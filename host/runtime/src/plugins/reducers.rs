//! Runs the built-in reducers natively, for embedders that do not want to load them as a component.
//!
//! ```no_run
//! # fn example(host: &toolbay::Host) -> Result<(), Box<dyn std::error::Error>> {
//! use toolbay::reducers;
//!
//! let handle = host.registry().register_reducer(reducers::native("files__read_file", "read_file")?)?;
//! host.registry().remove_reducer(&handle);
//! # Ok(())
//! # }
//! ```
//!
//! `toolbay_reducers` documents each reducer, and the plugin `reducers` contains the same functions. They are trusted
//! code that takes linear time, so they run without fuel and without a time-out, on the host's threads for long
//! computations.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use toolbay_core::call::compute::INLINE_STEPS;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::reduce::{Reduce, ReduceContext};
use toolbay_core::registry::ReducerEntry;
use toolbay_core::tool::content::{ToolError, ToolOutput, ToolResult};
use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_reducers::{BuiltinReducer, ReducerInput, terminal_error};

/// Steps to reduce a byte: several passes over lines.
const STEPS_PER_BYTE: u64 = 8;

/// No built-in reducer has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no reducer `{name}`; known are {known}")]
pub struct UnknownReducer {
    name: String,
    known: String,
}

/// The names of all built-in reducers, with their descriptions.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    toolbay_reducers::ALL.into_iter().map(|builtin| (builtin.name, builtin.about))
}

/// A built-in reducer for the results of one tool, to pass to
/// [`register_reducer`](toolbay_core::registry::Registry::register_reducer). `tool` is the tool's qualified name, such
/// as `files__read_file`. The tool need not exist yet.
///
/// # Errors
/// No reducer has this name.
pub fn native(tool: &str, reducer: &str) -> Result<ReducerEntry, UnknownReducer> {
    let Some(builtin) = toolbay_reducers::builtin(reducer) else {
        let known: Vec<&str> = all().map(|(name, _)| name).collect();
        return Err(UnknownReducer { name: reducer.to_owned(), known: known.join(", ") });
    };
    Ok(ReducerEntry {
        target: tool.to_owned(),
        declared: builtin.name.to_owned(),
        owner: None,
        reducer: Arc::new(NativeReducer(builtin)),
    })
}

#[derive(Debug)]
struct NativeReducer(BuiltinReducer);

impl NativeReducer {
    /// Reduces a result. A panic must not cost the caller its result, just as a fault of a plugin's reducer does not.
    fn run(&self, input: &ToolResult, ctx: &ReducerInput<'_>) -> Result<Option<ToolResult>, Fault> {
        catch_unwind(AssertUnwindSafe(|| self.reduce_result(input, ctx)))
            .map_err(|_| Fault::new(FaultKind::Trap, format!("the reducer `{}` panicked", self.0.name)))
    }

    fn reduce_result(&self, input: &ToolResult, ctx: &ReducerInput<'_>) -> Option<ToolResult> {
        match input {
            Ok(output) => {
                let value = (self.0.reduce)(&output.value, ctx)?;
                Some(Ok(ToolOutput { value, ..output.clone() }))
            }
            Err(error) if self.0.name == "terminal" => {
                let message = terminal_error(&error.message, ctx)?;
                Some(Err(ToolError { message, ..error.clone() }))
            }
            Err(_) => None,
        }
    }
}

impl Reduce for NativeReducer {
    fn reduce<'a>(
        &'a self,
        input: &'a ToolResult,
        ctx: ReduceContext<'a>,
    ) -> BoxFuture<'a, Result<Option<ToolResult>, Fault>> {
        Box::pin(async move {
            let ReduceContext { args, turn_count: turn, budget_chars, compute, .. } = ctx;
            let text = input.as_ref().map_or_else(|error| &error.message, |output| &output.value);
            let steps = (text.len() as u64).saturating_mul(STEPS_PER_BYTE);
            if steps <= INLINE_STEPS {
                return self.run(input, &ReducerInput { args, turn, budget_chars });
            }
            let (reducer, input, args) = (Self(self.0), input.clone(), args.to_owned());
            let reduce = move || reducer.run(&input, &ReducerInput { args: &args, turn, budget_chars });
            compute.run(steps, reduce).await?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use tokio_util::sync::CancellationToken;
    use toolbay_core::call::compute::ComputePool;

    #[tokio::test]
    async fn reducing_a_long_text_delays_no_call() {
        for (name, _) in all() {
            let reducer = native("x__y", name).unwrap().reducer;
            let text = Ok(ToolOutput::text("10:00:01 INFO took 3 ms\n".repeat(200_000)));
            let reducing = tokio::spawn(async move {
                let compute = ComputePool::default().queue("x".into(), CancellationToken::new());
                let ctx = ReduceContext {
                    tool_name: "x__y",
                    args: "{}",
                    turn_count: 0,
                    budget_chars: 80_000,
                    compute: &compute,
                };
                reducer.reduce(&text, ctx).await.map(drop)
            });
            let (reduced, delay) = canary::run_beside(reducing, async || ()).await;
            assert!(reduced.is_ok() && delay <= canary::MAX_DELAY, "{name}: {reduced:?} {delay:?}");
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = native("files__read_file", "read_flie").unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with("there is no reducer `read_flie`; known are json_array, "), "{message}");
        assert!(all().all(|(name, about)| native("x__y", name).is_ok() && !about.is_empty()));
    }
}
