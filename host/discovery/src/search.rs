//! Full-text search over tools: BM25F over weighted fields (name, description, search hint, tags, parameter names), with
//! stems, synonyms and related words. Tools that perform the action of the query are preferred. A hit with a score far
//! below the best is dropped, a word that most tools share finds none, and an exact name is the only hit.
//!
//! An index has the words of all tools of a catalog and is built once for each catalog. Each search passes the tools to
//! include. All other tools are left out of every statistic, so that a tool that the caller must not see does not
//! affect the ranking.

mod actions;
mod index;
mod ranking;
mod words;

use toolbay_policy::similar::normalize;

pub use self::index::{Index, ToolDocument};

use self::actions::Actions;
use self::index::Posting;
use self::ranking::Ranking;
use self::words::{is_stop_word, words};

/// Longest part of a query that is read, in characters, and most words of a query.
const MAX_QUERY: usize = 1000;
const MAX_QUERY_WORDS: usize = 64;

/// An index with the tools to include in a search.
#[derive(Debug, Clone)]
pub struct IndexPart<'a> {
    /// The index.
    pub index: &'a Index,
    /// Whether to include each tool. Tools beyond the end of the list are not included.
    pub included: Vec<bool>,
}

/// A hit of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankedTool {
    /// The index of the part.
    pub part: usize,
    /// The index of the tool in the part.
    pub tool: usize,
    /// The score, comparable within one search only. An exact name has 1.0.
    pub score: f64,
    /// Whether the query was the exact name of the tool, which is then the only hit.
    pub exact: bool,
}

/// The error of an invalid query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The query has no words.
    #[error("the query is empty; pass words for what the tool should do, e.g. `web search`")]
    Empty,
    /// The number of hits is 0.
    #[error("the number of hits must be at least 1")]
    NoHits,
}

impl IndexPart<'_> {
    fn includes(&self, tool: usize) -> bool {
        self.included.get(tool).copied().unwrap_or(false)
    }

    fn name(&self, tool: usize) -> &str {
        self.index.tools.get(tool).map_or("", |tool| &tool.name)
    }

    /// The postings of a word for the included tools.
    fn postings(&self, word: &str) -> impl Iterator<Item = &Posting> {
        self.index.words.get(word).into_iter().flatten().filter(|posting| self.includes(posting.tool))
    }
}

/// Finds the best tools for a query: at most `most`, sorted by descending score and then by name.
///
/// # Errors
/// The query has no words, or `most` is 0.
pub fn search(parts: &[IndexPart<'_>], query: &str, most: usize) -> Result<Vec<RankedTool>, QueryError> {
    if most == 0 {
        return Err(QueryError::NoHits);
    }
    let query: String = query.chars().take(MAX_QUERY).collect();
    let words = query_words(&query);
    if words.is_empty() {
        return Err(QueryError::Empty);
    }
    if let Some((part, tool)) = find_exact(parts, &query) {
        return Ok(vec![RankedTool { part, tool, score: 1.0, exact: true }]);
    }
    Ok(Ranking::new(parts).top(&words, Actions::of_query(&query), most))
}

/// The words of a query, each once. Stop words count only if there are no others.
fn query_words(query: &str) -> Vec<String> {
    let mut unique: Vec<String> = Vec::new();
    for word in words(query) {
        if !unique.contains(&word) {
            unique.push(word);
        }
    }
    if !unique.iter().all(|word| is_stop_word(word)) {
        unique.retain(|word| !is_stop_word(word));
    }
    unique.truncate(MAX_QUERY_WORDS);
    unique
}

/// The tool with this exact name. Case and separators may differ, and the namespace may be missing, if the name stays
/// unambiguous.
fn find_exact(parts: &[IndexPart<'_>], name: &str) -> Option<(usize, usize)> {
    let name = name.trim();
    let key = normalize(name);
    let places = |of: &dyn Fn(&Index) -> Option<&Vec<usize>>| -> Vec<(usize, usize)> {
        let each = |(at, part): (usize, &IndexPart<'_>)| -> Vec<(usize, usize)> {
            let tools = of(part.index).into_iter().flatten().copied();
            tools.filter(|tool| part.includes(*tool)).map(|tool| (at, tool)).collect()
        };
        parts.iter().enumerate().flat_map(each).collect()
    };
    let whole = places(&|index| index.keys.get(&key));
    let literal = |(part, tool): &&(usize, usize)| parts.get(*part).is_some_and(|p| p.name(*tool) == name);
    let only = |found: &[(usize, usize)]| match found {
        [one] => Some(*one),
        _ => None,
    };
    whole.iter().find(literal).copied().or_else(|| only(&whole)).or_else(|| {
        let bare = places(&|index| index.bare_keys.get(&key));
        whole.is_empty().then(|| only(&bare)).flatten()
    })
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
