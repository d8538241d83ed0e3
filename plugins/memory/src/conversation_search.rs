//! `conversation_search`.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use toolbay_sdk::prelude::*;

use crate::notes;
use crate::session_search::{MAX_WORDS, count_word, snippet};
use crate::turns::{self, MAX_TURNS};

/// A matching turn.
#[data]
#[derive(Debug, PartialEq, Eq)]
pub struct TurnHit {
    /// The id of its session, to search in it.
    pub session: String,
    /// Its speaker.
    pub role: String,
    /// Its time, in Unix milliseconds.
    pub at: u64,
    /// An excerpt of its text.
    pub snippet: String,
}

/// The result of a search.
#[data]
#[derive(Debug, PartialEq, Eq)]
pub struct TurnHits {
    /// The matching turns, best first.
    pub hits: Vec<TurnHit>,
    /// Whether older turns were not searched.
    pub incomplete: bool,
}

/// Search what was said in past conversations of this agent for words. The best fits come first, then the newest.
///
/// A word matches also as the beginning of a longer one. Turns with more of the words come before turns with fewer.
#[tool(
    toolset = "memory", tags = ["search"], read_only, idempotent, closed_world, untrusted_output,
    kv = "agent", reason = "reads the recorded conversations of the agent",
)]
pub fn conversation_search(
    /// The words to look for.
    #[arg(length(min = 1, max = 1000))]
    query: String,
    /// Search only the conversation with this session id.
    session: Option<String>,
    /// Search only turns at this time or later, in Unix milliseconds.
    since: Option<u64>,
    /// Show at most this many.
    #[arg(default = 10, range(min = 1, max = 100))]
    max_results: usize,
) -> Result<Rendered<TurnHits>> {
    let words: BTreeSet<String> = notes::words(&query).take(MAX_WORDS).collect();
    if words.is_empty() {
        return Err(Error::input("the query has no words").at("/query"));
    }
    let mut found: Vec<(usize, TurnHit)> = Vec::new();
    let incomplete = turns::each(|turn| {
        if since.is_some_and(|since| turn.at < since) {
            return false;
        }
        let different = words.iter().filter(|word| count_word(&turn.text, word) > 0).count();
        if different > 0 && session.as_ref().is_none_or(|session| turn.session == *session) {
            let snippet = snippet(&turn.text, &words);
            found.push((different, TurnHit { session: turn.session, role: turn.role, at: turn.at, snippet }));
        }
        true
    })?;
    // A stable sort: among equals, the newest stays first.
    found.sort_by_key(|(different, _)| Reverse(*different));
    let hits: Vec<TurnHit> = found.into_iter().take(max_results).map(|(_, hit)| hit).collect();
    let mut text: String = hits
        .iter()
        .map(|hit| format!("{} in {} at {}: {}\n", hit.role, hit.session, hit.at, hit.snippet))
        .collect();
    if hits.is_empty() {
        text = "Nothing was found.".to_owned();
    }
    if incomplete {
        text.push_str(&format!("[only the newest {MAX_TURNS} turns were searched]\n"));
    }
    Ok(Rendered { text, data: TurnHits { hits, incomplete } })
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::kv::{self, Scope};
    use toolbay_sdk::serde_json::Value;
    use toolbay_sdk::testing::{FakeHost, call};
    use toolbay_sdk::types::ErrorCode;

    use super::*;
    use crate::turns::RecordedTurn;

    fn record(session: &str, role: &str, at: u64, text: &str) {
        let turn =
            RecordedTurn { session: session.to_owned(), role: role.to_owned(), at, text: text.to_owned() };
        let key = format!("turn/{:020}-0", u64::MAX - at);
        kv::set_json(Scope::Agent, &key, &turn, None).unwrap();
    }

    fn times(args: Value) -> Vec<u64> {
        let output = call::<conversation_search>(args).unwrap();
        let hits: TurnHits = toolbay_sdk::serde_json::from_str(&output.structured.unwrap()).unwrap();
        hits.hits.into_iter().map(|hit| hit.at).collect()
    }

    #[test]
    fn the_best_fit_then_the_newest_comes_first() {
        FakeHost::new().kv(Scope::Agent).run(|| {
            record("s1", "user", 1000, "How do we deploy on Friday?");
            record("s1", "assistant", 2000, "Push the tag, then watch the deployment.");
            record("s2", "user", 3000, "The deploy failed.");
            record("s2", "assistant", 4000, "Nothing of it.");
            assert_eq!(times(json!({"query": "deploy"})), [3000, 2000, 1000]);
            assert_eq!(times(json!({"query": "Friday deploy"})), [1000, 3000, 2000]);
            assert_eq!(times(json!({"query": "deploy", "session": "s1"})), [2000, 1000]);
            assert_eq!(times(json!({"query": "deploy", "since": 2000})), [3000, 2000]);
            assert_eq!(times(json!({"query": "deploy", "max_results": 1})), [3000]);
            assert_eq!(times(json!({"query": "ploy"})), [0_u64; 0]);
            let output = call::<conversation_search>(json!({"query": "failed"})).unwrap();
            assert_eq!(output.value, "user in s2 at 3000: The deploy failed.\n");
            let wrong = call::<conversation_search>(json!({"query": "?!"})).unwrap_err();
            assert_eq!((wrong.code(), wrong.subject()), (ErrorCode::InputInvalid, Some("/query")));
        });
        let denied =
            FakeHost::new().kv(Scope::Plugin).run(|| call::<conversation_search>(json!({"query": "x"})));
        assert_eq!(denied.unwrap_err().subject(), Some("denied"));
    }

    #[test]
    fn a_search_is_bounded() {
        FakeHost::new().kv(Scope::Agent).run(|| {
            for at in 0..=MAX_TURNS {
                record("s", "user", at as u64, "same");
            }
            let output = call::<conversation_search>(json!({"query": "same", "max_results": 2})).unwrap();
            assert_eq!(
                output.value,
                "user in s at 2000: same\nuser in s at 1999: same\n[only the newest 2000 turns were searched]\n"
            );
        });
    }
}
