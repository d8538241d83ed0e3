//! `toolbay build`: a component is loaded once before it is installed, so that a broken one does not replace a working
//! one.

use std::io::Write;

use anyhow::{Context, Result};
use serde_json::json;

use crate::args::BuildArgs;
use crate::author::language::BuildProfile;
use crate::author::project::{BuiltComponent, Project};
use crate::author::{install, lint};
use crate::output::{self, CommandError, CommandStatus, HEADING, format, host_failure};
use crate::setup::{self, PolicyFile, SetupArgs};

pub(crate) async fn run(setup: &SetupArgs, args: &BuildArgs) -> Result<CommandStatus> {
    let project = Project::find(setup.printer, args.project.folder.as_deref())?;
    let profile = if args.release { BuildProfile::Release } else { BuildProfile::Dev };
    let Some(component) = project.language.build(&project, profile)? else {
        return Err(CommandError::new("build_failed", "the build failed; the installed plugin stays").into());
    };
    let shown = component.file.display();
    let bytes =
        component.file.metadata().with_context(|| format!("`{shown}` is gone")).map_err(host_failure)?.len();
    if !setup.printer.is_json() {
        writeln!(output::stdout(), "{HEADING}{}{HEADING:#}: {}, {shown}", component.id, format::size(bytes))?;
    }
    let mut installed = None;
    if !args.no_install {
        match check_loads(setup, &component).await? {
            Ok(warnings) => warnings.iter().for_each(|warning| setup.printer.warning(warning)),
            Err(problem) => {
                let text = format!("the component does not load and is not installed: {problem}");
                return Err(CommandError::new("invalid_component", text).into());
            }
        }
        let placed = install::install(setup, &project, &component, args.replace)?;
        setup.printer.note(&format!("installed as `{}`", placed.display()));
        installed = Some(placed);
    }
    if setup.printer.is_json() {
        output::print_json(&json!({
            "plugin": component.id.as_str(),
            "file": component.file,
            "bytes": bytes,
            "installed": installed,
        }))?;
    }
    Ok(CommandStatus::Success)
}

/// Loads the component under a policy that grants nothing. Returns warnings about its tools, or why it does not load.
async fn check_loads(setup: &SetupArgs, component: &BuiltComponent) -> Result<Result<Vec<String>, String>> {
    let nothing = PolicyFile::from_text(setup, "version = 1".to_owned())?.policy()?;
    let host = component.host(setup, nothing)?;
    let loaded = host.load_file(component.id.clone(), &component.file).await;
    let tools = setup::tools(&host, &component.id);
    let warnings = tools.iter().filter_map(|entry| lint::undescribed_arguments(&entry.def)).collect();
    Ok(loaded.map(|_| warnings).map_err(|error| error.to_string()))
}
