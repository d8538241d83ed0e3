//! The manifest of a plain component, `NAME.plugin.toml` beside `NAME.wasm`: it declares which functions of the
//! component are tools, or how the host starts its program as a tool.
//!
//! A manifest states what a plugin of the contract returns from `list-tools` and `about`. The host bounds and checks it
//! in the same way. A manifest grants nothing: `needs` only requests capabilities.
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

mod request;
mod template;

use std::collections::BTreeMap;
use std::time::Duration;

pub use request::{HandlerRequest, RequestSpec, RequestTemplate};
pub use template::{CommandLine, CommandTemplate};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::quantity;

/// The custom section of a component that can hold the manifest instead of a file.
pub const SECTION: &str = "toolbay:manifest";
/// Longest manifest, in bytes: room for a thousand tools with a few lines each.
pub const MAX_BYTES: usize = 1 << 20;
/// The version of the format.
const VERSION: u32 = 1;
/// Longest error message, in characters: messages quote the file.
const MAX_PROBLEM: usize = 500;

/// A parsed manifest.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the format: 1.
    pub version: u32,
    /// The component's name.
    pub name: Option<String>,
    /// The component's version.
    pub release: Option<String>,
    /// The component's purpose.
    pub description: Option<String>,
    /// The component's authors.
    pub authors: Option<String>,
    /// The component's licence.
    pub license: Option<String>,
    /// URL of the documentation.
    pub homepage: Option<String>,
    /// URL of the source code.
    pub source: Option<String>,
    /// The tools by name.
    pub tools: BTreeMap<String, ToolManifest>,
}

/// A tool of a manifest.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolManifest {
    /// The exported function to call: `name`, or `package:name/interface@1.0.0#name`.
    pub export: Option<String>,
    /// How the host starts the program.
    pub run: Option<ProgramSpec>,
    /// How the host calls the component's HTTP handler.
    pub http: Option<RequestSpec>,
    /// A title for people.
    pub title: Option<String>,
    /// What a model reads to decide whether to call it.
    pub description: Option<String>,
    /// The group that the tool belongs to.
    pub toolset: Option<String>,
    /// The tags.
    pub tags: Vec<String>,
    /// Traits by their names in the contract: `read-only`.
    pub traits: Vec<String>,
    /// Most characters of a result.
    pub max_result_chars: Option<u32>,
    /// Longest duration of a call: `"5s"`.
    #[serde(deserialize_with = "duration")]
    pub timeout: Option<Duration>,
    /// The arguments by name, each with a JSON Schema. Programs and handlers take only these; for a function they extend
    /// the schemas derived from its types. An argument with `optional = true` or a `default` is optional.
    pub args: Map<String, Value>,
    /// The JSON Schema of the output of a program or a handler. Without it, the output is text.
    pub output: Option<Value>,
    /// The capabilities that the tool requests. Without it, the host derives them from the component's imports.
    pub needs: Option<Vec<CapabilityDeclaration>>,
}

/// How the host starts a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProgramSpec {
    /// The command line after the program's name.
    pub args: Vec<ArgumentTemplate>,
    /// The program's input.
    pub stdin: Option<String>,
    /// Environment variables in addition to the granted ones.
    pub env: BTreeMap<String, String>,
    /// Exit statuses that mean success. An empty list means 0 only.
    pub success: Vec<i32>,
    /// Patterns of stderr lines that mean failure, whatever the exit status. `*` matches any run of characters.
    pub failure_stderr: Vec<String>,
}

/// A part of a command line, with `{name}` for arguments of the call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum ArgumentTemplate {
    /// One argument, left out if the call lacks an argument that it names.
    Single(String),
    /// Several arguments, left out together if the call lacks an argument that they name.
    Group(Vec<String>),
    /// Several arguments, present only if an argument of the call is `true`.
    Conditional {
        /// The name of that argument.
        when: String,
        /// The arguments.
        args: Vec<String>,
    },
}

/// A capability that a tool requests.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapabilityDeclaration {
    /// The kind of capability by its name in the contract: `fs-read`.
    pub kind: String,
    /// The target: a path, an address or a name.
    #[serde(default)]
    pub target: String,
    /// Whether the tool also works without the capability.
    #[serde(default)]
    pub optional: bool,
    /// The reason that the operator reads before deciding.
    #[serde(default)]
    pub reason: Option<String>,
}

impl Manifest {
    /// Parses and checks a manifest.
    ///
    /// # Errors
    /// The manifest is invalid; the error is one line with the problem and its place.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|problem| one_line(&problem, MAX_PROBLEM))
    }

    fn read(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct VersionHeader {
            version: Option<u32>,
        }
        if text.len() > MAX_BYTES {
            return Err(format!("the manifest has {} bytes; the limit is {MAX_BYTES} bytes", text.len()));
        }
        let head: VersionHeader = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        match head.version {
            Some(VERSION) => {}
            Some(other) => {
                return Err(format!("the manifest has version {other}; this host reads version {VERSION}"));
            }
            None => return Err(format!("`version` is missing; write `version = {VERSION}`")),
        }
        let manifest: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text.get(..span.start).unwrap_or_default().lines().count());
            let place = line.map_or_else(String::new, |line| format!("line {}: ", line.max(1)));
            format!("{place}{}", error.message())
        })?;
        if manifest.tools.is_empty() {
            return Err("the manifest has no tools; add a table `[tools.NAME]`".to_owned());
        }
        for (name, tool) in &manifest.tools {
            tool.check().map_err(|problem| format!("[tools.{name}]: {problem}"))?;
        }
        Ok(manifest)
    }
}

impl ToolManifest {
    fn check(&self) -> Result<(), String> {
        match (&self.export, &self.run, &self.http) {
            (Some(_), None, None) if self.output.is_some() => {
                return Err("`output` is only for programs and handlers; the result of a function has its declared type"
                    .to_owned());
            }
            (Some(_), None, None) | (None, Some(_), None) | (None, None, Some(_)) => {}
            (None, None, None) => {
                return Err(
                    "neither `export` (the name of a function), `run` (the command line of the program) nor \
                            `http` (a request for the handler) is set"
                        .to_owned(),
                );
            }
            _ => {
                return Err("more than one of `export`, `run` and `http` is set; a tool is a function, the program or \
                            the handler"
                    .to_owned());
            }
        }
        if let Some((name, _)) = self.args.iter().find(|(_, schema)| !schema.is_object()) {
            return Err(format!("`args.{name}` is not a table with a JSON Schema"));
        }
        self.request()?;
        self.template().map(drop)
    }

    /// The request template of a handler; `None` for a function or a program.
    ///
    /// # Errors
    /// A part of the request is invalid; the error names it.
    pub fn request(&self) -> Result<Option<RequestTemplate>, String> {
        let returns_json = self.output.is_some();
        self.http.as_ref().map(|http| RequestTemplate::new(http, &self.args, returns_json)).transpose()
    }

    /// The command template of a program; `None` for a function or a handler.
    ///
    /// # Errors
    /// A part of the command line is invalid; the error names it.
    pub fn template(&self) -> Result<Option<CommandTemplate>, String> {
        let prints_json = self.output.is_some();
        self.run.as_ref().map(|run| CommandTemplate::new(run, &self.args, prints_json)).transpose()
    }

    /// The JSON Schema of the arguments of a program or a handler.
    #[must_use]
    pub fn input_schema(&self) -> Value {
        let required: Vec<&String> =
            self.args.iter().filter(|(_, schema)| !is_optional(schema)).map(|(name, _)| name).collect();
        let properties: Map<String, Value> =
            self.args.iter().map(|(name, schema)| (name.clone(), without_optional(schema))).collect();
        json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        })
    }

    /// Extends a schema derived from a function's types with the argument schemas of the manifest.
    ///
    /// # Errors
    /// The manifest has an argument that the function does not take; the error names it.
    pub fn add_arguments_to(&self, schema: &mut Value) -> Result<(), String> {
        for (name, more) in &self.args {
            let property = schema.get_mut("properties").and_then(|all| all.get_mut(name.as_str()));
            let Some(Value::Object(property)) = property else {
                return Err(format!("`args.{name}` is set, but the function has no parameter `{name}`"));
            };
            let more = without_optional(more);
            property.extend(more.as_object().cloned().unwrap_or_default());
        }
        Ok(())
    }
}

fn is_optional(schema: &Value) -> bool {
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
    quantity::parse_duration(&text).map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_parsed_with_all_its_fields() {
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
        fetch.add_arguments_to(&mut schema).unwrap();
        assert_eq!(
            schema["properties"]["url"],
            json!({"type": "string", "description": "Absolute URL", "format": "uri"})
        );
        let problem = fetch.add_arguments_to(&mut json!({"properties": {}})).unwrap_err();
        assert!(problem.contains("has no parameter `url`"), "{problem}");
    }

    #[test]
    fn the_input_schema_of_a_program_lists_its_arguments() {
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
    fn an_error_names_the_problem() {
        let tool = |rest: &str| format!("version = 1\n[tools.t]\n{rest}");
        for (text, part) in [
            ("tools = {}", "`version` is missing".to_owned()),
            ("version = 2\nnew = 1", "version 2; this host reads version 1".to_owned()),
            ("version = 1\n[tools]", "the manifest has no tools".to_owned()),
            (
                "version = 1\nname = \"a\"\nnam = \"b\"\n[tools.t]\nexport = \"x\"",
                "unknown field `nam`".to_owned(),
            ),
            (&tool(""), "neither `export`".to_owned()),
            (
                &tool("export = \"a\"\nrun = {}"),
                "more than one of `export`, `run` and `http` is set".to_owned(),
            ),
            (&tool("export = \"a\"\noutput = {}"), "`output` is only for programs".to_owned()),
            (&tool("run = {}\nargs.a = 1"), "`args.a` is not a table".to_owned()),
            (&tool("run = { args = [\"{a}\"] }"), "[tools.t]: the command line uses `{a}`".to_owned()),
            (&tool("run = { args = [\"{a\"] }"), "unmatched `{`".to_owned()),
            (&tool("run = {}\ntimeout = \"soon\""), "soon".to_owned()),
            (&"#".repeat(MAX_BYTES + 1), format!("the limit is {MAX_BYTES} bytes")),
        ] {
            let problem = Manifest::parse(text).unwrap_err();
            assert!(problem.contains(&part), "{text:.80}: {problem}");
        }
    }
}
