//! Change hints from inotify for the watched folders. A hint only triggers a scan, and the scan decides. Events may
//! therefore be lost, duplicated or out of order, and their content is ignored.
//!
//! Without hints (another system, a network file system, no inotify instance left), polling finds the change later.

use std::path::PathBuf;

/// A folder, with the device and inode that its path has now.
pub(crate) type WatchedFolder = (PathBuf, Option<(u64, u64)>);

/// The watched folders.
#[derive(Debug, Default)]
pub(crate) struct ChangeHints {
    folders: Vec<WatchedFolder>,
    #[cfg(target_os = "linux")]
    inotify: Option<tokio::net::unix::pipe::Receiver>,
}

impl ChangeHints {
    /// Watches these folders, unless they are already watched. A folder that was recreated under the same name is
    /// watched again.
    pub(crate) fn watch(&mut self, folders: Vec<WatchedFolder>) {
        if self.folders == folders {
            return;
        }
        self.folders = folders;
        self.open();
    }
}

#[cfg(not(target_os = "linux"))]
impl ChangeHints {
    fn open(&mut self) {}

    /// Waits for a hint. This system has none.
    pub(crate) async fn next(&mut self) {
        std::future::pending::<()>().await;
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    use tokio::net::unix::pipe::Receiver;

    use super::{ChangeHints, WatchedFolder};

    /// Maximum number of reads per hint. More events trigger another hint.
    const MAX_READS: usize = 64;

    impl ChangeHints {
        pub(super) fn open(&mut self) {
            // Closed first, because a user has few inotify instances.
            self.inotify = None;
            match watch_folders(&self.folders) {
                Ok(inotify) => self.inotify = Some(inotify),
                Err(error) => {
                    tracing::warn!(%error, "inotify is not available; file changes are found by polling");
                }
            }
        }

        /// Waits for a hint. Many events at once are one hint.
        pub(crate) async fn next(&mut self) {
            let Some(inotify) = &self.inotify else { return std::future::pending().await };
            if inotify.readable().await.is_err() {
                self.inotify = None;
                return;
            }
            let mut buffer = [0_u8; 4096];
            for _ in 0..MAX_READS {
                if inotify.try_read(&mut buffer).is_err() {
                    break;
                }
            }
        }
    }

    fn watch_folders(folders: &[WatchedFolder]) -> std::io::Result<Receiver> {
        let inotify = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let events = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        for (folder, _) in folders.iter().filter(|(_, there)| there.is_some()) {
            if let Err(error) = add_watch(&inotify, folder, events) {
                tracing::warn!(
                    folder = %folder.display(), %error,
                    "the folder cannot be watched; its changes are found by polling"
                );
            }
        }
        // An inotify descriptor is not a pipe, but tokio polls and reads it the same way.
        Receiver::from_owned_fd_unchecked(inotify)
    }
}
