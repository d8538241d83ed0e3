//! Plain WASI files, within bounds that wasmtime-wasi does not have: only regular files and folders are opened, no guest
//! makes links, and a call writes and makes as much as it may. Every operation runs on a thread of
//! [`GuestThreads`](crate::engine::blocking::GuestThreads) and holds it until the file system answers.
//!
//! wasmtime-wasi's functions are shadowed in the linker. Each takes its descriptors along to the thread, where
//! wasmtime-wasi does the work in place ([`on_thread`]); opening ([`open`]) and streams ([`streams`]) are our own.

mod open;
mod streams;

use std::sync::Arc;

use futures_util::FutureExt as _;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, LinkerInstance, Resource, ResourceTable};
use wasmtime_wasi::filesystem::{WasiFilesystemCtx, WasiFilesystemCtxView, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::filesystem::preopens::Host as _;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    Advice, Descriptor, DescriptorFlags, DirectoryEntryStream, ErrorCode, HostDescriptor, NewTimestamp,
    OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsResult};

use self::open::Opening;
use self::streams::{FileReader, FileWriter, Start};
use crate::capability::files::Meter;
use crate::capability::silent::{FOLDERS, Silent, WRITING};
use crate::engine::blocking::{GuestThreads, Undone};
use crate::engine::state::GuestState;

const TYPES: &str = "wasi:filesystem/types@0.2.12";
const PREOPENS: &str = "wasi:filesystem/preopens@0.2.12";

type Store<'a> = StoreContextMut<'a, GuestState>;
type Types<'a> = LinkerInstance<'a, GuestState>;
type Fd = Resource<Descriptor>;
/// What a function of the interface answers.
type Answer<T> = wasmtime::Result<(Result<T, ErrorCode>,)>;

/// Shadows each function of the list by one that does the same on a thread, `within` what the call may still write and make.
macro_rules! on_thread {
    ($types:ident; $($name:literal $method:ident ( $($arg:ident : $of:ty),* ) $(within |$meter:ident| $take:expr)?;)*) => {$(
        $types.func_wrap_async(
            concat!("[method]descriptor.", $name),
            |mut store: Store<'_>, (fd, $($arg,)*): (Fd, $($of,)*)| {
                Box::new(async move {
                    $(if meter(&store).and_then(|$meter| $take.ok()).is_none() {
                        return Ok((Err(ErrorCode::Quota),));
                    })?
                    let work = async move |view: &mut WasiFilesystemCtxView<'_>, fd: Fd| view.$method(fd, $($arg),*).await;
                    on_thread(&mut store, &fd, work).await
                })
            },
        )?;
    )*};
}

/// Puts the bounds before the functions of the interface.
pub(crate) fn bound(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance(PREOPENS)?.func_wrap("get-directories", |mut store: Store<'_>, (): ()| {
        let folders = store.data_mut().filesystem().get_directories()?;
        // A guest without folders finds no file, and is not told why.
        if folders.is_empty()
            && let Some(silent) = Silent::new(&store.data().capabilities, &FOLDERS)
        {
            silent.used();
        }
        Ok((folders,))
    })?;
    let mut types = linker.instance(TYPES)?;
    no_links(&mut types)?;
    bound_entries(&mut types)?;
    bound_bytes(&mut types)?;
    read_streams(&mut types)?;
    two_descriptors(&mut types)?;
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
        "create-directory-at" create_directory_at(path: String) within |meter| meter.make();
        "write" write(data: Vec<u8>, offset: u64) within |meter| meter.write(data.len() as u64);
        "metadata-hash" metadata_hash();
        "metadata-hash-at" metadata_hash_at(at: PathFlags, path: String);
    }
    linker.allow_shadowing(false);
    Ok(())
}

/// No guest makes a link. A symbolic one that leads out of its folder is no way out for itself, but it is for whoever
/// follows it later, the host at the next start included. A hard one is a second name for a file, under which other
/// rights may hold (RUSTSEC-2026-0188).
fn no_links(types: &mut Types<'_>) -> wasmtime::Result<()> {
    types.func_wrap("[method]descriptor.symlink-at", |_: Store<'_>, _: (Fd, String, String)| {
        Ok((Err::<(), _>(ErrorCode::NotPermitted),))
    })?;
    types.func_wrap("[method]descriptor.link-at", |_: Store<'_>, _: (Fd, PathFlags, String, Fd, String)| {
        Ok((Err::<(), _>(ErrorCode::NotPermitted),))
    })
}

fn bound_entries(types: &mut Types<'_>) -> wasmtime::Result<()> {
    types.func_wrap_async(
        "[method]descriptor.open-at",
        |mut store: Store<'_>,
         (fd, at, path, open, flags): (Fd, PathFlags, String, OpenFlags, DescriptorFlags)| {
            Box::new(async move {
                let Some(access) = Access::of(&store) else { return Ok((Err(ErrorCode::NotPermitted),)) };
                let Descriptor::Dir(folder) = descriptor(&mut store, &fd)? else {
                    return Ok((Err(ErrorCode::NotDirectory),));
                };
                let meter = Arc::clone(&access.meter);
                let writes = open.contains(OpenFlags::CREATE) || flags.contains(DescriptorFlags::WRITE);
                let work = move || Opening { at, path, open, flags }.open(&folder, &meter);
                let opened = access.run(work).await;
                if !matches!(opened, Ok(Ok(_)))
                    && writes
                    && let Some(silent) = Silent::new(&store.data().capabilities, &WRITING)
                {
                    silent.used();
                }
                let table = store.data_mut().filesystem().table;
                Ok((match opened {
                    Ok(Ok(opened)) => Ok(table.push(opened)?),
                    Ok(Err(code)) | Err(code) => Err(code),
                },))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.set-times-at",
        |mut store: Store<'_>,
         (fd, at, path, access, modification): (Fd, PathFlags, String, NewTimestamp, NewTimestamp)| {
            Box::new(async move {
                let work = async move |view: &mut WasiFilesystemCtxView<'_>, fd: Fd| {
                    // A file at the end of a link would be opened by wasmtime-wasi, whatever it is.
                    if at.contains(PathFlags::SYMLINK_FOLLOW) {
                        return open::set_times(view, &fd, path, access, modification).await;
                    }
                    view.set_times_at(fd, at, path, access, modification).await
                };
                on_thread(&mut store, &fd, work).await
            })
        },
    )?;
    types.func_wrap_async("[method]descriptor.read-directory", |mut store: Store<'_>, (fd,): (Fd,)| {
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

fn bound_bytes(types: &mut Types<'_>) -> wasmtime::Result<()> {
    types.func_wrap_async("[method]descriptor.set-size", |mut store: Store<'_>, (fd, size): (Fd, u64)| {
        Box::new(async move {
            let meter = meter(&store);
            let work = async move |view: &mut WasiFilesystemCtxView<'_>, fd: Fd| {
                let now = view.stat(Resource::new_borrow(fd.rep())).await;
                // What a file grows by counts as written, though it be a hole.
                let more = size.saturating_sub(now.map_or(0, |stat| stat.size));
                if meter.and_then(|m| m.write(more).ok()).is_none() {
                    return Err(ErrorCode::Quota.into());
                }
                view.set_size(fd, size).await
            };
            on_thread(&mut store, &fd, work).await
        })
    })?;
    types.func_wrap(
        "[method]descriptor.write-via-stream",
        |mut store: Store<'_>, (fd, offset): (Fd, u64)| write_stream(&mut store, &fd, Start::At(offset)),
    )?;
    types.func_wrap("[method]descriptor.append-via-stream", |mut store: Store<'_>, (fd,): (Fd,)| {
        write_stream(&mut store, &fd, Start::End)
    })
}

fn read_streams(types: &mut Types<'_>) -> wasmtime::Result<()> {
    types.func_wrap("[method]descriptor.read-via-stream", |mut store: Store<'_>, (fd, offset): (Fd, u64)| {
        let Some(access) = Access::of(&store) else { return Ok((Err(ErrorCode::NotPermitted),)) };
        let Descriptor::File(file) = descriptor(&mut store, &fd)? else {
            return Ok((Err(ErrorCode::IsDirectory),));
        };
        let stream: DynInputStream = Box::new(FileReader::new(file.file, offset, access));
        Ok((Ok::<_, ErrorCode>(store.data_mut().filesystem().table.push(stream)?),))
    })
}

fn write_stream(store: &mut Store<'_>, fd: &Fd, start: Start) -> Answer<Resource<DynOutputStream>> {
    let Some(access) = Access::of(store) else { return Ok((Err(ErrorCode::NotPermitted),)) };
    let Descriptor::File(file) = descriptor(store, fd)? else {
        return Ok((Err(ErrorCode::BadDescriptor),));
    };
    if file.perms.write_not_permitted() {
        return Ok((Err(ErrorCode::NotPermitted),));
    }
    let stream: DynOutputStream = Box::new(FileWriter::new(file.file, start, access));
    Ok((Ok(store.data_mut().filesystem().table.push(stream)?),))
}

fn two_descriptors(types: &mut Types<'_>) -> wasmtime::Result<()> {
    types.func_wrap_async(
        "[method]descriptor.rename-at",
        |mut store: Store<'_>, (fd, old, new_fd, new): (Fd, String, Fd, String)| {
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
        |mut store: Store<'_>, (fd, other): (Fd, Fd)| {
            Box::new(async move {
                let other = descriptor(&mut store, &other)?;
                let work = async move |view: &mut WasiFilesystemCtxView<'_>, fd: Fd| {
                    let other = view.table.push(other)?;
                    Ok(view.is_same_object(fd, other).await.unwrap_or(false))
                };
                let (same,) = on_thread(&mut store, &fd, work).await?;
                // The function has no word for an error.
                Ok((same.unwrap_or(false),))
            })
        },
    )
}

/// What it takes to do something with a file off the async threads.
#[derive(Clone)]
struct Access {
    threads: GuestThreads,
    meter: Arc<Meter>,
    plugin: toolbay_policy::name::PluginId,
}

impl Access {
    /// The call's; a guest without files has none, and no descriptor either.
    fn of(store: &Store<'_>) -> Option<Self> {
        let capabilities = &store.data().capabilities;
        let threads = capabilities.who.granted.as_ref()?.services.file_threads.clone();
        Some(Self { threads, meter: meter(store)?, plugin: capabilities.who.plugin.clone() })
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ErrorCode> {
        self.threads.run(&self.plugin, work).await.map_err(|undone| match undone {
            Undone::Busy => ErrorCode::Busy,
            Undone::Late | Undone::Lost => ErrorCode::Io,
        })
    }
}

/// Does something with a copy of a descriptor on a thread, where wasmtime-wasi blocks in place.
async fn on_thread<T: Send + 'static>(
    store: &mut Store<'_>,
    fd: &Fd,
    work: impl AsyncFnOnce(&mut WasiFilesystemCtxView<'_>, Fd) -> FsResult<T> + Send + 'static,
) -> Answer<T> {
    let Some(access) = Access::of(store) else { return Ok((Err(ErrorCode::NotPermitted),)) };
    let descriptor = descriptor(store, fd)?;
    let done = access.run(move || {
        let (mut ctx, mut table) = (WasiFilesystemCtx::default(), ResourceTable::new());
        let fd = table.push(descriptor)?;
        let mut view = WasiFilesystemCtxView { ctx: &mut ctx, table: &mut table };
        work(&mut view, fd).now_or_never().unwrap_or_else(|| Err(ErrorCode::WouldBlock.into()))
    });
    match done.await {
        Ok(Ok(value)) => Ok((Ok(value),)),
        Ok(Err(error)) => Ok((Err(error.downcast()?),)),
        Err(code) => Ok((Err(code),)),
    }
}

/// A copy of a descriptor, which keeps its file open.
fn descriptor(store: &mut Store<'_>, fd: &Fd) -> wasmtime::Result<Descriptor> {
    Ok(store.data_mut().filesystem().table.get(fd)?.clone())
}

fn meter(store: &Store<'_>) -> Option<Arc<Meter>> {
    store.data().capabilities.files.as_ref().map(|files| Arc::clone(&files.meter))
}
