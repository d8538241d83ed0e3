//! What goes out: one message a line, one after the other.
//!
//! A message becomes bytes before it waits for others to be written: as the library's values it would take many times the
//! memory.

use std::io;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::JsonRpcMessage;
use rmcp::service::TxJsonRpcMessage;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio_util::bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::protocol::raw;
use crate::server::lists::Lists;
use crate::server::outbox::Permit;

/// Largest buffer that is kept for the next message, in bytes.
const KEPT_BUFFER: usize = 256 << 10;

/// Where messages go.
#[derive(Debug)]
pub(super) struct Out<W> {
    lists: Arc<Lists>,
    /// In which messages become bytes.
    buffer: BytesMut,
    /// `None` once it is closed.
    writer: Arc<Mutex<Option<Writer<W>>>>,
}

/// The pipe.
#[derive(Debug)]
struct Writer<W> {
    inner: W,
    /// What is left of a line that was begun.
    begun: Bytes,
}

impl<W: AsyncWrite + Send + Unpin + 'static> Out<W> {
    pub(super) fn new(writer: W, lists: Arc<Lists>) -> Self {
        let writer = Writer { inner: writer, begun: Bytes::new() };
        Self { lists, buffer: BytesMut::new(), writer: Arc::new(Mutex::new(Some(writer))) }
    }

    /// A message as a line.
    pub(super) fn line(&mut self, message: &TxJsonRpcMessage<RoleServer>) -> io::Result<Bytes> {
        let page = match message {
            JsonRpcMessage::Response(response) => self.lists.take(&response.id),
            _ => None,
        };
        let buffer = &mut self.buffer;
        buffer.clear();
        match page {
            Some(page) => {
                page.write(&serde_json::to_vec(message)?, buffer).ok_or(io::ErrorKind::InvalidData)?;
            }
            None => serde_json::to_writer(buffer.writer(), message)?,
        }
        buffer.put_u8(b'\n');
        let line = raw::restored(buffer.split().freeze());
        if self.buffer.capacity() > KEPT_BUFFER || line.len() > KEPT_BUFFER {
            self.buffer = BytesMut::new();
        }
        Ok(line)
    }

    /// Sends one line, for which there is room. Whoever drops the future before its end has sent the whole line or nothing
    /// of it: what is begun goes out with the next one.
    pub(super) fn send(
        &self,
        line: io::Result<Bytes>,
        room: &mut Permit,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static + use<W> {
        room.sends(line.as_ref().map_or(0, |line| line.len() as u64));
        let writer = Arc::clone(&self.writer);
        async move {
            let line = line?;
            match &mut *writer.lock().await {
                Some(writer) => writer.write(line).await,
                None => Err(io::ErrorKind::NotConnected.into()),
            }
        }
    }

    /// Sends nothing more.
    pub(super) async fn close(&self) -> io::Result<()> {
        match self.writer.lock().await.take() {
            Some(mut writer) => {
                writer.finish().await?;
                writer.inner.shutdown().await
            }
            None => Ok(()),
        }
    }
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    async fn write(&mut self, line: Bytes) -> io::Result<()> {
        self.finish().await?;
        self.begun = line;
        self.finish().await?;
        self.inner.flush().await
    }

    async fn finish(&mut self) -> io::Result<()> {
        while !self.begun.is_empty() {
            match self.inner.write(&self.begun).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => self.begun.advance(written),
            }
        }
        Ok(())
    }
}
