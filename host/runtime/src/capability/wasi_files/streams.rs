//! Streams of plain WASI files: one operation at a time, each on a thread.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio_util::task::AbortOnDropHandle;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

use super::Access;

/// Bytes of one operation, as wasmtime-wasi has it.
const CHUNK: usize = 64 << 10;
/// Bytes that are read for a guest that waits before it said how many it wants.
const FIRST_CHUNK: usize = 4 << 10;

/// An operation that is under way. Dropping it gives it up; its thread stays taken until the file system answers.
type Operation<T> = AbortOnDropHandle<io::Result<T>>;

/// Begins an operation. It goes on though the guest does not ask for it.
fn begin<T: Send + 'static>(
    access: &Access,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Operation<T> {
    let access = access.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        access.run(work).await.unwrap_or_else(|_| Err(rustix::io::Errno::BUSY.into()))
    }))
}

async fn ended<T>(
    operation: impl Future<Output = Result<io::Result<T>, tokio::task::JoinError>>,
) -> io::Result<T> {
    operation.await.unwrap_or_else(|lost| Err(io::Error::other(lost)))
}

/// A stream out of a file.
pub(super) struct FileReader {
    file: Arc<File>,
    position: u64,
    access: Access,
    state: Reading,
}

enum Reading {
    Idle,
    Waiting(Operation<Bytes>),
    Ready(Bytes),
    Failed(io::Error),
    Ended,
}

impl FileReader {
    pub(super) fn new(file: Arc<File>, position: u64, access: Access) -> Self {
        Self { file, position, access, state: Reading::Idle }
    }

    fn begin(&mut self, size: usize) {
        let (file, position) = (Arc::clone(&self.file), self.position);
        self.state = Reading::Waiting(begin(&self.access, move || {
            let mut buffer = BytesMut::zeroed(size.min(CHUNK));
            loop {
                match file.read_at(&mut buffer, position) {
                    Ok(read) => {
                        buffer.truncate(read);
                        return Ok(buffer.freeze());
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }));
    }
}

#[async_trait]
impl Pollable for FileReader {
    async fn ready(&mut self) {
        if let Reading::Idle = self.state {
            self.begin(FIRST_CHUNK);
        }
        if let Reading::Waiting(operation) = &mut self.state {
            self.state = match ended(operation).await {
                Ok(bytes) if bytes.is_empty() => Reading::Ended,
                Ok(bytes) => Reading::Ready(bytes),
                Err(error) => Reading::Failed(error),
            };
        }
    }
}

#[async_trait]
impl InputStream for FileReader {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        match &mut self.state {
            Reading::Idle => {
                if size > 0 {
                    self.begin(size);
                }
                Ok(Bytes::new())
            }
            Reading::Waiting(_) => Ok(Bytes::new()),
            Reading::Ready(bytes) => {
                let part = bytes.split_to(bytes.len().min(size));
                if bytes.is_empty() {
                    self.state = Reading::Idle;
                }
                self.position += part.len() as u64;
                Ok(part)
            }
            Reading::Failed(_) => match std::mem::replace(&mut self.state, Reading::Ended) {
                Reading::Failed(error) => Err(StreamError::LastOperationFailed(error.into())),
                _ => Err(StreamError::Closed),
            },
            Reading::Ended => Err(StreamError::Closed),
        }
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        if let Reading::Idle = self.state
            && size > 0
        {
            self.begin(size);
        }
        self.ready().await;
        self.read(size)
    }

    async fn cancel(&mut self) {
        self.state = Reading::Ended;
    }
}

/// Where a stream into a file writes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start {
    At(u64),
    End,
}

/// A stream into a file that takes what the call may still write.
pub(super) struct FileWriter {
    file: Arc<File>,
    start: Start,
    access: Access,
    state: Writing,
}

enum Writing {
    Ready,
    Waiting(Operation<usize>),
    Failed(io::Error),
    Closed,
}

impl FileWriter {
    pub(super) fn new(file: Arc<File>, start: Start, access: Access) -> Self {
        Self { file, start, access, state: Writing::Ready }
    }

    fn checked(&mut self) -> StreamResult<()> {
        match &self.state {
            Writing::Ready | Writing::Waiting(_) => Ok(()),
            Writing::Closed => Err(StreamError::Closed),
            Writing::Failed(_) => match std::mem::replace(&mut self.state, Writing::Closed) {
                Writing::Failed(error) => Err(StreamError::LastOperationFailed(error.into())),
                _ => Err(StreamError::Closed),
            },
        }
    }
}

#[async_trait]
impl Pollable for FileWriter {
    async fn ready(&mut self) {
        if let Writing::Waiting(operation) = &mut self.state {
            self.state = match ended(operation).await {
                Ok(written) => {
                    if let Start::At(position) = &mut self.start {
                        *position += written as u64;
                    }
                    Writing::Ready
                }
                Err(error) => Writing::Failed(error),
            };
        }
    }
}

#[async_trait]
impl OutputStream for FileWriter {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.checked()?;
        if let Writing::Waiting(_) = self.state {
            return Err(StreamError::trap("`check-write` was not asked"));
        }
        if self.access.meter.write(bytes.len() as u64).is_err() {
            // wasmtime-wasi has a code of WASI for this error of the system, and none for a quota.
            return Err(StreamError::LastOperationFailed(io::Error::from(rustix::io::Errno::NOSPC).into()));
        }
        let (file, start) = (Arc::clone(&self.file), self.start);
        self.state = Writing::Waiting(begin(&self.access, move || write_all(&file, &bytes, start)));
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.checked()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.checked()?;
        Ok(if let Writing::Ready = self.state { CHUNK } else { 0 })
    }

    async fn cancel(&mut self) {
        self.state = Writing::Closed;
    }
}

fn write_all(file: &File, bytes: &[u8], start: Start) -> io::Result<usize> {
    match start {
        Start::At(position) => file.write_all_at(bytes, position)?,
        Start::End => append(file, bytes)?,
    }
    Ok(bytes.len())
}

/// In one step with finding the end, where the system has that: what others append meanwhile stays.
#[cfg(target_os = "linux")]
fn append(file: &File, mut bytes: &[u8]) -> io::Result<()> {
    use rustix::io::{Errno, ReadWriteFlags};
    while !bytes.is_empty() {
        match rustix::io::pwritev2(file, &[io::IoSlice::new(bytes)], 0, ReadWriteFlags::APPEND) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn append(file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, file.metadata()?.len())
}
