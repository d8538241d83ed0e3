//! Hints of the kernel that something in some folders may have changed. A hint says only that it is worth looking:
//! what a look finds decides. So events can be lost, doubled or out of order, and nothing is read from them.
//!
//! Where there are no hints (another system, a network file system, no more inotify instances) the looks that happen
//! anyway find the change, later.

use std::path::PathBuf;

/// A folder, and which one it is now: device and inode.
pub(crate) type Place = (PathBuf, Option<(u64, u64)>);

/// The folders that are watched.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    places: Vec<Place>,
    #[cfg(target_os = "linux")]
    inotify: Option<tokio::net::unix::pipe::Receiver>,
}

impl Hints {
    /// Watches these folders from now on, if they are not the ones that are watched. A folder that was made anew under
    /// the same name is another one.
    pub(crate) fn watch(&mut self, places: Vec<Place>) {
        if self.places == places {
            return;
        }
        self.places = places;
        self.open();
    }
}

#[cfg(not(target_os = "linux"))]
impl Hints {
    fn open(&mut self) {}

    /// Waits for a hint; here there is none.
    pub(crate) async fn next(&mut self) {
        std::future::pending().await
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    use tokio::net::unix::pipe::Receiver;

    use super::{Hints, Place};

    /// Reads after one hint; a flood is left to the next.
    const MOST_READS: usize = 64;

    impl Hints {
        pub(super) fn open(&mut self) {
            // The old one goes first: a user has few of them.
            self.inotify = None;
            match watched(&self.places) {
                Ok(inotify) => self.inotify = Some(inotify),
                Err(error) => tracing::warn!(%error, "changes of files are noticed by polling only"),
            }
        }

        /// Waits for a hint. Many that came at once are one.
        pub(crate) async fn next(&mut self) {
            let Some(inotify) = &self.inotify else { return std::future::pending().await };
            if inotify.readable().await.is_err() {
                self.inotify = None;
                return;
            }
            let mut buffer = [0_u8; 4096];
            for _ in 0..MOST_READS {
                if inotify.try_read(&mut buffer).is_err() {
                    break;
                }
            }
        }
    }

    fn watched(places: &[Place]) -> std::io::Result<Receiver> {
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
        for (folder, _) in places.iter().filter(|(_, there)| there.is_some()) {
            if let Err(error) = add_watch(&inotify, folder, events) {
                tracing::warn!(folder = %folder.display(), %error, "changes there are noticed by polling only");
            }
        }
        // Not a pipe, but read like one: whatever can be polled and read is taken.
        Receiver::from_owned_fd_unchecked(inotify)
    }
}
