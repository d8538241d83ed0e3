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

use tokio_util::sync::CancellationToken;
use toolbay_core::reach;

use super::Capabilities;
use crate::bindings::host::files::{DirEntry, FileData, FileError, FileStat, Host};
use grants::Need;
use operations::Operation;

/// Parts of patterns times bytes of a path that are compared on an async thread: tenths of a millisecond.
const COMPARED_IN_PLACE: usize = 64 << 10;

impl Capabilities {
    /// Finds what a path means to this tool; off the async threads if there is much to compare it with, of which a
    /// plugin's author writes a part.
    async fn find(&self, path: &str, access: Access, need: Need) -> Result<Operation, FileError> {
        let Some(files) = &self.files else {
            return Err(FileError::Denied(self.no_files(path, access)));
        };
        if files.weight(access).saturating_mul(path.len()) <= COMPARED_IN_PLACE {
            return files.resolve(path, access, need);
        }
        let (files, path) = (files.clone(), path.to_owned());
        self.off_thread(move |_| files.resolve(&path, access, need)).await
    }

    /// Does a plugin's work on a thread of its files: a file system may be slow or hang, and the call's deadline must still
    /// fire. The work can see that the call has ended.
    async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&CancellationToken) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let Some(granted) = &self.granted else { return Err(FileError::Denied(self.nothing_now())) };
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        let done = granted.services.file_threads.run(&self.plugin, move || work(&stop)).await;
        done.unwrap_or_else(|undone| Err(FileError::Other(undone.to_string())))
    }

    /// Why a tool that was granted no files at all reaches none, and which policy lines would allow it.
    fn no_files(&self, path: &str, access: Access) -> String {
        let Some(granted) = &self.granted else { return self.nothing_now() };
        let workspace = granted.services.policy.workspace();
        let full = reach::normalise(&workspace.join(path)).unwrap_or_default();
        let folder = reach::show(full.parent().unwrap_or(&full), workspace);
        granted.refusal(&self.plugin, access.key(), &reach::shown(&folder))
    }

    /// Records a use, and hands its result on.
    fn used<T>(&self, path: &str, access: Access, result: Result<T, FileError>) -> Result<T, FileError> {
        let allowed = !matches!(result, Err(FileError::Denied(_)));
        self.note(access.key(), &reach::shown(path), allowed);
        result
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
            Ok(operation) => self.off_thread(move |stop| run(&operation, stop)).await,
            Err(error) => Err(error),
        };
        self.used(path, access, result)
    }
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
