//! The streams of WASI 0.3 files: one operation at a time, each on a blocking thread.

use std::fs::File;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::oneshot;
use wasmtime::StoreContextMut;
use wasmtime::component::{Destination, Source, StreamConsumer, StreamProducer, StreamResult, VecBuffer};
use wasmtime_wasi::p2::bindings::filesystem::types as blocking;
use wasmtime_wasi::p3::bindings::filesystem::types::{DirectoryEntry, ErrorCode};

use super::FileContext;
use super::concurrent::code_from;
use super::streams::{CHUNK, PendingOperation, WritePosition, read_at, spawn_operation, write_all};

/// The end of a stream, which a future of the guest waits for.
struct StreamEnd(Option<oneshot::Sender<Result<(), ErrorCode>>>);

impl StreamEnd {
    fn send(&mut self, end: Result<(), ErrorCode>) {
        if let Some(sender) = self.0.take() {
            // The guest may have dropped the future.
            sender.send(end).ok();
        }
    }
}

impl Drop for StreamEnd {
    fn drop(&mut self) {
        self.send(Ok(()));
    }
}

type Polled = Poll<wasmtime::Result<StreamResult>>;

/// Reads a file.
pub(super) struct ReadProducer {
    file: Arc<File>,
    position: u64,
    context: FileContext,
    operation: Option<PendingOperation<Bytes>>,
    end: StreamEnd,
}

impl ReadProducer {
    pub(super) fn new(
        file: Arc<File>,
        position: u64,
        context: FileContext,
        end: oneshot::Sender<Result<(), ErrorCode>>,
    ) -> Self {
        Self { file, position, context, operation: None, end: StreamEnd(Some(end)) }
    }
}

impl<D> StreamProducer<D> for ReadProducer {
    type Item = u8;
    type Buffer = Bytes;

    fn poll_produce<'a>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut store: StoreContextMut<'a, D>,
        mut destination: Destination<'a, u8, Bytes>,
        finish: bool,
    ) -> Polled {
        // The guest asks whether it can read.
        if destination.remaining(&mut store) == Some(0) {
            return Poll::Ready(Ok(StreamResult::Completed));
        }
        let this = &mut *self;
        let operation = this.operation.get_or_insert_with(|| {
            let (file, position) = (Arc::clone(&this.file), this.position);
            spawn_operation(&this.context, move || read_at(&file, position, CHUNK))
        });
        let Poll::Ready(read) = Pin::new(operation).poll(cx) else {
            return if finish { Poll::Ready(Ok(StreamResult::Cancelled)) } else { Poll::Pending };
        };
        this.operation = None;
        Poll::Ready(Ok(match read.unwrap_or_else(|lost| Err(std::io::Error::other(lost))) {
            Ok(bytes) if bytes.is_empty() => {
                this.end.send(Ok(()));
                StreamResult::Dropped
            }
            Ok(bytes) => {
                this.position += bytes.len() as u64;
                destination.set_buffer(bytes);
                StreamResult::Completed
            }
            Err(error) => {
                this.end.send(Err(code_from(error.into())));
                StreamResult::Dropped
            }
        }))
    }
}

/// Writes to a file, within the quotas of the call.
pub(super) struct WriteConsumer {
    file: Arc<File>,
    start: WritePosition,
    context: FileContext,
    operation: Option<PendingOperation<usize>>,
    end: StreamEnd,
}

impl WriteConsumer {
    pub(super) fn new(
        file: Arc<File>,
        start: WritePosition,
        context: FileContext,
        end: oneshot::Sender<Result<(), ErrorCode>>,
    ) -> Self {
        Self { file, start, context, operation: None, end: StreamEnd(Some(end)) }
    }
}

impl<D> StreamConsumer<D> for WriteConsumer {
    type Item = u8;

    fn poll_consume(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        store: StoreContextMut<'_, D>,
        source: Source<'_, u8>,
        // An operation that has begun cannot be taken back.
        _finish: bool,
    ) -> Polled {
        let this = &mut *self;
        let mut source = source.as_direct(store);
        if this.operation.is_none() {
            let bytes = source.remaining();
            let bytes = bytes.get(..CHUNK).unwrap_or(bytes);
            if bytes.is_empty() {
                return Poll::Ready(Ok(StreamResult::Completed));
            }
            if this.context.usage.count_bytes(bytes.len() as u64).is_err() {
                this.end.send(Err(ErrorCode::Quota));
                return Poll::Ready(Ok(StreamResult::Dropped));
            }
            let (file, start, bytes) = (Arc::clone(&this.file), this.start, bytes.to_vec());
            this.operation = Some(spawn_operation(&this.context, move || write_all(&file, &bytes, start)));
        }
        let Some(operation) = &mut this.operation else { return Poll::Pending };
        let written = ready!(Pin::new(operation).poll(cx));
        this.operation = None;
        Poll::Ready(Ok(match written.unwrap_or_else(|lost| Err(std::io::Error::other(lost))) {
            Ok(written) => {
                source.mark_read(written);
                this.start.advance(written);
                StreamResult::Completed
            }
            Err(error) => {
                this.end.send(Err(code_from(error.into())));
                StreamResult::Dropped
            }
        }))
    }
}

type Listing = wasmtime::Result<Result<Vec<DirectoryEntry>, blocking::ErrorCode>>;

/// Lists a folder.
pub(super) struct EntryProducer {
    listing: Option<Pin<Box<dyn Future<Output = Listing> + Send>>>,
    entries: std::vec::IntoIter<DirectoryEntry>,
    end: StreamEnd,
}

impl EntryProducer {
    pub(super) fn new(
        listing: impl Future<Output = Listing> + Send + 'static,
        end: oneshot::Sender<Result<(), ErrorCode>>,
    ) -> Self {
        Self { listing: Some(Box::pin(listing)), entries: Vec::new().into_iter(), end: StreamEnd(Some(end)) }
    }
}

impl<D> StreamProducer<D> for EntryProducer {
    type Item = DirectoryEntry;
    type Buffer = VecBuffer<DirectoryEntry>;

    fn poll_produce<'a>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut store: StoreContextMut<'a, D>,
        mut destination: Destination<'a, DirectoryEntry, VecBuffer<DirectoryEntry>>,
        finish: bool,
    ) -> Polled {
        let this = &mut *self;
        if let Some(listing) = &mut this.listing {
            let Poll::Ready(listed) = listing.as_mut().poll(cx) else {
                return if finish { Poll::Ready(Ok(StreamResult::Cancelled)) } else { Poll::Pending };
            };
            this.listing = None;
            match listed? {
                Ok(entries) => this.entries = entries.into_iter(),
                Err(code) => {
                    this.end.send(Err(code_from(code)));
                    return Poll::Ready(Ok(StreamResult::Dropped));
                }
            }
        }
        let room = destination.remaining(&mut store).unwrap_or(1);
        if room == 0 {
            return Poll::Ready(Ok(StreamResult::Completed));
        }
        let next: Vec<_> = this.entries.by_ref().take(room).collect();
        if next.is_empty() {
            this.end.send(Ok(()));
            return Poll::Ready(Ok(StreamResult::Dropped));
        }
        destination.set_buffer(next.into());
        Poll::Ready(Ok(StreamResult::Completed))
    }
}
