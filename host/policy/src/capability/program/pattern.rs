//! Patterns for argument lists, and their syntax.

use super::word::{WordPattern, WordSymbol};

/// Matches one operand: an argument that is not an option.
const OPERAND: &str = "<arg>";
/// Matches any number of operands, at the end of a pattern.
const OPERANDS: &str = "<args>";
/// Separates patterns that must all match.
const AND: &str = "&";

/// A pattern for one argument.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ArgumentPattern {
    /// A word pattern.
    Word(WordPattern),
    /// Any operand: not empty, without a leading `-`.
    Operand,
}

/// The further arguments that a pattern allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TrailingArguments {
    None,
    /// Only operands.
    Operands,
    /// Any arguments.
    Any,
}

/// A pattern for a whole list of arguments.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ArgumentListPattern {
    arguments: Vec<ArgumentPattern>,
    rest: TrailingArguments,
}

impl ArgumentListPattern {
    /// Creates the pattern that matches any arguments.
    pub(super) fn any() -> Self {
        Self { arguments: Vec::new(), rest: TrailingArguments::Any }
    }

    /// Creates the pattern that matches only these arguments.
    pub(super) fn exact<S: AsRef<str>>(arguments: &[S]) -> Self {
        let word = |text: &S| ArgumentPattern::Word(WordPattern::exact(text.as_ref()));
        Self { arguments: arguments.iter().map(word).collect(), rest: TrailingArguments::None }
    }

    /// Whether it matches only the empty list.
    pub(super) fn is_empty(&self) -> bool {
        self.arguments.is_empty() && self.rest == TrailingArguments::None
    }

    pub(super) fn matches(&self, arguments: &[String]) -> bool {
        let more = arguments.get(self.arguments.len()..);
        more.is_some_and(|more| match self.rest {
            TrailingArguments::None => more.is_empty(),
            TrailingArguments::Operands => more.iter().all(|text| ArgumentPattern::Operand.matches(text)),
            TrailingArguments::Any => true,
        }) && self.arguments.iter().zip(arguments).all(|(pattern, text)| pattern.matches(text))
    }

    /// Whether it matches every list that `inner` matches.
    pub(super) fn covers(&self, inner: &Self) -> bool {
        let Some(more) = inner.arguments.get(self.arguments.len()..) else { return false };
        let rest = match (self.rest, inner.rest) {
            (TrailingArguments::None, rest) => more.is_empty() && rest == TrailingArguments::None,
            (TrailingArguments::Operands, rest) => {
                rest != TrailingArguments::Any && more.iter().all(|one| ArgumentPattern::Operand.covers(one))
            }
            (TrailingArguments::Any, _) => true,
        };
        rest && self.arguments.iter().zip(&inner.arguments).all(|(outer, inner)| outer.covers(inner))
    }

    /// Whether some list matches both.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let allows_rest_of = |short: &Self, long: &Self| {
            long.arguments.get(short.arguments.len()..).is_none_or(|more| match short.rest {
                TrailingArguments::None => more.is_empty(),
                TrailingArguments::Operands => more.iter().all(|one| ArgumentPattern::Operand.overlaps(one)),
                TrailingArguments::Any => true,
            })
        };
        allows_rest_of(self, other)
            && allows_rest_of(other, self)
            && self.arguments.iter().zip(&other.arguments).all(|(left, right)| left.overlaps(right))
    }

    /// Formats the pattern as a policy would write it, with a space before each part.
    pub(super) fn show(&self, out: &mut String) {
        for argument in &self.arguments {
            out.push(' ');
            match argument {
                ArgumentPattern::Word(word) => show_word(word, out),
                ArgumentPattern::Operand => out.push_str(OPERAND),
            }
        }
        match self.rest {
            TrailingArguments::None => {}
            TrailingArguments::Operands => out.push_str(&format!(" {OPERANDS}")),
            TrailingArguments::Any => out.push_str(" *"),
        }
    }
}

impl ArgumentPattern {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Word(word) => word.matches(text),
            Self::Operand => !text.is_empty() && !text.starts_with('-'),
        }
    }

    fn covers(&self, inner: &Self) -> bool {
        match (self, inner) {
            (Self::Operand, Self::Operand) => true,
            (Self::Operand, Self::Word(word)) => word.is_operand(),
            (Self::Word(outer), Self::Word(inner)) => outer.covers(inner),
            // No word pattern matches all operands and no option: `*` alone is not an argument.
            (Self::Word(_), Self::Operand) => false,
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Operand, Self::Operand) => true,
            (Self::Operand, Self::Word(word)) | (Self::Word(word), Self::Operand) => word.may_be_operand(),
            (Self::Word(left), Self::Word(right)) => left.overlaps(right),
        }
    }
}

/// Parses the patterns after a program's name, separated by `&`.
pub(super) fn parse(text: &str) -> Result<Vec<ArgumentListPattern>, String> {
    let mut patterns = Vec::new();
    let mut present = ArgumentListPattern::exact::<&str>(&[]);
    let mut left = text.trim_start_matches(is_space);
    while !left.is_empty() {
        let token = PatternToken::read(left)?;
        left = token.after.trim_start_matches(is_space);
        if token.bare == Some(AND) {
            patterns.push(std::mem::replace(&mut present, ArgumentListPattern::exact::<&str>(&[])));
        } else {
            present.push(token)?;
        }
    }
    patterns.push(present);
    Ok(patterns)
}

impl ArgumentListPattern {
    fn push(&mut self, token: PatternToken<'_>) -> Result<(), String> {
        if self.rest != TrailingArguments::None {
            return Err(format!("`*` and `{OPERANDS}` match all remaining arguments: write them last"));
        }
        match token.bare {
            Some(OPERAND) => self.arguments.push(ArgumentPattern::Operand),
            Some(OPERANDS) => self.rest = TrailingArguments::Operands,
            Some(bare) if bare.starts_with('<') && bare.ends_with('>') => {
                return Err(format!("`{bare}`: write `{OPERAND}`, `{OPERANDS}`, or put it in quotes"));
            }
            _ => match WordPattern::new(token.symbols) {
                word if word.is_any() => self.rest = TrailingArguments::Any,
                word => self.arguments.push(ArgumentPattern::Word(word)),
            },
        }
        Ok(())
    }
}

/// A token of a line, delimited by white space.
struct PatternToken<'a> {
    symbols: Vec<WordSymbol>,
    /// The text, if no part of it is quoted.
    bare: Option<&'a str>,
    /// The rest of the line.
    after: &'a str,
}

impl<'a> PatternToken<'a> {
    /// Reads the token at the start of `text`. Single and double quotes enclose literal text. In double quotes, a
    /// backslash escapes `"`, `\`, `n`, `r` and `t`.
    fn read(text: &'a str) -> Result<Self, String> {
        let mut symbols = Vec::new();
        let mut quoted = false;
        let mut chars = text.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                c if is_space(c) => {
                    let (bare, after) = text.split_at(at);
                    return Ok(Self { symbols, bare: (!quoted).then_some(bare), after });
                }
                '\'' | '"' => {
                    quoted = true;
                    read_quoted(c, &mut chars.by_ref().map(|(_, c)| c), &mut symbols)?;
                }
                '\\' => return Err("a backslash is only allowed in quotes".to_owned()),
                '\0' => return Err("an argument cannot contain a zero byte".to_owned()),
                '*' => symbols.push(WordSymbol::Any),
                c => symbols.push(WordSymbol::Char(c)),
            }
        }
        Ok(Self { symbols, bare: (!quoted).then_some(text), after: "" })
    }
}

fn read_quoted(
    quote: char,
    chars: &mut impl Iterator<Item = char>,
    symbols: &mut Vec<WordSymbol>,
) -> Result<(), String> {
    loop {
        let c = match chars.next() {
            None => return Err(format!("the quote {quote} is not closed")),
            Some('\0') => return Err("an argument cannot contain a zero byte".to_owned()),
            Some(c) if c == quote => return Ok(()),
            Some('\\') if quote == '"' => match chars.next() {
                Some(c @ ('"' | '\\')) => c,
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                _ => return Err(r#"in double quotes, write `\"`, `\\`, `\n`, `\r` or `\t`"#.to_owned()),
            },
            Some(c) => c,
        };
        symbols.push(WordSymbol::Char(c));
    }
}

/// Formats one argument: bare if it parses back, otherwise with its text in quotes and each `*` outside.
fn show_word(word: &WordPattern, out: &mut String) {
    let symbols = word.symbols();
    let special = |symbol: &WordSymbol| match symbol {
        WordSymbol::Any => false,
        WordSymbol::Char(c) => is_space(*c) || matches!(c, '*' | '"' | '\'' | '\\'),
    };
    let first = symbols.first();
    let name = symbols == [WordSymbol::Char('&')] || first == Some(&WordSymbol::Char('<'));
    if !name && !symbols.is_empty() && !symbols.iter().any(special) {
        out.extend(symbols.iter().map(|symbol| match symbol {
            WordSymbol::Any => '*',
            WordSymbol::Char(c) => *c,
        }));
        return;
    }
    let mut open = symbols.is_empty();
    if open {
        out.push('"');
    }
    for symbol in symbols {
        let wild = *symbol == WordSymbol::Any;
        if wild == open {
            out.push('"');
            open = !open;
        }
        match symbol {
            WordSymbol::Any => out.push('*'),
            WordSymbol::Char(c) => show_char(*c, out),
        }
    }
    if open {
        out.push('"');
    }
}

/// Writes one character inside double quotes.
fn show_char(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c => out.push(c),
    }
}

/// White space between arguments. Only ASCII, so that nothing that looks like a letter separates.
fn is_space(c: char) -> bool {
    c.is_ascii_whitespace()
}
