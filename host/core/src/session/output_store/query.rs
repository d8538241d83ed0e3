//! Queries over a saved text: its first or last lines, a range of lines or characters, the lines that match a pattern,
//! its size. Each answer fits into a character limit and says how to read on.

use std::time::{Duration, Instant};

use regex::{Regex, RegexBuilder};

/// Longest pattern, in characters.
pub const MAX_PATTERN: usize = 1000;
/// Largest compiled pattern, in bytes: at this size a search takes at most a second per megabyte.
const MAX_COMPILED: usize = 256 << 10;
/// Longest duration of a search. The answer then has the matches found so far.
const SEARCH_TIME: Duration = Duration::from_secs(2);
/// Bytes of a line that are searched in one step. In a longer line, a match longer than [`WINDOW_OVERLAP`] can be missed.
const WINDOW: usize = 64 << 10;
/// Bytes by which two consecutive windows overlap.
const WINDOW_OVERLAP: usize = 4 << 10;
/// Longest line that a search shows in full, in characters. Of longer lines it shows the text around the match.
const LONG_LINE: usize = 1000;
/// Characters shown before a match in a long line; after the match, twice as many.
const BEFORE_MATCH: usize = 200;
/// Characters reserved for the note that says how to read on.
const NOTE_CHARS: usize = 120;

/// Characters reserved for the first line of the answer to [`TextQuery::Tail`].
const HEAD_CHARS: usize = 110;

/// A query over a saved text.
#[derive(Debug, Clone)]
pub enum TextQuery {
    /// The first lines.
    Head(usize),
    /// The last lines.
    Tail(usize),
    /// Lines from one to another, both counted from 1 and included.
    Lines(usize, usize),
    /// Characters from one to another, both counted from 1 and included.
    Chars(usize, usize),
    /// The lines that match.
    Grep {
        /// The pattern.
        pattern: SearchPattern,
        /// Lines shown before and after each match.
        around: usize,
    },
    /// The size of the text.
    Size,
}

/// A search pattern. Its size is bounded, and a search with it takes linear time.
#[derive(Debug, Clone)]
pub struct SearchPattern {
    shown: String,
    regex: Regex,
}

impl SearchPattern {
    /// A pattern from a literal text, or from a regular expression if `regular` is set.
    ///
    /// # Errors
    /// The text is empty, too long or not a regular expression.
    pub fn new(text: &str, regular: bool, ignore_case: bool) -> Result<Self, String> {
        if text.is_empty() {
            return Err("the pattern is empty".to_owned());
        }
        if text.chars().count() > MAX_PATTERN {
            return Err(format!("the pattern is longer than {MAX_PATTERN} characters"));
        }
        let source = if regular { text.to_owned() } else { regex::escape(text) };
        let built = RegexBuilder::new(&source)
            .case_insensitive(ignore_case)
            .size_limit(MAX_COMPILED)
            .dfa_size_limit(MAX_COMPILED)
            .nest_limit(50)
            .build();
        let regex = built.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "the pattern is too large once compiled".to_owned(),
            _ => "the pattern is not a valid regular expression".to_owned(),
        })?;
        Ok(Self { shown: text.to_owned(), regex })
    }

    /// The byte offset of the first match in a line.
    fn find(&self, line: &str, until: Instant) -> Option<usize> {
        let mut from = 0;
        loop {
            let end = line.floor_char_boundary(from + WINDOW);
            if let Some(found) = line.get(from..end).and_then(|window| self.regex.find(window)) {
                return Some(from + found.start());
            }
            if end >= line.len() || Instant::now() > until {
                return None;
            }
            from = line.floor_char_boundary(end - WINDOW_OVERLAP);
        }
    }
}

/// The size of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct TextSize {
    /// Bytes.
    pub bytes: usize,
    /// Characters.
    pub chars: usize,
    /// Lines, including a last line without a line break.
    pub lines: usize,
    /// Estimated tokens of a model: a quarter of the characters.
    pub tokens_estimated: usize,
}

/// Measures a text.
#[must_use]
pub fn measure(text: &str) -> TextSize {
    let chars = text.chars().count();
    TextSize { bytes: text.len(), chars, lines: text.lines().count(), tokens_estimated: chars.div_ceil(4) }
}

/// Answers a query with a heading, followed by numbered lines or by characters. The answer has at most `most`
/// characters; if it is incomplete, it ends with a note that says how to read on. A search can take up to two seconds,
/// so do not call this on an async worker thread.
#[must_use]
pub fn answer(text: &str, question: &TextQuery, most: usize) -> String {
    let lines = || text.lines().enumerate().map(|(at, line)| (at + 1, line));
    let total = || text.lines().count();
    match question {
        TextQuery::Head(count) => {
            let total = total();
            let head = format!("First {} of {total} lines", count.min(&total));
            AnswerWriter::new(&head, most).lines(text, lines().take(*count)).out
        }
        TextQuery::Tail(count) => tail(text, *count, most),
        TextQuery::Lines(from, to) => {
            let (from, total) = ((*from).max(1), total());
            let selected = lines().skip(from - 1).take(to.saturating_sub(from - 1));
            AnswerWriter::new(&format!("Lines {from} to {} of {total}", to.min(&total)), most)
                .lines(text, selected)
                .out
        }
        TextQuery::Chars(from, to) => {
            let (from, total) = ((*from).max(1), text.chars().count());
            let mut page =
                AnswerWriter::new(&format!("Characters {from} to {} of {total}", to.min(&total)), most);
            let wanted = (*to).min(total).saturating_sub(from - 1);
            if wanted > 0 && page.push("\n") {
                page.chars(text.chars().skip(from - 1), wanted, from);
            }
            page.out
        }
        TextQuery::Grep { pattern, around } => grep(text, pattern, *around, most),
        TextQuery::Size => {
            let TextSize { bytes, chars, lines, tokens_estimated } = measure(text);
            let all =
                format!("{lines} lines, {chars} characters, {bytes} bytes, about {tokens_estimated} tokens");
            all.chars().take(most).collect()
        }
    }
}

/// The last lines, as many as fit.
fn tail(text: &str, count: usize, most: usize) -> String {
    let total = text.lines().count();
    let room = most.saturating_sub(HEAD_CHARS + NOTE_CHARS);
    let (mut used, mut fitting) = (0, 0);
    for line in text.lines().rev().take(count) {
        used += line.chars().count() + total.to_string().len() + 3;
        if used > room {
            break;
        }
        fitting += 1;
    }
    if fitting == 0 && count > 0 && total > 0 {
        // Even the last line does not fit: show its end.
        let chars = text.trim_end_matches(['\r', '\n']).chars().count();
        let from = (chars - room.min(chars)).saturating_add(1);
        return answer(text, &TextQuery::Chars(from, chars), most);
    }
    let mut head = format!("Last {fitting} of {total} lines");
    let first = total - fitting;
    if fitting < count.min(total) {
        head.push_str(&format!(" (no room for more: read `lines` up to {first} for those before)"));
    }
    let lines = text.lines().enumerate().skip(first).map(|(at, line)| (at + 1, line));
    AnswerWriter::new(&head, most).lines(text, lines).out
}

fn grep(text: &str, pattern: &SearchPattern, around: usize, most: usize) -> String {
    let until = Instant::now() + SEARCH_TIME;
    let (mut hits, mut count, mut total) = (Vec::new(), 0_usize, 0);
    let mut timed_out = false;
    for (at, line) in text.lines().enumerate() {
        total = at + 1;
        if let Some(place) = pattern.find(line, until) {
            count += 1;
            // Each shown line takes at least four characters, so later hits cannot fit.
            if hits.len() <= most / 4 {
                hits.push((at + 1, place));
            }
        }
        timed_out = (at % 64 == 0 || line.len() > WINDOW) && Instant::now() > until;
        if timed_out {
            break;
        }
    }
    let mut head = format!("{count} of {total} lines match {:?}", pattern.shown);
    if timed_out {
        head.push_str(" (the search took too long and ended there; use fixed words)");
    }
    let mut page = AnswerWriter::new(&head, most);
    let mut hits = hits.into_iter().peekable();
    let mut last = 0;
    for (number, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line)) {
        while hits.peek().is_some_and(|(hit, _)| hit.saturating_add(around) < number) {
            hits.next();
        }
        let Some((hit, place)) = hits.peek().copied() else { break };
        if number < hit.saturating_sub(around) {
            continue;
        }
        if around > 0 && last > 0 && last + 1 < number && !page.push("\n--") {
            break;
        }
        last = number;
        let place = if hit == number { place } else { 0 };
        if !page.excerpt(text, number, line, place) {
            break;
        }
    }
    page.out
}

/// Writes an answer within its character limit.
struct AnswerWriter {
    out: String,
    /// Characters left, including those for the note.
    left: usize,
}

impl AnswerWriter {
    fn new(head: &str, most: usize) -> Self {
        let out: String = head.chars().take(most).collect();
        let left = most - out.chars().count();
        Self { out, left }
    }

    /// Writes a text, if it fits together with a note.
    fn push(&mut self, text: &str) -> bool {
        let fits = text.chars().count() + NOTE_CHARS <= self.left;
        if fits {
            self.out.push_str(text);
            self.left -= text.chars().count();
        }
        fits
    }

    fn note(&mut self, note: &str) {
        let note: String = note.chars().take(self.left).collect();
        self.left -= note.chars().count();
        self.out.push_str(&note);
    }

    fn lines<'a>(mut self, text: &str, lines: impl Iterator<Item = (usize, &'a str)>) -> Self {
        let mut is_first = true;
        for (number, line) in lines {
            let (prefix, length) = (format!("\n{number}: "), line.chars().count());
            // A line is split only if it does not fit into an answer alone.
            let fits = prefix.len() + length + NOTE_CHARS <= self.left;
            if !(fits || is_first) || !self.push(&prefix) {
                self.note(&format!("\n[no room for more: ask for `lines` from {number}]"));
                break;
            }
            if !self.chars(line.chars(), length, chars_before(text, line) + 1) {
                break;
            }
            is_first = false;
        }
        self
    }

    /// Writes up to `wanted` characters. The first of them is character number `from` of the text. Returns whether all
    /// fit.
    fn chars(&mut self, chars: impl Iterator<Item = char>, wanted: usize, from: usize) -> bool {
        let room = self.left.saturating_sub(NOTE_CHARS).min(wanted);
        self.out.extend(chars.take(room));
        self.left -= room;
        if room < wanted {
            let next = from + room;
            self.note(&format!("\n[no room for more: ask for `chars` from {next}]"));
        }
        room == wanted
    }

    /// Writes a line, or the part of a long line around the byte offset `place`.
    fn excerpt(&mut self, text: &str, number: usize, line: &str, place: usize) -> bool {
        let length = line.chars().count();
        let (prefix, shown) = if length <= LONG_LINE {
            (format!("\n{number}: "), line.to_owned())
        } else {
            let matched = line.get(..place).map_or(0, |before| before.chars().count());
            let skip = matched.saturating_sub(BEFORE_MATCH);
            let shown: String = line.chars().skip(skip).take(3 * BEFORE_MATCH).collect();
            let from = chars_before(text, line) + skip + 1;
            (format!("\n{number} (of {length} characters, here from `chars` {from}): "), shown)
        };
        let fits = self.push(&format!("{prefix}{shown}"));
        if !fits {
            self.note(&format!("\n[no room for more: line {number} is the next; ask for fewer]"));
        }
        fits
    }
}

/// Characters of the text before `line`, which is a slice of it.
fn chars_before(text: &str, line: &str) -> usize {
    let at = line.as_ptr().addr().saturating_sub(text.as_ptr().addr());
    text.get(..at).map_or(0, |before| before.chars().count())
}

#[cfg(test)]
#[path = "query_tests.rs"]
mod tests;
