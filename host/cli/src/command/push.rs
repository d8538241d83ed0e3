//! `toolbay push`: a component into a registry, as the artifact that WebAssembly tools expect. The same file gives the same
//! digest. A tag that leads to another component is not moved.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use serde_json::json;
use toolbay::{MAX_COMPONENT_BYTES, PluginAbout, read_regular};
use toolbay_distribution::digest::BlobDigest;
use toolbay_distribution::lock::Signer;
use toolbay_distribution::pack::{ComponentArtifact, ComponentFacts};
use toolbay_distribution::reference::Reference;
use toolbay_distribution::registry::{PushOutcome, RegistryAccess, RegistryClient};
use toolbay_distribution::signature::key::PrivateKey;
use toolbay_distribution::signature::{self, AcceptedSigners, MAX_BUNDLE};

use crate::args::PushArgs;
use crate::author::component::ComponentParts;
use crate::output::{self, CommandError, CommandStatus, format, host_failure};
use crate::setup::{self, SetupArgs, locked};

pub(crate) async fn run(args: &SetupArgs, options: &PushArgs) -> Result<CommandStatus> {
    let reference: Reference = options.reference.parse().map_err(anyhow::Error::msg)?;
    let file = options.file.as_path();
    let key = options.sign.as_deref().map(read_key).transpose()?;
    let bundle = options.bundle.as_deref().map(read_bundle).transpose()?;
    let policy = setup::policy(args)?;
    let plugin = file.to_str().with_context(|| format!("`{}` is not UTF-8", file.display()))?;
    let loaded = setup::load_plugin(args, policy.names_only(), plugin).await?;
    let (_, info) =
        loaded.map_err(|problem| CommandError::new("not_loadable", format!("`{plugin}`: {problem}")))?;
    let path = info.file.as_deref().unwrap_or(file);
    let bytes = read_regular(path, MAX_COMPONENT_BYTES).with_context(|| format!("`{}`", path.display()))?;
    if *BlobDigest::of(&bytes).hex() != *info.digest {
        let why =
            format!("`{plugin}`: the `plugin.toml` beside it is not part of the file, and would be missing");
        return Err(CommandError::new("not_packed", why).into());
    }
    let parts = ComponentParts::parse(&bytes)?;
    let size = bytes.len() as u64;
    let artifact = ComponentArtifact::new(bytes.into(), &facts(path, info.about.as_ref(), parts)?);
    if let Some(bundle) = &bundle {
        let checked = signature::check_subject(bundle, &artifact.digest);
        checked.map_err(|why| CommandError::new("other_subject", format!("`--bundle`: {why}")))?;
    }
    let outcome = if options.dry_run {
        None
    } else {
        let client = locked::client(&policy, &reference, RegistryAccess::Push)?;
        let outcome = client.push(&artifact).await.map_err(locked::registry_error)?;
        if let Some(key) = &key {
            let own = AcceptedSigners { keys: vec![key.public().clone()], keyless: None };
            let is_own = |found: &[u8]| signature::verify(found, &artifact.digest, &own).is_ok();
            let signed = signature::sign(key, &artifact.digest).map_err(host_failure)?;
            add_signature(&client, &artifact, &signed, is_own).await?;
        }
        if let Some(bundle) = &bundle {
            add_signature(&client, &artifact, bundle, |found| found == bundle.as_slice()).await?;
        }
        Some(outcome)
    };
    let signer = key.map(|key| Signer::Key(key.public().id()));
    let status = match outcome {
        None => "not pushed",
        Some(PushOutcome::Pushed) => "pushed",
        Some(PushOutcome::Unchanged) => "unchanged",
    };
    if args.printer.is_json() {
        let digest = &artifact.digest;
        return Ok(output::print_json(
            &json!({"reference": reference.to_string(), "manifest": digest, "bytes": size, "status": status,
                "signer": signer}),
        )?);
    }
    args.printer.note(&format!("{status}: {}", format::size(size)));
    if let Some(signer) = signer.filter(|_| !options.dry_run) {
        args.printer.note(&format!("signed by {signer}"));
    }
    writeln!(output::stdout(), "{reference}@{}", artifact.digest)?;
    Ok(CommandStatus::Success)
}

fn read_key(file: &Path) -> Result<PrivateKey> {
    PrivateKey::read(file).map_err(|why| anyhow!("`{}`: {why}", file.display()))
}

fn read_bundle(file: &Path) -> Result<Vec<u8>> {
    read_regular(file, MAX_BUNDLE as u64).with_context(|| format!("`{}`", file.display()))
}

/// Uploads a signature, unless `is_it` finds it among those in the registry.
async fn add_signature(
    client: &RegistryClient,
    artifact: &ComponentArtifact,
    bundle: &[u8],
    is_it: impl Fn(&[u8]) -> bool,
) -> Result<()> {
    let found = client.signatures(&artifact.digest).await.map_err(locked::registry_error)?;
    if found.found.iter().any(|one| is_it(&one.bytes)) {
        return Ok(());
    }
    let manifest = (&artifact.digest, artifact.manifest.len());
    client.push_signature(manifest, bundle).await.map_err(locked::registry_error)
}

/// What the artifact says about the component: what its own metadata say.
fn facts(path: &Path, about: Option<&PluginAbout>, parts: ComponentParts) -> Result<ComponentFacts> {
    let title = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut annotations = BTreeMap::new();
    let mut annotate = |key: &str, value: Option<&String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            annotations.insert(format!("org.opencontainers.image.{key}"), value.clone());
        }
    };
    annotate("version", about.map(|about| &about.version));
    annotate("description", about.and_then(|about| about.description.as_ref()));
    annotate("licenses", about.and_then(|about| about.license.as_ref()));
    annotate("authors", about.and_then(|about| about.authors.as_ref()));
    annotate("url", about.and_then(|about| about.homepage.as_ref()));
    annotate("source", about.and_then(|about| about.source.as_ref()));
    Ok(ComponentFacts {
        title,
        created: created()?,
        author: about.and_then(|about| about.authors.clone()),
        imports: parts.imports,
        exports: parts.exports,
        annotations,
    })
}

/// The time of the artifact: `SOURCE_DATE_EPOCH` (reproducible-builds.org), or 1970.
fn created() -> Result<String> {
    let seconds = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text.parse::<i64>().context("SOURCE_DATE_EPOCH is not a number of seconds")?,
        Err(_) => 0,
    };
    let time = chrono::DateTime::from_timestamp(seconds, 0).context("SOURCE_DATE_EPOCH is too large")?;
    Ok(time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))
}
