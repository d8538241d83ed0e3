//! `open-at` below a preopened folder, without blocking and for regular files and folders only.
//!
//! The type is checked before the open, so that a FIFO or device is never opened, and again after a non-blocking
//! open, in case the path was swapped. The rules for the flags are those of wasmtime-wasi.

use std::fs::File as StdFile;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;
use wasmtime::component::Resource;
use wasmtime_wasi::OpenMode;
use wasmtime_wasi::filesystem::{Dir, File, WasiFilesystemCtxView};
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    Descriptor, DescriptorFlags, ErrorCode, HostDescriptor as _, NewTimestamp, OpenFlags, PathFlags,
};

use crate::files::{Beneath, FileUsage, PathResolution};

/// A guest's request to open a path.
pub(super) struct OpenAtRequest {
    pub(super) path_flags: PathFlags,
    pub(super) path: String,
    pub(super) open_flags: OpenFlags,
    pub(super) flags: DescriptorFlags,
}

impl OpenAtRequest {
    /// Opens the path. Blocks on the file system only.
    pub(super) fn open(
        &self,
        folder: &Dir,
        resolution: PathResolution,
        usage: &FileUsage,
    ) -> Result<Descriptor, ErrorCode> {
        let mode = self.open_mode(folder)?;
        let below = Beneath::new(folder.dir.as_fd(), resolution);
        let is_new = self.check_file_type(below, mode)?;
        if is_new && usage.count_entry().is_err() {
            return Err(ErrorCode::Quota);
        }
        let opened = self.open_at(below, self.system_flags(mode)).map_err(error_code)?;
        let stat = rustix::fs::fstat(&opened).map_err(error_code)?;
        let opened = StdFile::from(opened);
        match file_type(&stat) {
            FileType::Directory => Ok(Descriptor::Dir(Dir::new(opened, folder.perms, mode, true))),
            FileType::RegularFile if self.open_flags.contains(OpenFlags::DIRECTORY) => {
                Err(ErrorCode::NotDirectory)
            }
            FileType::RegularFile => Ok(Descriptor::File(File::new(opened, folder.perms, mode, true))),
            _ => Err(ErrorCode::NotPermitted),
        }
    }

    /// Whether the guest asks to write.
    pub(super) fn writes(&self) -> bool {
        self.open_flags.contains(OpenFlags::CREATE) || self.flags.contains(DescriptorFlags::WRITE)
    }

    /// The open mode, if the folder allows it.
    fn open_mode(&self, folder: &Dir) -> Result<OpenMode, ErrorCode> {
        let makes = OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE;
        let synchronised = DescriptorFlags::FILE_INTEGRITY_SYNC
            | DescriptorFlags::DATA_INTEGRITY_SYNC
            | DescriptorFlags::REQUESTED_WRITE_SYNC;
        if self.flags.intersects(synchronised) {
            return Err(ErrorCode::Unsupported);
        }
        if self.open_flags.contains(OpenFlags::DIRECTORY) && self.open_flags.intersects(makes) {
            return Err(ErrorCode::Invalid);
        }
        let writes = self.flags.contains(DescriptorFlags::WRITE);
        let mut mode = OpenMode::empty();
        if writes || self.open_flags.intersects(OpenFlags::CREATE | OpenFlags::TRUNCATE) {
            mode |= OpenMode::WRITE;
        }
        // The system needs some mode: a path opened neither for reading nor for writing is opened for reading.
        if self.flags.contains(DescriptorFlags::READ) || !writes {
            mode |= OpenMode::READ;
        }
        if mode.contains(OpenMode::WRITE) && folder.perms.write_not_permitted() {
            return Err(ErrorCode::NotPermitted);
        }
        Ok(mode)
    }

    /// Refuses other types than regular files and folders before the open. Returns whether the open will create a
    /// file.
    fn check_file_type(&self, below: Beneath<'_>, mode: OpenMode) -> Result<bool, ErrorCode> {
        let creates = self.open_flags.contains(OpenFlags::CREATE);
        // With `O_DIRECTORY` the kernel opens only folders.
        if self.open_flags.contains(OpenFlags::DIRECTORY) && mode == OpenMode::READ {
            return Ok(false);
        }
        match below.stat_inside(Path::new(&self.path), self.follows_links()) {
            Ok(stat) => match file_type(&stat) {
                // A final link that is not followed: the open returns the error.
                FileType::RegularFile | FileType::Directory | FileType::Symlink => Ok(false),
                _ => Err(ErrorCode::NotPermitted),
            },
            Err(Errno::NOENT) if creates => Ok(true),
            Err(error) => Err(error_code(error)),
        }
    }

    fn follows_links(&self) -> bool {
        self.path_flags.contains(PathFlags::SYMLINK_FOLLOW)
    }

    fn system_flags(&self, mode: OpenMode) -> OFlags {
        let mut flags = if !mode.contains(OpenMode::WRITE) {
            OFlags::RDONLY
        } else if mode.contains(OpenMode::READ) {
            OFlags::RDWR
        } else {
            OFlags::WRONLY
        };
        for (of, system) in [
            (OpenFlags::CREATE, OFlags::CREATE),
            (OpenFlags::TRUNCATE, OFlags::TRUNC),
            (OpenFlags::DIRECTORY, OFlags::DIRECTORY),
        ] {
            flags.set(system, self.open_flags.contains(of));
        }
        // POSIX leaves `O_EXCL` without `O_CREAT` undefined.
        flags.set(OFlags::EXCL, self.open_flags.contains(OpenFlags::CREATE | OpenFlags::EXCLUSIVE));
        flags
    }

    fn open_at(&self, below: Beneath<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        below.open_inside(Path::new(&self.path), flags, self.follows_links())
    }
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn error_code(error: Errno) -> ErrorCode {
    match error {
        // The path leaves the folder; wasmtime-wasi returns the same code.
        Errno::XDEV => ErrorCode::NotPermitted,
        error => ErrorCode::from(std::io::Error::from(error)),
    }
}

/// Sets the times of a path. wasmtime-wasi would open the target of a link, whatever its type.
pub(super) async fn set_times_at(
    view: &mut WasiFilesystemCtxView<'_>,
    resolution: PathResolution,
    folder: Resource<Descriptor>,
    (at, path): (PathFlags, String),
    access: NewTimestamp,
    modification: NewTimestamp,
) -> FsResult<()> {
    if at.contains(PathFlags::SYMLINK_FOLLOW) {
        return set_target_times(view, resolution, &folder, path, (access, modification)).await;
    }
    view.set_times_at(folder, at, path, access, modification).await
}

/// Sets the times of the target of a path, with links followed.
async fn set_target_times(
    view: &mut WasiFilesystemCtxView<'_>,
    resolution: PathResolution,
    folder: &Resource<Descriptor>,
    path: String,
    (access, modification): (NewTimestamp, NewTimestamp),
) -> FsResult<()> {
    let Descriptor::Dir(folder) = view.table.get(folder)?.clone() else {
        return Err(ErrorCode::NotDirectory.into());
    };
    if folder.perms.write_not_permitted() {
        return Err(ErrorCode::NotPermitted.into());
    }
    let opening = OpenAtRequest {
        path_flags: PathFlags::SYMLINK_FOLLOW,
        path,
        open_flags: OpenFlags::empty(),
        flags: DescriptorFlags::READ,
    };
    let below = Beneath::new(folder.dir.as_fd(), resolution);
    opening.check_file_type(below, OpenMode::READ)?;
    // The owner of a file can set its times without permission to read it.
    let opened = match opening.open_at(below, OFlags::RDONLY) {
        Err(Errno::ACCESS) => opening.open_at(below, OFlags::WRONLY),
        opened => opened,
    };
    let opened = StdFile::from(opened.map_err(error_code)?);
    if !matches!(
        file_type(&rustix::fs::fstat(&opened).map_err(error_code)?),
        FileType::RegularFile | FileType::Directory
    ) {
        return Err(ErrorCode::NotPermitted.into());
    }
    let descriptor =
        view.table.push(Descriptor::File(File::new(opened, folder.perms, OpenMode::WRITE, true)))?;
    view.set_times(descriptor, access, modification).await
}
