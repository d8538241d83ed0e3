//! `toolbay build`.

use std::io::Write;

use anyhow::Context;

use super::language::Profile;
use super::place;
use super::project::Project;
use crate::args::{BuildArgs, SetupArgs};
use crate::output::{self, HEAD};
use crate::{Stop, Verdict};

pub(crate) fn run(setup: &SetupArgs, args: &BuildArgs) -> Result<Verdict, Stop> {
    let project = Project::find(args.project.as_deref())?;
    let profile = if args.release { Profile::Release } else { Profile::Dev };
    let Some(component) = project.language.build(&project, profile)? else {
        output::complain("it does not compile: mend what is said above; what was built before stays");
        return Ok(Verdict::Bad);
    };
    let shown = component.file.display();
    let bytes =
        component.file.metadata().with_context(|| format!("`{shown}` is gone")).map_err(Stop::Host)?.len();
    writeln!(
        output::out(),
        "{HEAD}{}{HEAD:#}: {} KiB ({bytes} bytes), {shown}",
        component.id,
        bytes.div_ceil(1024)
    )?;
    if !args.no_place {
        let placed = place::put(setup, &project, &component, args.replace)?;
        output::note(&format!("placed as {}", placed.display()));
    }
    Ok(Verdict::Good)
}
