//! `toolbay test`: the project's own tests, then the examples of its tools against the built component.

use anyhow::Result;

use crate::author::args::TestArgs;
use crate::command::args::SetupArgs;
use crate::{CommandStatus, output};

use super::examples;
use super::language::BuildProfile;
use super::project::Project;

pub(crate) async fn run(setup: &SetupArgs, args: &TestArgs) -> Result<CommandStatus> {
    let project = Project::find(args.project.as_deref())?;
    if !args.examples && !project.language.test(&project)? {
        output::print_error("a test of the project failed; the examples did not run");
        return Ok(CommandStatus::Failed);
    }
    let profile = if args.release { BuildProfile::Release } else { BuildProfile::Dev };
    let Some(component) = project.language.build(&project, profile)? else {
        output::print_error("the build failed");
        return Ok(CommandStatus::Failed);
    };
    examples::run(setup, &project, &component).await
}
