//! `toolbay dev`: builds when a source changes, and shows what becomes of it and who calls it.
//!
//! It serves nothing itself: a `toolbay serve` or `toolbay call` of the same user runs the plugin, and takes the new
//! component out of the plugin directory as it takes any other. The calls that are shown are those of the audit.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use toolbay::{Host, WatchOptions, Watched};
use toolbay_core::registry::event::Event;
use toolbay_policy::text::visible;

use super::build;
use super::project::Project;
use crate::author::args::{BuildArgs, DevArgs};
use crate::command::LiveCalls;
use crate::command::args::SetupArgs;
use crate::command::setup::{self, Purpose};
use crate::output;
use crate::{Verdict, host_failed};

/// How long a source must have been the same before it is built: an editor writes in several steps.
const SETTLE: Duration = Duration::from_millis(100);
/// How often the sources are looked at without a hint, and the audit.
const LOOK: Duration = Duration::from_millis(500);
/// Folders that hold what is made, not what is written.
const MADE: [&str; 4] = ["target", "node_modules", "dist", "__pycache__"];
/// Most files that are watched: a project is not a disk.
const MAX_FILES: usize = 2000;

pub(crate) async fn run(setup: &SetupArgs, args: &DevArgs) -> Result<Verdict> {
    let project = Project::find(args.project.as_deref())?;
    let host = setup::host(setup, Purpose::Look)?;
    let mut calls = LiveCalls::new(setup)?;
    let mut events = host.events().stream();
    loop {
        // Before it is built: what changes from here on is built again.
        let changed = Arc::new(Notify::new());
        let files = sources(&project.folder)?;
        let watched = files.into_iter().map(|file| {
            let changed = Arc::clone(&changed);
            Watched::file(file, move |_| changed.notify_one())
        });
        let files = watched.collect();
        build_once(setup, &project, args.release).await?;
        let options = WatchOptions { settle: SETTLE, poll: LOOK, files };
        let _watch = host.watch(&setup::plugin_place(setup)?, options).await;
        loop {
            tokio::select! {
                () = changed.notified() => break,
                _ = tokio::signal::ctrl_c() => return Ok(Verdict::Good),
                event = events.recv() => match event {
                    Ok(event) => tell(&host, &event),
                    Err(RecvError::Lagged(missed)) => output::note(&format!("{missed} events were too many to show")),
                    Err(RecvError::Closed) => return Ok(Verdict::Good),
                },
                () = tokio::time::sleep(LOOK) => calls.show()?,
            }
        }
    }
}

/// Builds and places the component; what is wrong with it is said, and the next change is waited for.
async fn build_once(setup: &SetupArgs, project: &Project, release: bool) -> Result<()> {
    let args =
        BuildArgs { project: Some(project.folder.clone()), release, no_install: false, replace: false };
    let (setup, runtime) = (setup.clone(), Handle::current());
    // A compiler runs in it, for which no async thread is to wait.
    let built = tokio::task::spawn_blocking(move || runtime.block_on(build::run(&setup, &args))).await;
    built.map_err(|error| host_failed(anyhow!(error)))?.map(drop)
}

/// What the component became in the host.
fn tell(host: &Host, event: &Event) {
    match event {
        Event::Registered { tools, source } => output::note(&format!("{source}: {} tools", tools.len())),
        Event::Replaced { tools, source, diff } => {
            output::note(&format!("{source}: {} tools", tools.len()));
            for change in diff.changes() {
                output::note(&format!("  {} {}", change.tool, visible(&change.what)));
            }
        }
        Event::Unregistered { source, .. } => output::note(&format!("{source} is gone")),
        Event::NotLoaded { file, problem, .. } => output::complain(&format!("{file}: {}", visible(problem))),
        Event::Held { plugin, reason, .. } => output::complain(&format!("{plugin}: {}", visible(reason))),
        other => tracing::debug!(?other, plugins = host.plugins().len(), "told"),
    }
}

/// The files that are written by hand, and the folders with them: a new file is a change of its folder. What a build
/// itself writes (the lock file, and so the project's own folder) is not among them.
fn sources(project: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![project.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)?.filter_map(Result::ok) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let made = name.starts_with('.') || name.ends_with(".lock") || MADE.contains(&name.as_str());
            if made {
                continue;
            }
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
            found.push(entry.path());
        }
        if found.len() > MAX_FILES {
            bail!(
                "`{}` has more than {MAX_FILES} files; name the folder of the plugin alone",
                project.display()
            );
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_no_source() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["src/lib.rs", "Cargo.toml", "Cargo.lock", "target/x.wasm", ".git/HEAD", "tests/a.txt"] {
            let file = dir.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        let found = sources(dir.path()).unwrap();
        let mut found: Vec<_> = found.iter().map(|file| file.strip_prefix(dir.path()).unwrap()).collect();
        found.sort();
        assert_eq!(found, ["Cargo.toml", "src", "src/lib.rs", "tests", "tests/a.txt"].map(Path::new));
    }
}
