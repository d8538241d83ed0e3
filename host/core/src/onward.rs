//! Calls in the middle of a call: which tools a tool may call (`invoke = ["files__*"]`), and the port through which it
//! does.
//!
//! A rule is the name of one tool, or the beginning of names with a star behind it. Whatever rules allow, a call reaches
//! only what its caller's view lets through, and passes its gates.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::call::ToolCall;
use crate::content::ToolOutput;
use crate::invoke::{BoxFuture, Failure};
use crate::rule::Rule;

/// How deep calls may lie in one another below the one that a model makes.
pub const MAX_DEPTH: usize = 2;
/// Most characters of the text of a result that a call gets of another: far more than a model reads, little for a program.
pub const MAX_CHARS: usize = 1 << 20;

/// Longest rule, in bytes: longer than any name.
const MAX_RULE: usize = 128;

/// One line of an `invoke` list: `files__read_file`, `files__*`, `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvokeRule {
    /// A qualified name, or how it begins.
    name: String,
    /// Whether anything may follow.
    open: bool,
}

impl InvokeRule {
    /// Whether it grants calls of a tool.
    #[must_use]
    pub fn takes(&self, tool: &str) -> bool {
        if self.open { tool.starts_with(&self.name) } else { tool == self.name }
    }
}

impl Rule for InvokeRule {
    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        let (name, open) = text.strip_suffix('*').map_or((text, false), |name| (name, true));
        let known = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if (name.is_empty() && !open) || text.len() > MAX_RULE || !name.chars().all(known) {
            return Err(format!(
                "`{}`: write the name of a tool, `files__read_file`, how names begin, `files__*`, or `*`",
                text.chars().take(MAX_RULE).collect::<String>()
            ));
        }
        Ok(Self { name: name.to_owned(), open })
    }

    fn meet(&self, other: &Self) -> Option<Self> {
        match (self.open, other.open) {
            (true, true) if other.name.starts_with(&self.name) => Some(other.clone()),
            (true, true) if self.name.starts_with(&other.name) => Some(self.clone()),
            (true, true) => None,
            (true, false) => self.takes(&other.name).then(|| other.clone()),
            (false, _) => other.takes(&self.name).then(|| self.clone()),
        }
    }

    fn show(&self, _: &Path) -> String {
        format!("{}{}", self.name, if self.open { "*" } else { "" })
    }
}

/// Which tools a tool was granted to call.
pub trait MayCall: fmt::Debug + Send + Sync {
    /// Whether it may call this one.
    ///
    /// # Errors
    /// It may not; names the line of the policy that would allow it.
    fn may_call(&self, tool: &str) -> Result<(), String>;
}

/// A tool that may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callable {
    /// Its qualified name.
    pub name: String,
    /// What a model reads of it.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: String,
    /// JSON Schema of `structured`, if it promises one.
    pub output_schema: Option<String>,
}

/// What became of a call.
#[derive(Debug)]
pub struct Answered {
    /// The output, or why there is none.
    pub result: Result<ToolOutput, Failure>,
    /// Whether its text had more than [`MAX_CHARS`].
    pub cut: bool,
}

/// Calls that a running call makes, all at once.
#[derive(Debug)]
pub struct Inner {
    /// The calls. Their ids are told behind that of the call that makes them.
    pub calls: Vec<ToolCall>,
    /// How many run side by side.
    pub at_once: usize,
    /// When the call that makes them ends at the latest.
    pub ends: Instant,
}

/// Takes the answer of a call, under its place in the list.
pub type TakeAnswer<'a> = &'a mut (dyn FnMut(usize, Answered) + Send);

/// The way from a running call to further ones. Only [`crate::pipeline`] makes one: what is called through it passes
/// every gate.
pub trait Onward: fmt::Debug + Send + Sync {
    /// How deep the calls lie that are made through it: 1 for those of a call that a model made.
    fn depth(&self) -> usize;

    /// Counts so many calls more of all to which a model's call has led, unless it would be more than `most`; returns how
    /// many there were.
    fn count(&self, calls: u32, most: u32) -> Option<u32>;

    /// The tools that may be called, in the order of their names.
    fn tools(&self) -> Vec<Callable>;

    /// Makes calls. Each gets an answer, in the order in which they end; what is not taken is kept nowhere. Dropping the
    /// future ends them all.
    fn call<'a>(&'a self, inner: Inner, take: TakeAnswer<'a>) -> BoxFuture<'a, ()>;
}

/// The way on of a tool that was granted to call others.
pub type WayOn = Arc<dyn Onward>;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rule::covers;

    fn rule(text: &str) -> InvokeRule {
        InvokeRule::parse(text, Path::new("/")).unwrap()
    }

    #[test]
    fn a_rule_takes_names() {
        for (text, tool, takes) in [
            ("files__read", "files__read", true),
            ("files__read", "files__read_file", false),
            ("files__*", "files__read", true),
            ("files__*", "files__", true),
            ("files__*", "file__read", false),
            ("*", "anything", true),
            ("*", "", true),
        ] {
            assert_eq!(rule(text).takes(tool), takes, "{text} {tool}");
        }
        for bad in ["", "a b", "*__read", "files__*_file", "a.b", "**", "é", &"a".repeat(129)] {
            let error = InvokeRule::parse(bad, Path::new("/")).unwrap_err();
            assert!(error.contains("write the name of a tool") && error.len() < 400, "{error}");
        }
    }

    proptest! {
        #[test]
        fn the_laws_of_rules_hold(a in "[ab_]{0,3}[ab*]", b in "[ab_]{0,3}[ab*]", tool in "[ab_]{0,5}") {
            let (a, b) = (rule(&a), rule(&b));
            prop_assert_eq!(rule(&a.show(Path::new("/"))), a.clone());
            prop_assert_eq!(a.meet(&a), Some(a.clone()));
            prop_assert_eq!(a.meet(&b), b.meet(&a));
            let both = a.meet(&b);
            prop_assert_eq!(both.as_ref().is_some_and(|both| both.takes(&tool)), a.takes(&tool) && b.takes(&tool));
            prop_assert!(both.is_none_or(|both| covers(&a, &both) && covers(&b, &both)));
        }
    }
}
