//! Detection of chat template tokens and of imitations of the mark.
//!
//! | syntax | models | matched |
//! |---|---|---|
//! | `<\|im_start\|>`, `<\|eot_id\|>`, `<｜User｜>`, `<\|turn>`, `<turn\|>` | ChatML, Llama 3 and 4, Phi, gpt-oss, Command, DeepSeek, Qwen, GLM, Granite, Kimi, Gemma 4 | any single word in such brackets |
//! | `<s>`, `<start_of_turn>`, `<tool_call>`, `<think>` | Llama 2, Mistral, Gemma, Qwen, Hermes | the words of [`ANGLE_WORDS`], also as closing tags, and words with a prefix of [`PREFIXES`], including attributes |
//! | `<<SYS>>` | Llama 2 | both forms |
//! | `[INST]`, `[TOOL_CALLS]`, `[gMASK]`, `]~b]` | Mistral, GLM, MiniMax | the tokens of [`SQUARE_TOKENS`] |
//! | `Human:`, `Assistant:` after an empty line | Claude, before messages | the word |
//!
//! Look-alikes and invisible characters do not hide a token ([`fold`]). Words in angle brackets match in any case.
//! Mistral's `[ARGS]` is not matched: it occurs in most usage texts and has no effect alone.

use super::fold::fold;

/// A part of a text that must be neutralized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Threat {
    /// A control token with this length in bytes.
    Token(usize),
    /// The bracket of a tag that resembles the mark.
    Bracket,
}

/// Words that are control tokens in angle brackets, with or without a slash before them.
const ANGLE_WORDS: [&str; 31] = [
    "s",
    "bos",
    "eos",
    "pad",
    "unk",
    "sop",
    "eop",
    "eod",
    "eoh",
    "eoa",
    "bos_token",
    "eos_token",
    "pad_token",
    "start_of_turn",
    "end_of_turn",
    "start_of_image",
    "end_of_image",
    "start_of_role",
    "end_of_role",
    "endoftext",
    "tool_call",
    "tool_calls",
    "tool_response",
    "tool_responses",
    "think",
    "function_call",
    "function_calls",
    "function_results",
    "function_response",
    "im_start",
    "im_end",
];
/// Prefixes of words that are control tokens in angle brackets, including their attributes.
const PREFIXES: [&str; 2] = ["seed:", "antml:"];
/// Tokens in square brackets, and tokens that start with a square bracket.
const SQUARE_TOKENS: [&str; 22] = [
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_CALLS]",
    "[/TOOL_CALLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CONTENT]",
    "[/TOOL_CONTENT]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[MODEL_SETTINGS]",
    "[/MODEL_SETTINGS]",
    "[CALL_ID]",
    "[THINK]",
    "[/THINK]",
    "[gMASK]",
    "[sMASK]",
    "]~b]",
    "]~!b[",
    "[e~[",
];
/// The speakers in plain text prompts.
const SPEAKERS: [&str; 2] = ["Human:", "Assistant:"];
/// The tag name of the mark.
const NAME: &str = "untrusted";
/// Longest word in brackets that is matched, in visible characters.
const MAX_WORD: usize = 64;

/// The next position from `from` on where a threat can start, and its first character.
pub(super) fn next_candidate(text: &str, from: usize) -> Option<(usize, char)> {
    let rest = text.get(from..)?;
    let may_follow = |c: char| match c {
        '<' | '[' | ']' | 'H' | 'A' => true,
        c if c.is_ascii() => false,
        c => matches!(fold(c), Some('<' | '[' | ']' | 'H' | 'A')),
    };
    let at = rest.find(may_follow)?;
    Some((from + at, rest.get(at..)?.chars().next()?))
}

/// The threat at a position that [`next_candidate`] returned.
pub(super) fn threat_at(text: &str, at: usize) -> Option<Threat> {
    let rest = text.get(at..)?;
    let mut seen = VisibleChars::new(rest);
    match seen.next()? {
        '<' => angle_bracket_threat(&seen),
        '[' | ']' => {
            // Few tokens have the same second character: a text of brackets takes one comparison for each.
            let second = seen.next()?;
            let mut tokens = SQUARE_TOKENS.iter().filter(|word| word.chars().nth(1) == Some(second));
            tokens.find_map(|word| VisibleChars::new(rest).literal(word)).map(Threat::Token)
        }
        _ => {
            let length = SPEAKERS.iter().find_map(|word| VisibleChars::new(rest).literal(word))?;
            follows_blank_line(text.get(..at)?).then_some(Threat::Token(length))
        }
    }
}

/// Iterates over visible characters and counts the bytes that were read.
#[derive(Clone)]
struct VisibleChars<'t> {
    chars: std::str::Chars<'t>,
    bytes: usize,
}

impl<'t> VisibleChars<'t> {
    fn new(text: &'t str) -> Self {
        Self { chars: text.chars(), bytes: 0 }
    }

    fn next(&mut self) -> Option<char> {
        loop {
            let c = self.chars.next()?;
            self.bytes += c.len_utf8();
            if let Some(c) = fold(c) {
                return Some(c);
            }
        }
    }

    fn peek(&self) -> Option<char> {
        self.clone().next()
    }

    fn consume(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        if is_next {
            self.next();
        }
        is_next
    }

    fn skip_whitespace(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.next();
        }
    }

    /// The number of bytes of `word`, if the text continues with it.
    fn literal(mut self, word: &str) -> Option<usize> {
        word.chars().all(|wanted| self.next() == Some(wanted)).then_some(self.bytes)
    }

    /// Reads a word in lower case, up to the first character that cannot be part of one.
    fn word(&mut self) -> String {
        let mut word = String::new();
        let is_word_char = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        for _ in 0..MAX_WORD {
            let Some(c) = self.peek().filter(is_word_char) else { break };
            word.extend(c.to_lowercase());
            self.next();
        }
        word
    }

    /// Whether the text continues with the name of the mark, ignoring white space, or ends within the name.
    fn matches_mark_name(mut self) -> bool {
        for wanted in NAME.chars() {
            self.skip_whitespace();
            match self.next() {
                None => return true,
                Some(c) if c.to_ascii_lowercase() == wanted => {}
                Some(_) => return false,
            }
        }
        true
    }
}

/// The threat after an opening angle bracket.
fn angle_bracket_threat(behind: &VisibleChars<'_>) -> Option<Threat> {
    if let Some(threat) = control_token(behind.clone()) {
        return Some(threat);
    }
    let mut seen = behind.clone();
    seen.skip_whitespace();
    let closes = seen.consume('/');
    seen.skip_whitespace();
    // A bracket at the end of the text is harmless: the host's own text follows.
    if seen.peek().is_none() && !closes {
        return None;
    }
    // A closing tag whose name has non-ASCII letters, which HTML and common XML formats do not use.
    let foreign = || closes && !seen.clone().word().is_ascii();
    (seen.clone().matches_mark_name() || foreign()).then_some(Threat::Bracket)
}

/// Reads a control token in angle brackets, after its first bracket.
fn control_token(mut seen: VisibleChars<'_>) -> Option<Threat> {
    let doubled = seen.consume('<');
    let bar = seen.consume('|');
    seen.consume('/');
    let word = seen.word();
    if PREFIXES.iter().any(|prefix| word.starts_with(prefix)) {
        return loop {
            match seen.peek()? {
                // If only the inner bracket were neutralized, the outer one would start a token that ends at the next
                // `>`.
                '<' => break Some(Threat::Bracket),
                '>' => {
                    seen.next();
                    break Some(Threat::Token(seen.bytes));
                }
                _ => seen.next(),
            };
        };
    }
    if word.is_empty() {
        return None;
    }
    let bar = seen.consume('|') || bar;
    seen.consume('/');
    if !seen.consume('>') {
        return None;
    }
    let known = match doubled {
        true => word == "sys" && seen.consume('>'),
        false => bar || ANGLE_WORDS.contains(&&*word),
    };
    known.then_some(Threat::Token(seen.bytes))
}

/// Whether an empty line precedes the text after `before`. The start of the text follows the line break of the mark.
fn follows_blank_line(before: &str) -> bool {
    let mut breaks = 0;
    for c in before.chars().rev() {
        match fold(c) {
            Some('\n') => breaks += 1,
            None | Some('\r' | '\t' | ' ') => {}
            Some(_) => return false,
        }
        if breaks == 2 {
            return true;
        }
    }
    breaks == 1
}
