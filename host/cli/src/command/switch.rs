//! `toolbay enable` and `toolbay disable`.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use toolbay::Host;
use toolbay_core::registry::{Catalog, Tags, Unknown};
use toolbay_policy::similar::{did_you_mean, similar};
use toolbay_policy::text::one_line;

use crate::command::args::{SetupArgs, SwitchArgs};
use crate::command::setup::{self, Purpose, Tell};
use crate::{Verdict, output};

/// Longest name that an error repeats, in characters.
const MAX_NAME: usize = 100;

/// Switches tools off.
pub(crate) async fn disable(args: &SetupArgs, which: &SwitchArgs, reason: &str) -> Result<Verdict> {
    change(args, |host| {
        let registry = host.registry();
        for tool in &which.tools {
            registry.disable(tool, reason)?;
        }
        for namespace in &which.namespace {
            registry.disable_namespace(namespace, reason)?;
        }
        if !which.tag.is_empty() {
            registry.disable_tagged(tags(which), reason)?;
        }
        Ok(())
    })
    .await
}

/// Switches tools on.
pub(crate) async fn enable(args: &SetupArgs, which: &SwitchArgs) -> Result<Verdict> {
    change(args, |host| {
        let registry = host.registry();
        for namespace in &which.namespace {
            registry.enable_namespace(namespace)?;
        }
        if !which.tag.is_empty() {
            registry.enable_tagged(tags(which))?;
        }
        for tool in &which.tools {
            if let Some(reason) = registry.enable(tool)? {
                output::note(&format!("`{tool}` is still off, with its namespace: {reason}"));
            }
        }
        Ok(())
    })
    .await
}

fn tags(which: &SwitchArgs) -> Tags<'_> {
    if which.all_tags { Tags::All(&which.tag) } else { Tags::Any(&which.tag) }
}

/// Changes what is switched off: all that was asked for, or, where a name is unknown, nothing.
async fn change(args: &SetupArgs, edit: impl FnOnce(&Host) -> Result<(), Unknown>) -> Result<Verdict> {
    let host = setup::loaded(args, Tell::Problems, Purpose::Look).await?;
    let (before, after) = setup::switches(args)?
        .update(|switches| {
            // Somebody else may have switched meanwhile.
            host.registry().set_switches(switches);
            let before = host.registry().snapshot();
            edit(&host).map_err(|unknown| explained(&unknown, &before))?;
            let after = host.registry().snapshot();
            *switches = after.settings().switches();
            Ok((before, after))
        })
        .map_err(|Refused(text)| anyhow!(text))?;
    tell(&before, &after);
    Ok(Verdict::Good)
}

struct Refused(String);

impl From<String> for Refused {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// Says what is unknown, and what may have been meant.
fn explained(unknown: &Unknown, catalog: &Catalog) -> Refused {
    let known: BTreeSet<&str> = match unknown.what {
        "namespace" => catalog.namespaces(),
        "tag" => catalog.tools().flat_map(|entry| entry.tags()).map(|tag| &**tag).collect(),
        _ => catalog.tools().map(|entry| entry.def.name.as_str()).collect(),
    };
    let near = similar(&unknown.name, known);
    let said = match unknown.what {
        "tool" => format!("Unknown tool: {}", one_line(&unknown.name, MAX_NAME)),
        _ => unknown.to_string(),
    };
    if near.is_empty() {
        return Refused(format!("{said}; see them with `toolbay status`"));
    }
    Refused(format!("{said}{}", did_you_mean(&near)))
}

/// Names what is on or off now and was not before.
fn tell(before: &Catalog, after: &Catalog) {
    let off = |catalog: &Catalog, name: &str| {
        catalog.get(name).and_then(|entry| entry.availability.disabled.clone())
    };
    let mut changed = false;
    for entry in after.tools() {
        let name = entry.def.name.as_str();
        let (was, is): (Option<Arc<str>>, _) = (off(before, name), off(after, name));
        changed |= was != is;
        match is {
            Some(reason) if was.as_ref() != Some(&reason) => {
                output::note(&format!("`{name}` is off: {reason}"));
            }
            None if was.is_some() => output::note(&format!("`{name}` is on")),
            Some(_) | None => {}
        }
    }
    if !changed {
        output::note("nothing changed");
    }
}
