//! `toolbay test`: the project's own tests, then the examples of its tools against the built component.

use anyhow::Result;

use crate::author::args::TestArgs;
use crate::command::args::SetupArgs;
use crate::{Verdict, output};

use super::examples;
use super::language::Profile;
use super::project::Project;

pub(crate) async fn run(setup: &SetupArgs, args: &TestArgs) -> Result<Verdict> {
    let project = Project::find(args.project.as_deref())?;
    if !args.examples && !project.language.test(&project)? {
        output::complain("a test of the project failed; its tools were not called");
        return Ok(Verdict::Bad);
    }
    let profile = if args.release { Profile::Release } else { Profile::Dev };
    let Some(component) = project.language.build(&project, profile)? else {
        output::complain("it does not compile: mend what is said above");
        return Ok(Verdict::Bad);
    };
    examples::run(setup, &project, &component).await
}
