//! The laws that every reducer obeys.

use crate::cut::{chars, ends};
use crate::{ReducerInput, pointer};

/// How often a result may change when it is reduced again. Real texts need zero or one repetition.
const ROUNDS: usize = 4;

/// Applies a reducer until its result is stable, under all laws of this crate.
pub(crate) fn apply(
    text: &str,
    ctx: &ReducerInput<'_>,
    reduce: impl Fn(&str, &ReducerInput<'_>) -> Option<String>,
) -> Option<String> {
    let mut answer = once(text, ctx, &reduce)?;
    for _ in 0..ROUNDS {
        match once(&answer, ctx, &reduce) {
            None => return Some(answer),
            Some(shorter) => answer = shorter,
        }
    }
    // The text would shrink further next time, so it is not reduced at all.
    None
}

fn once(
    text: &str,
    ctx: &ReducerInput<'_>,
    reduce: impl Fn(&str, &ReducerInput<'_>) -> Option<String>,
) -> Option<String> {
    if text.trim().is_empty() {
        return None;
    }
    let spilled = pointer::last(text);
    let note = spilled.map(pointer::note).unwrap_or_default();
    let budget_chars = ctx.budget_chars.saturating_sub(chars(&note));
    let mut answer = reduce(text, &ReducerInput { budget_chars, ..*ctx })?;
    if chars(&answer) > budget_chars {
        answer = ends(&answer, budget_chars)?;
    }
    if spilled.is_some_and(|spilled| !answer.contains(spilled)) {
        answer.push_str(&note);
    }
    // Characters and bytes: replacing long characters by short ones would save bytes only.
    let shorter = chars(&answer) < chars(text) && answer.len() <= text.len();
    (shorter && !answer.trim().is_empty()).then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTX: ReducerInput<'_> = ReducerInput { args: "{}", turn: 0, budget_chars: 1000 };

    #[test]
    fn an_answer_that_is_not_shorter_is_none() {
        assert_eq!(apply("abc", &CTX, |_, _| Some("abc".to_owned())), None);
        assert_eq!(apply("abc", &CTX, |_, _| Some("abcd".to_owned())), None);
        assert_eq!(apply("abc", &CTX, |_, _| Some("éé".to_owned())), None, "not in bytes");
        assert_eq!(apply("abc", &CTX, |_, _| Some(" ".to_owned())), None, "nothing is left");
        assert_eq!(apply(" \n\t", &CTX, |_, _| Some(String::new())), None);
    }

    #[test]
    fn an_answer_is_reduced_until_it_stays() {
        let halve = |text: &str, _: &ReducerInput<'_>| (text.len() > 4).then(|| "x".repeat(text.len() / 2));
        assert_eq!(apply(&"x".repeat(16), &CTX, halve), Some("xxxx".to_owned()));
        let nibble = |text: &str, _: &ReducerInput<'_>| Some(text[1..].to_owned());
        assert_eq!(apply(&"x".repeat(100), &CTX, nibble), None, "it would never end");
    }

    #[test]
    fn a_pointer_that_was_dropped_is_put_back() {
        let text = format!("{}\n[cut; full output written to /a/b.log — use read_file]\n", "x".repeat(200));
        let answer = apply(&text, &CTX, |t, _| t.starts_with('x').then(|| "short".to_owned())).unwrap();
        assert_eq!(answer, "short\n[full output written to /a/b.log — use read_file to retrieve it]");
    }
}
