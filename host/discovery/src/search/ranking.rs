//! The score of a tool for a query: BM25F. Each field counts with its weight and is normalized by its length. The sum
//! saturates for each word, and rare words count more. A tool whose name and summary have few other words is
//! preferred: `List pull requests` is an operation of the resource, `List commits on a pull request` of one of its parts.
//! A tool that performs the action of the query is preferred as well.
//!
//! The weights were chosen with the `tune` pairs of `tests/search/pairs.json`; the test `search_pairs` measures them.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::actions::{Actions, synonyms};
use super::index::{FIELDS, IndexedField, IndexedTool, Posting};
use super::words::root;
use super::{IndexPart, RankedTool};

/// The fields in their order, with their weights and how much their lengths count, from 0 to 1.
const FIELD_WEIGHTS: [(IndexedField, f64, f64); FIELDS] = [
    (IndexedField::Name, 3.0, 0.75),
    (IndexedField::Summary, 2.0, 0.75),
    (IndexedField::Details, 0.5, 0.75),
    (IndexedField::Hint, 2.0, 0.5),
    (IndexedField::Tags, 1.0, 0.5),
    (IndexedField::Parameters, 0.2, 0.75),
];
/// The saturation of the frequency of a word.
const K1: f64 = 1.5;
/// The weight of a synonym of a word of the query.
const SYNONYM_WEIGHT: f64 = 0.4;
/// The weight of a word with the same root, such as `eviction` for `evict`.
const RELATED_WEIGHT: f64 = 0.6;
/// The share that is added to the score of a tool whose name and summary have no other words than the query.
const COVERAGE_BONUS: f64 = 0.5;
/// The share that is added if the tool performs the action of the query.
const ACTION_BONUS: f64 = 0.2;
/// The share that is added if the query asks for a change and the tool may change something, or if neither is the case.
const EFFECT_BONUS: f64 = 0.3;
/// The share that is added if the query names no action and the tool creates something: `comment on an issue`.
const CREATION_BONUS: f64 = 0.1;
/// The minimum score of a hit, as a share of the best score.
const MIN_SCORE_SHARE: f64 = 0.3;
/// A word is common if at least this many tools, and at least half of all tools, have it.
const COMMON_WORD_TOOLS: usize = 3;

/// The statistics of the included tools.
pub(super) struct Ranking<'a> {
    parts: &'a [IndexPart<'a>],
    /// The number of included tools, and the average length of each field.
    count: usize,
    averages: [f64; FIELDS],
}

/// How well a tool matches a word of the query and its synonyms.
#[derive(Debug, Clone, Copy, Default)]
struct WordMatch {
    frequency: f64,
    /// Whether the name and the summary have it: 1, or less for a synonym.
    in_name: f64,
    in_summary: f64,
}

/// The tools with a word of the query, by part and tool.
struct WordMatches {
    by_tool: Vec<Vec<WordMatch>>,
    /// The number of tools with the word.
    tools: usize,
    names_a_tool: bool,
}

/// The score of a tool before the bonus.
#[derive(Debug, Clone, Copy, Default)]
struct ToolScore {
    sum: f64,
    /// The number of words of the query that name and summary have.
    in_name: f64,
    in_summary: f64,
    /// Whether the tool has a distinctive word.
    distinctive: bool,
}

impl<'a> Ranking<'a> {
    pub(super) fn new(parts: &'a [IndexPart<'a>]) -> Self {
        let (mut count, mut totals) = (0_usize, [0.0; FIELDS]);
        for part in parts {
            let tools = part.index.tools.iter().enumerate().filter(|(place, _)| part.includes(*place));
            for (_, tool) in tools {
                count += 1;
                totals.iter_mut().zip(tool.lengths).for_each(|(total, length)| *total += f64::from(length));
            }
        }
        let averages = totals.map(|total| (total / count.max(1) as f64).max(f64::MIN_POSITIVE));
        Self { parts, count, averages }
    }

    /// The best tools for the words and actions of a query: at most `most`, sorted by descending score and then by name.
    pub(super) fn top(&self, asked: &[String], actions: Actions, most: usize) -> Vec<RankedTool> {
        let matches: Vec<WordMatches> =
            asked.iter().map(|word| self.matches(word)).filter(|found| found.tools > 0).collect();
        let distinctive = self.distinctive(&matches);
        let mut scores: Vec<Vec<ToolScore>> = self.for_each_tool();
        for (at, found) in matches.iter().enumerate() {
            self.add_scores(found, distinctive.contains(&at), &mut scores);
        }
        self.best(&scores, actions, most)
    }

    fn for_each_tool<T: Clone + Default>(&self) -> Vec<Vec<T>> {
        self.parts.iter().map(|part| vec![T::default(); part.index.tools.len()]).collect()
    }

    /// The other words for a word, with their weights: its synonyms, and words of the tools with the same root.
    fn other_words(&self, word: &str) -> BTreeMap<&str, f64> {
        let related = self.parts.iter().filter_map(|part| part.index.related.get(root(word))).flatten();
        let related = related.map(|other| (other.as_str(), RELATED_WEIGHT));
        let mut all: BTreeMap<&str, f64> =
            synonyms(word).into_iter().map(|other| (other, SYNONYM_WEIGHT)).chain(related).collect();
        all.remove(word);
        all
    }

    /// The tools with a word or another word for it.
    fn matches(&self, word: &str) -> WordMatches {
        let mut all = WordMatches { by_tool: self.for_each_tool(), tools: 0, names_a_tool: false };
        for (word, weight) in std::iter::once((word, 1.0)).chain(self.other_words(word)) {
            for (part, by_tool) in self.parts.iter().zip(&mut all.by_tool) {
                for posting in part.postings(word) {
                    let Some(found) = by_tool.get_mut(posting.tool) else { continue };
                    let has = |field| if posting.count(field) > 0 { weight } else { 0.0 };
                    all.tools += usize::from(found.frequency == 0.0);
                    all.names_a_tool |= posting.count(IndexedField::Name) > 0;
                    found.frequency += weight * self.frequency(part, posting);
                    found.in_name = found.in_name.max(has(IndexedField::Name));
                    found.in_summary = found.in_summary.max(has(IndexedField::Summary));
                }
            }
        }
        all
    }

    /// The weighted frequency of a word in a tool, over all fields.
    fn frequency(&self, part: &IndexPart<'_>, posting: &Posting) -> f64 {
        let Some(tool) = part.index.tools.get(posting.tool) else { return 0.0 };
        let fields = FIELD_WEIGHTS.iter().zip(posting.counts).zip(tool.lengths).zip(self.averages);
        fields
            .filter(|(((_, count), _), _)| *count > 0)
            .map(|((((_, weight, share), count), length), average)| {
                weight * f64::from(count) / (1.0 - share + share * f64::from(length) / average)
            })
            .sum()
    }

    /// The positions of the words that tell tools apart: those that are not common. If all are common, the rarest that
    /// names a tool.
    fn distinctive(&self, matches: &[WordMatches]) -> Vec<usize> {
        let common = |found: &WordMatches| found.tools >= COMMON_WORD_TOOLS && found.tools * 2 >= self.count;
        let all = || matches.iter().enumerate();
        let rare: Vec<usize> = all().filter(|(_, found)| !common(found)).map(|(at, _)| at).collect();
        if !rare.is_empty() {
            return rare;
        }
        let naming = all().filter(|(_, found)| found.names_a_tool || matches.len() == 1);
        naming.min_by_key(|(_, found)| found.tools).map(|(at, _)| at).into_iter().collect()
    }

    fn add_scores(&self, matches: &WordMatches, distinctive: bool, scores: &mut [Vec<ToolScore>]) {
        let (all, with) = (self.count as f64, matches.tools as f64);
        let rarity = ((all - with + 0.5) / (with + 0.5)).ln_1p();
        for (matches, scores) in matches.by_tool.iter().zip(scores) {
            for (found, score) in matches.iter().zip(scores).filter(|(found, _)| found.frequency > 0.0) {
                score.sum += rarity * found.frequency * (K1 + 1.0) / (found.frequency + K1);
                score.in_name += found.in_name;
                score.in_summary += found.in_summary;
                score.distinctive |= distinctive;
            }
        }
    }

    fn best(&self, scores: &[Vec<ToolScore>], actions: Actions, most: usize) -> Vec<RankedTool> {
        let hits = scores.iter().zip(self.parts).enumerate().flat_map(|(at, (scores, part))| {
            let hits =
                scores.iter().zip(&part.index.tools).enumerate().filter(|(_, (score, _))| score.distinctive);
            hits.map(move |(tool, (score, indexed))| {
                let share = |words: f64, field| words / f64::from(indexed.length(field).max(1));
                let name = share(score.in_name, IndexedField::Name);
                let summary = share(score.in_summary, IndexedField::Summary);
                let coverage = f64::midpoint(name, summary).min(1.0);
                RankedTool {
                    part: at,
                    tool,
                    score: score.sum * (1.0 + COVERAGE_BONUS * coverage) * action_factor(actions, indexed),
                    exact: false,
                }
            })
        });
        let mut hits: Vec<RankedTool> = hits.collect();
        let best = hits.iter().map(|hit| hit.score).fold(0.0, f64::max);
        hits.retain(|hit| hit.score >= best * MIN_SCORE_SHARE);
        hits.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then_with(|| self.compare_names(a, b)));
        hits.truncate(most);
        hits
    }

    fn compare_names(&self, a: &RankedTool, b: &RankedTool) -> Ordering {
        let name = |hit: &RankedTool| self.parts.get(hit.part).map_or("", |part| part.name(hit.tool));
        name(a).cmp(name(b)).then(a.part.cmp(&b.part))
    }
}

/// The factor for a tool that performs one of the actions of a query.
fn action_factor(asked: Actions, tool: &IndexedTool) -> f64 {
    let bonus = |applies, share| if applies { 1.0 + share } else { 1.0 };
    if asked.is_empty() {
        return bonus(tool.actions.creates(), CREATION_BONUS);
    }
    bonus(asked.intersects(tool.actions), ACTION_BONUS) * bonus(asked.have(tool.effect), EFFECT_BONUS)
}
