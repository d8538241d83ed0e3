//! Command templates: they turn the arguments of a call into the command line, the input and the environment of a
//! program.
//!
//! | in the manifest | result |
//! |---|---|
//! | `"--color"` | the literal text |
//! | `"{path}"` | the argument; one word for each item of a list; nothing if the argument is absent |
//! | `"--lines={lines}"` | the argument within a text; nothing if the argument is absent |
//! | `["--lines", "{lines}"]` | both words, or neither |
//! | `{ when = "quiet", args = ["-q"] }` | the words, if `quiet` is `true` |
//! | `{{`, `}}` | a brace |
//!
//! Strings and numbers are inserted as they are; lists and objects within a text are inserted as JSON. No shell is
//! involved. An argument of the model must not become an option of the program: a word that starts with an argument
//! whose value starts with `-` is refused, unless the manifest has a literal `--` before it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolbay_policy::wildcard::text_matches;

use super::{ArgumentTemplate, ProgramSpec};
use crate::tool::content::{ErrorCode, ToolError};
use crate::tool::json;

/// Most parts of a command line in the manifest, and most words of a command line.
const MAX_ARGUMENTS: usize = 4096;
/// Longest command line and environment together, in bytes: what Linux gives a program by default.
const MAX_COMMAND_LINE: usize = 2 << 20;
/// Most patterns in `failure_stderr`: each is matched against every line.
const MAX_PATTERNS: usize = 16;
/// Longest pattern, in bytes.
const MAX_PATTERN: usize = 200;
/// Longest input, in bytes: a few times the size of the largest arguments.
pub(super) const MAX_STDIN: usize = 16 << 20;

/// How a program is started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandTemplate {
    parts: Vec<CommandPart>,
    stdin: Option<TextTemplate>,
    env: BTreeMap<String, TextTemplate>,
    success: Vec<i32>,
    #[serde(default)]
    failure_stderr: Vec<String>,
    /// Values of absent arguments.
    defaults: Map<String, Value>,
    /// Whether the program prints JSON.
    prints_json: bool,
}

/// The command line, the environment and the input of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// The arguments, without the program's name.
    pub args: Vec<String>,
    /// Environment variables.
    pub env: Vec<(String, String)>,
    /// The program's input.
    pub stdin: String,
}

/// Words that appear together: always, or if the argument `when` is `true`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CommandPart {
    when: Option<String>,
    texts: Vec<TextTemplate>,
}

/// A text with placeholders for arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TextTemplate(Vec<TextPiece>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum TextPiece {
    Literal(String),
    Argument(String),
}

impl CommandTemplate {
    /// Parses the `run` table of a manifest. `args` are the declared arguments.
    pub(super) fn new(
        run: &ProgramSpec,
        args: &Map<String, Value>,
        prints_json: bool,
    ) -> Result<Self, String> {
        let check_declared = |name: &str| {
            args.contains_key(name).then_some(()).ok_or_else(|| {
                format!("the command line uses `{{{name}}}`, but `args.{name}` is not declared")
            })
        };
        let text = |text: &str| {
            let text = TextTemplate::parse(text)?;
            text.names().try_for_each(check_declared)?;
            Ok::<_, String>(text)
        };
        let texts = |all: &[String]| all.iter().map(|one| text(one)).collect::<Result<Vec<_>, _>>();
        let mut parts = Vec::new();
        for argument in &run.args {
            parts.push(match argument {
                ArgumentTemplate::Single(one) => CommandPart { when: None, texts: vec![text(one)?] },
                ArgumentTemplate::Group(all) => CommandPart { when: None, texts: texts(all)? },
                ArgumentTemplate::Conditional { when, args } => {
                    check_declared(when)?;
                    CommandPart { when: Some(when.clone()), texts: texts(args)? }
                }
            });
        }
        if parts.iter().map(|part| part.texts.len()).sum::<usize>() > MAX_ARGUMENTS {
            return Err(format!("the command line has more than {MAX_ARGUMENTS} parts"));
        }
        let mut env = BTreeMap::new();
        for (name, value) in &run.env {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(format!("`env.{name}` is not a valid name of an environment variable"));
            }
            env.insert(name.clone(), text(value)?);
        }
        let success = if run.success.is_empty() { vec![0] } else { run.success.clone() };
        let stdin = run.stdin.as_deref().map(text).transpose()?;
        let failure_stderr = run.failure_stderr.clone();
        if failure_stderr.len() > MAX_PATTERNS
            || failure_stderr.iter().any(|one| one.is_empty() || one.len() > MAX_PATTERN)
        {
            return Err(format!(
                "`failure_stderr` takes at most {MAX_PATTERNS} patterns of 1 to {MAX_PATTERN} bytes each"
            ));
        }
        Ok(Self { parts, stdin, env, success, failure_stderr, defaults: defaults(args), prints_json })
    }

    /// Whether the output must be JSON: the manifest has a schema for it.
    #[must_use]
    pub fn prints_json(&self) -> bool {
        self.prints_json
    }

    /// Whether an exit status means success.
    #[must_use]
    pub fn is_success(&self, status: i32) -> bool {
        self.success.contains(&status)
    }

    /// The first line of stderr that means failure. WASI 0.2 has only two exit statuses. If 1 is not a failure of the
    /// program, as with `grep`, only stderr distinguishes an error from a result.
    #[must_use]
    pub fn failure_line<'t>(&self, stderr: &'t str) -> Option<&'t str> {
        let matches = |line: &str| self.failure_stderr.iter().any(|pattern| text_matches(pattern, line));
        stderr.lines().find(|line| matches(line.trim_end()))
    }

    /// Fills in the arguments of a call.
    ///
    /// # Errors
    /// A command line cannot hold an argument: `input_invalid` with a pointer to the argument.
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
                text.append_words(given, options_are_over, &mut line.args)?;
                options_are_over |= text.0 == [TextPiece::Literal("--".to_owned())];
                line.check()?;
            }
        }
        for (name, text) in &self.env {
            if let Some(value) = text.fill(given, MAX_COMMAND_LINE)? {
                let pointer = text.names().next().map_or_else(String::new, json_pointer);
                line.env.push((name.clone(), reject_nul(value, pointer)?));
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
            return Err(reject(format!(
                "the command line has {} arguments and {bytes} bytes; the limits are {MAX_ARGUMENTS} arguments and \
                 {MAX_COMMAND_LINE} bytes",
                self.args.len()
            )));
        }
        Ok(())
    }
}

impl TextTemplate {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (mut pieces, mut literal) = (Vec::new(), String::new());
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '{' | '}' if rest.peek() == Some(&c) => {
                    rest.next();
                    literal.push(c);
                }
                '}' => {
                    return Err(format!("`{text}` has an unmatched `}}`; write `}}}}` for a literal brace"));
                }
                '{' => {
                    let mut name = String::new();
                    loop {
                        match rest.next() {
                            Some('}') => break,
                            Some(c) => name.push(c),
                            None => {
                                return Err(format!(
                                    "`{text}` has an unmatched `{{`; write `{{{{` for a literal brace"
                                ));
                            }
                        }
                    }
                    if !literal.is_empty() {
                        pieces.push(TextPiece::Literal(std::mem::take(&mut literal)));
                    }
                    pieces.push(TextPiece::Argument(name));
                }
                c => literal.push(c),
            }
        }
        if !literal.is_empty() || pieces.is_empty() {
            pieces.push(TextPiece::Literal(literal));
        }
        Ok(Self(pieces))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            TextPiece::Argument(name) => Some(name.as_str()),
            TextPiece::Literal(_) => None,
        })
    }

    /// The text with its arguments; `None` if one of them is absent.
    pub(super) fn fill<'a>(
        &self,
        given: impl Fn(&str) -> Option<&'a Value>,
        most: usize,
    ) -> Result<Option<String>, ToolError> {
        self.fill_with(given, most, str::to_owned)
    }

    /// Like [`Self::fill`], with each argument in another form.
    pub(super) fn fill_with<'a>(
        &self,
        given: impl Fn(&str) -> Option<&'a Value>,
        most: usize,
        encode: impl Fn(&str) -> String,
    ) -> Result<Option<String>, ToolError> {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                TextPiece::Literal(text) => filled.push_str(text),
                TextPiece::Argument(name) => match given(name) {
                    Some(value) => filled.push_str(&encode(&display_value(value))),
                    None => return Ok(None),
                },
            }
            // Checked in the loop: a manifest may repeat one argument many times.
            if filled.len() > most {
                return Err(reject(format!("one part has more than {most} bytes with its arguments")));
            }
        }
        Ok(Some(filled))
    }

    /// Appends the resulting words to a command line.
    fn append_words<'a>(
        &self,
        given: impl Fn(&str) -> Option<&'a Value>,
        options_are_over: bool,
        line: &mut Vec<String>,
    ) -> Result<(), ToolError> {
        if let [TextPiece::Argument(name)] = self.0.as_slice() {
            let items = match given(name) {
                Some(Value::Array(items)) => items.as_slice(),
                Some(one) => std::slice::from_ref(one),
                None => &[],
            };
            for item in items {
                let item = display_value(item);
                if item.starts_with('-') && !options_are_over {
                    return Err(option_error(name));
                }
                line.push(reject_nul(item, json_pointer(name))?);
            }
            return Ok(());
        }
        if let Some(text) = self.fill(given, MAX_COMMAND_LINE)? {
            if let [TextPiece::Argument(first), ..] = self.0.as_slice()
                && text.starts_with('-')
                && !options_are_over
            {
                return Err(option_error(first));
            }
            let name = self.names().next().map_or_else(String::new, json_pointer);
            line.push(reject_nul(text, name)?);
        }
        Ok(())
    }
}

/// The values of arguments that a call may leave out.
pub(super) fn defaults(args: &Map<String, Value>) -> Map<String, Value> {
    let default = |(name, schema): (&String, &Value)| Some((name.clone(), schema.get("default")?.clone()));
    args.iter().filter_map(default).collect()
}

pub(super) fn reject(message: String) -> ToolError {
    ToolError::new(ErrorCode::InputInvalid, message)
}

fn option_error(name: &str) -> ToolError {
    reject(format!("`{name}` starts with `-`; the program would read it as an option"))
        .with_subject(json_pointer(name))
}

fn display_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn json_pointer(name: &str) -> String {
    format!("/{}", json::pointer_step(name))
}

fn reject_nul(text: String, pointer: String) -> Result<String, ToolError> {
    if text.contains('\0') {
        let message = "the value has a NUL byte, which neither a command line nor a variable can hold";
        return Err(reject(message.to_owned()).with_subject(pointer));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::manifest::Manifest;
    use serde_json::json;

    fn template(run: &str) -> CommandTemplate {
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
    fn an_argument_within_a_text_cannot_start_an_option() {
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
                assert!(error.message.contains("read it as an option"), "{error:?}");
            }
        }
    }

    #[test]
    fn each_row_of_the_table_is_filled() {
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
    fn an_argument_cannot_become_an_option() {
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
            assert!(error.message.contains("the limits are 4096"), "{error}");
        }
        // The manifest repeats one argument many times.
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
    fn a_stderr_line_that_matches_a_pattern_means_failure() {
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
            assert_eq!(grep.failure_line(stderr), failure, "{stderr}");
        }
        assert_eq!(template("{}").failure_line("error: no"), None);
    }

    #[test]
    fn only_listed_exit_statuses_mean_success() {
        assert!(template("{}").is_success(0) && !template("{}").is_success(1));
        let grep = template("{ success = [0, 1] }");
        assert!(grep.is_success(1) && !grep.is_success(2));
    }
}
