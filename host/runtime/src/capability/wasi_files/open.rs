//! Opening below a preopened folder, without waiting: only regular files and folders.
//!
//! A file is looked at before it is opened, so that a FIFO or a device is never opened; it is opened without blocking and
//! looked at again, should it have been swapped in between. The rules of the flags are those of wasmtime-wasi.

use std::fs::File as StdFile;
use std::os::fd::AsFd as _;
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

use crate::capability::files::{Meter, open_inside};

/// What a guest wants to open.
pub(super) struct Opening {
    pub(super) at: PathFlags,
    pub(super) path: String,
    pub(super) open: OpenFlags,
    pub(super) flags: DescriptorFlags,
}

impl Opening {
    /// Opens it. Blocks on the file system, and on nobody else.
    pub(super) fn open(&self, folder: &Dir, meter: &Meter) -> Result<Descriptor, ErrorCode> {
        let mode = self.check(folder)?;
        let is_new = self.look(folder, mode)?;
        if is_new && meter.make().is_err() {
            return Err(ErrorCode::Quota);
        }
        let opened = self.open_at(folder, self.system_flags(mode)).map_err(code)?;
        let stat = rustix::fs::fstat(&opened).map_err(code)?;
        let opened = StdFile::from(opened);
        match kind(&stat) {
            FileType::Directory => Ok(Descriptor::Dir(Dir::new(opened, folder.perms, mode, true))),
            FileType::RegularFile if self.open.contains(OpenFlags::DIRECTORY) => Err(ErrorCode::NotDirectory),
            FileType::RegularFile => Ok(Descriptor::File(File::new(opened, folder.perms, mode, true))),
            _ => Err(ErrorCode::NotPermitted),
        }
    }

    /// How it is opened, if the folder allows that.
    fn check(&self, folder: &Dir) -> Result<OpenMode, ErrorCode> {
        let makes = OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE;
        let synchronised = DescriptorFlags::FILE_INTEGRITY_SYNC
            | DescriptorFlags::DATA_INTEGRITY_SYNC
            | DescriptorFlags::REQUESTED_WRITE_SYNC;
        if self.flags.intersects(synchronised) {
            return Err(ErrorCode::Unsupported);
        }
        if self.open.contains(OpenFlags::DIRECTORY) && self.open.intersects(makes) {
            return Err(ErrorCode::Invalid);
        }
        let writes = self.flags.contains(DescriptorFlags::WRITE);
        let mut mode = OpenMode::empty();
        if writes || self.open.intersects(OpenFlags::CREATE | OpenFlags::TRUNCATE) {
            mode |= OpenMode::WRITE;
        }
        // Something has to be asked of the system: what is neither to be read nor written is opened to be read.
        if self.flags.contains(DescriptorFlags::READ) || !writes {
            mode |= OpenMode::READ;
        }
        if mode.contains(OpenMode::WRITE) && folder.perms.write_not_permitted() {
            return Err(ErrorCode::NotPermitted);
        }
        Ok(mode)
    }

    /// Refuses what is neither a regular file nor a folder before it is opened. Returns whether a file will be made.
    fn look(&self, folder: &Dir, mode: OpenMode) -> Result<bool, ErrorCode> {
        let creates = self.open.contains(OpenFlags::CREATE);
        // The kernel opens nothing but a folder then.
        if self.open.contains(OpenFlags::DIRECTORY) && mode == OpenMode::READ {
            return Ok(false);
        }
        match look(folder, Path::new(&self.path), self.follows()) {
            // One at the end of a path that is not followed: opening it tells.
            Ok(FileType::RegularFile | FileType::Directory | FileType::Symlink) => Ok(false),
            Ok(_) => Err(ErrorCode::NotPermitted),
            Err(Errno::NOENT) if creates => Ok(true),
            Err(error) => Err(code(error)),
        }
    }

    fn follows(&self) -> bool {
        self.at.contains(PathFlags::SYMLINK_FOLLOW)
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
            flags.set(system, self.open.contains(of));
        }
        // Alone it means nothing, to the system least of all.
        flags.set(OFlags::EXCL, self.open.contains(OpenFlags::CREATE | OpenFlags::EXCLUSIVE));
        flags
    }

    fn open_at(&self, folder: &Dir, flags: OFlags) -> Result<std::os::fd::OwnedFd, Errno> {
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        open_inside(folder.dir.as_fd(), Path::new(&self.path), flags, self.follows())
    }
}

/// What a path is.
fn look(folder: &Dir, path: &Path, follow: bool) -> Result<FileType, Errno> {
    #[cfg(target_os = "linux")]
    let flags = OFlags::PATH;
    #[cfg(not(target_os = "linux"))]
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let seen = open_inside(folder.dir.as_fd(), path, flags, follow)?;
    Ok(kind(&rustix::fs::fstat(&seen)?))
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn code(error: Errno) -> ErrorCode {
    match error {
        // Out of the folder, as wasmtime-wasi tells it.
        Errno::XDEV => ErrorCode::NotPermitted,
        error => ErrorCode::from(std::io::Error::from(error)),
    }
}

/// Sets the times of what is at the end of a path and its links.
pub(super) async fn set_times(
    view: &mut WasiFilesystemCtxView<'_>,
    folder: &Resource<Descriptor>,
    path: String,
    access: NewTimestamp,
    modification: NewTimestamp,
) -> FsResult<()> {
    let Descriptor::Dir(folder) = view.table.get(folder)?.clone() else {
        return Err(ErrorCode::NotDirectory.into());
    };
    if folder.perms.write_not_permitted() {
        return Err(ErrorCode::NotPermitted.into());
    }
    let opening = Opening {
        at: PathFlags::SYMLINK_FOLLOW,
        path,
        open: OpenFlags::empty(),
        flags: DescriptorFlags::READ,
    };
    opening.look(&folder, OpenMode::READ)?;
    // The owner of a file may set its times without the right to read it.
    let opened = match opening.open_at(&folder, OFlags::RDONLY) {
        Err(Errno::ACCESS) => opening.open_at(&folder, OFlags::WRONLY),
        opened => opened,
    };
    let opened = StdFile::from(opened.map_err(code)?);
    if !matches!(
        kind(&rustix::fs::fstat(&opened).map_err(code)?),
        FileType::RegularFile | FileType::Directory
    ) {
        return Err(ErrorCode::NotPermitted.into());
    }
    let descriptor =
        view.table.push(Descriptor::File(File::new(opened, folder.perms, OpenMode::WRITE, true)))?;
    view.set_times(descriptor, access, modification).await
}
