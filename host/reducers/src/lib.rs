//! Reducers for the results of common tools: pure functions from a text to a shorter text.
//!
//! ```
//! use toolbay_reducers::{ReducerInput, builtin};
//!
//! let text: String = (1..=400).map(|n| format!("line {n}\n")).collect();
//! let ctx = ReducerInput { args: r#"{"path": "long.txt"}"#, turn: 1, budget_chars: 80_000 };
//! let read_file = builtin("read_file").expect("a built-in reducer");
//! let reduced = (read_file.reduce)(&text, &ctx).expect("400 lines are long");
//! assert!(reduced.starts_with("File is 400 lines. Showing lines 1-200."));
//! ```
//!
//! The same functions run natively (`toolbay::reducers`) and in the plugin `reducers`. `law.rs` enforces what holds for
//! every reducer:
//!
//! | law | how |
//! |---|---|
//! | never longer, in characters and in bytes | the result is compared with the text; not shorter means `None` |
//! | idempotent | the reducer is applied to its result until nothing changes; if that does not end, `None` |
//! | deterministic | no clock, no randomness, no hash maps, no memory |
//! | linear time | every scan moves forward; no regular expression, no backtracking |
//! | a pointer to saved output stays, once | cuts go around it, and it is added again if its line was dropped |
//! | white space alone | is unchanged |
//!
//! They decide by the arguments of the call and by the shape of the whole text, never by a single word in
//! it. They leave text that they do not recognise unchanged.

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

/// What a reducer knows about the call.
#[derive(Debug, Clone, Copy)]
pub struct ReducerInput<'a> {
    /// The arguments of the call, a JSON text.
    pub args: &'a str,
    /// The current turn. No reducer here uses it: the same call gives the same text in every turn.
    pub turn: u32,
    /// The budget for the result, in characters.
    pub budget_chars: usize,
}

/// Returns a shorter text, or `None` to keep the text.
pub type ReduceFn = fn(&str, &ReducerInput<'_>) -> Option<String>;

/// A built-in reducer.
#[derive(Debug, Clone, Copy)]
pub struct BuiltinReducer {
    /// The name in a policy and for [`builtin`].
    pub name: &'static str,
    /// A description, one sentence.
    pub about: &'static str,
    /// The function.
    pub reduce: ReduceFn,
}

/// All reducers, sorted by name.
pub const ALL: [BuiltinReducer; 7] = [
    BuiltinReducer {
        name: "json_array",
        about: "Counts the elements and keys of a long JSON array, and shows the first and last elements",
        reduce: json_array,
    },
    BuiltinReducer {
        name: "kanban_list",
        about: "Counts the tasks of a long list by status, and shows the newest open ones",
        reduce: kanban_list,
    },
    BuiltinReducer {
        name: "list_dir",
        about: "Groups a long directory listing by directory and extension",
        reduce: list_dir,
    },
    BuiltinReducer {
        name: "log",
        about: "Folds repeated lines of a log, and keeps its errors and warnings",
        reduce: log,
    },
    BuiltinReducer {
        name: "read_file",
        about: "Keeps the first 200 lines of a long file, and says how to get the others",
        reduce: read_file,
    },
    BuiltinReducer {
        name: "search",
        about: "Groups the lines a search found by file, and counts what it leaves out",
        reduce: search,
    },
    BuiltinReducer {
        name: "terminal",
        about: "Shortens the output of git status, test runners, compilers, package managers, and what else is long",
        reduce: terminal,
    },
];

/// Returns the reducer of this name.
#[must_use]
pub fn builtin(name: &str) -> Option<BuiltinReducer> {
    ALL.into_iter().find(|builtin| builtin.name == name)
}
