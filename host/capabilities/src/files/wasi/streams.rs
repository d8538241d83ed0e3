//! Streams of plain WASI files: one operation at a time, each on a blocking thread.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio_util::task::AbortOnDropHandle;
use toolbay_sandbox::instance::ContractBreach;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

use super::FileContext;
use crate::files::system;

/// Bytes of one operation, as in wasmtime-wasi.
pub(super) const CHUNK: usize = 64 << 10;
/// Bytes read when a guest polls before it names a size.
const FIRST_CHUNK: usize = 4 << 10;

/// A pending operation. Dropping it abandons the result; its thread stays occupied until the file system answers.
pub(super) type PendingOperation<T> = AbortOnDropHandle<io::Result<T>>;

/// Starts an operation, which runs whether or not the guest polls it.
pub(super) fn spawn_operation<T: Send + 'static>(
    context: &FileContext,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> PendingOperation<T> {
    let context = context.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        context.run(work).await.unwrap_or_else(|_| Err(rustix::io::Errno::BUSY.into()))
    }))
}

async fn join_operation<T>(
    operation: impl Future<Output = Result<io::Result<T>, tokio::task::JoinError>>,
) -> io::Result<T> {
    operation.await.unwrap_or_else(|lost| Err(io::Error::other(lost)))
}

/// An input stream of a file.
pub(super) struct FileReadStream {
    file: Arc<File>,
    position: u64,
    context: FileContext,
    state: ReadState,
}

enum ReadState {
    Idle,
    Waiting(PendingOperation<Bytes>),
    Ready(Bytes),
    Failed(io::Error),
    Ended,
}

impl FileReadStream {
    pub(super) fn new(file: Arc<File>, position: u64, context: FileContext) -> Self {
        Self { file, position, context, state: ReadState::Idle }
    }

    fn start_read(&mut self, size: usize) {
        let (file, position) = (Arc::clone(&self.file), self.position);
        let read = move || read_at(&file, position, size.min(CHUNK));
        self.state = ReadState::Waiting(spawn_operation(&self.context, read));
    }
}

/// Reads up to `size` bytes. None are left at the end of the file.
pub(super) fn read_at(file: &File, position: u64, size: usize) -> io::Result<Bytes> {
    let mut buffer = BytesMut::zeroed(size);
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
}

#[async_trait]
impl Pollable for FileReadStream {
    async fn ready(&mut self) {
        if let ReadState::Idle = self.state {
            self.start_read(FIRST_CHUNK);
        }
        if let ReadState::Waiting(operation) = &mut self.state {
            self.state = match join_operation(operation).await {
                Ok(bytes) if bytes.is_empty() => ReadState::Ended,
                Ok(bytes) => ReadState::Ready(bytes),
                Err(error) => ReadState::Failed(error),
            };
        }
    }
}

#[async_trait]
impl InputStream for FileReadStream {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        match &mut self.state {
            ReadState::Idle => {
                if size > 0 {
                    self.start_read(size);
                }
                Ok(Bytes::new())
            }
            ReadState::Waiting(_) => Ok(Bytes::new()),
            ReadState::Ready(bytes) => {
                let part = bytes.split_to(bytes.len().min(size));
                if bytes.is_empty() {
                    self.state = ReadState::Idle;
                }
                self.position += part.len() as u64;
                Ok(part)
            }
            ReadState::Failed(_) => match std::mem::replace(&mut self.state, ReadState::Ended) {
                ReadState::Failed(error) => Err(StreamError::LastOperationFailed(error.into())),
                _ => Err(StreamError::Closed),
            },
            ReadState::Ended => Err(StreamError::Closed),
        }
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        if let ReadState::Idle = self.state
            && size > 0
        {
            self.start_read(size);
        }
        self.ready().await;
        self.read(size)
    }

    async fn cancel(&mut self) {
        self.state = ReadState::Ended;
    }
}

/// The position at which an output stream writes.
#[derive(Debug, Clone, Copy)]
pub(super) enum WritePosition {
    At(u64),
    End,
}

impl WritePosition {
    /// Moves past bytes that were written.
    pub(super) fn advance(&mut self, written: usize) {
        if let Self::At(position) = self {
            *position += written as u64;
        }
    }
}

/// An output stream of a file that counts against the call's quota.
pub(super) struct FileWriteStream {
    file: Arc<File>,
    start: WritePosition,
    context: FileContext,
    state: WriteState,
}

enum WriteState {
    Ready,
    Waiting(PendingOperation<usize>),
    Failed(io::Error),
    Closed,
}

impl FileWriteStream {
    pub(super) fn new(file: Arc<File>, start: WritePosition, context: FileContext) -> Self {
        Self { file, start, context, state: WriteState::Ready }
    }

    fn check_state(&mut self) -> StreamResult<()> {
        match &self.state {
            WriteState::Ready | WriteState::Waiting(_) => Ok(()),
            WriteState::Closed => Err(StreamError::Closed),
            WriteState::Failed(_) => match std::mem::replace(&mut self.state, WriteState::Closed) {
                WriteState::Failed(error) => Err(StreamError::LastOperationFailed(error.into())),
                _ => Err(StreamError::Closed),
            },
        }
    }
}

#[async_trait]
impl Pollable for FileWriteStream {
    async fn ready(&mut self) {
        if let WriteState::Waiting(operation) = &mut self.state {
            self.state = match join_operation(operation).await {
                Ok(written) => {
                    self.start.advance(written);
                    WriteState::Ready
                }
                Err(error) => WriteState::Failed(error),
            };
        }
    }
}

#[async_trait]
impl OutputStream for FileWriteStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.check_state()?;
        if let WriteState::Waiting(_) = self.state {
            let breach = ContractBreach::error("`write` was called without a permit from `check-write`");
            return Err(StreamError::Trap(breach));
        }
        if self.context.usage.count_bytes(bytes.len() as u64).is_err() {
            // wasmtime-wasi maps `ENOSPC` to a WASI code, but has no mapping for a quota error.
            return Err(StreamError::LastOperationFailed(io::Error::from(rustix::io::Errno::NOSPC).into()));
        }
        let (file, start) = (Arc::clone(&self.file), self.start);
        self.state =
            WriteState::Waiting(spawn_operation(&self.context, move || write_all(&file, &bytes, start)));
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.check_state()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.check_state()?;
        Ok(if let WriteState::Ready = self.state { CHUNK } else { 0 })
    }

    async fn cancel(&mut self) {
        self.state = WriteState::Closed;
    }
}

pub(super) fn write_all(file: &File, bytes: &[u8], start: WritePosition) -> io::Result<usize> {
    match start {
        WritePosition::At(position) => file.write_all_at(bytes, position)?,
        WritePosition::End => system::append(file, bytes)?,
    }
    Ok(bytes.len())
}
