//! The reducers of this plugin: they make results of other tools shorter before a model reads them.

use toolbay_sdk::prelude::*;

/// How many lines are kept at each end.
const KEPT: usize = 40;

/// Keeps the first and the last lines.
#[reducer("terminal")]
pub fn first_and_last(input: &ToolResult, _ctx: &ReduceContext) -> Option<ToolResult> {
    let output = input.as_ref().ok()?;
    let lines: Vec<&str> = output.value.lines().collect();
    // What was shortened once stays as it is: one line more than what is kept is the line below.
    let left_out = lines.len().checked_sub(2 * KEPT).filter(|left_out| *left_out > 1)?;
    let (first, rest) = lines.split_at(KEPT);
    let (_, last) = rest.split_at(left_out);
    let value = format!("{}\n[{left_out} lines left out]\n{}", first.join("\n"), last.join("\n"));
    Some(Ok(Output { value, ..output.clone() }))
}

plugin! { reducers: [first_and_last] }

#[cfg(test)]
mod tests {
    use toolbay_sdk::testing::reduce;

    use super::*;

    fn lines(count: usize) -> ToolResult {
        let lines: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
        Ok(Output::new(lines.join("\n")))
    }

    #[test]
    fn the_middle_is_left_out() {
        let reduced = reduce::<first_and_last>(&lines(100), json!({"command": "make"})).unwrap();
        let text = reduced.as_ref().unwrap().value.clone();
        assert!(text.contains("\n40\n[20 lines left out]\n61\n"), "{text}");
        // Twice is once.
        assert_eq!(reduce::<first_and_last>(&reduced, json!({})), None);
    }

    #[test]
    fn what_is_short_stays() {
        assert_eq!(reduce::<first_and_last>(&lines(80), json!({})), None);
    }
}
