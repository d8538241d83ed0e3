//! `files`: reading and writing below the folders the operator granted.
//!
//! A folder is opened once, when the plugin is loaded; every later operation goes through that handle, so a folder
//! that is moved or replaced afterwards changes nothing. A guest's path is normalised as text, matched against the
//! granted folders, and resolved below the handle by cap-std, which refuses every way out: `..`, absolute and
//! relative symbolic links, races between the check and the use. A link that stays inside is followed.
//!
//! Paths: relative ones are meant against the workspace, absolute ones are the host's.

mod grants;
mod operations;
mod reads;

pub(crate) use grants::{Access, FileGrants, Folders};
pub(crate) use reads::ReadLog;

use tokio_util::task::AbortOnDropHandle;

use super::Capabilities;
use crate::bindings::host::files::{DirEntry, FileData, FileError, FileStat, Host};
use operations::Operation;

impl Capabilities {
    /// Runs one operation off the async threads: a file system may be slow or hang, and the call's deadline must
    /// still fire.
    async fn on_files<T: Send + 'static>(
        &self,
        path: String,
        access: Access,
        run: impl FnOnce(&Operation) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let Some(files) = &self.files else {
            let hint = "this tool was granted no files";
            return Err(FileError::Denied(hint.to_owned()));
        };
        let operation = files.resolve(&self.plugin, &path, access)?;
        // What has not begun when the call ends does not begin any more.
        let done = AbortOnDropHandle::new(tokio::task::spawn_blocking(move || run(&operation))).await;
        done.unwrap_or_else(|_| Err(FileError::Other("the host failed while it handled the file".to_owned())))
    }
}

impl Host for Capabilities {
    async fn read(
        &mut self,
        path: String,
        offset: u64,
        max_bytes: Option<u64>,
    ) -> Result<FileData, FileError> {
        self.on_files(path, Access::Read, move |at| at.read(offset, max_bytes)).await
    }
    async fn write(
        &mut self,
        path: String,
        data: Vec<u8>,
        expected_version: Option<String>,
    ) -> Result<FileStat, FileError> {
        self.on_files(path, Access::Write, move |at| at.write(&data, expected_version.as_deref())).await
    }
    async fn stat(&mut self, path: String) -> Result<FileStat, FileError> {
        self.on_files(path, Access::Read, Operation::stat).await
    }
    async fn read_dir(&mut self, path: String) -> Result<Vec<DirEntry>, FileError> {
        self.on_files(path, Access::Read, Operation::read_dir).await
    }
    async fn make_dir(&mut self, path: String) -> Result<(), FileError> {
        self.on_files(path, Access::Write, Operation::make_dir).await
    }
    async fn remove(&mut self, path: String) -> Result<(), FileError> {
        self.on_files(path, Access::Write, Operation::remove).await
    }
}
