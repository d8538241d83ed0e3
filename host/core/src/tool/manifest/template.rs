//! From the arguments of a call to the command line, the input and the environment of a program.
//!
//! | in the file | becomes |
//! |---|---|
//! | `"--color"` | itself |
//! | `"{path}"` | the argument; one for each item, if it is a list; nothing, if it is not given |
//! | `"--lines={lines}"` | text around it; gone, if it is not given |
//! | `["--lines", "{lines}"]` | both, or neither |
//! | `{ when = "quiet", args = ["-q"] }` | there if `quiet` is `true` |
//! | `{{`, `}}` | a brace |
//!
//! Texts and numbers stand as they are, lists and objects among other text as JSON. No shell reads any of it. What a
//! model wrote must not become an option: a text that begins with an argument, and then with `-`, is refused, unless the
//! file has a literal `--` before it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolbay_policy::wildcard::text_matches;

use super::{Argument, Run, may_be_left_out};
use crate::tool::content::{ErrorCode, ToolError};

/// Most parts of a command line in the file, and most arguments that one becomes.
const MAX_ARGUMENTS: usize = 4096;
/// Longest command line and environment together, in bytes: what Linux gives a program by default.
const MAX_COMMAND_LINE: usize = 2 << 20;
/// Most patterns of lines that mean failure: each is compared with each line.
const MAX_PATTERNS: usize = 16;
/// Longest of them, in bytes.
const MAX_PATTERN: usize = 200;
/// Longest input, in bytes: a few times the longest arguments.
const MAX_STDIN: usize = 16 << 20;

/// How a program is started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Template {
    parts: Vec<Part>,
    stdin: Option<Text>,
    env: BTreeMap<String, Text>,
    success: Vec<i32>,
    #[serde(default)]
    failure_stderr: Vec<String>,
    /// What stands for an argument that is not given.
    defaults: Map<String, Value>,
    /// Whether what it prints is JSON.
    prints_json: bool,
}

/// What a program is started with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// Its arguments, without its own name.
    pub args: Vec<String>,
    /// Variables.
    pub env: Vec<(String, String)>,
    /// What it reads.
    pub stdin: String,
}

/// Texts that are there together, if an argument is true or there is none to ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    when: Option<String>,
    texts: Vec<Text>,
}

/// A text with places for arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Text(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Piece {
    Literal(String),
    Argument(String),
}

impl Template {
    /// Reads what the file says, for these arguments.
    pub(super) fn new(run: &Run, args: &Map<String, Value>, prints_json: bool) -> Result<Self, String> {
        let known = |name: &str| {
            args.contains_key(name)
                .then_some(())
                .ok_or_else(|| format!("`{{{name}}}` is none of its arguments"))
        };
        let text = |text: &str| {
            let text = Text::parse(text)?;
            text.names().try_for_each(known)?;
            Ok::<_, String>(text)
        };
        let texts = |all: &[String]| all.iter().map(|one| text(one)).collect::<Result<Vec<_>, _>>();
        let mut parts = Vec::new();
        for argument in &run.args {
            parts.push(match argument {
                Argument::One(one) => Part { when: None, texts: vec![text(one)?] },
                Argument::Together(all) => Part { when: None, texts: texts(all)? },
                Argument::When { when, args } => {
                    known(when)?;
                    Part { when: Some(when.clone()), texts: texts(args)? }
                }
            });
        }
        if parts.iter().map(|part| part.texts.len()).sum::<usize>() > MAX_ARGUMENTS {
            return Err(format!("more than {MAX_ARGUMENTS} parts of a command line"));
        }
        let mut env = BTreeMap::new();
        for (name, value) in &run.env {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(format!("`env.{name}` is no name of a variable"));
            }
            env.insert(name.clone(), text(value)?);
        }
        let success = if run.success.is_empty() { vec![0] } else { run.success.clone() };
        let given = args.iter().filter(|(_, schema)| may_be_left_out(schema));
        let defaults =
            given.filter_map(|(name, schema)| Some((name.clone(), schema.get("default")?.clone())));
        let stdin = run.stdin.as_deref().map(text).transpose()?;
        let failure_stderr = run.failure_stderr.clone();
        if failure_stderr.len() > MAX_PATTERNS
            || failure_stderr.iter().any(|one| one.is_empty() || one.len() > MAX_PATTERN)
        {
            return Err(format!(
                "`failure_stderr` has at most {MAX_PATTERNS} patterns, each of 1 to {MAX_PATTERN} bytes"
            ));
        }
        Ok(Self { parts, stdin, env, success, failure_stderr, defaults: defaults.collect(), prints_json })
    }

    /// Whether what it prints is to be JSON: its author gave a schema of it.
    #[must_use]
    pub fn prints_json(&self) -> bool {
        self.prints_json
    }

    /// Whether an exit status means success.
    #[must_use]
    pub fn is_success(&self, status: i32) -> bool {
        self.success.contains(&status)
    }

    /// The first line of stderr that means failure. WASI 0.2 carries two exit statuses, so a program for which 1 is no
    /// failure tells its errors from its answers only there.
    #[must_use]
    pub fn failure<'t>(&self, stderr: &'t str) -> Option<&'t str> {
        let matches = |line: &str| self.failure_stderr.iter().any(|pattern| text_matches(pattern, line));
        stderr.lines().find(|line| matches(line.trim_end()))
    }

    /// Fills in the arguments of a call.
    ///
    /// # Errors
    /// `input_invalid`, with a pointer to the argument that cannot stand on a command line.
    pub fn fill(&self, args: &Map<String, Value>) -> Result<CommandLine, ToolError> {
        let given =
            |name: &str| args.get(name).or_else(|| self.defaults.get(name)).filter(|value| !value.is_null());
        let mut line = CommandLine::default();
        let mut options_are_over = false;
        for part in &self.parts {
            if part.when.as_deref().is_some_and(|name| given(name) != Some(&Value::Bool(true))) {
                continue;
            }
            if part.texts.iter().any(|text| text.names().any(|name| given(name).is_none())) {
                continue;
            }
            for text in &part.texts {
                text.arguments(given, options_are_over, &mut line.args)?;
                options_are_over |= text.0 == [Piece::Literal("--".to_owned())];
                line.check()?;
            }
        }
        for (name, text) in &self.env {
            if let Some(value) = text.fill(given, MAX_COMMAND_LINE)? {
                let pointer = text.names().next().map_or_else(String::new, pointer);
                line.env.push((name.clone(), without_zero(value, pointer)?));
            }
            line.check()?;
        }
        if let Some(text) = &self.stdin {
            line.stdin = text.fill(given, MAX_STDIN)?.unwrap_or_default();
        }
        Ok(line)
    }
}

impl CommandLine {
    fn check(&self) -> Result<(), ToolError> {
        let bytes: usize = self.args.iter().map(|arg| arg.len() + 1).sum();
        let bytes = bytes + self.env.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
        if self.args.len() > MAX_ARGUMENTS || bytes > MAX_COMMAND_LINE {
            return Err(ToolError::new(
                ErrorCode::InputInvalid,
                format!(
                    "a command line of {} arguments and {bytes} bytes; at most {MAX_ARGUMENTS} and {MAX_COMMAND_LINE} \
                     are given to a program",
                    self.args.len()
                ),
            ));
        }
        Ok(())
    }
}

impl Text {
    fn parse(text: &str) -> Result<Self, String> {
        let (mut pieces, mut literal) = (Vec::new(), String::new());
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '{' | '}' if rest.peek() == Some(&c) => {
                    rest.next();
                    literal.push(c);
                }
                '}' => return Err(format!("`{text}` has a `}}` too many; write `}}}}` for the character")),
                '{' => {
                    let mut name = String::new();
                    loop {
                        match rest.next() {
                            Some('}') => break,
                            Some(c) => name.push(c),
                            None => {
                                return Err(format!(
                                    "`{text}` has no `}}` to its `{{`; write `{{{{` for the character"
                                ));
                            }
                        }
                    }
                    if !literal.is_empty() {
                        pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                    }
                    pieces.push(Piece::Argument(name));
                }
                c => literal.push(c),
            }
        }
        if !literal.is_empty() || pieces.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self(pieces))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Argument(name) => Some(name.as_str()),
            Piece::Literal(_) => None,
        })
    }

    /// The text with its arguments; `None`, if one of them is not given.
    fn fill<'a>(
        &self,
        given: impl Fn(&str) -> Option<&'a Value>,
        most: usize,
    ) -> Result<Option<String>, ToolError> {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Literal(text) => filled.push_str(text),
                Piece::Argument(name) => match given(name) {
                    Some(value) => filled.push_str(&shown(value)),
                    None => return Ok(None),
                },
            }
            // At once: a file may name one argument very often.
            if filled.len() > most {
                let message =
                    format!("the arguments come to more than {most} bytes in one place of the command line");
                return Err(ToolError::new(ErrorCode::InputInvalid, message));
            }
        }
        Ok(Some(filled))
    }

    /// Adds what it becomes to a command line.
    fn arguments<'a>(
        &self,
        given: impl Fn(&str) -> Option<&'a Value>,
        options_are_over: bool,
        line: &mut Vec<String>,
    ) -> Result<(), ToolError> {
        if let [Piece::Argument(name)] = self.0.as_slice() {
            let items = match given(name) {
                Some(Value::Array(items)) => items.as_slice(),
                Some(one) => std::slice::from_ref(one),
                None => &[],
            };
            for item in items {
                let item = shown(item);
                if item.starts_with('-') && !options_are_over {
                    return Err(no_option(name));
                }
                line.push(without_zero(item, pointer(name))?);
            }
            return Ok(());
        }
        if let Some(text) = self.fill(given, MAX_COMMAND_LINE)? {
            if let [Piece::Argument(first), ..] = self.0.as_slice()
                && text.starts_with('-')
                && !options_are_over
            {
                return Err(no_option(first));
            }
            let name = self.names().next().map_or_else(String::new, pointer);
            line.push(without_zero(text, name)?);
        }
        Ok(())
    }
}

fn no_option(name: &str) -> ToolError {
    let message = format!("`{name}` begins with `-`, which the program would read as an option");
    ToolError::new(ErrorCode::InputInvalid, message).about(pointer(name))
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn pointer(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn without_zero(text: String, pointer: String) -> Result<String, ToolError> {
    if text.contains('\0') {
        let message = "a zero byte cannot stand on a command line or in a variable";
        return Err(ToolError::new(ErrorCode::InputInvalid, message).about(pointer));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::manifest::Manifest;
    use serde_json::json;

    fn template(run: &str) -> Template {
        let args = ["path", "paths", "lines", "quiet", "text", "name"]
            .map(|name| format!("args.{name} = {{ optional = true }}\n"));
        let text =
            format!("version = 1\n[tools.t]\n{}args.most = {{ default = 5 }}\nrun = {run}", args.concat());
        let manifest = Manifest::parse(&text).unwrap();
        manifest.tools["t"].template().unwrap().unwrap()
    }

    fn filled(run: &str, args: &Value) -> Vec<String> {
        template(run).fill(args.as_object().unwrap()).unwrap().args
    }

    #[test]
    fn what_a_model_wrote_begins_no_option_also_before_other_text() {
        for (run, args, refused) in [
            (r#"{ args = ["{path}/{name}"] }"#, json!({"path": "--exec=x", "name": "y"}), true),
            (r#"{ args = ["{path}{name}"] }"#, json!({"path": "", "name": "-x"}), true),
            (r#"{ args = ["{path}{name}"] }"#, json!({"path": "-", "name": "x"}), true),
            (r#"{ args = ["{text}.txt"] }"#, json!({"text": "-o/tmp/a"}), true),
            (r#"{ args = ["--lines={lines}"] }"#, json!({"lines": "-5"}), false),
            (r#"{ args = ["-{name}"] }"#, json!({"name": "x"}), false),
            (r#"{ args = ["{path}/{name}"] }"#, json!({"path": "a", "name": "-x"}), false),
            (r#"{ args = ["--", "{path}/{name}"] }"#, json!({"path": "-a", "name": "b"}), false),
        ] {
            let filled = template(run).fill(args.as_object().unwrap());
            assert_eq!(filled.is_err(), refused, "{run} {args}: {filled:?}");
            if let Err(error) = filled {
                assert_eq!(error.code, ErrorCode::InputInvalid);
                assert!(error.message.contains("as an option"), "{error:?}");
            }
        }
    }

    #[test]
    fn the_table_of_the_module() {
        for (run, args, line) in [
            (r#"{ args = ["--color"] }"#, json!({}), vec!["--color"]),
            (r#"{ args = ["{path}"] }"#, json!({"path": "a b;$(x)"}), vec!["a b;$(x)"]),
            (r#"{ args = ["{path}", "x"] }"#, json!({}), vec!["x"]),
            (r#"{ args = ["{path}"] }"#, json!({"path": null}), vec![]),
            (r#"{ args = ["{paths}"] }"#, json!({"paths": ["a", 1, true]}), vec!["a", "1", "true"]),
            (r#"{ args = ["--lines={lines}"] }"#, json!({"lines": -3}), vec!["--lines=-3"]),
            (r#"{ args = ["--lines={lines}"] }"#, json!({}), vec![]),
            (r#"{ args = ["--p={paths}"] }"#, json!({"paths": ["a"]}), vec![r#"--p=["a"]"#]),
            (r#"{ args = [["--lines", "{lines}"], "x"] }"#, json!({}), vec!["x"]),
            (r#"{ args = [["--lines", "{lines}"]] }"#, json!({"lines": 3}), vec!["--lines", "3"]),
            (r#"{ args = [{ when = "quiet", args = ["-q"] }] }"#, json!({"quiet": true}), vec!["-q"]),
            (r#"{ args = [{ when = "quiet", args = ["-q"] }] }"#, json!({"quiet": false}), vec![]),
            (r#"{ args = [{ when = "quiet", args = ["-q"] }] }"#, json!({}), vec![]),
            (r#"{ args = ["{{{path}}}"] }"#, json!({"path": "a"}), vec!["{a}"]),
            (r#"{ args = ["--", "{path}"] }"#, json!({"path": "-rf"}), vec!["--", "-rf"]),
            (r#"{ args = ["{most}"] }"#, json!({}), vec!["5"]),
        ] {
            assert_eq!(filled(run, &args), line, "{run}");
        }
    }

    #[test]
    fn input_and_variables_are_filled() {
        let run = r#"{ stdin = "{text}\n", env = { LANG = "C", NAME = "{name}", GONE = "{path}" } }"#;
        let line = template(run).fill(json!({"text": "a\0b", "name": "x"}).as_object().unwrap()).unwrap();
        assert_eq!(line.stdin, "a\0b\n");
        let env: Vec<_> = line.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(env, [("LANG", "C"), ("NAME", "x")]);
    }

    #[test]
    fn what_a_model_wrote_becomes_no_option() {
        for (run, args, at) in [
            (r#"{ args = ["{path}"] }"#, json!({"path": "-rf"}), "/path"),
            (r#"{ args = ["{path}"] }"#, json!({"path": -1}), "/path"),
            (r#"{ args = ["{paths}"] }"#, json!({"paths": ["a", "--x"]}), "/paths"),
            (r#"{ args = ["{path}", "--"] }"#, json!({"path": "--"}), "/path"),
            (r#"{ args = ["a{path}"] }"#, json!({"path": "\0"}), "/path"),
            (r#"{ env = { A = "{path}" } }"#, json!({"path": "\0"}), "/path"),
        ] {
            let error = template(run).fill(args.as_object().unwrap()).unwrap_err();
            assert_eq!((error.code, error.subject.as_deref()), (ErrorCode::InputInvalid, Some(at)), "{run}");
        }
    }

    #[test]
    fn a_command_line_is_bounded() {
        let many = json!({"paths": vec!["a"; MAX_ARGUMENTS + 1]});
        let long = json!({"paths": ["a".repeat(MAX_COMMAND_LINE)]});
        for args in [many, long] {
            let error = template(r#"{ args = ["{paths}"] }"#).fill(args.as_object().unwrap()).unwrap_err();
            assert!(error.message.contains("at most 4096"), "{error}");
        }
        // An argument that the file names very often.
        let text = json!({"text": "a".repeat(1 << 20)});
        for (run, most) in [
            (format!(r#"{{ args = ["x{}"] }}"#, "{text}".repeat(10_000)), MAX_COMMAND_LINE),
            (format!(r#"{{ stdin = "{}" }}"#, "{text}".repeat(10_000)), MAX_STDIN),
        ] {
            let error = template(&run).fill(text.as_object().unwrap()).unwrap_err();
            assert!(error.message.contains(&format!("more than {most} bytes")), "{error}");
        }
        let exact = json!({"paths": vec!["a"; MAX_ARGUMENTS]});
        assert_eq!(filled(r#"{ args = ["{paths}"] }"#, &exact).len(), MAX_ARGUMENTS);
    }

    #[test]
    fn a_line_of_stderr_means_failure_where_the_file_says_so() {
        let grep = template("{ success = [0, 1], failure_stderr = [\"grep: *\", \"*No such file*\"] }");
        for (stderr, failure) in [
            ("", None),
            ("3 files searched\n", None),
            ("3 files searched\ngrep: x: Permission denied\r\n", Some("grep: x: Permission denied")),
            (
                "open x: No such file or directory (os error 44)",
                Some("open x: No such file or directory (os error 44)"),
            ),
            (" grep: no", None),
        ] {
            assert_eq!(grep.failure(stderr), failure, "{stderr}");
        }
        assert_eq!(template("{}").failure("error: no"), None);
    }

    #[test]
    fn only_what_is_named_is_success() {
        assert!(template("{}").is_success(0) && !template("{}").is_success(1));
        let grep = template("{ success = [0, 1] }");
        assert!(grep.is_success(1) && !grep.is_success(2));
    }
}
