//! A directory that lives: what changes in it, in the policy and in the consents holds without a restart.
//!
//! One task looks, compares and goes to sleep again. A hint of the kernel ends the sleep early; without one it looks
//! every [`WatchOptions::poll`]. However many events there are, there is at most one look per half of
//! [`WatchOptions::settle`], and a look costs a listing and one `stat` for each file.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use toolbay_core::registry::event::Event;
use toolbay_policy::Policy;
use toolbay_policy::capability::floor::Keep;

use crate::host::Host;
use crate::plugins::directory::Look;
use crate::plugins::file::{PendingChange, Stamp};
use crate::plugins::inotify::{Hints, Place};
use crate::plugins::installed::ReplanReason;

/// Shortest `settle` and `poll`: what is less would be a busy loop.
const LEAST_SETTLE: Duration = Duration::from_millis(10);
const LEAST_POLL: Duration = Duration::from_millis(100);

/// How a host is watched.
#[derive(Debug)]
pub struct WatchOptions {
    /// How long a file must have been the same before it is read: 300 ms by default, 10 ms at least. Too short, and a
    /// file that is being written is loaded in part, and again once it is whole; a file that is renamed into place is
    /// whole at once. A file that changes more often than that is read after 1.5 s, or this time if it is longer.
    pub settle: Duration,
    /// How often is looked without a hint: every 2 s by default, 100 ms at least. On network file systems, and for
    /// files behind links, this is how long a change can go unnoticed.
    pub poll: Duration,
    /// Files beside the directory that are read again when they change.
    pub files: Vec<Watched>,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { settle: Duration::from_millis(300), poll: Duration::from_secs(2), files: Vec::new() }
    }
}

/// A file that is read again when it changes.
pub struct Watched {
    file: PathBuf,
    /// What it was when it was read.
    stamp: Option<Stamp>,
    /// What it is now, if that is not what was read.
    moving: Option<PendingChange>,
    then: Then,
}

enum Then {
    Policy(Arc<dyn Fn() -> Result<Policy, String> + Send + Sync>),
    Documents,
    Call(Arc<dyn Fn(&Host) + Send + Sync>),
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Watched {
    /// The policy's file, and what reads it. Make it before you read the policy for the first time: what changes
    /// afterwards is noticed. A policy that cannot be read, and a file that is gone, leave the one that holds.
    #[must_use]
    pub fn policy(
        file: impl Into<PathBuf>,
        read: impl Fn() -> Result<Policy, String> + Send + Sync + 'static,
    ) -> Self {
        Self::new(file.into(), Then::Policy(Arc::new(read)))
    }

    /// The document of a service of the policy: all of them are read again, without anything else waiting for it. Those of
    /// a policy that is read again are watched by themselves.
    #[must_use]
    pub fn document(file: impl Into<PathBuf>) -> Self {
        Self::new(file.into(), Then::Documents)
    }

    /// Any other file, and what is to be done when it has changed. `then` may block, and what changed meanwhile waits for
    /// it.
    #[must_use]
    pub fn file(file: impl Into<PathBuf>, then: impl Fn(&Host) + Send + Sync + 'static) -> Self {
        Self::new(file.into(), Then::Call(Arc::new(then)))
    }

    fn new(file: PathBuf, then: Then) -> Self {
        let stamp = Stamp::of(&file);
        Self { file, stamp, moving: None, then }
    }

    /// Whether it is to be read, and whether it is still changing.
    fn look(&mut self, now: Option<Stamp>, settle: Duration, anew: bool) -> (bool, bool) {
        if now == self.stamp {
            self.moving = None;
            return (anew && now.is_some(), false);
        }
        let time = Instant::now();
        let change = self.moving.get_or_insert_with(|| PendingChange::new(now, time));
        if !change.is_due(now, settle, time) && !anew {
            return (false, true);
        }
        (self.stamp, self.moving) = (now, None);
        (true, false)
    }
}

/// A directory that is watched, until this is dropped.
#[derive(Debug)]
pub struct Watch {
    anew: Arc<Notify>,
    _task: AbortOnDropHandle<()>,
}

impl Watch {
    /// Reads the policy and every file anew, whatever they look like, as soon as may be. Does not wait for it.
    pub fn reload(&self) {
        self.anew.notify_one();
    }
}

impl Host {
    /// Watches a plugin directory, every other one that was loaded, and the consents, until the handle is dropped.
    /// The directory need not be there yet. What happens is told by [`Host::events`] and in the log.
    ///
    /// Plugins are replaced whole; calls that run end on the version they began with. Must be called in a tokio
    /// runtime with timers and I/O.
    ///
    /// ```no_run
    /// # async fn example(host: toolbay::Host) -> Result<(), Box<dyn std::error::Error>> {
    /// use toolbay::{Policy, WatchOptions, Watched};
    ///
    /// let read = || {
    ///     let text = std::fs::read_to_string("/etc/agent/toolbay.toml").map_err(|e| e.to_string())?;
    ///     Policy::parse(&text, "/etc/agent".as_ref(), None).map_err(|e| e.to_string())
    /// };
    /// let policy = Watched::policy("/etc/agent/toolbay.toml", read);
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
    pub async fn watch(&self, dir: &Path, options: WatchOptions) -> Watch {
        self.installed.shared.folders.keep(dir, Keep::FromWriters);
        self.add_directory(dir).await;
        let anew = Arc::new(Notify::new());
        // Looks and sleeps until its handle is dropped.
        let task = tokio::spawn(Watcher::new(self.clone(), options).run(Arc::clone(&anew)));
        Watch { anew, _task: AbortOnDropHandle::new(task) }
    }
}

impl Host {
    /// One scan of the watcher's; returns whether something is still changing.
    async fn scan_when_due(self, due: Due, settle: Duration) -> bool {
        if due.anew {
            self.installed.readmit();
        }
        let how = if due.anew { Look::Anew } else { Look::Settled(settle) };
        let why = if due.anew || due.agreed { ReplanReason::Agreed } else { ReplanReason::Found };
        self.scan(how, why).await.1
    }
}

/// What the task knows.
struct Watcher {
    host: Host,
    settle: Duration,
    poll: Duration,
    files: Vec<Watched>,
    consents: Option<(PathBuf, Option<Stamp>)>,
    hints: Hints,
}

/// What the next scan is to do.
#[derive(Debug, Default)]
struct Due {
    scan: bool,
    /// Every file is to be read, whatever it looks like.
    anew: bool,
    /// What is held may have been agreed to.
    agreed: bool,
    /// The files beside the directories are to be read at the next look, whatever they look like.
    files: bool,
    /// Documents of services are to be read.
    documents: bool,
}

/// Waits for the end of a scan; returns whether something is still changing. Without a scan there is no end.
async fn ended(scan: &mut Option<AbortOnDropHandle<bool>>) -> bool {
    let Some(task) = scan else { return std::future::pending().await };
    let pending = task.await.unwrap_or_else(|error| {
        tracing::error!(%error, "the directories could not be looked at; what ran goes on");
        false
    });
    *scan = None;
    pending
}

/// What one look at the places outside of the directories found.
struct Seen {
    places: Vec<Place>,
    files: Vec<Option<Stamp>>,
    consents: Option<Stamp>,
}

impl Watcher {
    fn new(host: Host, options: WatchOptions) -> Self {
        let consents = host.consents_file.clone().map(|file| {
            let stamp = Stamp::of(&file);
            (file, stamp)
        });
        Self {
            host,
            settle: options.settle.max(LEAST_SETTLE),
            poll: options.poll.max(LEAST_POLL),
            files: options.files,
            consents,
            hints: Hints::default(),
        }
    }

    /// Looks and sleeps. Reading and compiling happen beside it: a policy that was changed meanwhile does not wait.
    async fn run(mut self, forced: Arc<Notify>) {
        let mut due = Due { scan: true, ..Due::default() };
        let mut scan: Option<AbortOnDropHandle<bool>> = None;
        let mut documents: Option<AbortOnDropHandle<()>> = None;
        loop {
            let moving = self.files(&mut due).await;
            if std::mem::take(&mut due.documents) {
                // What was being read is read anew: a server that hands nothing over holds up no other, nor the next policy.
                let host = self.host.clone();
                let load = async move { drop(host.load_openapi().await) };
                documents = Some(AbortOnDropHandle::new(tokio::spawn(load)));
            }
            if documents.as_ref().is_some_and(AbortOnDropHandle::is_finished) {
                documents = None;
            }
            if due.scan && scan.is_none() {
                let task = self.host.clone().scan_when_due(std::mem::take(&mut due), self.settle);
                scan = Some(AbortOnDropHandle::new(tokio::spawn(task)));
            }
            // A flood of events is one look after this pause.
            tokio::time::sleep(self.settle / 2).await;
            tokio::select! {
                biased;
                () = forced.notified() => (due.scan, due.anew, due.files) = (true, true, true),
                pending = ended(&mut scan) => due.scan |= pending,
                () = std::future::ready(()), if moving => {}
                () = self.hints.next() => due.scan = true,
                () = tokio::time::sleep(self.poll) => due.scan = true,
            }
        }
    }

    /// Looks at the files beside the directories, and reads those that have changed; returns whether one of them is
    /// still changing.
    async fn files(&mut self, due: &mut Due) -> bool {
        let Some(seen) = self.look().await else { return false };
        self.hints.watch(seen.places);
        let anew = std::mem::take(&mut due.files);
        let mut moving = false;
        for index in 0..self.files.len() {
            let Some(file) = self.files.get_mut(index) else { continue };
            let (read, changing) = file.look(seen.files.get(index).copied().flatten(), self.settle, anew);
            moving |= changing;
            if read {
                due.documents |= self.read(index, anew).await;
            }
        }
        if due.documents {
            self.follow_documents();
        }
        if let Some((_, stamp)) = &mut self.consents
            && *stamp != seen.consents
        {
            *stamp = seen.consents;
            (due.scan, due.agreed) = (true, true);
        }
        moving
    }

    /// Watches the documents that the policy names now, and no others.
    fn follow_documents(&mut self) {
        let policy = self.host.policy();
        let mut named: BTreeSet<&Path> = policy.openapi().filter_map(|service| service.file()).collect();
        self.files.retain(|one| !matches!(one.then, Then::Documents) || named.remove(&*one.file));
        self.files.extend(named.into_iter().map(Watched::document));
    }

    /// One `stat` for each place, off the async threads. `None`: the runtime is going down.
    async fn look(&self) -> Option<Seen> {
        let files: Vec<PathBuf> = self.files.iter().map(|one| one.file.clone()).collect();
        let consents = self.consents.as_ref().map(|(file, _)| file.clone());
        let installed = Arc::clone(&self.host.installed);
        let look = tokio::task::spawn_blocking(move || {
            let above = |file: &PathBuf| file.parent().map(Path::to_path_buf);
            // A file behind a link changes where it is, or by another link in its place.
            let behind = files.iter().filter_map(|file| file.canonicalize().ok());
            let named: BTreeSet<PathBuf> = installed
                .directory_paths()
                .into_iter()
                .chain(files.iter().chain(&consents).filter_map(above))
                .chain(behind.filter_map(|file| above(&file)))
                .collect();
            let place = |folder: PathBuf| {
                let there = std::fs::metadata(&folder).ok().map(|meta| (meta.dev(), meta.ino()));
                (folder, there)
            };
            Seen {
                places: named.into_iter().map(place).collect(),
                files: files.iter().map(|file| Stamp::of(file)).collect(),
                consents: consents.as_deref().and_then(Stamp::of),
            }
        });
        look.await.ok()
    }

    /// Does what is to be done with a file that has changed; returns whether documents are to be read for it.
    async fn read(&self, index: usize, anew: bool) -> bool {
        let Some(Watched { file, stamp, then, .. }) = self.files.get(index) else { return false };
        match then {
            Then::Documents => return true,
            Then::Call(then) => {
                let (then, host) = (Arc::clone(then), self.host.clone());
                if tokio::task::spawn_blocking(move || then(&host)).await.is_err() {
                    tracing::error!(file = %file.display(), "what was to be done after it changed panicked");
                }
            }
            Then::Policy(_) if stamp.is_none() => {
                self.refuse(format!("`{}` is gone; the policy before holds", file.display()));
            }
            Then::Policy(read) => {
                let read = Arc::clone(read);
                let policy = tokio::task::spawn_blocking(move || read()).await;
                match policy.unwrap_or_else(|error| Err(error.to_string())) {
                    Ok(policy) if !anew && policy == *self.host.policy() => {}
                    Ok(policy) => match self.host.swap_policy(policy).await {
                        Ok(_) => {
                            tracing::info!(file = %file.display(), "the policy was read again");
                            return true;
                        }
                        Err(error) => self.refuse(error.to_string()),
                    },
                    Err(problem) => self.refuse(problem),
                }
            }
        }
        false
    }

    fn refuse(&self, problem: String) {
        tracing::warn!("the policy was not read again, the one before holds: {problem}");
        self.host.events().tell(Event::PolicyRefused { problem });
    }
}
