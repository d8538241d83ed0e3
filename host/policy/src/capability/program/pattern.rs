//! A pattern for a whole list of arguments, and how it is written.

use super::word::{Symbol, Word};

/// Stands for one argument that is no option.
const PLAIN: &str = "<arg>";
/// Stands for any number of them, at the end.
const PLAINS: &str = "<args>";
/// Separates patterns that must all match.
const AND: &str = "&";

/// A pattern for one argument.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Argument {
    /// This word.
    Word(Word),
    /// Any word that is not empty and does not begin with `-`.
    Plain,
}

/// What may follow the arguments that are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rest {
    Nothing,
    /// Arguments that are no options.
    Plain,
    /// Whatever.
    Any,
}

/// A pattern for a whole list of arguments.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pattern {
    arguments: Vec<Argument>,
    rest: Rest,
}

impl Pattern {
    /// Any arguments.
    pub(super) fn any() -> Self {
        Self { arguments: Vec::new(), rest: Rest::Any }
    }

    /// These arguments and no others.
    pub(super) fn exact<S: AsRef<str>>(arguments: &[S]) -> Self {
        let word = |text: &S| Argument::Word(Word::exact(text.as_ref()));
        Self { arguments: arguments.iter().map(word).collect(), rest: Rest::Nothing }
    }

    /// Whether it is: no arguments.
    pub(super) fn is_empty(&self) -> bool {
        self.arguments.is_empty() && self.rest == Rest::Nothing
    }

    pub(super) fn matches(&self, arguments: &[String]) -> bool {
        let more = arguments.get(self.arguments.len()..);
        more.is_some_and(|more| match self.rest {
            Rest::Nothing => more.is_empty(),
            Rest::Plain => more.iter().all(|text| Argument::Plain.matches(text)),
            Rest::Any => true,
        }) && self.arguments.iter().zip(arguments).all(|(pattern, text)| pattern.matches(text))
    }

    /// Whether every list that matches `inner` matches this one.
    pub(super) fn covers(&self, inner: &Self) -> bool {
        let Some(more) = inner.arguments.get(self.arguments.len()..) else { return false };
        let rest = match (self.rest, inner.rest) {
            (Rest::Nothing, rest) => more.is_empty() && rest == Rest::Nothing,
            (Rest::Plain, rest) => rest != Rest::Any && more.iter().all(|one| Argument::Plain.covers(one)),
            (Rest::Any, _) => true,
        };
        rest && self.arguments.iter().zip(&inner.arguments).all(|(outer, inner)| outer.covers(inner))
    }

    /// Whether some list matches both.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let goes_on = |short: &Self, long: &Self| {
            long.arguments.get(short.arguments.len()..).is_none_or(|more| match short.rest {
                Rest::Nothing => more.is_empty(),
                Rest::Plain => more.iter().all(|one| Argument::Plain.overlaps(one)),
                Rest::Any => true,
            })
        };
        goes_on(self, other)
            && goes_on(other, self)
            && self.arguments.iter().zip(&other.arguments).all(|(left, right)| left.overlaps(right))
    }

    /// The pattern as a policy would write it, with a space in front of each part.
    pub(super) fn show(&self, out: &mut String) {
        for argument in &self.arguments {
            out.push(' ');
            match argument {
                Argument::Word(word) => show_word(word, out),
                Argument::Plain => out.push_str(PLAIN),
            }
        }
        match self.rest {
            Rest::Nothing => {}
            Rest::Plain => out.push_str(&format!(" {PLAINS}")),
            Rest::Any => out.push_str(" *"),
        }
    }
}

impl Argument {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Word(word) => word.matches(text),
            Self::Plain => !text.is_empty() && !text.starts_with('-'),
        }
    }

    fn covers(&self, inner: &Self) -> bool {
        match (self, inner) {
            (Self::Plain, Self::Plain) => true,
            (Self::Plain, Self::Word(word)) => word.is_plain(),
            (Self::Word(outer), Self::Word(inner)) => outer.covers(inner),
            // No word pattern has every name and nothing with `-`: `*` alone is no argument.
            (Self::Word(_), Self::Plain) => false,
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plain, Self::Plain) => true,
            (Self::Plain, Self::Word(word)) | (Self::Word(word), Self::Plain) => word.may_be_plain(),
            (Self::Word(left), Self::Word(right)) => left.overlaps(right),
        }
    }
}

/// Reads what stands behind a program's name: patterns separated by `&`.
pub(super) fn parse(text: &str) -> Result<Vec<Pattern>, String> {
    let mut patterns = Vec::new();
    let mut present = Pattern::exact::<&str>(&[]);
    let mut left = text.trim_start_matches(is_space);
    while !left.is_empty() {
        let token = Token::read(left)?;
        left = token.after.trim_start_matches(is_space);
        if token.bare == Some(AND) {
            patterns.push(std::mem::replace(&mut present, Pattern::exact::<&str>(&[])));
        } else {
            present.push(token)?;
        }
    }
    patterns.push(present);
    Ok(patterns)
}

impl Pattern {
    fn push(&mut self, token: Token<'_>) -> Result<(), String> {
        if self.rest != Rest::Nothing {
            return Err(format!("`*` and `{PLAINS}` stand for all that follows: write them last"));
        }
        match token.bare {
            Some(PLAIN) => self.arguments.push(Argument::Plain),
            Some(PLAINS) => self.rest = Rest::Plain,
            Some(bare) if bare.starts_with('<') && bare.ends_with('>') => {
                return Err(format!("`{bare}`: write `{PLAIN}`, `{PLAINS}`, or put it in quotes"));
            }
            _ => match Word::new(token.symbols) {
                word if word.is_any() => self.rest = Rest::Any,
                word => self.arguments.push(Argument::Word(word)),
            },
        }
        Ok(())
    }
}

/// One piece of a line between white space.
struct Token<'a> {
    symbols: Vec<Symbol>,
    /// The text, if no part of it was quoted.
    bare: Option<&'a str>,
    /// What follows.
    after: &'a str,
}

impl<'a> Token<'a> {
    /// Reads one; `text` begins with it. Quotes of either kind take what is in them literally; in double quotes a
    /// backslash stands before `"`, `\`, `n`, `r` and `t`.
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
                '\\' => return Err("a backslash stands in quotes only".to_owned()),
                '\0' => return Err("no argument can hold a zero byte".to_owned()),
                '*' => symbols.push(Symbol::Any),
                c => symbols.push(Symbol::Char(c)),
            }
        }
        Ok(Self { symbols, bare: (!quoted).then_some(text), after: "" })
    }
}

fn read_quoted(
    quote: char,
    chars: &mut impl Iterator<Item = char>,
    symbols: &mut Vec<Symbol>,
) -> Result<(), String> {
    loop {
        let c = match chars.next() {
            None => return Err(format!("a quote {quote} is not closed")),
            Some('\0') => return Err("no argument can hold a zero byte".to_owned()),
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
        symbols.push(Symbol::Char(c));
    }
}

/// Writes one argument: bare if it reads back as the same, otherwise with its text in quotes and its `*` outside.
fn show_word(word: &Word, out: &mut String) {
    let symbols = word.symbols();
    let special = |symbol: &Symbol| match symbol {
        Symbol::Any => false,
        Symbol::Char(c) => is_space(*c) || matches!(c, '*' | '"' | '\'' | '\\'),
    };
    let first = symbols.first();
    let name = symbols == [Symbol::Char('&')] || first == Some(&Symbol::Char('<'));
    if !name && !symbols.is_empty() && !symbols.iter().any(special) {
        out.extend(symbols.iter().map(|symbol| match symbol {
            Symbol::Any => '*',
            Symbol::Char(c) => *c,
        }));
        return;
    }
    let mut open = symbols.is_empty();
    if open {
        out.push('"');
    }
    for symbol in symbols {
        let wild = *symbol == Symbol::Any;
        if wild == open {
            out.push('"');
            open = !open;
        }
        match symbol {
            Symbol::Any => out.push('*'),
            Symbol::Char(c) => show_char(*c, out),
        }
    }
    if open {
        out.push('"');
    }
}

/// Writes one character inside of double quotes.
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

/// The white space between arguments: ASCII's, so that nothing that looks like a letter divides.
fn is_space(c: char) -> bool {
    c.is_ascii_whitespace()
}
