//! Full-text search over tools: BM25+ over weighted fields (name, search hint, description, tags, parameter names). A
//! hit with a score far below the best is dropped, words that most tools share are ignored, and an exact name is the
//! only hit.
//!
//! An index has the words of all tools of a catalog and is built once for each catalog. Each search passes the tools to
//! include. All other tools are left out of every statistic, so that a tool that the caller must not see does not
//! affect the ranking.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde_json::Value;
use toolbay_core::registry::ToolEntry;
use toolbay_core::tool::ToolDef;
use toolbay_policy::similar::normalize;

/// The weights of the fields.
const NAME_WEIGHT: f64 = 3.0;
const HINT_WEIGHT: f64 = 2.0;
const DESCRIPTION_WEIGHT: f64 = 2.0;
const TAG_WEIGHT: f64 = 1.5;
const PARAMETER_WEIGHT: f64 = 1.0;
/// The parameters of BM25+: saturation of term frequency, length normalization, and the lower bound of an occurrence.
const K1: f64 = 1.5;
const B: f64 = 0.75;
const DELTA: f64 = 1.0;
/// The minimum score of a hit, as a share of the best score.
const MIN_SCORE_SHARE: f64 = 0.3;
/// A word is common if at least this many tools, and at least half of all tools, have it.
const COMMON_WORD_TOOLS: usize = 3;
/// Longest part of a query that is read, in characters, and most words of a query.
const MAX_QUERY: usize = 1000;
const MAX_QUERY_WORDS: usize = 64;

/// A tool as the index reads it.
#[derive(Debug, Clone)]
pub struct ToolDocument<'a> {
    /// The definition.
    pub def: &'a ToolDef,
    /// The labels, including those that the host derives.
    pub tags: Vec<&'a str>,
}

impl<'a> ToolDocument<'a> {
    /// The document of a tool of the registry.
    #[must_use]
    pub fn from_entry(entry: &'a ToolEntry) -> Self {
        Self { def: &entry.def, tags: entry.tags().iter().map(|tag| &**tag).collect() }
    }
}

/// The search index of a list of tools. A tool is identified by its index in the list.
#[derive(Debug, Default)]
pub struct Index {
    tools: Vec<IndexedTool>,
    words: HashMap<String, Vec<Posting>>,
    /// The tools by normalized name: by qualified name, and by name without namespace.
    keys: HashMap<String, Vec<usize>>,
    bare_keys: HashMap<String, Vec<usize>>,
}

#[derive(Debug)]
struct IndexedTool {
    name: String,
    length: f64,
}

#[derive(Debug)]
struct Posting {
    tool: usize,
    weight: f64,
    in_name: bool,
}

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

impl Index {
    /// Builds the index of tools.
    #[must_use]
    pub fn new<'a>(tools: impl IntoIterator<Item = ToolDocument<'a>>) -> Self {
        let mut index = Self::default();
        for document in tools {
            index.add(&document);
        }
        index
    }

    fn add(&mut self, document: &ToolDocument<'_>) {
        let (def, tool) = (document.def, self.tools.len());
        let mut weights: HashMap<String, (f64, bool)> = HashMap::new();
        let mut length = 0.0;
        let mut take = |word: String, weight: f64| {
            let slot = weights.entry(word).or_default();
            slot.0 += weight;
            slot.1 |= weight == NAME_WEIGHT;
            length += weight;
        };
        def.name
            .as_str()
            .split(['_', '-'])
            .for_each(|part| words(part).for_each(|word| take(word, NAME_WEIGHT)));
        words(&def.description).for_each(|word| take(word, DESCRIPTION_WEIGHT));
        let tags = document.tags.iter().copied().chain(def.keywords.toolset.as_deref());
        tags.flat_map(words).for_each(|word| take(word, TAG_WEIGHT));
        parameters(def.input_schema.value()).flat_map(words).for_each(|word| take(word, PARAMETER_WEIGHT));
        if let Some(hint) = search_hint(def) {
            words(&hint).for_each(|word| take(word, HINT_WEIGHT));
        }
        for (word, (weight, in_name)) in weights {
            self.words.entry(word).or_default().push(Posting { tool, weight, in_name });
        }
        self.keys.entry(normalize(def.name.as_str())).or_default().push(tool);
        self.bare_keys.entry(normalize(def.bare())).or_default().push(tool);
        self.tools.push(IndexedTool { name: def.name.as_str().to_owned(), length });
    }
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
    let mut asked: Vec<String> = words(&query).take(MAX_QUERY_WORDS).collect();
    if asked.is_empty() {
        return Err(QueryError::Empty);
    }
    if let Some((part, tool)) = find_exact(parts, &query) {
        return Ok(vec![RankedTool { part, tool, score: 1.0, exact: true }]);
    }
    let ranking = Ranking::new(parts);
    asked = asked.into_iter().flat_map(|word| ranking.known_forms(word)).take(MAX_QUERY_WORDS).collect();
    ranking.drop_common(&mut asked);
    Ok(ranking.top(&asked, most))
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

/// The statistics of the included tools.
struct Ranking<'a> {
    parts: &'a [IndexPart<'a>],
    /// The number of included tools, and their average length.
    count: usize,
    average: f64,
}

impl<'a> Ranking<'a> {
    fn new(parts: &'a [IndexPart<'a>]) -> Self {
        let lengths = parts.iter().flat_map(|part| {
            let tools = part.index.tools.iter().enumerate();
            tools.filter(|(place, _)| part.includes(*place)).map(|(_, tool)| tool.length)
        });
        let (count, total) = lengths.fold((0_usize, 0.0), |(count, total), one| (count + 1, total + one));
        Self { parts, count, average: (total / count.max(1) as f64).max(f64::MIN_POSITIVE) }
    }

    /// The number of included tools with a word.
    fn document_frequency(&self, word: &str) -> usize {
        self.parts.iter().map(|part| part.postings(word).count()).sum()
    }

    /// The forms of a query word that the tools use: the word itself, its singular or plural, or its parts.
    fn known_forms(&self, word: String) -> Vec<String> {
        if self.document_frequency(&word) > 0 {
            return vec![word];
        }
        let other = match word.strip_suffix('s') {
            Some(singular) if singular.chars().count() > 2 => singular.to_owned(),
            _ => format!("{word}s"),
        };
        if self.document_frequency(&other) > 0 {
            return vec![other];
        }
        if word.contains('_') {
            return word.split('_').filter(|part| !part.is_empty()).map(ToOwned::to_owned).collect();
        }
        vec![word]
    }

    /// Drops common words. If all are common, it keeps the rarest word that occurs in a tool name.
    fn drop_common(&self, asked: &mut Vec<String>) {
        if asked.len() < 2 {
            return;
        }
        let counts: HashMap<String, usize> =
            asked.iter().map(|word| (word.clone(), self.document_frequency(word))).collect();
        let count = |word: &String| counts.get(word).copied().unwrap_or(0);
        let common = |word: &String| count(word) >= COMMON_WORD_TOOLS && count(word) * 2 >= self.count;
        if !asked.iter().filter(|word| count(word) > 0).all(&common) {
            asked.retain(|word| !common(word));
            return;
        }
        let names = |word: &&String| self.parts.iter().any(|part| part.postings(word).any(|p| p.in_name));
        let rarest = asked.iter().filter(names).min_by_key(|word| count(word)).cloned();
        *asked = rarest.into_iter().collect();
    }

    fn top(&self, asked: &[String], most: usize) -> Vec<RankedTool> {
        let mut scores: HashMap<(usize, usize), f64> = HashMap::new();
        for word in asked {
            self.score(word, &mut scores);
        }
        let best = scores.values().copied().fold(0.0, f64::max);
        let close = scores.into_iter().filter(|(_, score)| *score >= best * MIN_SCORE_SHARE);
        let mut found: Vec<RankedTool> =
            close.map(|((part, tool), score)| RankedTool { part, tool, score, exact: false }).collect();
        found.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then_with(|| self.compare_names(a, b)));
        found.truncate(most);
        found
    }

    fn compare_names(&self, a: &RankedTool, b: &RankedTool) -> Ordering {
        let name = |found: &RankedTool| self.parts.get(found.part).map_or("", |part| part.name(found.tool));
        name(a).cmp(name(b)).then(a.part.cmp(&b.part))
    }

    fn score(&self, word: &str, scores: &mut HashMap<(usize, usize), f64>) {
        let (all, with) = (self.count as f64, self.document_frequency(word) as f64);
        let rarity = ((all - with + 0.5) / (with + 0.5)).ln_1p();
        for (at, part) in self.parts.iter().enumerate() {
            for Posting { tool, weight, .. } in part.postings(word) {
                let length = part.index.tools.get(*tool).map_or(0.0, |tool| tool.length);
                let norm = K1 * (1.0 - B + B * length / self.average);
                let gain = rarity * (weight * (K1 + 1.0) / (weight + norm) + DELTA);
                *scores.entry((at, *tool)).or_default() += gain;
            }
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.contains(char::is_alphanumeric))
        .map(str::to_lowercase)
}

fn parameters(schema: &Value) -> impl Iterator<Item = &str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(|properties| properties.keys().map(String::as_str))
}

/// Further words for search: the operator's, or `search_hint` in the tool's metadata.
fn search_hint(def: &ToolDef) -> Option<String> {
    if let Some(hint) = &def.keywords.search_hint {
        return Some(hint.clone());
    }
    let meta: Value = serde_json::from_str(def.meta.as_ref()?.get()).ok()?;
    meta.get("search_hint").and_then(Value::as_str).map(ToOwned::to_owned)
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
