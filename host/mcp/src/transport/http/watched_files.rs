//! Watches the files that `[serve]` names, and reads them again when they change.
//!
//! If a new policy cannot be applied because a file is missing or invalid, it is retried until it can. Until then the
//! old settings stay in force, except that tokens removed from the current token file are revoked.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use toolbay_policy::serve::ServePolicy;

use super::McpHttpServer;

/// Interval of the checks. A file is read once two consecutive checks see the same state, so that a file being written
/// is not read.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Checks after which files are read even if they keep changing. A removed token is therefore revoked within 2 s.
const MAX_UNSETTLED: u32 = 3;
/// Checks after which a failed policy is retried without a change.
const RETRY_CHECKS: u32 = 20;

/// The state of the watched files.
#[derive(Debug, Default)]
pub(super) struct WatchedFiles {
    /// The newest policy.
    pub(super) wanted: ServePolicy,
    /// The files with their stamps from before they were last read.
    applied: Vec<(PathBuf, Option<FileStamp>)>,
    /// The stamps of the last check, if they differ from the applied ones.
    changing: Option<Vec<(PathBuf, Option<FileStamp>)>>,
    /// Consecutive checks that saw a new state.
    unsettled: u32,
    /// Why the newest policy could not be applied.
    problem: Option<String>,
    checks: u32,
}

/// Metadata that changes when a file changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    /// Change time, which also covers the mode and the owner.
    changed: (i64, i64),
}

impl FileStamp {
    fn from_metadata(metadata: &Metadata) -> Self {
        Self {
            inode: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl WatchedFiles {
    pub(super) fn new(serve: &ServePolicy) -> Self {
        Self { wanted: serve.clone(), applied: stamps([serve]), ..Self::default() }
    }

    /// Records the stamps of all files of the wanted and the current policy, before they are read.
    pub(super) fn record_stamps(&mut self, current: &ServePolicy) {
        self.applied = stamps([&self.wanted, current]);
        self.changing = None;
    }

    /// Records the result of applying the policy.
    pub(super) fn record_result(&mut self, result: &Result<(), String>) {
        self.problem = result.as_ref().err().cloned();
    }
}

fn stamps<const N: usize>(policies: [&ServePolicy; N]) -> Vec<(PathBuf, Option<FileStamp>)> {
    let mut files: Vec<PathBuf> =
        policies.iter().flat_map(|serve| serve.files()).map(ToOwned::to_owned).collect();
    files.sort();
    files.dedup();
    let stamp = |file: PathBuf| {
        let stamp = std::fs::metadata(&file).ok().map(|metadata| FileStamp::from_metadata(&metadata));
        (file, stamp)
    };
    files.into_iter().map(stamp).collect()
}

impl McpHttpServer {
    /// Reads the files that the policy names whenever they change, and retries after failures. Passes each new result
    /// to `report`. Runs forever: poll it together with [`McpHttpServer::run`].
    pub async fn follow_files(&self, report: impl Fn(Result<(), String>)) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let http = self.clone();
            let checked = tokio::task::spawn_blocking(move || http.check()).await;
            if let Ok(Some(result)) = checked {
                report(result);
            }
        }
    }

    /// Performs one check. Returns the result if the files were read and the result is new.
    fn check(&self) -> Option<Result<(), String>> {
        let mut files = self.state.files.lock();
        let current = self.state.settings.load_full();
        let now = stamps([&files.wanted, &current.serve]);
        let changed = now != files.applied;
        files.checks = files.checks.wrapping_add(1);
        if changed && files.changing.as_ref() != Some(&now) {
            files.changing = Some(now);
            files.unsettled = files.unsettled.saturating_add(1);
            if files.unsettled < MAX_UNSETTLED {
                return None;
            }
        }
        files.unsettled = 0;
        let before = files.problem.clone();
        if !changed && (before.is_none() || !files.checks.is_multiple_of(RETRY_CHECKS)) {
            files.changing = None;
            return None;
        }
        let result = self.apply_wanted(&mut files);
        (changed || result.as_ref().err() != before.as_ref()).then_some(result)
    }
}
