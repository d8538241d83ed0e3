//! The section of a service as `openapi add` would write it, and what it would give.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use toml_edit::{Array, DocumentMut, InlineTable, Table, value};
use toolbay::{OpenApiInfo, Policy};
use toolbay_core::registry::ToolEntry;
use toolbay_policy::hint::{Hint, LineValue};
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::{DocumentLocation, OpenApiService};

use crate::args::DocumentArgs;
use crate::output::host_failure;
use crate::policy_edit;
use crate::policy_edit::new_secrets::{self, NewSecrets, SecretReceiver};
use crate::setup::{self, HostPurpose, PolicyFile, SetupArgs};

use super::CHECKED;

/// The table of services in the policy.
const KIND: &str = "openapi";

/// A section and its effect.
pub(super) struct ServicePlan {
    pub(super) info: OpenApiInfo,
    /// Its tools.
    pub(super) tools: Vec<Arc<ToolEntry>>,
    /// The section as the policy would contain it, with those of its secrets.
    pub(super) section: String,
    /// The whole policy with the section.
    pub(super) text: String,
}

/// Reads a document, adds its section to a copy of the policy and loads the service.
pub(super) async fn plan(
    args: &SetupArgs,
    file: &PolicyFile,
    text: &str,
    name: &str,
    document: &DocumentArgs,
    pin: bool,
) -> Result<ServicePlan> {
    let address = document_address(&document.document)?;
    // Reading the document needs a valid section, and the server is not known yet.
    let mut section = service_table(&address, document)?;
    section.entry("server").or_insert_with(|| value("https://example.invalid"));
    let first = with_section(text, name, section)?;
    let first = file.parse_edit(&first)?;
    let about = find_service(&first, name)?;
    let host = setup::host_for(args, first, HostPurpose::Inspect)?;
    let read = host.read_openapi(&about).await;
    let (read, digest) = read.map_err(|why| anyhow!("`{address}`: {}", with_flag(why, &about)))?;
    let mut section = service_table(&address, document)?;
    if pin {
        section.insert("sha256", value(&*digest));
    } else if let (DocumentLocation::Url(url), None) = (&about.document, &document.server) {
        section.insert("server", value(server_of(&read, Some(url.as_str()), &address)?));
    }
    let secrets = header_table(name, document, &mut section, || {
        server_of(&read, about.document.url().map(|url| url.as_str()), &address)
    })?;
    let shown = shown_sections(name, &section, &secrets)?;
    let mut with = policy_edit::parse(&with_section(text, name, section)?)?;
    secrets.into_iter().try_for_each(|secrets| secrets.write(&mut with))?;
    let text = with.to_string();
    let policy = file.parse_edit(&text)?;
    let host = setup::host_for(args, policy, HostPurpose::Inspect)?;
    let info = host.load_openapi().await.into_iter().find(|info| info.name == name);
    let info = info.ok_or_else(|| host_failure(anyhow!("the section was not read")))?;
    let catalog = host.registry().snapshot();
    let tools = catalog.from_source(&format!("{KIND}:{name}")).cloned().collect();
    Ok(ServicePlan { info, tools, section: shown, text })
}

/// Why a document cannot be read, with the flag of this command that writes the advised line of the policy.
fn with_flag(why: PolicyRefusal, about: &OpenApiService) -> String {
    let lines = why.hint.as_ref().map_or(&[][..], Hint::lines);
    let flag = lines.iter().find_map(|line| match (line.key.as_str(), &line.value) {
        ("net_private", LineValue::List(networks)) => Some(format!("--net-private {:?}", networks.last()?)),
        ("ca", _) => Some("--ca FILE".to_owned()),
        _ => None,
    });
    let flag = flag.map(|flag| format!("\nhere: {flag}")).unwrap_or_default();
    // `check` writes no section.
    let section =
        format!("[{KIND}.{}]", if about.name.as_str() == CHECKED { "NAME" } else { about.name.as_str() });
    let named = why.map_texts(|text| text.replace(&format!("[{KIND}.{}]", about.name), &section));
    named.for_operator() + &flag
}

fn find_service(policy: &Policy, name: &str) -> Result<Arc<OpenApiService>> {
    let found = policy.openapi_service(name).cloned();
    found.ok_or_else(|| host_failure(anyhow!("the policy has lost [openapi.{name}]")))
}

/// An absolute path, or a URL as it is.
fn document_address(text: &str) -> anyhow::Result<String> {
    if text.contains("://") {
        return Ok(text.to_owned());
    }
    let path = Path::new(text).canonicalize().with_context(|| format!("`{text}`"))?;
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| anyhow!("`{text}`: a policy is UTF-8, and this path is not"))
}

fn service_table(address: &str, document: &DocumentArgs) -> Result<Table> {
    let mut table = Table::new();
    table.insert("document", value(address));
    if let Some(server) = &document.server {
        table.insert("server", value(server));
    }
    let lists = [
        ("include", &document.include),
        ("exclude", &document.exclude),
        ("net_private", &document.net_private),
    ];
    for (key, lines) in lists.into_iter().filter(|(_, lines)| !lines.is_empty()) {
        table.insert(key, value(lines.iter().collect::<Array>()));
    }
    policy_edit::put_route(&mut table, document.ca.as_deref(), document.proxy.as_deref())?;
    let mut secrets = InlineTable::new();
    for (scheme, secret) in &document.secret {
        secrets.insert(scheme.as_str(), secret.into());
    }
    if !secrets.is_empty() {
        table.insert("secrets", value(secrets));
    }
    Ok(table)
}

/// The server that a document names.
fn server_of(document: &str, url: Option<&str>, address: &str) -> Result<String> {
    let parsed = toolbay_openapi::OpenApiDocument::parse(document).map_err(|e| e.to_string());
    parsed.and_then(|parsed| parsed.server(url)).map_err(|why| anyhow!("`{address}`: {why}"))
}

/// Adds the headers of the command line to a section. Returns the secrets to write with it.
fn header_table(
    name: &str,
    document: &DocumentArgs,
    section: &mut Table,
    server: impl FnOnce() -> Result<String>,
) -> Result<Option<NewSecrets>> {
    if document.header.is_empty() {
        return Ok(None);
    }
    let server = document.server.clone().map_or_else(server, Ok)?;
    let mut secrets = NewSecrets::new(KIND, name, SecretReceiver::of_url(&server)?);
    let mut headers = InlineTable::new();
    for (header, rest) in &document.header {
        let (prefix, secret) = split_prefix(rest);
        let lower = header.to_ascii_lowercase();
        let mut line = InlineTable::new();
        line.insert("secret", secrets.reference(&lower, secret, Some(&lower)).into());
        if !prefix.is_empty() {
            line.insert("prefix", prefix.into());
        }
        headers.insert(header.as_str(), line.into());
    }
    section.insert("headers", value(headers));
    Ok(Some(secrets))
}

/// Splits `Token env:KEY` into the prefix with its space, and the secret. The path of a file may have spaces.
fn split_prefix(text: &str) -> (&str, &str) {
    let starts = text.match_indices(' ').map(|(at, _)| at + 1);
    let mut starts = std::iter::once(0).chain(starts);
    let is_source = |at: &usize| text.get(*at..).is_some_and(new_secrets::is_source);
    let at = starts.find(is_source).or_else(|| text.rfind(' ').map(|at| at + 1)).unwrap_or(0);
    text.split_at_checked(at).unwrap_or(("", text))
}

/// The sections as the policy would contain them.
fn shown_sections(name: &str, section: &Table, secrets: &Option<NewSecrets>) -> Result<String> {
    let mut alone: DocumentMut = with_section("", name, section.clone())?.parse()?;
    secrets.clone().into_iter().try_for_each(|secrets| secrets.write(&mut alone))?;
    Ok(alone.to_string())
}

/// The lines of a text that are not empty.
pub(super) fn policy_lines(section: &str) -> Vec<&str> {
    section.lines().filter(|line| !line.trim().is_empty()).collect()
}

/// Removes a service and the secrets that `add` wrote. Returns the text and what was removed, if there was a service.
pub(super) fn without_service(text: &str, name: &str) -> Result<(String, Option<String>)> {
    let (without, taken) = policy_edit::without_section(text, KIND, name)?;
    let Some(mut taken) = taken else { return Ok((without, None)) };
    let mut document = policy_edit::parse(&without)?;
    for secret in new_secrets::remove(&mut document, KIND, name) {
        taken = format!("{taken}\n{secret}");
    }
    Ok((document.to_string(), Some(taken)))
}

fn with_section(text: &str, name: &str, section: Table) -> Result<String> {
    policy_edit::with_section(text, KIND, name, section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_before_the_secret_is_its_prefix() {
        for (text, expected) in [
            ("KEY", ("", "KEY")),
            ("env:KEY", ("", "env:KEY")),
            ("Token env:KEY", ("Token ", "env:KEY")),
            ("Token KEY", ("Token ", "KEY")),
            ("file:/a folder/key", ("", "file:/a folder/key")),
            ("Token file:/a folder/key", ("Token ", "file:/a folder/key")),
            ("", ("", "")),
        ] {
            assert_eq!(split_prefix(text), expected, "{text}");
        }
    }
}
