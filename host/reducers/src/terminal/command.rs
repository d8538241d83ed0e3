//! The command of a call. The reducer `terminal` decides by it and not by words in the output.
//!
//! | arguments | read as |
//! |---|---|
//! | `{"command": "git status -s"}` | a simple shell command |
//! | `{"command": "cd sub && git status"}` | the same, after `cd DIR &&` |
//! | `{"program": "git", "args": ["status"]}` | a program with its arguments, without a shell |
//! | `{"command": ["git", "status"]}` | the same |
//! | `X=1 timeout 60 uv run pytest 2>&1` | `pytest`; programs that only start another one are removed |
//!
//! Everything else is not a simple command, because its output cannot be attributed to one program: pipes, lists with
//! `;`, `&&` or `||`, redirections to files, substitutions, groups, comments, here-documents, several lines.

use serde_json::{Map, Value};

/// A simple command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SimpleCommand {
    /// The program's name without its folder.
    pub(crate) program: String,
    /// Its arguments, unquoted.
    pub(crate) args: Vec<String>,
}

impl SimpleCommand {
    /// The first argument that is not an option.
    pub(crate) fn first(&self) -> Option<&str> {
        self.words().next()
    }

    /// The arguments that are not options.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.args.iter().map(String::as_str).filter(|arg| !arg.starts_with('-'))
    }

    pub(crate) fn has(&self, option: &str) -> bool {
        self.args.iter().any(|arg| arg == option)
    }
}

/// Reads the command from the arguments of a call.
pub(crate) fn parse(args: &str) -> Option<SimpleCommand> {
    let Ok(Value::Object(args)) = serde_json::from_str(args) else { return None };
    let words = match (args.get("command"), args.get("program").and_then(Value::as_str)) {
        (Some(Value::Array(words)), None) => strings(words)?,
        (Some(Value::String(program)), None) if args.contains_key("args") => argv(program, &args)?,
        (Some(Value::String(line)), None) => simple(line)?,
        (None, Some(program)) => argv(program, &args)?,
        _ => return None,
    };
    unwrap(words)
}

fn argv(program: &str, args: &Map<String, Value>) -> Option<Vec<String>> {
    let mut words = vec![program.to_owned()];
    match args.get("args") {
        None | Some(Value::Null) => {}
        Some(Value::Array(args)) => words.extend(strings(args)?),
        Some(_) => return None,
    }
    Some(words)
}

fn strings(words: &[Value]) -> Option<Vec<String>> {
    words.iter().map(|word| word.as_str().map(str::to_owned)).collect()
}

/// The words of a simple command, after any `cd DIR &&`.
fn simple(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for token in tokens(line.trim())? {
        match token {
            ShellToken::Word(word) => words.push(word),
            ShellToken::And if matches!(words.as_slice(), [cd, _] if cd == "cd") => words.clear(),
            ShellToken::And => return None,
        }
    }
    Some(words)
}

enum ShellToken {
    Word(String),
    And,
}

/// Splits like a POSIX shell (2.2 Quoting, 2.3 Token Recognition), as far as simple commands need it.
fn tokens(line: &str) -> Option<Vec<ShellToken>> {
    let mut tokens = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' => tokens.extend(word.take().map(ShellToken::Word)),
            '&' if rest.next_if_eq(&'&').is_some() => {
                tokens.extend(word.take().map(ShellToken::Word));
                tokens.push(ShellToken::And);
            }
            '\'' => loop {
                match rest.next()? {
                    '\'' => {
                        word.get_or_insert_default();
                        break;
                    }
                    c => word.get_or_insert_default().push(c),
                }
            },
            '"' => quoted(&mut rest, word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(rest.next().filter(|c| *c != '\n')?),
            '>' | '<' => redirection(c, &mut word, &mut rest)?,
            '#' if word.is_none() => return None,
            '$' if matches!(rest.peek(), Some('(')) => return None,
            ';' | '|' | '&' | '\n' | '`' | '(' | ')' => return None,
            c => word.get_or_insert_default().push(c),
        }
    }
    tokens.extend(word.map(ShellToken::Word));
    Some(tokens)
}

type CharStream<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn quoted(rest: &mut CharStream<'_>, word: &mut String) -> Option<()> {
    loop {
        match rest.next()? {
            '"' => return Some(()),
            '`' => return None,
            '$' if matches!(rest.peek(), Some('(')) => return None,
            '\\' => word.push(rest.next()?),
            c => word.push(c),
        }
    }
}

/// Accepts `2>&1`, `>&2`, `2>/dev/null` and `</dev/null`, which leave the output unchanged or shorten it.
fn redirection(sign: char, word: &mut Option<String>, rest: &mut CharStream<'_>) -> Option<()> {
    match word.take().as_deref() {
        None | Some("1" | "2") => {}
        Some(_) => return None,
    }
    while rest.next_if_eq(&' ').is_some() {}
    let mut target = String::new();
    while let Some(c) = rest.next_if(|c| !c.is_whitespace()) {
        target.push(c);
    }
    let harmless = match sign {
        '>' => matches!(target.as_str(), "&1" | "&2" | "/dev/null"),
        _ => target == "/dev/null",
    };
    harmless.then_some(())
}

/// Removes words that only start another program: assignments, `sudo`, `env`, `timeout 60`, `npx`, `uv run`, ….
fn unwrap(words: Vec<String>) -> Option<SimpleCommand> {
    let mut words = words.into_iter().peekable();
    loop {
        let word = words.next()?;
        let program = word.rsplit(['/', '\\']).next().unwrap_or(&word);
        let program = program.strip_suffix(".exe").or(program.strip_suffix(".cmd")).unwrap_or(program);
        let next = words.peek().map(String::as_str);
        match (program, next) {
            _ if is_assignment(&word) => {}
            ("sudo" | "env" | "command" | "nohup" | "nice" | "npx" | "bunx" | "xvfb-run", Some(next))
                if !next.starts_with('-') => {}
            ("timeout", Some(next)) if next.starts_with(|c: char| c.is_ascii_digit()) => drop(words.next()),
            ("uv" | "poetry" | "pdm" | "hatch" | "pipenv" | "rye", Some("run"))
            | ("pnpm" | "npm" | "bun" | "yarn" | "bundle", Some("exec" | "dlx")) => drop(words.next()),
            (_, Some("-m")) if is_python(program) => drop(words.next()),
            _ if program.is_empty() || word.contains('$') => return None,
            _ => return Some(SimpleCommand { program: program.to_owned(), args: words.collect() }),
        }
    }
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

fn is_python(program: &str) -> bool {
    program
        .strip_prefix("python")
        .is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &str) -> Option<String> {
        parse(args).map(|command| format!("{} {}", command.program, command.args.join("|")))
    }

    fn line(command: &str) -> Option<String> {
        read(&serde_json::json!({ "command": command }).to_string())
    }

    #[test]
    fn simple_commands_are_read() {
        for (command, expected) in [
            ("git status", "git status"),
            ("  /usr/bin/git   status -s  ", "git status|-s"),
            ("cd 'a b' && git status", "git status"),
            ("cd a && cd b && git status", "git status"),
            ("FOO=1 BAR='x y' cargo test 2>&1", "cargo test"),
            ("cargo test 2>/dev/null", "cargo test"),
            (r#"git log "a b" c\ d 'e"f'"#, r#"git log|a b|c d|e"f"#),
            ("timeout 60 uv run pytest -q", "pytest -q"),
            ("python3 -m pytest tests", "pytest tests"),
            ("python3.12 -m pip install x", "pip install|x"),
            ("sudo apt-get install -y x", "apt-get install|-y|x"),
            ("npx vitest run", "vitest run"),
            ("pnpm exec vitest", "vitest "),
            ("./node_modules/.bin/jest", "jest "),
            ("git commit -m ''", "git commit|-m|"),
            ("ls *.rs $HOME", "ls *.rs|$HOME"),
        ] {
            assert_eq!(line(command).as_deref(), Some(expected), "{command}");
        }
    }

    #[test]
    fn everything_else_is_not_simple() {
        for command in [
            "",
            "cat notes.txt; git status",
            "git status; cat notes.txt",
            "git status | head",
            "git status && cat x",
            "cd a && git status && cat x",
            "cd a; git status",
            "cat x || git status",
            "git status &",
            "git status > out.txt",
            "git status >> out.txt",
            "cat < git",
            "cat 3> x",
            "echo $(git status)",
            "echo `git status`",
            "echo \"$(git status)\"",
            "(git status)",
            "# git status",
            "git status # here",
            "git status\ncat x",
            "git 'status",
            "git \"status",
            "$GIT status",
            "cat <<EOF",
            "cd a && ",
        ] {
            assert_eq!(line(command), None, "{command}");
        }
    }

    #[test]
    fn a_program_with_arguments_needs_no_shell() {
        assert_eq!(
            read(r#"{"program": "git", "args": ["status", "a; b"]}"#).as_deref(),
            Some("git status|a; b")
        );
        assert_eq!(read(r#"{"command": "git", "args": ["status"]}"#).as_deref(), Some("git status"));
        assert_eq!(read(r#"{"command": ["git", "status"]}"#).as_deref(), Some("git status"));
        assert_eq!(read(r#"{"program": "git"}"#).as_deref(), Some("git "));
        for args in [
            "",
            "[]",
            "{}",
            r#"{"command": 1}"#,
            r#"{"command": ["git", 1]}"#,
            r#"{"program": "git", "args": "status"}"#,
            r#"{"program": "a", "command": "b"}"#,
        ] {
            assert_eq!(read(args), None, "{args}");
        }
    }
}
