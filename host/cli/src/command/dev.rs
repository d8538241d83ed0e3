//! `toolbay dev`: builds when a source changes, and shows the changes and the calls.
//!
//! It serves nothing itself. A `toolbay serve` or `toolbay call` of the same user loads the new component from the
//! plugin directory. The calls come from the audit.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use toolbay::{Host, WatchOptions, WatchedFile};
use toolbay_core::registry::event::HostEvent;
use toolbay_policy::hidden_chars::escape_hidden;

use super::build;
use super::log::LiveCalls;
use crate::args::{BuildArgs, DevArgs, ProjectArgs};
use crate::author::project::Project;
use crate::output::{CommandError, CommandStatus, Printer, count_noun, run_blocking};
use crate::setup::{self, HostPurpose, SetupArgs};

/// How long a source must be unchanged before a build: an editor writes in several steps.
const SETTLE: Duration = Duration::from_millis(100);
/// How often the sources are polled without a notification, and the audit.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Folders of generated files.
const GENERATED: [&str; 4] = ["target", "node_modules", "dist", "__pycache__"];
/// Most watched files. More means that the folder is not one project.
const MAX_FILES: usize = 2000;

pub(crate) async fn run(setup: &SetupArgs, args: &DevArgs) -> Result<CommandStatus> {
    let project = Project::find(setup.printer, args.project.folder.as_deref())?;
    let host = setup::host(setup, HostPurpose::Inspect)?;
    let mut calls = LiveCalls::new(setup)?;
    let mut events = host.events().stream();
    loop {
        // Watched before the build, so that a change during it starts another one.
        let changed = Arc::new(Notify::new());
        let files = sources(&project.folder)?;
        let watched = files.into_iter().map(|file| {
            let changed = Arc::clone(&changed);
            WatchedFile::file(file, move |_| changed.notify_one())
        });
        let files = watched.collect();
        build_once(setup, &project, args.release).await?;
        let options = WatchOptions { settle: SETTLE, poll: POLL_INTERVAL, files };
        let _watch = host.watch(&setup::plugin_folder(setup)?, options).await;
        loop {
            tokio::select! {
                () = changed.notified() => break,
                _ = tokio::signal::ctrl_c() => return Ok(CommandStatus::Success),
                event = events.recv() => match event {
                    Ok(event) => report_event(setup.printer, &host, &event),
                    Err(RecvError::Lagged(missed)) => setup.printer.note(&format!("{missed} events were skipped")),
                    Err(RecvError::Closed) => return Ok(CommandStatus::Success),
                },
                () = tokio::time::sleep(POLL_INTERVAL) => calls.show()?,
            }
        }
    }
}

/// Builds and installs the component. A failure is reported, and `dev` waits for the next change.
async fn build_once(setup: &SetupArgs, project: &Project, release: bool) -> Result<()> {
    let args = BuildArgs {
        project: ProjectArgs { folder: Some(project.folder.clone()) },
        release,
        no_install: false,
        replace: false,
    };
    let (printer, setup, runtime) = (setup.printer, setup.clone(), Handle::current());
    // A compiler runs inside, which must not block an async thread.
    match run_blocking(move || runtime.block_on(build::run(&setup, &args))).await? {
        Ok(_) => Ok(()),
        Err(error) => error.downcast::<CommandError>().map(|failed| failed.print(printer)),
    }
}

/// Reports what the host made of the component.
fn report_event(printer: Printer, host: &Host, event: &HostEvent) {
    match event {
        HostEvent::Registered { tools, source } => {
            printer.note(&format!("{source}: {}", count_noun(tools.len(), "tool", "tools")));
        }
        HostEvent::Replaced { tools, source, diff } => {
            printer.note(&format!("{source}: {}", count_noun(tools.len(), "tool", "tools")));
            for change in diff.changes() {
                printer.note(&format!("  {} {}", change.tool, escape_hidden(&change.what)));
            }
        }
        HostEvent::Unregistered { source, .. } => printer.note(&format!("{source} is gone")),
        HostEvent::NotLoaded { file, problem, .. } => {
            printer.error(&format!("{file}: {}", escape_hidden(problem)));
        }
        HostEvent::ConsentRequired { plugin, reason, .. } => {
            printer.error(&format!("{plugin}: {}", escape_hidden(reason)));
        }
        other => tracing::debug!(
            ?other,
            plugins = host.plugins().len(),
            "an event that the terminal does not show"
        ),
    }
}

/// The source files and their folders: a new file changes its folder. Files that a build writes are left out: the lock
/// file, and therefore the project's own folder.
fn sources(project: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![project.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)?.filter_map(Result::ok) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_generated =
                name.starts_with('.') || name.ends_with(".lock") || GENERATED.contains(&name.as_str());
            if is_generated {
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
    fn generated_files_are_not_sources() {
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
