//! A reducer for a tool of another plugin: `long` of `api_echo`.

use guest::{ToolOutput, output};

guest::reducers!(["api_echo__long"], |input, context| {
    let input = input.ok()?;
    let value = format!(
        "{} characters, turn {}, budget {}",
        input.value.len(),
        context.turn_count,
        context.budget_chars
    );
    Some(Ok(ToolOutput { structured: input.structured, ..output(value) }))
});
