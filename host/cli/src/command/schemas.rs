//! `toolbay schemas`: the definitions of tools in a vendor's format.

use std::sync::Arc;

use anyhow::{Result, bail};
use serde_json::json;
use toolbay::View;
use toolbay_core::registry::Entry;
use toolbay_core::tool::content::ToolError;
use toolbay_policy::refusal::for_operator;
use toolbay_policy::text::one_line;
use toolbay_vendor::{Definitions, Vendor, definitions};

use crate::command::args::{SchemasArgs, SetupArgs};
use crate::command::setup::{self, Purpose, Tell};
use crate::{Verdict, output};

pub(crate) async fn run(args: &SetupArgs, asked: &SchemasArgs) -> Result<Verdict> {
    let vendor = asked.format;
    if asked.strict && matches!(vendor, Vendor::Gemini | Vendor::Mcp) {
        bail!("--strict: there is no strict mode in the format {}", vendor.as_str());
    }
    let host = setup::loaded(args, Tell::Warnings, Purpose::Look).await?;
    let view = super::view_with_servers(args, &host).await?;
    let Some(tools) = chosen(&view, &asked.tools) else { return Ok(Verdict::Bad) };
    let made = definitions(vendor, tools.iter().map(|entry| &*entry.def), asked.strict);
    if asked.report {
        let report = json!({"tools": made.tools, "lost": made.lost, "not_strict": made.not_strict});
        output::print_json(&report)?;
    } else {
        output::print_json(&made.tools)?;
        tell(&made);
    }
    Ok(Verdict::Good)
}

/// The tools of these names, or all of the first list; nothing if one of them is not there.
fn chosen(view: &View, names: &[String]) -> Option<Vec<Arc<Entry>>> {
    if names.is_empty() {
        return Some(view.definitions().cloned().collect());
    }
    let find = |name: &String| {
        let complain =
            |error: ToolError| output::complain(&for_operator(&error.message, error.hint.as_deref()));
        view.find(name).map_err(complain).ok().cloned()
    };
    // All that is wrong is told, not the first only.
    let found: Vec<Option<Arc<Entry>>> = names.iter().map(find).collect();
    found.into_iter().collect()
}

fn tell(made: &Definitions) {
    for loss in &made.lost {
        let (pointer, what) = (one_line(&loss.pointer, 120), &loss.what);
        output::note(&format!("{}: `{pointer}`: {what}", loss.tool));
    }
    for tool in &made.not_strict {
        output::note(&format!("{tool}: not strict, which would say something else than its schema"));
    }
}
