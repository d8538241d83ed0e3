//! Plain WASI files, with limits that wasmtime-wasi lacks: only regular files and folders can be opened, guests
//! cannot create links, and the call's quotas apply. Every operation runs on a thread of
//! [`GuestThreads`](toolbay_sandbox::blocking::GuestThreads) and occupies it until the file system answers.
//!
//! The linker shadows wasmtime-wasi's functions. Each moves its descriptors to the thread, where wasmtime-wasi blocks
//! ([`on_thread`]); opening ([`open`]) and streams ([`streams`]) are implemented here.

mod concurrent;
mod open;
mod pipes;
mod streams;

pub(super) use concurrent::link as link_async;

use std::sync::Arc;

use futures_util::FutureExt as _;
use toolbay_sandbox::blocking::{BlockingError, GuestThreads};
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, LinkerInstance, Resource, ResourceTable};
use wasmtime_wasi::filesystem::{Dir, WasiFilesystemCtx, WasiFilesystemCtxView, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    Advice, Descriptor, DescriptorFlags, DirectoryEntryStream, ErrorCode, HostDescriptor, NewTimestamp,
    OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsResult};
use wasmtime_wasi::{FsPerms, OpenMode};

use self::open::OpenAtRequest;
use self::streams::{FileReadStream, FileWriteStream, WritePosition};
use crate::files::{FileAccess, FileGrants, FileUsage, PathResolution};
use crate::silent_refusal::{FILE_WRITES, FOLDER_LISTING, SilentRefusal};
use crate::state::GuestState;

const TYPES: &str = "wasi:filesystem/types@0.2.12";
const PREOPENS: &str = "wasi:filesystem/preopens@0.2.12";

type GuestStore<'a> = StoreContextMut<'a, GuestState>;
type TypesInstance<'a> = LinkerInstance<'a, GuestState>;
type Fd = Resource<Descriptor>;
/// The result of a function of the interface.
type WasiResult<T> = wasmtime::Result<(Result<T, ErrorCode>,)>;

/// Shadows each listed function by one that does the same on a thread, `within` the quotas of the call.
macro_rules! on_thread {
    ($types:ident; $($name:literal $method:ident ( $($arg:ident : $of:ty),* ) $(within |$usage:ident| $take:expr)?;)*) => {$(
        $types.func_wrap_async(
            concat!("[method]descriptor.", $name),
            |mut store: GuestStore<'_>, (fd, $($arg,)*): (Fd, $($of,)*)| {
                Box::new(async move {
                    $(if file_usage(&store).and_then(|$usage| $take.ok()).is_none() {
                        return Ok((Err(ErrorCode::Quota),));
                    })?
                    let work = async move |view: &mut WasiFilesystemCtxView<'_>, fd: Fd| view.$method(fd, $($arg),*).await;
                    on_thread(&mut store, &fd, work).await
                })
            },
        )?;
    )*};
}

/// Shadows the functions of `wasi:filesystem` in the linker.
pub(super) fn shadow_filesystem(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance(PREOPENS)?.func_wrap("get-directories", |mut store: GuestStore<'_>, (): ()| {
        Ok((preopened_folders(&mut store)?,))
    })?;
    let mut types = linker.instance(TYPES)?;
    deny_links(&mut types)?;
    limit_entries(&mut types)?;
    limit_bytes(&mut types)?;
    shadow_read_streams(&mut types)?;
    shadow_two_descriptor_calls(&mut types)?;
    on_thread! { types;
        "advise" advise(offset: u64, length: u64, advice: Advice);
        "sync-data" sync_data();
        "sync" sync();
        "get-flags" get_flags();
        "get-type" get_type();
        "set-times" set_times(access: NewTimestamp, modification: NewTimestamp);
        "read" read(length: u64, offset: u64);
        "stat" stat();
        "stat-at" stat_at(at: PathFlags, path: String);
        "readlink-at" readlink_at(path: String);
        "remove-directory-at" remove_directory_at(path: String);
        "unlink-file-at" unlink_file_at(path: String);
        "create-directory-at" create_directory_at(path: String) within |usage| usage.count_entry();
        "write" write(data: Vec<u8>, offset: u64) within |usage| usage.count_bytes(data.len() as u64);
        "metadata-hash" metadata_hash();
        "metadata-hash-at" metadata_hash_at(at: PathFlags, path: String);
    }
    linker.allow_shadowing(false);
    Ok(())
}

/// The granted folders, by copies of the handles that the host has held since the plugin was loaded: nothing that happens to
/// their names meanwhile matters. A guest without any finds no file, and WASI cannot report why.
fn preopened_folders(store: &mut GuestStore<'_>) -> wasmtime::Result<Vec<(Fd, String)>> {
    let capabilities = &store.data().capabilities;
    let mut folders = Vec::new();
    for (files, (root, access)) in
        capabilities.files.iter().flat_map(|files| files.preopens().map(move |folder| (files, folder)))
    {
        let (perms, mode) = match access {
            FileAccess::Read => (FsPerms::ReadOnly, OpenMode::READ),
            FileAccess::Write => (FsPerms::ReadWrite, OpenMode::READ | OpenMode::WRITE),
        };
        let handle = root.dir.try_clone()?.into_std_file();
        folders.push((Dir::new(handle, perms, mode, true), files.guest_path(root)));
    }
    if folders.is_empty()
        && let Some(refusal) = SilentRefusal::new(capabilities, &FOLDER_LISTING)
    {
        refusal.record_use();
    }
    let table = store.data_mut().filesystem().table;
    folders.into_iter().map(|(folder, path)| Ok((table.push(Descriptor::Dir(folder))?, path))).collect()
}

/// Reports that a file could not be opened for writing, perhaps because no grant allows it.
fn report_refused_write(store: &GuestStore<'_>) {
    if let Some(refusal) = SilentRefusal::new(&store.data().capabilities, &FILE_WRITES) {
        refusal.record_use();
    }
}

/// Denies creating links. A symbolic link out of the folder does not help the guest itself, but others may follow it
/// later, including the host at its next start. A hard link is a second name for a file, under which other rights may
/// apply (RUSTSEC-2026-0188).
fn deny_links(types: &mut TypesInstance<'_>) -> wasmtime::Result<()> {
    types.func_wrap("[method]descriptor.symlink-at", |_: GuestStore<'_>, _: (Fd, String, String)| {
        Ok((Err::<(), _>(ErrorCode::NotPermitted),))
    })?;
    types.func_wrap(
        "[method]descriptor.link-at",
        |_: GuestStore<'_>, _: (Fd, PathFlags, String, Fd, String)| {
            Ok((Err::<(), _>(ErrorCode::NotPermitted),))
        },
    )
}

fn limit_entries(types: &mut TypesInstance<'_>) -> wasmtime::Result<()> {
    types.func_wrap_async(
        "[method]descriptor.open-at",
        |mut store: GuestStore<'_>,
         (fd, at, path, open, flags): (Fd, PathFlags, String, OpenFlags, DescriptorFlags)| {
            Box::new(async move {
                let Some(context) = FileContext::from_store(&store) else {
                    return Ok((Err(ErrorCode::NotPermitted),));
                };
                let Descriptor::Dir(folder) = descriptor(&mut store, &fd)? else {
                    return Ok((Err(ErrorCode::NotDirectory),));
                };
                let (usage, resolution) = (Arc::clone(&context.usage), context.resolution);
                let request = OpenAtRequest { path_flags: at, path, open_flags: open, flags };
                let writes = request.writes();
                let opened = context.run(move || request.open(&folder, resolution, &usage)).await.flatten();
                if opened.is_err() && writes {
                    report_refused_write(&store);
                }
                let table = store.data_mut().filesystem().table;
                Ok((match opened {
                    Ok(opened) => Ok(table.push(opened)?),
                    Err(code) => Err(code),
                },))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.set-times-at",
        |mut store: GuestStore<'_>,
         (fd, at, path, access, modification): (Fd, PathFlags, String, NewTimestamp, NewTimestamp)| {
            Box::new(async move {
                let resolution = resolution(&store);
                let work = async move |view: &mut WasiFilesystemCtxView<'_>, fd: Fd| {
                    open::set_times_at(view, resolution, fd, (at, path), access, modification).await
                };
                on_thread(&mut store, &fd, work).await
            })
        },
    )?;
    types.func_wrap_async("[method]descriptor.read-directory", |mut store: GuestStore<'_>, (fd,): (Fd,)| {
        Box::new(async move {
            let work = async |view: &mut WasiFilesystemCtxView<'_>, fd: Fd| {
                let entries = view.read_directory(fd).await?;
                Ok(view.table.delete(entries)?)
            };
            let (entries,) = on_thread(&mut store, &fd, work).await?;
            let table = store.data_mut().filesystem().table;
            Ok((match entries {
                Ok(entries) => Ok::<Resource<DirectoryEntryStream>, _>(table.push(entries)?),
                Err(code) => Err(code),
            },))
        })
    })
}

fn limit_bytes(types: &mut TypesInstance<'_>) -> wasmtime::Result<()> {
    types.func_wrap_async(
        "[method]descriptor.set-size",
        |mut store: GuestStore<'_>, (fd, size): (Fd, u64)| {
            Box::new(async move {
                let usage = file_usage(&store);
                let work = async move |view: &mut WasiFilesystemCtxView<'_>, fd: Fd| {
                    set_size(view, fd, size, usage).await
                };
                on_thread(&mut store, &fd, work).await
            })
        },
    )?;
    types.func_wrap(
        "[method]descriptor.write-via-stream",
        |mut store: GuestStore<'_>, (fd, offset): (Fd, u64)| {
            write_stream(&mut store, &fd, WritePosition::At(offset))
        },
    )?;
    types.func_wrap("[method]descriptor.append-via-stream", |mut store: GuestStore<'_>, (fd,): (Fd,)| {
        write_stream(&mut store, &fd, WritePosition::End)
    })
}

/// Sets the size of a file. Growing it counts as writing, even if it only adds a hole.
async fn set_size(
    view: &mut WasiFilesystemCtxView<'_>,
    fd: Fd,
    size: u64,
    usage: Option<Arc<FileUsage>>,
) -> FsResult<()> {
    let now = view.stat(Resource::new_borrow(fd.rep())).await;
    let more = size.saturating_sub(now.map_or(0, |stat| stat.size));
    if usage.and_then(|usage| usage.count_bytes(more).ok()).is_none() {
        return Err(ErrorCode::Quota.into());
    }
    view.set_size(fd, size).await
}

fn shadow_read_streams(types: &mut TypesInstance<'_>) -> wasmtime::Result<()> {
    types.func_wrap(
        "[method]descriptor.read-via-stream",
        |mut store: GuestStore<'_>, (fd, offset): (Fd, u64)| {
            let Some(context) = FileContext::from_store(&store) else {
                return Ok((Err(ErrorCode::NotPermitted),));
            };
            let Descriptor::File(file) = descriptor(&mut store, &fd)? else {
                return Ok((Err(ErrorCode::IsDirectory),));
            };
            let stream: DynInputStream = Box::new(FileReadStream::new(file.file, offset, context));
            Ok((Ok::<_, ErrorCode>(store.data_mut().filesystem().table.push(stream)?),))
        },
    )
}

fn write_stream(
    store: &mut GuestStore<'_>,
    fd: &Fd,
    start: WritePosition,
) -> WasiResult<Resource<DynOutputStream>> {
    let Some(context) = FileContext::from_store(store) else { return Ok((Err(ErrorCode::NotPermitted),)) };
    let Descriptor::File(file) = descriptor(store, fd)? else {
        return Ok((Err(ErrorCode::BadDescriptor),));
    };
    if file.perms.write_not_permitted() {
        return Ok((Err(ErrorCode::NotPermitted),));
    }
    let stream: DynOutputStream = Box::new(FileWriteStream::new(file.file, start, context));
    Ok((Ok(store.data_mut().filesystem().table.push(stream)?),))
}

fn shadow_two_descriptor_calls(types: &mut TypesInstance<'_>) -> wasmtime::Result<()> {
    types.func_wrap_async(
        "[method]descriptor.rename-at",
        |mut store: GuestStore<'_>, (fd, old, new_fd, new): (Fd, String, Fd, String)| {
            Box::new(async move {
                let folder = descriptor(&mut store, &new_fd)?;
                let work = async move |view: &mut WasiFilesystemCtxView<'_>, fd: Fd| {
                    let folder = view.table.push(folder)?;
                    view.rename_at(fd, old, folder, new).await
                };
                on_thread(&mut store, &fd, work).await
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.is-same-object",
        |mut store: GuestStore<'_>, (fd, other): (Fd, Fd)| {
            Box::new(async move {
                let other = descriptor(&mut store, &other)?;
                let work = async move |view: &mut WasiFilesystemCtxView<'_>, fd: Fd| {
                    let other = view.table.push(other)?;
                    Ok(view.is_same_object(fd, other).await.unwrap_or(false))
                };
                let (same,) = on_thread(&mut store, &fd, work).await?;
                // The function cannot return an error.
                Ok((same.unwrap_or(false),))
            })
        },
    )
}

/// The context of an operation on a thread.
#[derive(Clone)]
struct FileContext {
    threads: GuestThreads,
    usage: Arc<FileUsage>,
    resolution: PathResolution,
    plugin: toolbay_policy::name::PluginId,
}

impl FileContext {
    /// The context of the call; `None` without file grants, when the guest has no descriptor either.
    fn from_store(store: &GuestStore<'_>) -> Option<Self> {
        let capabilities = &store.data().capabilities;
        let threads = capabilities.grantee.granted.as_ref()?.services.file_threads.clone();
        let (usage, plugin) = (file_usage(store)?, capabilities.grantee.plugin.clone());
        Some(Self { threads, usage, resolution: resolution(store), plugin })
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ErrorCode> {
        self.threads.run(&self.plugin, work).await.map_err(|undone| match undone {
            BlockingError::Busy | BlockingError::NoThread => ErrorCode::Busy,
            BlockingError::TimedOut | BlockingError::Failed => ErrorCode::Io,
        })
    }
}

/// Runs `work` with a copy of a descriptor on a thread, where wasmtime-wasi can block.
async fn on_thread<T: Send + 'static>(
    store: &mut GuestStore<'_>,
    fd: &Fd,
    work: impl AsyncFnOnce(&mut WasiFilesystemCtxView<'_>, Fd) -> FsResult<T> + Send + 'static,
) -> WasiResult<T> {
    let context = FileContext::from_store(store);
    let descriptor = descriptor(store, fd)?;
    Ok((run_on_thread(context.as_ref(), descriptor, work).await?,))
}

/// Runs `work` with a descriptor on a thread of the context.
async fn run_on_thread<T: Send + 'static>(
    context: Option<&FileContext>,
    descriptor: Descriptor,
    work: impl AsyncFnOnce(&mut WasiFilesystemCtxView<'_>, Fd) -> FsResult<T> + Send + 'static,
) -> wasmtime::Result<Result<T, ErrorCode>> {
    let Some(context) = context else { return Ok(Err(ErrorCode::NotPermitted)) };
    let done = context.run(move || {
        let (mut ctx, mut table) = (WasiFilesystemCtx::default(), ResourceTable::new());
        let fd = table.push(descriptor)?;
        let mut view = WasiFilesystemCtxView { ctx: &mut ctx, table: &mut table };
        work(&mut view, fd).now_or_never().unwrap_or_else(|| Err(ErrorCode::WouldBlock.into()))
    });
    match done.await {
        Ok(Ok(value)) => Ok(Ok(value)),
        Ok(Err(error)) => Ok(Err(error.downcast()?)),
        Err(code) => Ok(Err(code)),
    }
}

/// Copies a descriptor; the copy keeps its file open.
fn descriptor(store: &mut GuestStore<'_>, fd: &Fd) -> wasmtime::Result<Descriptor> {
    Ok(store.data_mut().filesystem().table.get(fd)?.clone())
}

fn file_usage(store: &GuestStore<'_>) -> Option<Arc<FileUsage>> {
    store.data().capabilities.files.as_ref().map(|files| Arc::clone(&files.usage))
}

/// Who resolves the paths of the guest.
fn resolution(store: &GuestStore<'_>) -> PathResolution {
    store.data().capabilities.files.as_ref().map_or_else(PathResolution::default, FileGrants::resolution)
}
