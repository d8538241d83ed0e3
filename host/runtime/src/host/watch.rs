//! Watches plugin directories, the policy and the consents, and applies changes without a restart.
//!
//! One task scans and sleeps. A kernel hint ends the sleep early; otherwise the task scans every
//! [`WatchOptions::poll`]. There is at most one scan per half of [`WatchOptions::settle`], however many events arrive.
//! A scan costs one directory listing and one `stat` per file.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use toolbay_core::registry::event::HostEvent;
use toolbay_policy::Policy;
use toolbay_policy::capability::protected_paths::Protection;

use crate::host::Host;
use crate::plugins::directory::{PluginLocation, ScanMode};
use crate::plugins::file::{PendingChange, Stamp};
use crate::plugins::inotify::{ChangeHints, WatchedFolder};
use crate::plugins::installed::ReplanReason;

/// Minimum `settle` and `poll`: less would be a busy loop.
const MIN_SETTLE: Duration = Duration::from_millis(10);
const MIN_POLL: Duration = Duration::from_millis(100);

/// Options of [`Host::watch`].
#[derive(Debug)]
pub struct WatchOptions {
    /// How long a file must be unchanged before it is read: 300 ms by default, at least 10 ms. If it is too short, a
    /// file that is being written is loaded incomplete, and again once it is complete. A file that is renamed into
    /// place is always complete. A file that keeps changing is read after 1.5 s, or after `settle` if that is longer.
    pub settle: Duration,
    /// How often to scan without a hint: every 2 s by default, at least 100 ms. On network file systems and for files
    /// behind links, a change can go unnoticed for this long.
    pub poll: Duration,
    /// Other files to read again when they change.
    pub files: Vec<WatchedFile>,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { settle: Duration::from_millis(300), poll: Duration::from_secs(2), files: Vec::new() }
    }
}

/// A file that is read again when it changes.
pub struct WatchedFile {
    file: PathBuf,
    /// The stamp when the file was read.
    stamp: Option<Stamp>,
    /// A change that was not read yet.
    pending: Option<PendingChange>,
    action: ChangeAction,
}

enum ChangeAction {
    Policy(Arc<dyn Fn() -> Result<Policy, String> + Send + Sync>),
    Documents,
    Call(Arc<dyn Fn(&Host) + Send + Sync>),
}

impl fmt::Debug for WatchedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedFile").field("file", &self.file).finish_non_exhaustive()
    }
}

impl WatchedFile {
    /// Watches the policy file, which `read` parses. Create it before you read the policy for the first time, so that
    /// later changes are noticed. If the file is gone or invalid, the current policy stays.
    #[must_use]
    pub fn policy(
        file: impl Into<PathBuf>,
        read: impl Fn() -> Result<Policy, String> + Send + Sync + 'static,
    ) -> Self {
        Self::new(file.into(), ChangeAction::Policy(Arc::new(read)))
    }

    /// Watches an OpenAPI document of the policy. A change reloads all documents in the background. After a policy
    /// reload, the documents of the new policy are watched automatically.
    #[must_use]
    pub fn document(file: impl Into<PathBuf>) -> Self {
        Self::new(file.into(), ChangeAction::Documents)
    }

    /// Watches any other file, and calls `on_change` when it changes. `on_change` may block; other changes wait for it.
    #[must_use]
    pub fn file(file: impl Into<PathBuf>, on_change: impl Fn(&Host) + Send + Sync + 'static) -> Self {
        Self::new(file.into(), ChangeAction::Call(Arc::new(on_change)))
    }

    fn new(file: PathBuf, action: ChangeAction) -> Self {
        let stamp = Stamp::from_path(&file);
        Self { file, stamp, pending: None, action }
    }

    /// Whether the file is due to be read, and whether it is still changing.
    fn check(&mut self, now: Option<Stamp>, settle: Duration, forced: bool) -> (bool, bool) {
        if now == self.stamp {
            self.pending = None;
            return (forced && now.is_some(), false);
        }
        let time = Instant::now();
        let change = self.pending.get_or_insert_with(|| PendingChange::new(now, time));
        if !change.is_due(now, settle, time) && !forced {
            return (false, true);
        }
        (self.stamp, self.pending) = (now, None);
        (true, false)
    }
}

/// A watched directory. Dropping the handle ends the watch.
#[must_use = "dropping the handle ends the watch"]
#[derive(Debug)]
pub struct WatchHandle {
    forced: Arc<Notify>,
    _task: AbortOnDropHandle<()>,
}

impl WatchHandle {
    /// Reads the policy and every file again, even if they look unchanged. Returns at once.
    pub fn reload(&self) {
        self.forced.notify_one();
    }
}

impl Host {
    /// Watches a plugin directory, all directories that were loaded, and the consents, until the handle is dropped. The
    /// directory need not exist yet. Changes are reported by [`Host::events`] and in the log.
    ///
    /// A plugin is replaced as a whole, and running calls finish on the version they started with. Must be called in a
    /// tokio runtime with timers and I/O.
    ///
    /// ```no_run
    /// # async fn example(host: toolbay::Host) -> Result<(), Box<dyn std::error::Error>> {
    /// use toolbay::{Policy, WatchOptions, WatchedFile};
    ///
    /// let read = || {
    ///     let text = std::fs::read_to_string("/etc/agent/toolbay.toml").map_err(|e| e.to_string())?;
    ///     Policy::parse(&text, "/etc/agent".as_ref(), None).map_err(|e| e.to_string())
    /// };
    /// let policy = WatchedFile::policy("/etc/agent/toolbay.toml", read);
    /// let options = WatchOptions { files: vec![policy], ..WatchOptions::default() };
    /// let watch = host.watch("/srv/agent/plugins".as_ref(), options).await;
    /// let mut events = host.events().stream();
    /// while let Ok(event) = events.recv().await {
    ///     println!("{event:?}");
    /// }
    /// drop(watch);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn watch(&self, dir: &Path, options: WatchOptions) -> WatchHandle {
        self.installed.shared.folders.protect(dir, Protection::WriteOnly);
        self.add_location(PluginLocation::Folder(dir.to_path_buf())).await;
        self.watch_loaded(options)
    }

    /// Watches all directories that were loaded, the consents and the files of the options.
    pub(crate) fn watch_loaded(&self, options: WatchOptions) -> WatchHandle {
        let forced = Arc::new(Notify::new());
        // The task scans and sleeps until its handle is dropped.
        let task = tokio::spawn(Watcher::new(self.clone(), options).run(Arc::clone(&forced)));
        WatchHandle { forced, _task: AbortOnDropHandle::new(task) }
    }
}

impl Host {
    /// Runs one scan. Returns whether a file is still changing.
    async fn scan_when_due(self, due: PendingWork, settle: Duration) -> bool {
        if due.forced {
            self.installed.restore_unloaded();
        }
        let mode = if due.forced { ScanMode::Full } else { ScanMode::Settled(settle) };
        let why = if due.forced || due.consents_changed {
            ReplanReason::ConsentsChanged
        } else {
            ReplanReason::FilesChanged
        };
        self.scan(mode, why).await.1
    }
}

/// The state of the watch task.
struct Watcher {
    host: Host,
    settle: Duration,
    poll: Duration,
    files: Vec<WatchedFile>,
    consents: Option<(PathBuf, Option<Stamp>)>,
    hints: ChangeHints,
}

/// The work for the next scan.
#[derive(Debug, Default)]
struct PendingWork {
    scan: bool,
    /// Read every file, even if it looks unchanged.
    forced: bool,
    /// The operator may have agreed to a held plugin.
    consents_changed: bool,
    /// Read the files outside of the directories, even if they look unchanged.
    files: bool,
    /// Reload the OpenAPI documents.
    documents: bool,
}

/// Waits for the end of a scan. Returns whether a file is still changing. Never completes without a scan.
async fn wait_for_scan(scan: &mut Option<AbortOnDropHandle<bool>>) -> bool {
    let Some(task) = scan else { return std::future::pending().await };
    let pending = task.await.unwrap_or_else(|error| {
        tracing::error!(%error, "the directories could not be scanned; the loaded plugins stay");
        false
    });
    *scan = None;
    pending
}

/// A snapshot of the watched folders and files.
struct WatchSnapshot {
    folders: Vec<WatchedFolder>,
    files: Vec<Option<Stamp>>,
    consents: Option<Stamp>,
}

impl Watcher {
    fn new(host: Host, options: WatchOptions) -> Self {
        let consents = host.consents_file.clone().map(|file| {
            let stamp = Stamp::from_path(&file);
            (file, stamp)
        });
        Self {
            host,
            settle: options.settle.max(MIN_SETTLE),
            poll: options.poll.max(MIN_POLL),
            files: options.files,
            consents,
            hints: ChangeHints::default(),
        }
    }

    /// Scans and sleeps. Reading and compiling run in separate tasks, so that a policy change does not wait for them.
    async fn run(mut self, forced: Arc<Notify>) {
        let mut due = PendingWork { scan: true, ..PendingWork::default() };
        let mut scan: Option<AbortOnDropHandle<bool>> = None;
        let mut documents: Option<AbortOnDropHandle<()>> = None;
        loop {
            let moving = self.check_files(&mut due).await;
            if std::mem::take(&mut due.documents) {
                // Restarts a load in progress: a server that does not answer must not delay the others or the next
                // policy.
                let host = self.host.clone();
                let load = async move { host.openapi.load_all(&host.installed).await };
                documents = Some(AbortOnDropHandle::new(tokio::spawn(load)));
            }
            if documents.as_ref().is_some_and(AbortOnDropHandle::is_finished) {
                documents = None;
            }
            if due.scan && scan.is_none() {
                let task = self.host.clone().scan_when_due(std::mem::take(&mut due), self.settle);
                scan = Some(AbortOnDropHandle::new(tokio::spawn(task)));
            }
            // This pause merges a burst of events into one scan.
            tokio::time::sleep(self.settle / 2).await;
            tokio::select! {
                biased;
                () = forced.notified() => (due.scan, due.forced, due.files) = (true, true, true),
                pending = wait_for_scan(&mut scan) => due.scan |= pending,
                () = std::future::ready(()), if moving => {}
                () = self.hints.next() => due.scan = true,
                () = tokio::time::sleep(self.poll) => due.scan = true,
            }
        }
    }

    /// Checks the files outside of the directories and reads the changed ones. Returns whether one is still changing.
    async fn check_files(&mut self, due: &mut PendingWork) -> bool {
        let Some(snapshot) = self.snapshot().await else { return false };
        self.hints.watch(snapshot.folders);
        let forced = std::mem::take(&mut due.files);
        let mut moving = false;
        for index in 0..self.files.len() {
            let Some(file) = self.files.get_mut(index) else { continue };
            let (read, changing) =
                file.check(snapshot.files.get(index).copied().flatten(), self.settle, forced);
            moving |= changing;
            if read {
                due.documents |= self.apply_change(index, forced).await;
            }
        }
        if due.documents {
            self.watch_policy_documents();
        }
        if let Some((_, stamp)) = &mut self.consents
            && *stamp != snapshot.consents
        {
            *stamp = snapshot.consents;
            (due.scan, due.consents_changed) = (true, true);
        }
        moving
    }

    /// Watches the documents of the current policy, and no others.
    fn watch_policy_documents(&mut self) {
        let policy = self.host.policy();
        let mut named: BTreeSet<&Path> =
            policy.openapi_services().filter_map(|service| service.file()).collect();
        self.files.retain(|one| !matches!(one.action, ChangeAction::Documents) || named.remove(&*one.file));
        self.files.extend(named.into_iter().map(WatchedFile::document));
    }

    /// Takes one `stat` per file on a blocking thread. Returns `None` if the runtime shuts down.
    async fn snapshot(&self) -> Option<WatchSnapshot> {
        let files: Vec<PathBuf> = self.files.iter().map(|one| one.file.clone()).collect();
        let consents = self.consents.as_ref().map(|(file, _)| file.clone());
        let installed = Arc::clone(&self.host.installed);
        let look = tokio::task::spawn_blocking(move || {
            let above = |file: &PathBuf| file.parent().map(Path::to_path_buf);
            // A file behind a link changes in its target folder, or when the link is replaced.
            let behind = files.iter().filter_map(|file| file.canonicalize().ok());
            let named: BTreeSet<PathBuf> = installed
                .locations()
                .into_iter()
                .flat_map(|location| location.watched_folders())
                .chain(files.iter().chain(&consents).filter_map(above))
                .chain(behind.filter_map(|file| above(&file)))
                .collect();
            let place = |folder: PathBuf| {
                let there = std::fs::metadata(&folder).ok().map(|meta| (meta.dev(), meta.ino()));
                (folder, there)
            };
            WatchSnapshot {
                folders: named.into_iter().map(place).collect(),
                files: files.iter().map(|file| Stamp::from_path(file)).collect(),
                consents: consents.as_deref().and_then(Stamp::from_path),
            }
        });
        look.await.ok()
    }

    /// Handles a changed file. Returns whether the OpenAPI documents must be reloaded.
    async fn apply_change(&self, index: usize, forced: bool) -> bool {
        let Some(WatchedFile { file, stamp, action, .. }) = self.files.get(index) else { return false };
        match action {
            ChangeAction::Documents => return true,
            ChangeAction::Call(on_change) => {
                let (on_change, host) = (Arc::clone(on_change), self.host.clone());
                if tokio::task::spawn_blocking(move || on_change(&host)).await.is_err() {
                    tracing::error!(file = %file.display(), "the handler for the changed file panicked");
                }
            }
            ChangeAction::Policy(_) if stamp.is_none() => {
                self.reject_policy(format!(
                    "`{}` is gone; the previous policy stays in force",
                    file.display()
                ));
            }
            ChangeAction::Policy(read) => {
                let read = Arc::clone(read);
                let policy = tokio::task::spawn_blocking(move || read()).await;
                match policy.unwrap_or_else(|error| Err(error.to_string())) {
                    Ok(policy) if !forced && policy == *self.host.policy() => {}
                    Ok(policy) => match self.host.swap_policy(policy).await {
                        Ok(_) => {
                            tracing::info!(file = %file.display(), "the policy was read again");
                            return true;
                        }
                        Err(error) => self.reject_policy(error.to_string()),
                    },
                    Err(problem) => self.reject_policy(problem),
                }
            }
        }
        false
    }

    fn reject_policy(&self, problem: String) {
        tracing::warn!("the policy was not read again; the previous one stays in force: {problem}");
        self.host.events().emit(HostEvent::PolicyRefused { problem });
    }
}
