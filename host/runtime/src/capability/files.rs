//! `files`: reading and writing below the folders the operator granted.
//!
//! A folder is opened once, when the plugin is loaded; every later operation goes through that handle, so a folder
//! that is moved or replaced afterwards changes nothing. A guest's path is normalised as text, has to be granted as
//! text, and is opened below the handle without following a link. A link on the way is read, and where it leads has
//! to be granted as well; then that path is opened, again without following a link. A link out of the folder is
//! refused, and so is one to what the tool's patterns do not match or exclude.
//!
//! Paths: relative ones are meant against the workspace, absolute ones are the host's.

mod beneath;
mod grants;
mod operations;
mod quota;
mod reads;

pub(crate) use beneath::open_inside;
pub(crate) use grants::{Access, FileGrants, Folders, Kept};
pub(crate) use quota::Meter;
pub(crate) use reads::ReadLog;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolbay_policy::Advice;
use toolbay_policy::capability::reach;
use toolbay_policy::refusal::not_permitted;

use super::Capabilities;
use crate::engine::bindings::host::files::{DirEntry, FileData, FileError, FileStat, Host};
use grants::{Need, Unresolved, full_path};
use operations::Operation;

/// Parts of patterns times bytes of a path that are compared on an async thread: tenths of a millisecond.
const COMPARED_IN_PLACE: usize = 64 << 10;

impl Capabilities {
    /// Finds what a path means to this tool; off the async threads if there is much to compare it with, of which a
    /// plugin's author writes a part.
    async fn find(&self, path: &str, access: Access, need: Need) -> Result<Operation, FileError> {
        let found = match &self.files {
            None => Err(self.no_files(path, access)),
            Some(files) if files.weight(access).saturating_mul(path.len()) <= COMPARED_IN_PLACE => {
                files.resolve(path, access, need)
            }
            Some(files) => {
                let (files, path) = (files.clone(), path.to_owned());
                let found = self.off_thread(move |_| Ok(files.resolve(&path, access, need))).await;
                found.unwrap_or_else(|error| Err(Unresolved::Answer(error)))
            }
        };
        match found {
            Ok(operation) => Ok(operation),
            Err(Unresolved::Answer(error)) => Err(error),
            Err(Unresolved::Refused(refusal)) => Err(FileError::Denied(self.who.tell(refusal))),
            Err(Unresolved::Outside(text, path)) => {
                Err(FileError::Denied(self.outside(text, &path, access).await))
            }
        }
    }

    /// Does a plugin's work on a thread of its files: a file system may be slow or hang, and the call's deadline must still
    /// fire. The work can see that the call has ended.
    async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&CancellationToken) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let Some(granted) = &self.who.granted else { return Err(FileError::Denied(self.who.nothing_now())) };
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        let done = granted.services.file_threads.run(&self.who.plugin, move || work(&stop)).await;
        done.unwrap_or_else(|undone| Err(FileError::Other(undone.to_string())))
    }

    /// Why a tool that was granted no files at all reaches none.
    fn no_files(&self, path: &str, access: Access) -> Unresolved {
        let Some(granted) = &self.who.granted else {
            return Unresolved::Refused(self.who.nothing_now().into());
        };
        let full = match full_path(path, granted.services.policy.workspace()) {
            Ok(full) => full,
            Err(error) => return Unresolved::Answer(error),
        };
        let (key, shown) = (access.key().name(), reach::shown(path));
        Unresolved::Outside(format!("`{key}` of `{shown}` is not granted to tool `{}`", granted.tool), full)
    }

    /// Refuses a path that no grant holds. The operator is told of the line for this path alone, and of what else is in
    /// its way; a guest learns nothing of what is outside of its grants.
    async fn outside(&self, text: String, path: &Path, access: Access) -> String {
        let (Some(granted), Some(ctx)) = (&self.who.granted, &self.who.ctx) else { return text };
        if ctx.takes_hints() {
            let policy = &granted.services.policy;
            let advice =
                granted.advice(&self.who.plugin, access.key(), &reach::show(path, policy.workspace()));
            let hint = match (&advice, obstacle(&granted.services.process.kept, path, access).await) {
                (Advice::Write { .. }, Some(Obstacle::Kept)) => {
                    grants::kept("", path).hint.unwrap_or_default()
                }
                (Advice::Write { .. }, Some(Obstacle::NoFolder(folder))) => {
                    let folder = reach::shown(&folder.to_string_lossy());
                    format!("Its folder `{folder}` does not exist: create it. {}", advice.hint())
                }
                _ => advice.hint(),
            };
            ctx.advise(format!("{text}. {hint}"));
        }
        format!("{text}: {}", not_permitted(&ctx.tool))
    }

    /// Records a use, and hands its result on.
    fn used<T>(&self, path: &str, access: Access, result: Result<T, FileError>) -> Result<T, FileError> {
        let allowed = !matches!(result, Err(FileError::Denied(_)));
        self.who.note(access.key(), &reach::shown(path), allowed);
        if let (Err(_), Some(ctx)) = (&result, &self.who.ctx)
            && let Some(hint) = self.files.as_ref().and_then(|files| files.meter.hint())
        {
            ctx.advise(hint.clone());
        }
        result
    }

    /// Tells the operator of a granted folder that is not there, if an operation ended for that.
    fn told_absent<T>(&self, absent: Option<&Path>, access: Access, result: &Result<T, FileError>) {
        if let (Some(folder), Err(FileError::Denied(_)), Some(ctx)) = (absent, result, &self.who.ctx) {
            let refusal = grants::absent("", folder, access);
            ctx.advise(refusal.hint.unwrap_or_default());
        }
    }

    /// Runs one operation off the async threads.
    async fn on_files<T: Send + 'static>(
        &self,
        path: &str,
        access: Access,
        need: Need,
        run: impl FnOnce(&Operation, &CancellationToken) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let result = match self.find(path, access, need).await {
            Ok(operation) => {
                let absent = operation.absent.clone();
                let result = self.off_thread(move |stop| run(&operation, stop)).await;
                self.told_absent(absent.as_deref(), access, &result);
                result
            }
            Err(error) => Err(error),
        };
        self.used(path, access, result)
    }
}

/// What a line of the policy would not change.
enum Obstacle {
    /// The host keeps the place.
    Kept,
    /// The folder does not exist, and a grant opens folders when plugins are loaded.
    NoFolder(PathBuf),
}

/// Looks for what else is in the way of a path. A file system may hang: few look at once, and not for long; whoever does
/// not get to look gives the advice without.
async fn obstacle(kept: &Kept, path: &Path, access: Access) -> Option<Obstacle> {
    /// Threads that look. A hung file system keeps these and no more.
    static LOOKING: Semaphore = Semaphore::const_new(4);
    /// How long a look may take: far longer than a file system that answers.
    const PATIENCE: Duration = Duration::from_millis(200);
    let place = LOOKING.try_acquire().ok()?;
    let (kept, path) = (kept.clone(), path.to_path_buf());
    let look = tokio::task::spawn_blocking(move || {
        let _place = place;
        if kept.touches(&path, access == Access::Write).is_some() {
            return Some(Obstacle::Kept);
        }
        let folder = path.parent().filter(|folder| std::fs::symlink_metadata(folder).is_err())?;
        Some(Obstacle::NoFolder(folder.to_path_buf()))
    });
    tokio::time::timeout(PATIENCE, look).await.ok()?.ok()?
}

impl Host for Capabilities {
    async fn read(
        &mut self,
        path: String,
        offset: u64,
        max_bytes: Option<u64>,
    ) -> Result<FileData, FileError> {
        let result = match self.find(&path, Access::Read, Need::Path).await {
            Ok(at) => match at.read_now(offset, max_bytes) {
                Some(data) => Ok(data),
                None => self.off_thread(move |_| at.read(offset, max_bytes)).await,
            },
            Err(error) => Err(error),
        };
        self.used(&path, Access::Read, result)
    }
    async fn write(
        &mut self,
        path: String,
        data: Vec<u8>,
        expected: Option<String>,
    ) -> Result<FileStat, FileError> {
        let write = move |at: &Operation, _: &_| at.write(&data, expected.as_deref());
        self.on_files(&path, Access::Write, Need::Path, write).await
    }
    async fn stat(&mut self, path: String) -> Result<FileStat, FileError> {
        self.on_files(&path, Access::Read, Need::Below, |at, _| at.stat()).await
    }
    async fn read_dir(&mut self, path: String) -> Result<Vec<DirEntry>, FileError> {
        self.on_files(&path, Access::Read, Need::Below, Operation::read_dir).await
    }
    async fn make_dir(&mut self, path: String) -> Result<(), FileError> {
        self.on_files(&path, Access::Write, Need::Path, |at, _| at.make_dir()).await
    }
    async fn remove(&mut self, path: String) -> Result<(), FileError> {
        self.on_files(&path, Access::Write, Need::Path, |at, _| at.remove()).await
    }
}
