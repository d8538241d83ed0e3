//! Reducers for the results of common tools: pure functions from a text to a shorter one.
//!
//! ```
//! use toolbay_reducers::{Context, named};
//!
//! let text: String = (1..=400).map(|n| format!("line {n}\n")).collect();
//! let ctx = Context { args: r#"{"path": "long.txt"}"#, turn: 1, budget_chars: 80_000 };
//! let read_file = named("read_file").expect("a built-in reducer");
//! let reduced = (read_file.reduce)(&text, &ctx).expect("400 lines are long");
//! assert!(reduced.starts_with("File is 400 lines. Showing lines 1-200."));
//! ```
//!
//! The same functions run natively (`toolbay::reducers`) and in the plugin `reducers`; they know nothing of either. What
//! holds for every one of them is in `law.rs` and nowhere else:
//!
//! | law | how |
//! |---|---|
//! | never longer, in characters and in bytes | the answer is compared with the text; not shorter means `None` |
//! | twice is once | the reducer is applied to its own answer until nothing changes; if that does not end, `None` |
//! | deterministic | no clock, no randomness, no hash maps, no memory |
//! | linear time | every scan goes forward; no regular expression, no backtracking |
//! | a pointer to spilled output stays, once | cuts go around it, and it is put back if its line was dropped |
//! | nothing but white space | is kept as it is |
//!
//! They decide by what was called (the parsed arguments) and by the shape of the whole text, never by a word that occurs
//! somewhere in it. What they do not recognise they leave alone.

mod cut;
mod json_array;
mod kanban;
mod law;
mod listing;
mod log;
mod pointer;
mod read_file;
mod search;
mod shape;
mod terminal;

pub use json_array::json_array;
pub use kanban::kanban_list;
pub use listing::list_dir;
pub use log::log;
pub use read_file::read_file;
pub use search::search;
pub use terminal::{terminal, terminal_error};

/// What a reducer may know of the call.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The arguments of the call, a JSON text.
    pub args: &'a str,
    /// Current turn. No reducer here looks at it: the same call gives the same text in every turn.
    pub turn: u32,
    /// Characters the result will be cut to afterwards.
    pub budget_chars: usize,
}

/// Returns a shorter text, or nothing to keep the text as it is.
pub type Reduce = fn(&str, &Context<'_>) -> Option<String>;

/// A reducer with its name.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    /// The name by which a policy and [`named`] know it.
    pub name: &'static str,
    /// What it does, one sentence.
    pub about: &'static str,
    /// The function.
    pub reduce: Reduce,
}

/// All reducers, in the order of their names.
pub const ALL: [Builtin; 7] = [
    Builtin {
        name: "json_array",
        about: "Counts the elements and keys of a long JSON array, and shows the first and last elements",
        reduce: json_array,
    },
    Builtin {
        name: "kanban_list",
        about: "Counts the tasks of a long list by status, and shows the newest open ones",
        reduce: kanban_list,
    },
    Builtin {
        name: "list_dir",
        about: "Groups a long directory listing by directory and extension",
        reduce: list_dir,
    },
    Builtin {
        name: "log",
        about: "Folds repeated lines of a log, and keeps its errors and warnings",
        reduce: log,
    },
    Builtin {
        name: "read_file",
        about: "Keeps the first 200 lines of a long file, and says how to get the others",
        reduce: read_file,
    },
    Builtin {
        name: "search",
        about: "Groups the lines a search found by file, and counts what it leaves out",
        reduce: search,
    },
    Builtin {
        name: "terminal",
        about: "Shortens the output of git status, test runners, compilers, package managers, and what else is long",
        reduce: terminal,
    },
];

/// The reducer of this name.
#[must_use]
pub fn named(name: &str) -> Option<Builtin> {
    ALL.into_iter().find(|builtin| builtin.name == name)
}
