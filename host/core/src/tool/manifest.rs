//! The file beside a component that knows nothing of this host, `NAME.plugin.toml` beside `NAME.wasm`: its author says
//! there which of the component's functions are tools, or how its program is started as one.
//!
//! It says what a plugin of the contract says by `list-tools` and `about`, and is read as those are: a claim, bounded and
//! checked. It grants nothing: `needs` are wishes.
//!
//! ```toml
//! version = 1
//! name = "count"
//! release = "1.2.0"
//!
//! [tools.count_lines]
//! description = "Count the lines of a text."
//! traits = ["read-only", "idempotent", "closed-world"]
//! args.text = { type = "string", description = "The text." }
//! run = { args = ["-l"], stdin = "{text}" }
//! ```

mod template;

use std::collections::BTreeMap;
use std::time::Duration;

pub use template::{CommandLine, Template};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use toolbay_policy::quantity;
use toolbay_policy::text::one_line;

/// The custom section in which a component can carry the same text instead.
pub const SECTION: &str = "toolbay:manifest";
/// Longest text, in bytes: a thousand tools with a few lines each.
pub const MAX_BYTES: usize = 1 << 20;
/// The version of the format.
const VERSION: u32 = 1;
/// Longest message about what is wrong, in characters: it repeats what stands in the file.
const MAX_PROBLEM: usize = 500;

/// What the file says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the format: 1.
    pub version: u32,
    /// What the component is called.
    pub name: Option<String>,
    /// Its own version.
    pub release: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Who wrote it.
    pub authors: Option<String>,
    /// Its licence.
    pub license: Option<String>,
    /// Where to read about it.
    pub homepage: Option<String>,
    /// Where its source is.
    pub source: Option<String>,
    /// Its tools by their names.
    pub tools: BTreeMap<String, ToolManifest>,
}

/// One tool.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolManifest {
    /// The exported function that is called: `name`, or `package:name/interface@1.0.0#name`.
    pub export: Option<String>,
    /// How the program is started.
    pub run: Option<Run>,
    /// A title for people.
    pub title: Option<String>,
    /// What a model reads to decide whether to call it.
    pub description: Option<String>,
    /// Its group.
    pub toolset: Option<String>,
    /// Its tags.
    pub tags: Vec<String>,
    /// Traits as the contract names them: `read-only`.
    pub traits: Vec<String>,
    /// Most characters of its result.
    pub max_result_chars: Option<u32>,
    /// Longest time of a call: `"5s"`.
    #[serde(deserialize_with = "duration")]
    pub timeout: Option<Duration>,
    /// Its arguments by their names, each a JSON Schema. For a program they are all there are; for a function they are
    /// added to what its types say. `optional = true`, or a `default`, makes one that may be left out.
    pub args: Map<String, Value>,
    /// The JSON Schema of what a program prints; without it, what it prints is text.
    pub output: Option<Value>,
    /// What it wants to reach. Left out: what the component imports says it.
    pub needs: Option<Vec<Need>>,
}

/// How a program is started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Run {
    /// Its command line behind the program's name.
    pub args: Vec<Argument>,
    /// What it reads.
    pub stdin: Option<String>,
    /// Its environment, beside what is granted.
    pub env: BTreeMap<String, String>,
    /// Exit statuses that mean success; left out: 0 alone.
    pub success: Vec<i32>,
    /// Patterns of lines on stderr that mean failure, whatever the exit status: `*` stands for any run of characters.
    pub failure_stderr: Vec<String>,
}

/// One part of a command line.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Argument {
    /// One argument; gone, if what it names is not given.
    One(String),
    /// Several, gone together.
    Together(Vec<String>),
    /// Several, there if an argument of the call is `true`.
    When {
        /// The argument.
        when: String,
        /// What is there then.
        args: Vec<String>,
    },
}

/// A wish.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// The kind of capability, as the contract names it: `fs-read`.
    pub kind: String,
    /// What of it.
    #[serde(default)]
    pub target: String,
    /// The tool also works without it.
    #[serde(default)]
    pub optional: bool,
    /// Shown to the operator who decides.
    #[serde(default)]
    pub reason: Option<String>,
}

impl Manifest {
    /// Reads the text.
    ///
    /// # Errors
    /// Says what is wrong with it, and where, in one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|problem| one_line(&problem, MAX_PROBLEM))
    }

    fn read(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            version: Option<u32>,
        }
        if text.len() > MAX_BYTES {
            return Err(format!("it has {} bytes; at most {MAX_BYTES} are read", text.len()));
        }
        let head: Head = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        match head.version {
            Some(VERSION) => {}
            Some(other) => {
                return Err(format!("it is of version {other}; this host reads version {VERSION}"));
            }
            None => return Err(format!("it has no `version`; write `version = {VERSION}`")),
        }
        let manifest: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text.get(..span.start).unwrap_or_default().lines().count());
            let place = line.map_or_else(String::new, |line| format!("line {}: ", line.max(1)));
            format!("{place}{}", error.message())
        })?;
        if manifest.tools.is_empty() {
            return Err("it has no tools; write one as [tools.NAME]".to_owned());
        }
        for (name, tool) in &manifest.tools {
            tool.check().map_err(|problem| format!("[tools.{name}]: {problem}"))?;
        }
        Ok(manifest)
    }
}

impl ToolManifest {
    fn check(&self) -> Result<(), String> {
        match (&self.export, &self.run) {
            (Some(_), Some(_)) => {
                return Err("it has both `export` and `run`; a tool is a function or the program".to_owned());
            }
            (Some(_), None) if self.output.is_some() => {
                return Err("`output` is for programs: a function's types say what it returns".to_owned());
            }
            (None, None) => {
                return Err(
                    "it has neither `export`, the name of a function, nor `run`, how the program is \
                            started"
                        .to_owned(),
                );
            }
            _ => {}
        }
        if let Some((name, _)) = self.args.iter().find(|(_, schema)| !schema.is_object()) {
            return Err(format!("`args.{name}` is not a table of JSON Schema"));
        }
        self.template().map(drop)
    }

    /// How its program is started; `None`: it is a function.
    ///
    /// # Errors
    /// Says which part of the command line cannot be.
    pub fn template(&self) -> Result<Option<Template>, String> {
        let prints_json = self.output.is_some();
        self.run.as_ref().map(|run| Template::new(run, &self.args, prints_json)).transpose()
    }

    /// The JSON Schema of a program's arguments.
    #[must_use]
    pub fn input_schema(&self) -> Value {
        let required: Vec<&String> =
            self.args.iter().filter(|(_, schema)| !may_be_left_out(schema)).map(|(name, _)| name).collect();
        let properties: Map<String, Value> =
            self.args.iter().map(|(name, schema)| (name.clone(), without_optional(schema))).collect();
        json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        })
    }

    /// Adds what the file says of arguments to a schema that was made from a function's types.
    ///
    /// # Errors
    /// Names an argument that the function does not take.
    pub fn add_to(&self, schema: &mut Value) -> Result<(), String> {
        for (name, more) in &self.args {
            let known = schema.get_mut("properties").and_then(|all| all.get_mut(name.as_str()));
            let Some(Value::Object(known)) = known else {
                return Err(format!("it has `args.{name}`, but the function takes no `{name}`"));
            };
            let more = without_optional(more);
            known.extend(more.as_object().cloned().unwrap_or_default());
        }
        Ok(())
    }
}

fn may_be_left_out(schema: &Value) -> bool {
    schema.get("optional") == Some(&Value::Bool(true)) || schema.get("default").is_some()
}

fn without_optional(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Value::Object(keywords) = &mut schema {
        keywords.shift_remove("optional");
    }
    schema
}

fn duration<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(input)?;
    quantity::duration(&text).map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole() {
        let text = r#"
            version = 1
            name = "fetcher"
            release = "0.2.0"
            [tools.fetch]
            export = "web:pages/get@1.0.0#fetch"
            traits = ["read-only"]
            timeout = "5s"
            args.url = { description = "Absolute URL", format = "uri" }
            [[tools.fetch.needs]]
            kind = "net"
            target = "https://*"
            reason = "fetches the page you name"
        "#;
        let manifest = Manifest::parse(text).unwrap();
        let fetch = &manifest.tools["fetch"];
        assert_eq!(fetch.timeout, Some(Duration::from_secs(5)));
        assert_eq!(fetch.needs.as_ref().unwrap()[0].target, "https://*");
        let mut schema = json!({"type": "object", "properties": {"url": {"type": "string"}}});
        fetch.add_to(&mut schema).unwrap();
        assert_eq!(
            schema["properties"]["url"],
            json!({"type": "string", "description": "Absolute URL", "format": "uri"})
        );
        let problem = fetch.add_to(&mut json!({"properties": {}})).unwrap_err();
        assert!(problem.contains("takes no `url`"), "{problem}");
    }

    #[test]
    fn the_schema_of_a_program_is_its_arguments() {
        let text = r#"
            version = 1
            [tools.head]
            description = "First lines."
            args.text = { type = "string" }
            args.lines = { type = "integer", minimum = 1, default = 10 }
            args.quiet = { type = "boolean", optional = true }
            run = { args = [["-n", "{lines}"], { when = "quiet", args = ["-q"] }], stdin = "{text}" }
        "#;
        let manifest = Manifest::parse(text).unwrap();
        assert_eq!(
            manifest.tools["head"].input_schema(),
            json!({
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "lines": {"type": "integer", "minimum": 1, "default": 10},
                    "quiet": {"type": "boolean"},
                },
                "required": ["text"],
                "additionalProperties": false,
            })
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let tool = |rest: &str| format!("version = 1\n[tools.t]\n{rest}");
        for (text, part) in [
            ("tools = {}", "no `version`".to_owned()),
            ("version = 2\nnew = 1", "version 2; this host reads version 1".to_owned()),
            ("version = 1\n[tools]", "it has no tools".to_owned()),
            (
                "version = 1\nname = \"a\"\nnam = \"b\"\n[tools.t]\nexport = \"x\"",
                "unknown field `nam`".to_owned(),
            ),
            (&tool(""), "neither `export`".to_owned()),
            (&tool("export = \"a\"\nrun = {}"), "both `export` and `run`".to_owned()),
            (&tool("export = \"a\"\noutput = {}"), "`output` is for programs".to_owned()),
            (&tool("run = {}\nargs.a = 1"), "`args.a` is not a table".to_owned()),
            (&tool("run = { args = [\"{a}\"] }"), "[tools.t]: `{a}` is none of its arguments".to_owned()),
            (&tool("run = { args = [\"{a\"] }"), "no `}`".to_owned()),
            (&tool("run = {}\ntimeout = \"soon\""), "soon".to_owned()),
            (&"#".repeat(MAX_BYTES + 1), format!("at most {MAX_BYTES} are read")),
        ] {
            let problem = Manifest::parse(text).unwrap_err();
            assert!(problem.contains(&part), "{text:.80}: {problem}");
        }
    }
}
