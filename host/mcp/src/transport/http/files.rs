//! The files that the policy names for the server: read again when they change, whichever they are by then.
//!
//! What the policy wants is remembered also while it cannot be had: a file that is missing or wrong today is read when it
//! is there and right. Until then everything stays as it was, but for tokens that are taken out of the file that still
//! counts.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use toolbay_policy::serve::Serve;

use super::Http;

/// How often is looked at them. A file is read when it was the same for two looks: one that is being written is not.
const LOOK: Duration = Duration::from_millis(500);
/// After so many looks files are read though they go on changing: a token that is taken out stops working within two
/// seconds.
const MAX_UNSETTLED: u32 = 3;
/// After so many looks what failed is tried again though nothing changed.
const AGAIN: u32 = 20;

/// What is known of the files.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// What the policy said last.
    pub(super) wanted: Serve,
    /// The files, and what they were before they were read.
    seen: Vec<(PathBuf, Option<Stamp>)>,
    /// What they are now, if that was another at the last look.
    moving: Option<Vec<(PathBuf, Option<Stamp>)>>,
    /// Looks in a row at which they were another than at the last one.
    unsettled: u32,
    /// Why the policy could not be followed.
    problem: Option<String>,
    looks: u32,
}

/// What is another when a file is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    place: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    /// Also of its mode and its owner.
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            place: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Files {
    pub(super) fn new(serve: &Serve) -> Self {
        Self { wanted: serve.clone(), seen: stamps([serve]), ..Self::default() }
    }

    /// Notes what the files are before they are read: those of the policy, and those that count until it can be followed.
    pub(super) fn note(&mut self, holds: &Serve) {
        self.seen = stamps([&self.wanted, holds]);
        self.moving = None;
    }

    /// Notes how that went.
    pub(super) fn went(&mut self, result: &Result<(), String>) {
        self.problem = result.as_ref().err().cloned();
    }
}

fn stamps<const N: usize>(policies: [&Serve; N]) -> Vec<(PathBuf, Option<Stamp>)> {
    let mut files: Vec<PathBuf> =
        policies.iter().flat_map(|serve| serve.files()).map(ToOwned::to_owned).collect();
    files.sort();
    files.dedup();
    let stamp = |file: PathBuf| {
        let stamp = std::fs::metadata(&file).ok().map(|metadata| Stamp::of(&metadata));
        (file, stamp)
    };
    files.into_iter().map(stamp).collect()
}

impl Http {
    /// Reads the files that the policy names again whenever they change, and tries again what failed. Says each time how
    /// that went; nothing is said twice. Goes on for ever: run it beside [`Http::run`].
    pub async fn follow(&self, tell: impl Fn(Result<(), String>)) {
        loop {
            tokio::time::sleep(LOOK).await;
            let http = self.clone();
            let looked = tokio::task::spawn_blocking(move || http.look()).await;
            if let Ok(Some(result)) = looked {
                tell(result);
            }
        }
    }

    /// One look; says what came of it, if there was something to do.
    fn look(&self) -> Option<Result<(), String>> {
        let mut files = self.state.files.lock();
        let holds = self.state.settings.load_full();
        let now = stamps([&files.wanted, &holds.serve]);
        let changed = now != files.seen;
        files.looks = files.looks.wrapping_add(1);
        if changed && files.moving.as_ref() != Some(&now) {
            files.moving = Some(now);
            files.unsettled = files.unsettled.saturating_add(1);
            if files.unsettled < MAX_UNSETTLED {
                return None;
            }
        }
        files.unsettled = 0;
        let before = files.problem.clone();
        if !changed && (before.is_none() || !files.looks.is_multiple_of(AGAIN)) {
            files.moving = None;
            return None;
        }
        let result = self.take(&mut files);
        (changed || result.as_ref().err() != before.as_ref()).then_some(result)
    }
}
