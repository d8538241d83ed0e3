//! What can be asked of a long text: the beginning, the end, a range of lines or characters, the lines with a word, how
//! long it is. Each answer fits into a number of characters and says how to go on.

use std::time::{Duration, Instant};

use regex::{Regex, RegexBuilder};

/// Longest pattern, in characters.
pub const MAX_PATTERN: usize = 1000;
/// Largest compiled pattern, in bytes: with it, a megabyte takes a second at worst.
const MAX_COMPILED: usize = 256 << 10;
/// How long one search may take; what was found until then is the answer.
const SEARCH_TIME: Duration = Duration::from_secs(2);
/// Bytes that are searched at once. A match that is longer than [`OVERLAP`] can be missed in a line that is longer.
const WINDOW: usize = 64 << 10;
/// Bytes that two windows have in common.
const OVERLAP: usize = 4 << 10;
/// Longest line that a search shows whole, in characters; of longer ones it shows what is around the match.
const LONG_LINE: usize = 1000;
/// Characters shown before a match in a long line; behind it, twice as many.
const BEFORE_MATCH: usize = 200;
/// Room that is kept for the note that says how to go on, in characters.
const NOTE: usize = 120;

/// Room that is kept for the first line of an answer from the end, in characters.
const HEAD: usize = 110;

/// What is asked of a kept text.
#[derive(Debug, Clone)]
pub enum Question {
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
        /// What a line must hold.
        pattern: Pattern,
        /// Lines shown before and after each.
        around: usize,
    },
    /// How long it is.
    Size,
}

/// What is searched for: bounded in size and, since it runs in linear time, in work.
#[derive(Debug, Clone)]
pub struct Pattern {
    shown: String,
    regex: Regex,
}

impl Pattern {
    /// A pattern of fixed words, or a regular expression.
    ///
    /// # Errors
    /// When there is nothing to search for, too much, or no regular expression in it.
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
            _ => "the pattern is no regular expression".to_owned(),
        })?;
        Ok(Self { shown: text.to_owned(), regex })
    }

    /// Where in a line it matches first, in bytes.
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
            from = line.floor_char_boundary(end - OVERLAP);
        }
    }
}

/// How long a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Size {
    /// Bytes.
    pub bytes: usize,
    /// Characters.
    pub chars: usize,
    /// Lines; a last one without a line break counts.
    pub lines: usize,
    /// Tokens of a model, roughly: a quarter of the characters.
    pub tokens_estimated: usize,
}

/// Measures a text.
#[must_use]
pub fn size(text: &str) -> Size {
    let chars = text.chars().count();
    Size { bytes: text.len(), chars, lines: text.lines().count(), tokens_estimated: chars.div_ceil(4) }
}

/// Answers a question: a first line that says what follows, then numbered lines or the characters. Ends before `most`
/// characters and then says how to go on. Takes a few seconds at most; not to be called where nothing may wait.
#[must_use]
pub fn answer(text: &str, question: &Question, most: usize) -> String {
    let lines = || text.lines().enumerate().map(|(at, line)| (at + 1, line));
    let total = || text.lines().count();
    match question {
        Question::Head(count) => {
            let total = total();
            let head = format!("First {} of {total} lines", count.min(&total));
            Page::new(&head, most).lines(text, lines().take(*count)).out
        }
        Question::Tail(count) => tail(text, *count, most),
        Question::Lines(from, to) => {
            let (from, total) = ((*from).max(1), total());
            let picked = lines().skip(from - 1).take(to.saturating_sub(from - 1));
            Page::new(&format!("Lines {from} to {} of {total}", to.min(&total)), most).lines(text, picked).out
        }
        Question::Chars(from, to) => {
            let (from, total) = ((*from).max(1), text.chars().count());
            let mut page = Page::new(&format!("Characters {from} to {} of {total}", to.min(&total)), most);
            let wanted = (*to).min(total).saturating_sub(from - 1);
            if wanted > 0 && page.push("\n") {
                page.chars(text.chars().skip(from - 1), wanted, from);
            }
            page.out
        }
        Question::Grep { pattern, around } => grep(text, pattern, *around, most),
        Question::Size => {
            let Size { bytes, chars, lines, tokens_estimated } = size(text);
            let all =
                format!("{lines} lines, {chars} characters, {bytes} bytes, about {tokens_estimated} tokens");
            all.chars().take(most).collect()
        }
    }
}

/// The last lines, and of those the last that have room.
fn tail(text: &str, count: usize, most: usize) -> String {
    let total = text.lines().count();
    let room = most.saturating_sub(HEAD + NOTE);
    let (mut used, mut fitting) = (0, 0);
    for line in text.lines().rev().take(count) {
        used += line.chars().count() + total.to_string().len() + 3;
        if used > room {
            break;
        }
        fitting += 1;
    }
    if fitting == 0 && count > 0 && total > 0 {
        // Not even the last line has room: its end does.
        let chars = text.trim_end_matches(['\r', '\n']).chars().count();
        let from = (chars - room.min(chars)).saturating_add(1);
        return answer(text, &Question::Chars(from, chars), most);
    }
    let mut head = format!("Last {fitting} of {total} lines");
    let first = total - fitting;
    if fitting < count.min(total) {
        head.push_str(&format!(" (no room for more: read `lines` up to {first} for those before)"));
    }
    let lines = text.lines().enumerate().skip(first).map(|(at, line)| (at + 1, line));
    Page::new(&head, most).lines(text, lines).out
}

fn grep(text: &str, pattern: &Pattern, around: usize, most: usize) -> String {
    let until = Instant::now() + SEARCH_TIME;
    let (mut hits, mut count, mut total) = (Vec::new(), 0_usize, 0);
    let mut timed_out = false;
    for (at, line) in text.lines().enumerate() {
        total = at + 1;
        if let Some(place) = pattern.find(line, until) {
            count += 1;
            // Each line that is shown takes a few characters: more of them have no room.
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
    let mut page = Page::new(&head, most);
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

/// An answer that is being written.
struct Page {
    out: String,
    /// Characters left, the note's included.
    left: usize,
}

impl Page {
    fn new(head: &str, most: usize) -> Self {
        let out: String = head.chars().take(most).collect();
        let left = most - out.chars().count();
        Self { out, left }
    }

    /// Writes a text if there is room for it and for a note.
    fn push(&mut self, text: &str) -> bool {
        let fits = text.chars().count() + NOTE <= self.left;
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
        let mut first = true;
        for (number, line) in lines {
            let (prefix, length) = (format!("\n{number}: "), line.chars().count());
            // Only a line that has no room on a page of its own is shown in parts.
            let whole = prefix.len() + length + NOTE <= self.left;
            if !(whole || first) || !self.push(&prefix) {
                self.note(&format!("\n[no room for more: ask for `lines` from {number}]"));
                break;
            }
            if !self.chars(line.chars(), length, chars_before(text, line) + 1) {
                break;
            }
            first = false;
        }
        self
    }

    /// Writes the first `wanted` of some characters, the first of which is number `from` of the text.
    fn chars(&mut self, chars: impl Iterator<Item = char>, wanted: usize, from: usize) -> bool {
        let room = self.left.saturating_sub(NOTE).min(wanted);
        self.out.extend(chars.take(room));
        self.left -= room;
        if room < wanted {
            let next = from + room;
            self.note(&format!("\n[no room for more: ask for `chars` from {next}]"));
        }
        room == wanted
    }

    /// Writes a line, or what is around a place of it.
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

/// Characters of a text before a line of it.
fn chars_before(text: &str, line: &str) -> usize {
    let at = line.as_ptr().addr().saturating_sub(text.as_ptr().addr());
    text.get(..at).map_or(0, |before| before.chars().count())
}

#[cfg(test)]
#[path = "question_tests.rs"]
mod tests;
