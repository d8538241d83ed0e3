//! The files of WASI 0.3, with the same rules: each operation runs that of WASI 0.2 on a thread and converts the
//! values.

use std::sync::Arc;

use tokio::sync::oneshot;
use wasmtime::AsContextMut as _;
use wasmtime::component::{Accessor, FutureReader, Linker, LinkerInstance, Resource, StreamReader};
use wasmtime_wasi::filesystem::{WasiFilesystemCtxView, WasiFilesystemView as _};
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types as blocking;
use wasmtime_wasi::p2::bindings::filesystem::types::{HostDescriptor as _, HostDirectoryEntryStream as _};
use wasmtime_wasi::p3::bindings::clocks::system_clock::Instant;
use wasmtime_wasi::p3::bindings::filesystem::types::{
    Advice, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, ErrorCode, MetadataHashValue,
    NewTimestamp, OpenFlags, PathFlags,
};

use super::open::{self, OpenAtRequest};
use super::pipes::{EntryProducer, ReadProducer, WriteConsumer};
use super::streams::WritePosition;
use super::{
    Fd, FileContext, GuestStore, descriptor, file_usage, preopened_folders, report_refused_write, resolution,
    run_on_thread,
};
use crate::state::GuestState;

type TypesInstance<'a> = LinkerInstance<'a, GuestState>;
type WasiResult<T> = wasmtime::Result<(Result<T, ErrorCode>,)>;
type Finished = FutureReader<Result<(), ErrorCode>>;

/// Links each listed function as one of WASI 0.2 on a thread, `within` the quotas of the call, with its result
/// converted.
macro_rules! on_thread {
    ($types:ident; $($name:literal $method:ident ( $($arg:ident : $of:ty => $as:expr),* ) -> $convert:expr $(, within |$usage:ident| $take:expr)?;)*) => {$(
        $types.func_wrap_concurrent(
            concat!("[method]descriptor.", $name),
            |accessor: &Accessor<GuestState>, (fd, $($arg,)*): (Fd, $($of,)*)| {
                Box::pin(async move {
                    $(if accessor.with(|mut store| file_usage(&store.as_context_mut()).and_then(|$usage| $take.ok())).is_none() {
                        return Ok((Err(ErrorCode::Quota),));
                    })?
                    let work = async move |view: &mut WasiFilesystemCtxView<'_>, fd: Fd| view.$method(fd, $($as),*).await;
                    on_thread(accessor, fd, work, $convert).await
                })
            },
        )?;
    )*};
}

/// Links `wasi:filesystem` 0.3 in place of wasmtime-wasi's.
pub(crate) fn link(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    wasmtime_wasi::p3::filesystem::add_to_linker(linker)?;
    linker.allow_shadowing(true);
    linker
        .instance("wasi:filesystem/preopens@0.3.0")?
        .func_wrap("get-directories", |mut store: GuestStore<'_>, (): ()| {
            Ok((preopened_folders(&mut store)?,))
        })?;
    let mut types = linker.instance("wasi:filesystem/types@0.3.0")?;
    deny_links(&mut types)?;
    link_open(&mut types)?;
    link_pairs(&mut types)?;
    link_streams(&mut types)?;
    on_thread! { types;
        "advise" advise(offset: u64 => offset, length: u64 => length, advice: Advice => advice_of(advice)) -> same;
        "sync-data" sync_data() -> same;
        "sync" sync() -> same;
        "get-flags" get_flags() -> flags_from;
        "get-type" get_type() -> type_from;
        "set-times" set_times(access: NewTimestamp => time_of(access), modification: NewTimestamp => time_of(modification)) -> same;
        "stat" stat() -> stat_from;
        "stat-at" stat_at(at: PathFlags => path_flags(at), path: String => path) -> stat_from;
        "readlink-at" readlink_at(path: String => path) -> same;
        "remove-directory-at" remove_directory_at(path: String => path) -> same;
        "unlink-file-at" unlink_file_at(path: String => path) -> same;
        "create-directory-at" create_directory_at(path: String => path) -> same, within |usage| usage.count_entry();
        "metadata-hash" metadata_hash() -> hash_from;
        "metadata-hash-at" metadata_hash_at(at: PathFlags => path_flags(at), path: String => path) -> hash_from;
    }
    linker.allow_shadowing(false);
    Ok(())
}

/// Denies creating links, for the same reasons as in WASI 0.2.
fn deny_links(types: &mut TypesInstance<'_>) -> wasmtime::Result<()> {
    types.func_wrap_concurrent("[method]descriptor.symlink-at", |_, _: (Fd, String, String)| {
        Box::pin(async { Ok((Err::<(), _>(ErrorCode::NotPermitted),)) })
    })?;
    types.func_wrap_concurrent("[method]descriptor.link-at", |_, _: (Fd, PathFlags, String, Fd, String)| {
        Box::pin(async { Ok((Err::<(), _>(ErrorCode::NotPermitted),)) })
    })
}

fn link_open(types: &mut TypesInstance<'_>) -> wasmtime::Result<()> {
    types.func_wrap_concurrent(
        "[method]descriptor.open-at",
        |accessor: &Accessor<GuestState>,
         (fd, at, path, open, flags): (Fd, PathFlags, String, OpenFlags, DescriptorFlags)| {
            Box::pin(async move {
                let request = OpenAtRequest {
                    path_flags: path_flags(at),
                    path,
                    open_flags: open_flags(open),
                    flags: flags_of(flags),
                };
                let writes = request.writes();
                let (context, folder) = context_and_descriptor(accessor, &fd)?;
                let Some(context) = context else { return Ok((Err(ErrorCode::NotPermitted),)) };
                let blocking::Descriptor::Dir(folder) = folder else {
                    return Ok((Err(ErrorCode::NotDirectory),));
                };
                let (usage, resolution) = (Arc::clone(&context.usage), context.resolution);
                let opened = context.run(move || request.open(&folder, resolution, &usage)).await.flatten();
                accessor.with(|mut store| {
                    if opened.is_err() && writes {
                        report_refused_write(&store.as_context_mut());
                    }
                    let table = store.data_mut().filesystem().table;
                    Ok((match opened {
                        Ok(opened) => Ok::<Fd, _>(table.push(opened)?),
                        Err(code) => Err(code_from(code)),
                    },))
                })
            })
        },
    )?;
    types.func_wrap_concurrent(
        "[method]descriptor.set-times-at",
        |accessor: &Accessor<GuestState>,
         (fd, at, path, access, modification): (Fd, PathFlags, String, NewTimestamp, NewTimestamp)| {
            Box::pin(async move {
                let (at, access, modification) = (path_flags(at), time_of(access), time_of(modification));
                let resolution = accessor.with(|mut store| resolution(&store.as_context_mut()));
                let work = async move |view: &mut WasiFilesystemCtxView<'_>, fd: Fd| {
                    open::set_times_at(view, resolution, fd, (at, path), access, modification).await
                };
                on_thread(accessor, fd, work, same).await
            })
        },
    )?;
    types.func_wrap_concurrent(
        "[method]descriptor.set-size",
        |accessor: &Accessor<GuestState>, (fd, size): (Fd, u64)| {
            Box::pin(async move {
                let usage = accessor.with(|mut store| file_usage(&store.as_context_mut()));
                let work = async move |view: &mut WasiFilesystemCtxView<'_>, fd: Fd| {
                    super::set_size(view, fd, size, usage).await
                };
                on_thread(accessor, fd, work, same).await
            })
        },
    )
}

/// Links the functions of two descriptors.
fn link_pairs(types: &mut TypesInstance<'_>) -> wasmtime::Result<()> {
    types.func_wrap_concurrent(
        "[method]descriptor.rename-at",
        |accessor: &Accessor<GuestState>, (fd, old, new_fd, new): (Fd, String, Fd, String)| {
            Box::pin(async move {
                let (_, folder) = context_and_descriptor(accessor, &new_fd)?;
                let work = async move |view: &mut WasiFilesystemCtxView<'_>, fd: Fd| {
                    let folder = view.table.push(folder)?;
                    view.rename_at(fd, old, folder, new).await
                };
                on_thread(accessor, fd, work, same).await
            })
        },
    )?;
    types.func_wrap_concurrent(
        "[method]descriptor.is-same-object",
        |accessor: &Accessor<GuestState>, (fd, other): (Fd, Fd)| {
            Box::pin(async move {
                let (_, other) = context_and_descriptor(accessor, &other)?;
                let work = async move |view: &mut WasiFilesystemCtxView<'_>, fd: Fd| {
                    let other = view.table.push(other)?;
                    Ok(view.is_same_object(fd, other).await.unwrap_or(false))
                };
                let (same,) = on_thread(accessor, fd, work, same).await?;
                // The function cannot return an error.
                Ok((same.unwrap_or(false),))
            })
        },
    )
}

fn link_streams(types: &mut TypesInstance<'_>) -> wasmtime::Result<()> {
    types.func_wrap(
        "[method]descriptor.read-via-stream",
        |mut store: GuestStore<'_>, (fd, offset): (Fd, u64)| {
            let (sender, receiver) = oneshot::channel();
            let stream = match (FileContext::from_store(&store), descriptor(&mut store, &fd)?) {
                (Some(context), blocking::Descriptor::File(file)) => {
                    StreamReader::new(&mut store, ReadProducer::new(file.file, offset, context, sender))?
                }
                (Some(_), blocking::Descriptor::Dir(_)) => {
                    refused_stream(&mut store, sender, ErrorCode::IsDirectory)?
                }
                (None, _) => refused_stream(&mut store, sender, ErrorCode::NotPermitted)?,
            };
            Ok(((stream, Finished::new(&mut store, receiver)?),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.write-via-stream",
        |mut store: GuestStore<'_>, (fd, data, offset): (Fd, StreamReader<u8>, u64)| {
            write_stream(&mut store, &fd, data, WritePosition::At(offset))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.append-via-stream",
        |mut store: GuestStore<'_>, (fd, data): (Fd, StreamReader<u8>)| {
            write_stream(&mut store, &fd, data, WritePosition::End)
        },
    )?;
    types.func_wrap("[method]descriptor.read-directory", |mut store: GuestStore<'_>, (fd,): (Fd,)| {
        let (sender, receiver) = oneshot::channel();
        let folder = descriptor(&mut store, &fd)?;
        let stream = match FileContext::from_store(&store) {
            Some(context) => {
                let entries = async move { run_on_thread(Some(&context), folder, read_directory).await };
                StreamReader::new(&mut store, EntryProducer::new(entries, sender))?
            }
            None => refused_stream(&mut store, sender, ErrorCode::NotPermitted)?,
        };
        Ok(((stream, Finished::new(&mut store, receiver)?),))
    })
}

/// An empty stream whose end is an error.
fn refused_stream<
    T: Unpin + Send + Sync + wasmtime::component::Lower + wasmtime::component::Lift + 'static,
>(
    store: &mut GuestStore<'_>,
    sender: oneshot::Sender<Result<(), ErrorCode>>,
    code: ErrorCode,
) -> wasmtime::Result<StreamReader<T>> {
    // The receiver is created with the channel and exists.
    sender.send(Err(code)).ok();
    StreamReader::new(store, Vec::new())
}

fn write_stream(
    store: &mut GuestStore<'_>,
    fd: &Fd,
    mut data: StreamReader<u8>,
    start: WritePosition,
) -> wasmtime::Result<(Finished,)> {
    let (sender, receiver) = oneshot::channel();
    let refused = match (FileContext::from_store(store), descriptor(store, fd)?) {
        (Some(context), blocking::Descriptor::File(file)) if !file.perms.write_not_permitted() => {
            data.pipe(&mut *store, WriteConsumer::new(file.file, start, context, sender))?;
            return Ok((Finished::new(store, receiver)?,));
        }
        (Some(_), blocking::Descriptor::Dir(_)) => ErrorCode::BadDescriptor,
        (Some(_) | None, _) => ErrorCode::NotPermitted,
    };
    data.close(&mut *store)?;
    sender.send(Err(refused)).ok();
    Ok((Finished::new(store, receiver)?,))
}

/// Reads all entries of a folder.
async fn read_directory(view: &mut WasiFilesystemCtxView<'_>, fd: Fd) -> FsResult<Vec<DirectoryEntry>> {
    let stream = view.read_directory(fd).await?;
    let mut entries = Vec::new();
    while let Some(entry) = view.read_directory_entry(Resource::new_borrow(stream.rep())).await? {
        entries.push(DirectoryEntry { type_: type_from(entry.type_), name: entry.name });
    }
    Ok(entries)
}

fn context_and_descriptor(
    accessor: &Accessor<GuestState>,
    fd: &Fd,
) -> wasmtime::Result<(Option<FileContext>, blocking::Descriptor)> {
    accessor.with(|mut store| {
        let mut store = store.as_context_mut();
        Ok((FileContext::from_store(&store), descriptor(&mut store, fd)?))
    })
}

/// Runs `work` with a copy of a descriptor on a thread.
async fn on_thread<T: Send + 'static, U>(
    accessor: &Accessor<GuestState>,
    fd: Fd,
    work: impl AsyncFnOnce(&mut WasiFilesystemCtxView<'_>, Fd) -> FsResult<T> + Send + 'static,
    convert: impl FnOnce(T) -> U,
) -> WasiResult<U> {
    let (context, descriptor) = context_and_descriptor(accessor, &fd)?;
    let done = run_on_thread(context.as_ref(), descriptor, work).await?;
    Ok((done.map(convert).map_err(code_from),))
}

fn same<T>(value: T) -> T {
    value
}

fn advice_of(advice: Advice) -> blocking::Advice {
    match advice {
        Advice::Normal => blocking::Advice::Normal,
        Advice::Sequential => blocking::Advice::Sequential,
        Advice::Random => blocking::Advice::Random,
        Advice::WillNeed => blocking::Advice::WillNeed,
        Advice::DontNeed => blocking::Advice::DontNeed,
        Advice::NoReuse => blocking::Advice::NoReuse,
    }
}

fn time_of(time: NewTimestamp) -> blocking::NewTimestamp {
    match time {
        NewTimestamp::NoChange => blocking::NewTimestamp::NoChange,
        NewTimestamp::Now => blocking::NewTimestamp::Now,
        // WASI 0.2 has no time before 1970.
        NewTimestamp::Timestamp(at) => blocking::NewTimestamp::Timestamp(blocking::Datetime {
            seconds: u64::try_from(at.seconds).unwrap_or(0),
            nanoseconds: at.nanoseconds,
        }),
    }
}

/// Converts flags one by one.
macro_rules! flags {
    ($($function:ident: $From:ty => $To:ty { $($NAME:ident)* })*) => {$(
        fn $function(flags: $From) -> $To {
            let mut converted = <$To>::empty();
            $(if flags.contains(<$From>::$NAME) { converted |= <$To>::$NAME; })*
            converted
        }
    )*};
}

flags! {
    path_flags: PathFlags => blocking::PathFlags { SYMLINK_FOLLOW }
    open_flags: OpenFlags => blocking::OpenFlags { CREATE DIRECTORY EXCLUSIVE TRUNCATE }
    flags_of: DescriptorFlags => blocking::DescriptorFlags {
        READ WRITE FILE_INTEGRITY_SYNC DATA_INTEGRITY_SYNC REQUESTED_WRITE_SYNC MUTATE_DIRECTORY
    }
    flags_from: blocking::DescriptorFlags => DescriptorFlags {
        READ WRITE FILE_INTEGRITY_SYNC DATA_INTEGRITY_SYNC REQUESTED_WRITE_SYNC MUTATE_DIRECTORY
    }
}

fn type_from(ty: blocking::DescriptorType) -> DescriptorType {
    match ty {
        blocking::DescriptorType::Unknown => DescriptorType::Other(None),
        blocking::DescriptorType::BlockDevice => DescriptorType::BlockDevice,
        blocking::DescriptorType::CharacterDevice => DescriptorType::CharacterDevice,
        blocking::DescriptorType::Directory => DescriptorType::Directory,
        blocking::DescriptorType::Fifo => DescriptorType::Fifo,
        blocking::DescriptorType::SymbolicLink => DescriptorType::SymbolicLink,
        blocking::DescriptorType::RegularFile => DescriptorType::RegularFile,
        blocking::DescriptorType::Socket => DescriptorType::Socket,
    }
}

fn stat_from(stat: blocking::DescriptorStat) -> DescriptorStat {
    let instant = |at: blocking::Datetime| Instant {
        seconds: i64::try_from(at.seconds).unwrap_or(i64::MAX),
        nanoseconds: at.nanoseconds,
    };
    DescriptorStat {
        type_: type_from(stat.type_),
        link_count: stat.link_count,
        size: stat.size,
        data_access_timestamp: stat.data_access_timestamp.map(instant),
        data_modification_timestamp: stat.data_modification_timestamp.map(instant),
        status_change_timestamp: stat.status_change_timestamp.map(instant),
    }
}

fn hash_from(hash: blocking::MetadataHashValue) -> MetadataHashValue {
    MetadataHashValue { lower: hash.lower, upper: hash.upper }
}

/// Converts an error. The two versions differ in one error.
pub(super) fn code_from(code: blocking::ErrorCode) -> ErrorCode {
    macro_rules! same {
        ($($Name:ident)*) => {
            match code {
                $(blocking::ErrorCode::$Name => ErrorCode::$Name,)*
                blocking::ErrorCode::WouldBlock => ErrorCode::Busy,
            }
        };
    }
    same! {
        Access Already BadDescriptor Busy Deadlock Quota Exist FileTooLarge IllegalByteSequence InProgress Interrupted
        Invalid Io IsDirectory Loop TooManyLinks MessageSize NameTooLong NoDevice NoEntry NoLock InsufficientMemory
        InsufficientSpace NotDirectory NotEmpty NotRecoverable Unsupported NoTty NoSuchDevice Overflow NotPermitted Pipe
        ReadOnly InvalidSeek TextFileBusy CrossDevice
    }
}
