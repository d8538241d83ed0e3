//! What plain WASI files are not allowed beyond the rights of their folder: links of any kind, and more bytes or
//! entries than one call may write and make.
//!
//! wasmtime-wasi's functions are shadowed in the linker, each by one that asks first and then does what the original
//! does.

use std::sync::Arc;

use bytes::Bytes;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, LinkerInstance, Resource};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::filesystem::WasiFilesystemView;
use wasmtime_wasi::p2::bindings::filesystem::preopens::Host as _;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    Descriptor, DescriptorFlags, ErrorCode, HostDescriptor, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{DynOutputStream, FsResult, OutputStream, Pollable, StreamError, StreamResult};

use crate::capability::files::Meter;
use crate::capability::silent::Silent;
use crate::state::GuestState;

const TYPES: &str = "wasi:filesystem/types@0.2.12";
const PREOPENS: &str = "wasi:filesystem/preopens@0.2.12";

type Store<'a> = StoreContextMut<'a, GuestState>;
type Fd = Resource<Descriptor>;
/// What a function of the interface answers.
type Answer<T> = wasmtime::Result<(Result<T, ErrorCode>,)>;

/// Puts the bounds before the functions that write, make and link.
pub(crate) fn bound(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance(PREOPENS)?.func_wrap("get-directories", |mut store: Store<'_>, (): ()| {
        let folders = store.data_mut().filesystem().get_directories()?;
        // A guest without folders finds no file, and is not told why.
        if folders.is_empty()
            && let Some(silent) = Silent::folders(&store.data().capabilities)
        {
            silent.used();
        }
        Ok((folders,))
    })?;
    let mut types = linker.instance(TYPES)?;
    no_links(&mut types)?;
    bound_entries(&mut types)?;
    bound_bytes(&mut types)?;
    linker.allow_shadowing(false);
    Ok(())
}

/// No guest makes a link. A symbolic one that leads out of its folder is no way out for itself, but it is for whoever
/// follows it later, the host at the next start included. A hard one is a second name for a file, under which other
/// rights may hold (RUSTSEC-2026-0188).
fn no_links(types: &mut LinkerInstance<'_, GuestState>) -> wasmtime::Result<()> {
    types.func_wrap("[method]descriptor.symlink-at", |_: Store<'_>, _: (Fd, String, String)| {
        Ok((Err::<(), _>(ErrorCode::NotPermitted),))
    })?;
    types.func_wrap("[method]descriptor.link-at", |_: Store<'_>, _: (Fd, PathFlags, String, Fd, String)| {
        Ok((Err::<(), _>(ErrorCode::NotPermitted),))
    })
}

fn bound_entries(types: &mut LinkerInstance<'_, GuestState>) -> wasmtime::Result<()> {
    types.func_wrap_async(
        "[method]descriptor.open-at",
        |mut store: Store<'_>,
         (fd, at, path, open, flags): (Fd, PathFlags, String, OpenFlags, DescriptorFlags)| {
            Box::new(async move {
                if open.contains(OpenFlags::CREATE) {
                    let mut files = store.data_mut().filesystem();
                    let there = files.stat_at(Resource::new_borrow(fd.rep()), at, path.clone()).await.is_ok();
                    if !there && meter(&store).and_then(|m| m.make().ok()).is_none() {
                        return Ok((Err(ErrorCode::Quota),));
                    }
                }
                let opened = store.data_mut().filesystem().open_at(fd, at, path, open, flags).await;
                let writes = open.contains(OpenFlags::CREATE) || flags.contains(DescriptorFlags::WRITE);
                if opened.is_err()
                    && writes
                    && let Some(silent) = Silent::writing(&store.data().capabilities)
                {
                    silent.used();
                }
                answer(opened)
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.create-directory-at",
        |mut store: Store<'_>, (fd, path): (Fd, String)| {
            Box::new(async move {
                if meter(&store).and_then(|m| m.make().ok()).is_none() {
                    return Ok((Err(ErrorCode::Quota),));
                }
                answer(store.data_mut().filesystem().create_directory_at(fd, path).await)
            })
        },
    )
}

fn bound_bytes(types: &mut LinkerInstance<'_, GuestState>) -> wasmtime::Result<()> {
    types.func_wrap_async(
        "[method]descriptor.write",
        |mut store: Store<'_>, (fd, data, offset): (Fd, Vec<u8>, u64)| {
            Box::new(async move {
                if meter(&store).and_then(|m| m.write(data.len() as u64).ok()).is_none() {
                    return Ok((Err(ErrorCode::Quota),));
                }
                answer(store.data_mut().filesystem().write(fd, data, offset).await)
            })
        },
    )?;
    types.func_wrap_async("[method]descriptor.set-size", |mut store: Store<'_>, (fd, size): (Fd, u64)| {
        Box::new(async move {
            let now = store.data_mut().filesystem().stat(Resource::new_borrow(fd.rep())).await;
            // What a file grows by counts as written, though it be a hole.
            let more = size.saturating_sub(now.map_or(0, |stat| stat.size));
            if meter(&store).and_then(|m| m.write(more).ok()).is_none() {
                return Ok((Err(ErrorCode::Quota),));
            }
            answer(store.data_mut().filesystem().set_size(fd, size).await)
        })
    })?;
    types.func_wrap(
        "[method]descriptor.write-via-stream",
        |mut store: Store<'_>, (fd, offset): (Fd, u64)| {
            let stream = store.data_mut().filesystem().write_via_stream(fd, offset);
            metered(&mut store, stream)
        },
    )?;
    types.func_wrap("[method]descriptor.append-via-stream", |mut store: Store<'_>, (fd,): (Fd,)| {
        let stream = store.data_mut().filesystem().append_via_stream(fd);
        metered(&mut store, stream)
    })
}

fn answer<T>(result: FsResult<T>) -> Answer<T> {
    Ok((match result {
        Ok(value) => Ok(value),
        Err(error) => Err(error.downcast()?),
    },))
}

/// The call's meter; a guest without files has none, and no descriptor either.
fn meter(store: &Store<'_>) -> Option<Arc<Meter>> {
    store.data().capabilities.files.as_ref().map(|files| Arc::clone(&files.meter))
}

/// Puts a meter before a stream.
fn metered(
    store: &mut Store<'_>,
    stream: FsResult<Resource<DynOutputStream>>,
) -> Answer<Resource<DynOutputStream>> {
    let Some(meter) = meter(store) else { return Ok((Err(ErrorCode::NotPermitted),)) };
    let Ok(stream) = stream else { return answer(stream) };
    let table = store.data_mut().filesystem().table;
    let inner = table.delete(stream)?;
    let metered: DynOutputStream = Box::new(Metered { inner, meter });
    Ok((Ok(table.push(metered)?),))
}

/// A stream into a file that takes what the call may still write.
struct Metered {
    inner: DynOutputStream,
    meter: Arc<Meter>,
}

#[async_trait]
impl Pollable for Metered {
    async fn ready(&mut self) {
        self.inner.ready().await;
    }
}

#[async_trait]
impl OutputStream for Metered {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        match self.meter.write(bytes.len() as u64) {
            Ok(()) => self.inner.write(bytes),
            // wasmtime-wasi has a code of WASI for this error of the system, and none for a quota.
            Err(_) => {
                Err(StreamError::LastOperationFailed(std::io::Error::from(rustix::io::Errno::NOSPC).into()))
            }
        }
    }
    fn flush(&mut self) -> StreamResult<()> {
        self.inner.flush()
    }
    fn check_write(&mut self) -> StreamResult<usize> {
        self.inner.check_write()
    }
    async fn cancel(&mut self) {
        self.inner.cancel().await;
    }
}
