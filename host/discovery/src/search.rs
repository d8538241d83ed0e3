//! Finding tools by words: BM25 over weighted fields (name, search hint, description, tags, parameter names), with
//! the seed's weights and its rules against filler: a hit far below the best is dropped, a word that most tools share
//! says nothing, an exact name is the only hit.
//!
//! An index holds the words of all tools of a catalog and is made once for each state of it. Who searches says which of
//! them count: what is left out then is left out of every figure, so that a tool nobody may see moves no rank and
//! betrays itself by none.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde_json::Value;
use toolbay_core::registry::Entry;
use toolbay_core::tool::ToolDef;
use toolbay_policy::similar::normalize;

/// Weights of the fields (the seed's).
const NAME: f64 = 3.0;
const HINT: f64 = 2.0;
const DESCRIPTION: f64 = 2.0;
const TAG: f64 = 1.5;
const PARAMETER: f64 = 1.0;
/// How soon repetition saturates, how much length counts, what a single occurrence is worth at least (BM25+).
const K1: f64 = 1.5;
const B: f64 = 0.75;
const DELTA: f64 = 1.0;
/// A hit below this share of the best is dropped.
const FLOOR: f64 = 0.3;
/// A word in so many tools, and in half of all, tells nothing.
const COMMON: usize = 3;
/// Longest query that is read, in characters, and most words of it.
const MAX_QUERY: usize = 1000;
const MAX_WORDS: usize = 64;

/// What is read of one tool.
#[derive(Debug, Clone)]
pub struct Document<'a> {
    /// The tool.
    pub def: &'a ToolDef,
    /// Its tags, those that the host derives included.
    pub tags: Vec<&'a str>,
}

impl<'a> Document<'a> {
    /// What is read of a tool of the registry.
    #[must_use]
    pub fn of(entry: &'a Entry) -> Self {
        Self { def: &entry.def, tags: entry.tags().iter().map(|tag| &**tag).collect() }
    }
}

/// The words of a list of tools. A tool is known by its place in that list.
#[derive(Debug, Default)]
pub struct Index {
    tools: Vec<Indexed>,
    words: HashMap<String, Vec<Posting>>,
    /// Places by name, as names are compared: qualified ones, and those without their plugin.
    keys: HashMap<String, Vec<usize>>,
    bare: HashMap<String, Vec<usize>>,
}

#[derive(Debug)]
struct Indexed {
    name: String,
    length: f64,
}

#[derive(Debug)]
struct Posting {
    tool: usize,
    weight: f64,
    in_name: bool,
}

/// The tools of an index that are searched.
#[derive(Debug, Clone)]
pub struct Part<'a> {
    /// The index.
    pub index: &'a Index,
    /// By place: whether the tool counts. What is missing does not.
    pub counts: Vec<bool>,
}

/// One tool that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// Which of the parts it is in.
    pub part: usize,
    /// Its place there.
    pub tool: usize,
    /// How well it fits; comparable within one answer only. 1.0 for an exact name.
    pub score: f64,
    /// The query was its name, and it is the only hit.
    pub exact: bool,
}

/// A question that cannot be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// Nothing but white space and punctuation.
    #[error("empty query: pass words for what the tool should do, e.g. `web search`")]
    Empty,
    /// No hit was asked for.
    #[error("the number of hits must be at least 1")]
    NoHits,
}

impl Index {
    /// Reads the words of tools.
    #[must_use]
    pub fn new<'a>(tools: impl IntoIterator<Item = Document<'a>>) -> Self {
        let mut index = Self::default();
        for document in tools {
            index.add(&document);
        }
        index
    }

    fn add(&mut self, document: &Document<'_>) {
        let (def, tool) = (document.def, self.tools.len());
        let mut weights: HashMap<String, (f64, bool)> = HashMap::new();
        let mut length = 0.0;
        let mut take = |word: String, weight: f64| {
            let slot = weights.entry(word).or_default();
            slot.0 += weight;
            slot.1 |= weight == NAME;
            length += weight;
        };
        def.name.as_str().split(['_', '-']).for_each(|part| words(part).for_each(|word| take(word, NAME)));
        words(&def.description).for_each(|word| take(word, DESCRIPTION));
        let tags = document.tags.iter().copied().chain(def.keywords.toolset.as_deref());
        tags.flat_map(words).for_each(|word| take(word, TAG));
        parameters(def.input_schema.value()).flat_map(words).for_each(|word| take(word, PARAMETER));
        if let Some(hint) = hint(def) {
            words(&hint).for_each(|word| take(word, HINT));
        }
        for (word, (weight, in_name)) in weights {
            self.words.entry(word).or_default().push(Posting { tool, weight, in_name });
        }
        self.keys.entry(normalize(def.name.as_str())).or_default().push(tool);
        self.bare.entry(normalize(def.bare())).or_default().push(tool);
        self.tools.push(Indexed { name: def.name.as_str().to_owned(), length });
    }
}

impl Part<'_> {
    fn has(&self, tool: usize) -> bool {
        self.counts.get(tool).copied().unwrap_or(false)
    }

    fn name(&self, tool: usize) -> &str {
        self.index.tools.get(tool).map_or("", |tool| &tool.name)
    }

    /// The places of tools that count and in which a word stands.
    fn postings(&self, word: &str) -> impl Iterator<Item = &Posting> {
        self.index.words.get(word).into_iter().flatten().filter(|posting| self.has(posting.tool))
    }
}

/// The tools that fit best, at most `most`, best first; equally good ones in the order of their names.
///
/// # Errors
/// A query without a word, or no hits asked for.
pub fn search(parts: &[Part<'_>], query: &str, most: usize) -> Result<Vec<Found>, QueryError> {
    if most == 0 {
        return Err(QueryError::NoHits);
    }
    let query: String = query.chars().take(MAX_QUERY).collect();
    let mut asked: Vec<String> = words(&query).take(MAX_WORDS).collect();
    if asked.is_empty() {
        return Err(QueryError::Empty);
    }
    if let Some((part, tool)) = exact(parts, &query) {
        return Ok(vec![Found { part, tool, score: 1.0, exact: true }]);
    }
    let ranking = Ranking::new(parts);
    asked = asked.into_iter().flat_map(|word| ranking.known(word)).take(MAX_WORDS).collect();
    ranking.drop_common(&mut asked);
    Ok(ranking.best(&asked, most))
}

/// The tool of this very name. Case and separators may differ, and the plugin's id may be missing, if only one tool can
/// be meant.
fn exact(parts: &[Part<'_>], name: &str) -> Option<(usize, usize)> {
    let name = name.trim();
    let key = normalize(name);
    let places = |of: &dyn Fn(&Index) -> Option<&Vec<usize>>| -> Vec<(usize, usize)> {
        let each = |(at, part): (usize, &Part<'_>)| -> Vec<(usize, usize)> {
            let tools = of(part.index).into_iter().flatten().copied();
            tools.filter(|tool| part.has(*tool)).map(|tool| (at, tool)).collect()
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
        let bare = places(&|index| index.bare.get(&key));
        whole.is_empty().then(|| only(&bare)).flatten()
    })
}

/// The figures of what is searched.
struct Ranking<'a> {
    parts: &'a [Part<'a>],
    /// How many tools, and how long they are on average.
    count: usize,
    average: f64,
}

impl<'a> Ranking<'a> {
    fn new(parts: &'a [Part<'a>]) -> Self {
        let lengths = parts.iter().flat_map(|part| {
            let tools = part.index.tools.iter().enumerate();
            tools.filter(|(place, _)| part.has(*place)).map(|(_, tool)| tool.length)
        });
        let (count, total) = lengths.fold((0_usize, 0.0), |(count, total), one| (count + 1, total + one));
        Self { parts, count, average: (total / count.max(1) as f64).max(f64::MIN_POSITIVE) }
    }

    /// In how many tools a word stands.
    fn with(&self, word: &str) -> usize {
        self.parts.iter().map(|part| part.postings(word).count()).sum()
    }

    /// A word as the tools have it: as it is, in the other number, or in its parts.
    fn known(&self, word: String) -> Vec<String> {
        if self.with(&word) > 0 {
            return vec![word];
        }
        let other = match word.strip_suffix('s') {
            Some(singular) if singular.chars().count() > 2 => singular.to_owned(),
            _ => format!("{word}s"),
        };
        if self.with(&other) > 0 {
            return vec![other];
        }
        if word.contains('_') {
            return word.split('_').filter(|part| !part.is_empty()).map(ToOwned::to_owned).collect();
        }
        vec![word]
    }

    /// Drops the words that most tools share; if nothing would be left, keeps the rarest that names a tool.
    fn drop_common(&self, asked: &mut Vec<String>) {
        if asked.len() < 2 {
            return;
        }
        let counts: HashMap<String, usize> =
            asked.iter().map(|word| (word.clone(), self.with(word))).collect();
        let count = |word: &String| counts.get(word).copied().unwrap_or(0);
        let common = |word: &String| count(word) >= COMMON && count(word) * 2 >= self.count;
        if !asked.iter().filter(|word| count(word) > 0).all(&common) {
            asked.retain(|word| !common(word));
            return;
        }
        let names = |word: &&String| self.parts.iter().any(|part| part.postings(word).any(|p| p.in_name));
        let rarest = asked.iter().filter(names).min_by_key(|word| count(word)).cloned();
        *asked = rarest.into_iter().collect();
    }

    fn best(&self, asked: &[String], most: usize) -> Vec<Found> {
        let mut scores: HashMap<(usize, usize), f64> = HashMap::new();
        for word in asked {
            self.score(word, &mut scores);
        }
        let best = scores.values().copied().fold(0.0, f64::max);
        let close = scores.into_iter().filter(|(_, score)| *score >= best * FLOOR);
        let mut found: Vec<Found> =
            close.map(|((part, tool), score)| Found { part, tool, score, exact: false }).collect();
        found.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then_with(|| self.by_name(a, b)));
        found.truncate(most);
        found
    }

    fn by_name(&self, a: &Found, b: &Found) -> Ordering {
        let name = |found: &Found| self.parts.get(found.part).map_or("", |part| part.name(found.tool));
        name(a).cmp(name(b)).then(a.part.cmp(&b.part))
    }

    fn score(&self, word: &str, scores: &mut HashMap<(usize, usize), f64>) {
        let (all, with) = (self.count as f64, self.with(word) as f64);
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

/// Words that were added for searching: the operator's, or `search_hint` in the tool's metadata.
fn hint(def: &ToolDef) -> Option<String> {
    if let Some(hint) = &def.keywords.search_hint {
        return Some(hint.clone());
    }
    let meta: Value = serde_json::from_str(def.meta.as_ref()?.get()).ok()?;
    meta.get("search_hint").and_then(Value::as_str).map(ToOwned::to_owned)
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
