//! `toolbay build`: what was built is loaded once before it takes a place, so that nothing broken replaces what works.

use std::io::Write;

use anyhow::{Context, Result};

use super::install;
use super::language::Profile;
use super::project::{Component, Project};
use crate::author::args::BuildArgs;
use crate::command::args::SetupArgs;
use crate::command::setup::{self, PolicyFile, Purpose};
use crate::output::{self, HEAD};
use crate::{Verdict, host_failed};

pub(crate) async fn run(setup: &SetupArgs, args: &BuildArgs) -> Result<Verdict> {
    let project = Project::find(args.project.as_deref())?;
    let profile = if args.release { Profile::Release } else { Profile::Dev };
    let Some(component) = project.language.build(&project, profile)? else {
        output::complain("it does not compile: mend what is said above; what was built before stays");
        return Ok(Verdict::Bad);
    };
    let shown = component.file.display();
    let bytes =
        component.file.metadata().with_context(|| format!("`{shown}` is gone")).map_err(host_failed)?.len();
    writeln!(
        output::out(),
        "{HEAD}{}{HEAD:#}: {} KiB ({bytes} bytes), {shown}",
        component.id,
        bytes.div_ceil(1024)
    )?;
    if !args.no_install {
        if let Err(problem) = loads(setup, &component).await? {
            output::complain(&format!("it is not placed, and what was there before stays: {problem}"));
            return Ok(Verdict::Bad);
        }
        let placed = install::install(setup, &project, &component, args.replace)?;
        output::note(&format!("placed as {}", placed.display()));
    }
    Ok(Verdict::Good)
}

/// Whether a host takes the component, under a policy that grants nothing; or why not.
async fn loads(setup: &SetupArgs, component: &Component) -> Result<Result<(), String>> {
    let nothing = PolicyFile::of_text(setup, "version = 1".to_owned())?.policy()?;
    let host = setup::host_for(setup, nothing, Purpose::Look)?;
    let loaded = host.load_file(component.id.clone(), &component.file).await;
    Ok(loaded.map(drop).map_err(|error| error.to_string()))
}
