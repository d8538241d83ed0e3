//! The description of the server for the MCP registry, and an installable bundle for clients.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use toolbay::Filter;
use toolbay_policy::excerpt::first_sentence;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::args::ServerJsonArgs;
use crate::output::{self, CommandStatus, format, host_failure, run_blocking};
use crate::setup::named_path::{path_failure, replace_atomically};
use crate::setup::{self, HostPurpose, ReportLevel, SetupArgs};

/// The server's description. The registry accepts at most 100 characters.
const ABOUT: &str = "Runs tools from WebAssembly components in a sandbox, under a policy.";
const SCHEMA: &str = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json";

/// The description for the MCP registry.
pub(super) fn server_json(options: &ServerJsonArgs) -> Result<Value> {
    let sound = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
    };
    if !options.name.split_once('/').is_some_and(|(space, name)| sound(space) && sound(name)) {
        bail!("--name `{}`: write a namespace and a name, `io.github.you/toolbay`", options.name);
    }
    let mut server = json!({
        "$schema": SCHEMA,
        "name": options.name,
        "title": "Toolbay",
        "description": ABOUT,
        "version": env!("CARGO_PKG_VERSION"),
    });
    if let (Some(url), Some(bundle)) = (&options.url, &options.bundle) {
        let mut file = File::open(bundle).with_context(|| format!("`{}`", bundle.display()))?;
        let mut hash = Sha256::new();
        std::io::copy(&mut file, &mut hash).with_context(|| format!("`{}`", bundle.display()))?;
        let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let package = json!({
            "registryType": "mcpb",
            "identifier": url,
            "version": env!("CARGO_PKG_VERSION"),
            "fileSha256": digest,
            "transport": {"type": "stdio"},
        });
        output::insert_member(&mut server, "packages", json!([package]));
    }
    Ok(server)
}

/// Creates a bundle atomically.
pub(super) async fn make(args: &SetupArgs, out: &Path, name: &str, author: &str) -> Result<CommandStatus> {
    let host = setup::load_host(args, ReportLevel::Warnings, HostPurpose::Inspect).await?;
    let policy = setup::PolicyFile::find(args)?;
    let view = host.view(Filter::for_profile(setup::profile(args, &host.policy())?));
    let tools: Vec<Value> = view
        .definitions()
        .map(|entry| json!({"name": entry.def.name.as_str(), "description": first_sentence(&entry.def.description)}))
        .collect();
    let mut plugins: Vec<PathBuf> = host.plugins().into_iter().filter_map(|plugin| plugin.file).collect();
    plugins.sort();
    let parts = BundleContents {
        manifest: manifest(args, name, author, policy.text.is_some(), &tools),
        program: std::env::current_exe().context("this program has no path").map_err(host_failure)?,
        plugins,
        policy: policy.text,
    };
    let out = out.to_path_buf();
    let (out, bytes) = run_blocking(move || parts.write(&out).map(|bytes| (out, bytes))).await??;
    let text = format!("created `{}`, {}", out.display(), format::size(bytes));
    Ok(args.printer.report(&json!({"file": out, "bytes": bytes}), &text)?)
}

fn manifest(args: &SetupArgs, name: &str, author: &str, policy: bool, tools: &[Value]) -> Value {
    let mut words = vec!["serve", "--plugins", "${__dirname}/plugins"];
    if policy {
        words.extend(["--config", "${__dirname}/toolbay.toml"]);
    }
    words.extend(["--workspace", "${user_config.workspace}"]);
    if let Some(profile) = &args.profile {
        words.extend(["--profile", profile.as_str()]);
    }
    json!({
        "manifest_version": "0.3",
        "name": name,
        "display_name": "Toolbay",
        "version": env!("CARGO_PKG_VERSION"),
        "description": ABOUT,
        "author": {"name": author},
        "server": {
            "type": "binary",
            "entry_point": "server/toolbay",
            "mcp_config": {"command": "${__dirname}/server/toolbay", "args": words, "env": {}},
        },
        "tools": tools,
        "tools_generated": true,
        "user_config": {
            "workspace": {
                "type": "directory",
                "title": "Workspace",
                "description": "The folder that `$workspace` of the policy means.",
                "required": true,
            },
        },
        "compatibility": {"platforms": [platform()]},
    })
}

/// The platform in the words of the format.
fn platform() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        "windows" => "win32",
        other => other,
    }
}

/// The contents of a bundle.
struct BundleContents {
    manifest: Value,
    program: PathBuf,
    plugins: Vec<PathBuf>,
    policy: Option<String>,
}

impl BundleContents {
    /// Creates the bundle at once. Returns its size.
    fn write(&self, out: &Path) -> Result<u64> {
        let written = replace_atomically(out, |part| self.write_to(part));
        written.with_context(|| format!("`{}` cannot be created", out.display())).map_err(path_failure)
    }

    fn write_to(&self, file: &Path) -> Result<u64> {
        let mut zip = ZipWriter::new(File::create_new(file)?);
        add(&mut zip, "manifest.json", false, &mut serde_json::to_vec_pretty(&self.manifest)?.as_slice())?;
        add(&mut zip, "server/toolbay", true, &mut File::open(&self.program)?)?;
        if let Some(policy) = &self.policy {
            add(&mut zip, "toolbay.toml", false, &mut policy.as_bytes())?;
        }
        for plugin in &self.plugins {
            let name = plugin.file_name().and_then(|name| name.to_str());
            let name = name.ok_or_else(|| anyhow!("`{}` is not UTF-8", plugin.display()))?;
            add(&mut zip, &format!("plugins/{name}"), false, &mut File::open(plugin)?)?;
        }
        let file = zip.finish()?;
        file.sync_all()?;
        Ok(file.metadata()?.len())
    }
}

fn add<W: Write + Seek>(zip: &mut ZipWriter<W>, name: &str, runs: bool, from: &mut impl Read) -> Result<()> {
    // A fixed time: equal contents make an equal bundle.
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .unix_permissions(if runs { 0o755 } else { 0o644 })
        .last_modified_time(zip::DateTime::default());
    zip.start_file(name, options)?;
    std::io::copy(from, zip)?;
    Ok(())
}
