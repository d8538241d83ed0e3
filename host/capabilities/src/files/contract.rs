//! The `files` interface of the contract.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolbay_policy::Advice;
use toolbay_policy::capability::path_rule;
use toolbay_policy::refusal::not_permitted_notice;

use super::grants::{self, FileAccess, PathScope, ResolveError, full_path};
use super::operations::FileOperation;
use super::protected::SharedProtectedPaths;
use crate::Capabilities;
use crate::bindings::host::files::{DirEntry, FileData, FileError, FileStat, Host};

/// The largest product of pattern parts and path bytes that is compared on an async thread, in about 0.1 ms.
const MAX_INLINE_COMPARISON: usize = 64 << 10;

impl Capabilities {
    /// Resolves a path against the grants. A large comparison, whose patterns a plugin's author partly chooses, runs
    /// on a blocking thread.
    async fn resolve_path(
        &self,
        path: &str,
        access: FileAccess,
        scope: PathScope,
    ) -> Result<FileOperation, FileError> {
        let found = match &self.files {
            None => Err(self.no_files_granted(path, access)),
            Some(files)
                if files.comparison_cost(access).saturating_mul(path.len()) <= MAX_INLINE_COMPARISON =>
            {
                files.resolve(path, access, scope)
            }
            Some(files) => {
                let (files, path) = (files.clone(), path.to_owned());
                let found = self.run_blocking(move |_| Ok(files.resolve(&path, access, scope))).await;
                found.unwrap_or_else(|error| Err(ResolveError::Invalid(error)))
            }
        };
        match found {
            Ok(operation) => Ok(operation),
            Err(ResolveError::Invalid(error)) => Err(error),
            Err(ResolveError::Refused(refusal)) => {
                Err(FileError::Denied(self.grantee.report_refusal(refusal)))
            }
            Err(ResolveError::Excluded(text, line)) => {
                let hint = || self.grantee.exclusion_hint(access.key(), &line);
                Err(FileError::Denied(self.grantee.refuse_with(&text, hint)))
            }
            Err(ResolveError::NotGranted(text, path)) => {
                Err(FileError::Denied(self.refuse_ungranted_path(text, &path, access).await))
            }
        }
    }

    /// Runs `work` on a file thread of the plugin: a file system can be slow or hang, and the call's deadline must
    /// still fire. The token tells `work` that the call has ended.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&CancellationToken) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let Some(granted) = &self.grantee.granted else {
            return Err(FileError::Denied(self.grantee.sealed_error()));
        };
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        let done = granted.services.file_threads.run(&self.grantee.plugin, move || work(&stop)).await;
        done.unwrap_or_else(|undone| Err(FileError::Other(undone.to_string())))
    }

    /// The error for a tool without file grants.
    fn no_files_granted(&self, path: &str, access: FileAccess) -> ResolveError {
        let Some(granted) = &self.grantee.granted else {
            return ResolveError::Refused(self.grantee.sealed_error().into());
        };
        let full = match full_path(path, granted.services.policy.workspace()) {
            Ok(full) => full,
            Err(error) => return ResolveError::Invalid(error),
        };
        ResolveError::NotGranted(granted.refusal_text(&self.grantee.plugin, access.key(), path), full)
    }

    /// Refuses a path outside the grants. The operator's hint names the line for this path and any other obstacle;
    /// the guest learns nothing about paths outside its grants.
    async fn refuse_ungranted_path(&self, text: String, path: &Path, access: FileAccess) -> String {
        let (Some(granted), Some(ctx)) = (&self.grantee.granted, &self.grantee.ctx) else { return text };
        let mut notice = not_permitted_notice(&ctx.tool);
        if ctx.should_build_hint() {
            let policy = &granted.services.policy;
            let advice = granted.advice(
                &self.grantee.plugin,
                self.grantee.profile(),
                access.key(),
                &path_rule::show_folder(path, policy.workspace()),
            );
            let hint = match (&advice, find_obstacle(&granted.services.process.protected, path, access).await)
            {
                (Advice::Write { .. }, Some(Obstacle::Protected)) => grants::protected_hint(path),
                (Advice::Write { .. }, Some(Obstacle::MissingFolder(folder))) => {
                    let folder = path_rule::printable_path(&folder.to_string_lossy());
                    let create = format!("The folder `{folder}` does not exist: create it.");
                    advice.hint().with_first(&create)
                }
                _ => advice.hint(),
            };
            ctx.add_hint(hint.with_about(&text));
            notice = advice.notice(&ctx.tool);
        }
        format!("{text}: {notice}")
    }

    /// Records a use in the audit and returns its result.
    fn record_use<T>(
        &self,
        path: &str,
        access: FileAccess,
        result: Result<T, FileError>,
    ) -> Result<T, FileError> {
        let allowed = !matches!(result, Err(FileError::Denied(_)));
        self.grantee.note(access.key(), &path_rule::printable_path(path), allowed);
        if let (Err(_), Some(ctx)) = (&result, &self.grantee.ctx)
            && let Some(hint) = self.files.as_ref().and_then(|files| files.usage.hint())
        {
            ctx.add_hint(hint.clone());
        }
        result
    }

    /// Runs one operation on a file thread.
    async fn run_operation<T: Send + 'static>(
        &self,
        path: &str,
        access: FileAccess,
        scope: PathScope,
        run: impl FnOnce(&FileOperation, &CancellationToken) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let result = match self.resolve_path(path, access, scope).await {
            Ok(operation) => {
                let missing_folder = operation.missing_folder.clone();
                let result = self.run_blocking(move |stop| run(&operation, stop)).await;
                if let (Some(folder), Err(FileError::Denied(_)), Some(ctx)) =
                    (missing_folder, &result, &self.grantee.ctx)
                {
                    ctx.add_hint(grants::missing_folder_hint(&folder, access));
                }
                result
            }
            Err(error) => Err(error),
        };
        self.record_use(path, access, result)
    }
}

/// An obstacle that a policy line cannot remove.
enum Obstacle {
    /// The path is protected by the host.
    Protected,
    /// The folder does not exist; grants open folders when plugins are loaded.
    MissingFolder(PathBuf),
}

/// Looks for an obstacle at a path. A file system can hang, so few checks run at once, each with a time-out; without
/// a check the advice omits the obstacle.
async fn find_obstacle(
    protected: &SharedProtectedPaths,
    path: &Path,
    access: FileAccess,
) -> Option<Obstacle> {
    /// Concurrent checks: a hung file system blocks only these threads.
    static CHECKS: Semaphore = Semaphore::const_new(4);
    /// Timeout of a check, far longer than a working file system needs.
    const TIMEOUT: Duration = Duration::from_millis(200);
    let permit = CHECKS.try_acquire().ok()?;
    let (protected, path) = (protected.clone(), path.to_path_buf());
    let check = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        if protected.find_overlap(&path, access == FileAccess::Write).is_some() {
            return Some(Obstacle::Protected);
        }
        let folder = path.parent().filter(|folder| std::fs::symlink_metadata(folder).is_err())?;
        Some(Obstacle::MissingFolder(folder.to_path_buf()))
    });
    tokio::time::timeout(TIMEOUT, check).await.ok()?.ok()?
}

impl Host for Capabilities {
    async fn read(
        &mut self,
        path: String,
        offset: u64,
        max_bytes: Option<u64>,
    ) -> Result<FileData, FileError> {
        let result = match self.resolve_path(&path, FileAccess::Read, PathScope::Path).await {
            Ok(at) => match at.try_read_cached(offset, max_bytes) {
                Some(data) => Ok(data),
                None => self.run_blocking(move |_| at.read(offset, max_bytes)).await,
            },
            Err(error) => Err(error),
        };
        self.record_use(&path, FileAccess::Read, result)
    }
    async fn write(
        &mut self,
        path: String,
        data: Vec<u8>,
        expected: Option<String>,
    ) -> Result<FileStat, FileError> {
        let write = move |at: &FileOperation, _: &_| at.write(&data, expected.as_deref());
        self.run_operation(&path, FileAccess::Write, PathScope::Path, write).await
    }
    async fn stat(&mut self, path: String) -> Result<FileStat, FileError> {
        self.run_operation(&path, FileAccess::Read, PathScope::Below, |at, _| at.stat()).await
    }
    async fn read_dir(&mut self, path: String) -> Result<Vec<DirEntry>, FileError> {
        self.run_operation(&path, FileAccess::Read, PathScope::Below, FileOperation::read_dir).await
    }
    async fn make_dir(&mut self, path: String) -> Result<(), FileError> {
        self.run_operation(&path, FileAccess::Write, PathScope::Path, |at, _| at.make_dir()).await
    }
    async fn remove(&mut self, path: String) -> Result<(), FileError> {
        self.run_operation(&path, FileAccess::Write, PathScope::Path, |at, _| at.remove()).await
    }
}
