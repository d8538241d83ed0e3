//! A client that hears nothing: what a call needs whose client wants to hear of nothing but its answer. rmcp makes one for
//! each request, with tasks of its own.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, pending, ready};

use rmcp::service::{RunningService, RxJsonRpcMessage, TxJsonRpcMessage, serve_directly_with_ct};
use rmcp::transport::Transport;
use rmcp::{Peer, RoleServer, ServerHandler};
use tokio_util::sync::CancellationToken;

/// Nobody, as long as this is there.
pub(super) struct Nobody(RunningService<RoleServer, Silent>);

impl fmt::Debug for Nobody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nobody").finish_non_exhaustive()
    }
}

impl Nobody {
    /// Call in a runtime; ends with `stop` too.
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self(serve_directly_with_ct(Silent, Silent, None, stop))
    }

    pub(super) fn peer(&self) -> Peer<RoleServer> {
        self.0.peer().clone()
    }
}

/// Says nothing and is never asked.
struct Silent;

impl ServerHandler for Silent {}

impl Transport<RoleServer> for Silent {
    type Error = Infallible;

    fn send(
        &mut self,
        _: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        pending().await
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
