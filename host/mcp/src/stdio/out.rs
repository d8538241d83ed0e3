//! What goes out: one message a line, one after the other.

use std::io;
use std::sync::Arc;

use futures_util::SinkExt;
use rmcp::RoleServer;
use rmcp::model::JsonRpcMessage;
use rmcp::service::TxJsonRpcMessage;
use tokio::io::AsyncWrite;
use tokio::sync::Mutex;
use tokio_util::bytes::{BufMut, BytesMut};
use tokio_util::codec::{Encoder, FramedWrite};

use crate::lists::Lists;

/// Where messages go.
#[derive(Debug)]
pub(super) struct Out<W> {
    /// `None` once it is closed.
    writer: Arc<Mutex<Option<FramedWrite<W, Wording>>>>,
}

/// Messages as lines.
#[derive(Debug)]
struct Wording {
    lists: Arc<Lists>,
}

impl<W: AsyncWrite + Send + Unpin + 'static> Out<W> {
    pub(super) fn new(writer: W, lists: Arc<Lists>) -> Self {
        let writer = FramedWrite::new(writer, Wording { lists });
        Self { writer: Arc::new(Mutex::new(Some(writer))) }
    }

    /// Sends one message. Whoever drops the future before its end has sent the whole message or nothing of it: what is begun
    /// goes out with the next one.
    pub(super) fn send(
        &self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let writer = Arc::clone(&self.writer);
        async move {
            match &mut *writer.lock().await {
                Some(writer) => writer.send(message).await,
                None => Err(io::ErrorKind::NotConnected.into()),
            }
        }
    }

    /// Sends nothing more.
    pub(super) async fn close(&self) -> io::Result<()> {
        match self.writer.lock().await.take() {
            Some(mut writer) => writer.close().await,
            None => Ok(()),
        }
    }
}

impl Encoder<TxJsonRpcMessage<RoleServer>> for Wording {
    type Error = io::Error;

    fn encode(&mut self, message: TxJsonRpcMessage<RoleServer>, buffer: &mut BytesMut) -> io::Result<()> {
        let page = match &message {
            JsonRpcMessage::Response(response) => self.lists.take(&response.id),
            _ => None,
        };
        match page {
            Some(page) => {
                page.write(&serde_json::to_vec(&message)?, buffer).ok_or(io::ErrorKind::InvalidData)?;
            }
            None => serde_json::to_writer(buffer.writer(), &message)?,
        }
        buffer.put_u8(b'\n');
        Ok(())
    }
}
