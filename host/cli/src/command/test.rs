//! `toolbay test`: the project's own tests, then the examples of its tools against the built component.

use anyhow::Result;

use crate::args::TestArgs;
use crate::author::examples;
use crate::author::language::BuildProfile;
use crate::author::project::Project;
use crate::output::{CommandError, CommandStatus};
use crate::setup::SetupArgs;

pub(crate) async fn run(setup: &SetupArgs, args: &TestArgs) -> Result<CommandStatus> {
    let project = Project::find(setup.printer, args.project.folder.as_deref())?;
    if !args.examples && !project.language.test(&project)? {
        let text = "a test of the project failed; the examples did not run";
        return Err(CommandError::new("test_failed", text).into());
    }
    let profile = if args.release { BuildProfile::Release } else { BuildProfile::Dev };
    let Some(component) = project.language.build(&project, profile)? else {
        return Err(CommandError::new("build_failed", "the build failed").into());
    };
    examples::run(setup, &project, &component).await
}
