//! `toolbay add`: a plugin of a registry into the lock. It gets no grants; `toolbay grant` gives them.
//!
//! The reference is resolved once, to a digest. What that digest names is downloaded, loaded without running a tool, and
//! shown. Then the lock pins it.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use toolbay::{Host, PluginId, PluginInfo};
use toolbay_distribution::lock::{self, LockError, LockedPlugin, LockedPlugins, Signer};
use toolbay_distribution::reference::Reference;
use toolbay_distribution::registry::RegistryAccess;
use toolbay_policy::text::escape_hidden;

use crate::CommandStatus;
use crate::command::args::{AddPluginArgs, SetupArgs};
use crate::command::locked::{self, LockPaths};
use crate::command::setup::{self, HostPurpose};
use crate::command::trust::TrustDecision;
use crate::command::version_diff::{DiffReport, PluginVersion};
use crate::host_failure;
use crate::output::error::CommandError;
use crate::output::format;
use crate::output::table::{Cell, TextTable};
use crate::output::{self, DIM, HEADING, NAME};

/// Spaces before the lines below a heading.
const INDENT: usize = 2;

pub(crate) async fn run(args: &SetupArgs, asked: &AddPluginArgs) -> Result<CommandStatus> {
    let reference: Reference = asked.reference.parse().map_err(anyhow::Error::msg)?;
    let id = match &asked.id {
        Some(id) => id.clone(),
        None => {
            let name = reference.repository.rsplit('/').next().unwrap_or_default();
            PluginId::new(name).with_context(|| format!("`{name}`: name another id with `--as ID`"))?
        }
    };
    let (paths, policy) = (LockPaths::find(args)?, setup::policy(args)?);
    let trust = TrustDecision::find(&policy, &reference)?;
    trust.check_flag(&reference, asked.unsigned)?;
    let plugins = setup::plugin_folder(args)?;
    check_free(&plugins, &id, &paths.read()?, None, asked.replace)?;
    let client = locked::client(&policy, &reference, RegistryAccess::Pull)?;
    let found = client.resolve().await.map_err(locked::registry_error)?;
    let signature = trust.verify(&client, &reference, &found.digest).await?;
    let (signer, bundle) = match signature {
        Some((signer, bundle)) => (signer, Some(bundle)),
        None => (Signer::None, None),
    };
    let plugin = LockedPlugin {
        source: reference.source(),
        tag: reference.tag.clone(),
        manifest: found.digest,
        layer: found.manifest.layer,
        size: found.manifest.size,
        signer,
        bundle: bundle.as_ref().map(|bundle| bundle.digest.clone()),
    };
    let mut before = paths.read()?;
    check_free(&plugins, &id, &before, Some(&plugin), asked.replace)?;
    before.get(&id).map_or(Ok(()), |old| check_signer(asked, old, &plugin))?;
    locked::fetch_layer(&client, (id.as_str(), &plugin), &paths.store)
        .await
        .map_err(locked::registry_error)?;
    locked::store_bytes(&paths.store, found.bytes).await?;
    if let Some(bundle) = bundle {
        locked::store_bytes(&paths.store, bundle.bytes).await?;
    }
    let host = setup::host_for(args, policy, HostPurpose::Inspect)?;
    let loaded = host.load_file(id.clone(), &paths.store.path(&plugin.layer)).await;
    loaded.map_err(|error| CommandError::new("not_loadable", format!("`{reference}` {error}")))?;
    let info = host.plugin(id.as_str()).context("the plugin was loaded and is gone")?;
    if &*info.digest != plugin.layer.hex() {
        let why = format!("`{reference}` changed in the store while it was added");
        return Err(CommandError::new("not_loadable", why).with_help("add it again").into());
    }
    let replaced = before.remove(&id);
    if let Some(old) = replaced.as_ref().filter(|old| old.layer != plugin.layer) {
        let new = PluginVersion::of(&host, &info);
        check_changes(asked, &compare_with(args, &id, (old, &paths), &new).await?)?;
    }
    if !asked.dry_run {
        let change = LockChange { id, new: plugin.clone(), replaced, replace: asked.replace };
        let (file, wait) = (paths.lock.clone(), args.state_wait);
        let written = tokio::task::spawn_blocking(move || change.write(&file, wait, &plugins));
        written.await.map_err(host_failure)??;
    }
    report(asked, &host, &info, &plugin, &paths)?;
    Ok(CommandStatus::Success)
}

/// Refuses a version that is not signed where the locked one is, and another signer unless the operator accepts that.
fn check_signer(asked: &AddPluginArgs, old: &LockedPlugin, new: &LockedPlugin) -> Result<()> {
    if old.signer == new.signer || old.signer == Signer::None {
        return Ok(());
    }
    let (reference, signer) = (&asked.reference, &old.signer);
    if new.signer == Signer::None {
        let why =
            format!("`{reference}` is added without a signature, and {signer} signed the locked version");
        let help = "to give the signature up, remove the plugin from the lock first";
        return Err(CommandError::new("signature_lost", why).with_help(help).into());
    }
    if asked.accept_changes {
        return Ok(());
    }
    let why = format!("`{reference}` is signed by {}, and the locked version by {signer}", new.signer);
    Err(CommandError::new("changed", why).with_help("to accept the signer, write `--accept-changes`").into())
}

/// What a version changes, compared with the component of the locked one.
async fn compare_with(
    args: &SetupArgs,
    id: &PluginId,
    (old, paths): (&LockedPlugin, &LockPaths),
    new: &PluginVersion,
) -> Result<DiffReport> {
    let host = setup::host_for(args, setup::policy(args)?, HostPurpose::Inspect)?;
    let unusable = |why: &str| {
        let why = format!("the locked version of `{id}`, which the new one is compared with, {why}");
        CommandError::new("not_loadable", why).with_help("`toolbay fetch` downloads it")
    };
    let loaded = host.load_file(id.clone(), &paths.store.path(&old.layer)).await;
    loaded.map_err(|error| unusable(&error.to_string()))?;
    let info = host.plugin(id.as_str()).context("the plugin was loaded and is gone")?;
    if &*info.digest != old.layer.hex() {
        return Err(unusable("is damaged").into());
    }
    Ok(DiffReport::compare(&PluginVersion::of(&host, &info), new))
}

/// Refuses a version that asks for more, or says something else to a model, unless the operator accepts that.
fn check_changes(asked: &AddPluginArgs, changes: &DiffReport) -> Result<()> {
    if asked.accept_changes || !changes.needs_agreement() {
        return Ok(());
    }
    if !asked.json {
        changes.show()?;
    }
    let reference = &asked.reference;
    let why =
        format!("`{reference}` asks for more than the locked version, or describes its tools otherwise");
    Err(CommandError::new("changed", why).with_help("to accept the changes, write `--accept-changes`").into())
}

/// What `add` writes.
struct LockChange {
    id: PluginId,
    new: LockedPlugin,
    /// The locked version that the new one was compared with.
    replaced: Option<LockedPlugin>,
    replace: bool,
}

impl LockChange {
    /// Writes the plugin into the lock, if its id is still free. Blocks, also on other writers.
    fn write(self, file: &Path, wait: Duration, plugin_folder: &Path) -> Result<()> {
        locked::make_lock_folder(file)?;
        let edited = lock::update(file, wait, |plugins| -> Result<(), UpdateError> {
            let Self { id, new, replaced, replace } = self;
            check_free(plugin_folder, &id, plugins, Some(&new), replace)?;
            let now = plugins.get(&id);
            if now.is_some() && now != replaced.as_ref() && now != Some(&new) {
                let why = format!("another command changed `{id}` in the lock meanwhile");
                let error = CommandError::new("id_taken", why).with_help("run the command again");
                return Err(UpdateError(error.into()));
            }
            plugins.insert(id, new);
            Ok(())
        });
        edited.map_err(|UpdateError(error)| error)
    }
}

/// Why the lock was not updated.
struct UpdateError(anyhow::Error);

impl From<LockError> for UpdateError {
    fn from(error: LockError) -> Self {
        Self(locked::lock_error(error))
    }
}

impl From<anyhow::Error> for UpdateError {
    fn from(error: anyhow::Error) -> Self {
        Self(error)
    }
}

/// Checks that no other plugin has the id. `new` is the plugin, once it is known.
fn check_free(
    plugin_folder: &Path,
    id: &PluginId,
    locked: &LockedPlugins,
    new: Option<&LockedPlugin>,
    replace: bool,
) -> Result<()> {
    let taken = |why: String, help: &str| Err(CommandError::new("id_taken", why).with_help(help).into());
    let file = plugin_folder.join(format!("{id}.wasm"));
    if file.symlink_metadata().is_ok() {
        let why = format!("the plugin directory has a plugin `{id}`: `{}`", file.display());
        return taken(why, "give the new one another id with `--as ID`, or remove the file");
    }
    match (locked.get(id), new) {
        (Some(old), Some(new))
            if !replace && (&old.source, &old.manifest) != (&new.source, &new.manifest) =>
        {
            let why = format!("the lock has another `{id}`: {}@{}", old.source, old.manifest);
            taken(why, "to replace it, write `--replace`; to keep both, name an id with `--as ID`")
        }
        _ => Ok(()),
    }
}

fn report(
    asked: &AddPluginArgs,
    host: &Host,
    info: &PluginInfo,
    plugin: &LockedPlugin,
    paths: &LockPaths,
) -> Result<()> {
    let tools = super::tools(host, &info.id);
    let id = &info.id;
    if asked.json {
        let capabilities = info.capabilities.iter();
        let capabilities = capabilities
            .map(|one| json!({"kind": one.kind.as_str(), "target": one.target, "optional": one.optional}));
        output::print_json(&json!({
            "plugin": id.as_str(),
            "version": info.about.as_ref().map(|about| &about.version),
            "locked": plugin,
            "capabilities": capabilities.collect::<Vec<_>>(),
            "tools": tools.iter().map(|entry| entry.def.name.as_str()).collect::<Vec<_>>(),
            "lock": paths.lock,
            "added": !asked.dry_run,
        }))?;
        return Ok(());
    }
    let version = info.about.as_ref().map_or("", |about| about.version.as_str());
    let title = format!("{id} {}", escape_hidden(version));
    writeln!(output::stdout(), "{HEADING}{}{HEADING:#}", title.trim_end())?;
    origin_table(plugin).print()?;
    let mut table = TextTable::new(["ASKS FOR", "TARGET", "REASON"]).with_indent(INDENT).with_tag("asks for");
    for one in &info.capabilities {
        let reason = one.reason.as_deref().unwrap_or("no reason given");
        let target = format::declared_target(&one.target, one.optional);
        table.push([Cell::styled(NAME, one.kind.as_str()), target.into(), reason.into()]);
    }
    table.print_section()?;
    let mut table = TextTable::new(["TOOL", "DESCRIPTION"]).with_indent(INDENT).with_tag("tool");
    for entry in &tools {
        let about = toolbay_policy::text::first_sentence(&entry.def.description);
        table.push([Cell::styled(NAME, entry.def.name.as_str()), about.into()]);
    }
    table.print_section()?;
    if asked.dry_run {
        output::print_note(&format!("nothing was written to `{}`", paths.lock.display()));
        return Ok(());
    }
    output::print_note(&format!("`{id}` is locked in `{}`; it is granted nothing yet", paths.lock.display()));
    if !info.capabilities.is_empty() {
        output::print_next_step(&format!("grant what it asks for with `toolbay grant {id}`"))?;
    }
    Ok(())
}

/// Where a locked plugin comes from, and who signed it.
pub(super) fn origin_table(plugin: &LockedPlugin) -> TextTable {
    let mut table = TextTable::new(["", ""]).with_indent(INDENT);
    for (key, value) in origin_facts(plugin) {
        table.push([Cell::styled(DIM, key), value.into()]);
    }
    table
}

/// Where a locked plugin comes from, and who signed it.
pub(super) fn origin_facts(plugin: &LockedPlugin) -> [(&'static str, String); 3] {
    let tag = plugin.tag.iter().map(|tag| format!(":{tag}")).collect::<String>();
    let signer = match &plugin.signer {
        Signer::None => "none: no signature was checked".to_owned(),
        signer @ Signer::Key(_) => signer.to_string(),
    };
    [
        ("source", format!("{}{tag}", plugin.source)),
        ("manifest", plugin.manifest.to_string()),
        ("signer", signer),
    ]
}
