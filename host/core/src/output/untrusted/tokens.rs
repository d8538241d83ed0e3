//! Where in a text something stands that is more than text.
//!
//! | written as | models | what is taken |
//! |---|---|---|
//! | `<\|im_start\|>`, `<\|eot_id\|>`, `<｜User｜>`, `<\|turn>`, `<turn\|>` | ChatML, Llama 3 and 4, Phi, gpt-oss, Command, DeepSeek, Qwen, GLM, Granite, Kimi, Gemma 4 | any one word in such brackets |
//! | `<s>`, `<start_of_turn>`, `<tool_call>`, `<think>` | Llama 2, Mistral, Gemma, Qwen, Hermes | the words of [`ANGLE`], also as closing tags, and `<seed:…>`, `<…>` with what is in them |
//! | `<<SYS>>` | Llama 2 | both forms |
//! | `[INST]`, `[TOOL_CALLS]`, `[gMASK]`, `]~b]` | Mistral, GLM, MiniMax | the words of [`SQUARE`] |
//! | `Human:`, `Assistant:` behind an empty line | Claude, before messages | the word |
//!
//! Look-alikes and characters that are not seen do not hide one ([`fold`]). Words in angle brackets are taken in any
//! case. A Mistral template's `[ARGS]` is not among them: it stands in every usage text, and means nothing on its own.

use super::fold::fold;

/// Something that may not stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Threat {
    /// A control token of so many bytes.
    Token(usize),
    /// The bracket of a tag that reads like the mark's own.
    Bracket,
}

/// Words that are control tokens in angle brackets, with or without a slash.
const ANGLE: [&str; 31] = [
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
/// Beginnings of words in angle brackets that are control tokens, attributes included.
const PREFIXES: [&str; 2] = ["seed:", "antml:"];
/// Tokens in square brackets, and others that begin with one.
const SQUARE: [&str; 22] = [
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
/// Who speaks, in prompts that are plain text.
const SPEAKERS: [&str; 2] = ["Human:", "Assistant:"];
/// The mark's name.
const NAME: &str = "untrusted";
/// Longest word in brackets that is taken, in characters that are seen.
const MAX_WORD: usize = 64;

/// The next place from `from` on where something may stand, and its first character.
pub(super) fn next(text: &str, from: usize) -> Option<(usize, char)> {
    let rest = text.get(from..)?;
    let may = |c: char| match c {
        '<' | '[' | ']' | 'H' | 'A' => true,
        c if c.is_ascii() => false,
        c => matches!(fold(c), Some('<' | '[' | ']' | 'H' | 'A')),
    };
    let at = rest.find(may)?;
    Some((from + at, rest.get(at..)?.chars().next()?))
}

/// What stands at a place that [`next`] found.
pub(super) fn threat(text: &str, at: usize) -> Option<Threat> {
    let rest = text.get(at..)?;
    let mut seen = Seen::new(rest);
    match seen.next()? {
        '<' => angle(&seen),
        '[' | ']' => SQUARE.iter().find_map(|word| Seen::new(rest).literal(word)).map(Threat::Token),
        _ => {
            let length = SPEAKERS.iter().find_map(|word| Seen::new(rest).literal(word))?;
            speaks(text.get(..at)?).then_some(Threat::Token(length))
        }
    }
}

/// The characters that are seen, with how many bytes were read for them.
#[derive(Clone)]
struct Seen<'t> {
    chars: std::str::Chars<'t>,
    bytes: usize,
}

impl<'t> Seen<'t> {
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

    fn take(&mut self, wanted: char) -> bool {
        let there = self.peek() == Some(wanted);
        if there {
            self.next();
        }
        there
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.next();
        }
    }

    /// How many bytes a word takes, if it stands here.
    fn literal(mut self, word: &str) -> Option<usize> {
        word.chars().all(|wanted| self.next() == Some(wanted)).then_some(self.bytes)
    }

    /// The word that stands here, in small letters; ends before what cannot be in one.
    fn word(&mut self) -> String {
        let mut word = String::new();
        let can = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        for _ in 0..MAX_WORD {
            let Some(c) = self.peek().filter(can) else { break };
            word.extend(c.to_lowercase());
            self.next();
        }
        word
    }

    /// Whether the mark's name stands here, with blanks in it or without, or the text ends within it.
    fn name(mut self) -> bool {
        for wanted in NAME.chars() {
            self.blanks();
            match self.next() {
                None => return true,
                Some(c) if c.to_ascii_lowercase() == wanted => {}
                Some(_) => return false,
            }
        }
        true
    }
}

/// What stands behind an opening angle bracket.
fn angle(behind: &Seen<'_>) -> Option<Threat> {
    if let Some(threat) = token(behind.clone()) {
        return Some(threat);
    }
    let mut seen = behind.clone();
    seen.blanks();
    let closes = seen.take('/');
    seen.blanks();
    // A bracket that ends the text can begin nothing: what comes behind it is ours.
    if seen.peek().is_none() && !closes {
        return None;
    }
    // A name in letters that could be others': none that HTML or any XML in use knows.
    let foreign = || closes && !seen.clone().word().is_ascii();
    (seen.clone().name() || foreign()).then_some(Threat::Bracket)
}

/// Reads a control token in angle brackets, after its first bracket.
fn token(mut seen: Seen<'_>) -> Option<Threat> {
    let doubled = seen.take('<');
    let bar = seen.take('|');
    seen.take('/');
    let word = seen.word();
    if PREFIXES.iter().any(|prefix| word.starts_with(prefix)) {
        return loop {
            match seen.peek()? {
                // Once the inner bracket is neutral, the outer one would begin a token that ends at the next `>`.
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
    let bar = seen.take('|') || bar;
    seen.take('/');
    if !seen.take('>') {
        return None;
    }
    let known = match doubled {
        true => word == "sys" && seen.take('>'),
        false => bar || ANGLE.contains(&&*word),
    };
    known.then_some(Threat::Token(seen.bytes))
}

/// Whether what stands behind `before` stands behind an empty line. The text itself begins behind a line break: that of
/// the mark.
fn speaks(before: &str) -> bool {
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
