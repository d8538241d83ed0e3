//! A tool, and a reducer that halves its result.

use guest::{ToolOutput, produce};

guest::tools!(guest::tool("produce", produce));

guest::reducers!(["produce"], |input, _| {
    let output = input.ok()?;
    let half = output.value.chars().count() / 2;
    Some(Ok(ToolOutput { value: output.value.chars().take(half).collect(), ..output }))
});
