//! A client of the control API, for the command line.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::Request;
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::request::Builder;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio_util::task::AbortOnDropHandle;
use toolbay_core::pipeline::running::RunningCall;

use crate::api::{ApiError, ReasonRequest};
use crate::control::ServerInfo;
use crate::operator::OPERATOR_HEADER;
use crate::socket;

/// How long a server has to answer.
const TIMEOUT: Duration = Duration::from_secs(40);
/// Largest response, in bytes.
const MAX_RESPONSE: usize = 16 << 20;

/// A running server.
#[derive(Debug, Clone)]
pub struct ServerClient {
    /// The process id of the server.
    pub pid: u32,
    socket: PathBuf,
}

/// Why a server did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The server refused, or failed.
    #[error("{}", .0.message)]
    Refused(ApiError),
    /// The server is gone or does not answer.
    #[error("the server with the process id {pid} does not answer: {error}")]
    Unreachable {
        /// The process id.
        pid: u32,
        /// What failed.
        error: String,
    },
}

impl ServerClient {
    /// The running servers of a state directory, in the order of their process ids. The sockets of servers that were
    /// killed are removed.
    ///
    /// # Errors
    /// The folder of the sockets cannot be read.
    pub async fn find_all(state_dir: &Path) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for (pid, socket) in socket::sockets(state_dir)? {
            match UnixStream::connect(&socket).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => socket::remove(&socket)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // A server that is too busy to answer is one, too.
                Ok(_) | Err(_) => found.push(Self { pid, socket }),
            }
        }
        Ok(found)
    }

    /// Describes the server.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn info(&self) -> Result<ServerInfo, ControlError> {
        self.get("/api/v1/server").await
    }

    /// The calls in progress, the oldest first.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn calls(&self) -> Result<Vec<RunningCall>, ControlError> {
        self.get("/api/v1/calls").await
    }

    /// Cancels a call and returns it.
    ///
    /// # Errors
    /// The call has ended, or the server does not answer.
    pub async fn cancel(&self, number: u64, by: &str) -> Result<RunningCall, ControlError> {
        self.act(&format!("/api/v1/calls/{number}/cancel"), by, &()).await
    }

    /// Cancels all calls and refuses new ones. Returns the number of cancelled calls.
    ///
    /// # Errors
    /// The server cannot store the order, or does not answer.
    pub async fn stop(&self, reason: &str, by: &str) -> Result<usize, ControlError> {
        #[derive(Deserialize)]
        struct Stopped {
            cancelled: usize,
        }
        let request = ReasonRequest { reason: Some(reason.to_owned()) };
        self.act("/api/v1/stop", by, &request).await.map(|Stopped { cancelled }| cancelled)
    }

    /// Allows calls again. Returns whether they were stopped.
    ///
    /// # Errors
    /// The server cannot remove the order, or does not answer.
    pub async fn resume(&self, by: &str) -> Result<bool, ControlError> {
        #[derive(Deserialize)]
        struct Resumed {
            was_stopped: bool,
        }
        self.act("/api/v1/resume", by, &()).await.map(|Resumed { was_stopped }| was_stopped)
    }

    /// Asks the server to read its policy, plugins and state files again.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn reload(&self, by: &str) -> Result<(), ControlError> {
        // The answer has no body.
        self.act("/api/v1/reload", by, &()).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ControlError> {
        self.send(Request::get(path), Bytes::new()).await
    }

    /// Sends an action of an operator.
    async fn act<T: DeserializeOwned>(
        &self,
        path: &str,
        by: &str,
        body: &impl Serialize,
    ) -> Result<T, ControlError> {
        let body = serde_json::to_vec(body).map_err(|error| self.unreachable(error))?;
        let request = Request::post(path).header(OPERATOR_HEADER, by.as_bytes());
        self.send(request.header(CONTENT_TYPE, "application/json"), body.into()).await
    }

    async fn send<T: DeserializeOwned>(&self, request: Builder, body: Bytes) -> Result<T, ControlError> {
        match tokio::time::timeout(TIMEOUT, self.exchange(request, body)).await {
            Ok(answered) => answered,
            Err(elapsed) => Err(self.unreachable(elapsed)),
        }
    }

    async fn exchange<T: DeserializeOwned>(&self, request: Builder, body: Bytes) -> Result<T, ControlError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| self.unreachable(error))?;
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = opened.map_err(|error| self.unreachable(error))?;
        let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let request = request.header(HOST, "localhost").body(Full::new(body));
        let request = request.map_err(|error| self.unreachable(error))?;
        let response = sender.send_request(request).await.map_err(|error| self.unreachable(error))?;
        let is_good = response.status().is_success();
        let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await;
        let bytes = body.map_err(|error| self.unreachable(error))?.to_bytes();
        if !is_good {
            return Err(self.refusal(&bytes));
        }
        let text: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(text).map_err(|error| self.unreachable(error))
    }

    fn refusal(&self, body: &[u8]) -> ControlError {
        #[derive(Deserialize)]
        struct Refusal {
            error: ApiError,
        }
        match serde_json::from_slice(body) {
            Ok(Refusal { error }) => ControlError::Refused(error),
            Err(error) => self.unreachable(error),
        }
    }

    fn unreachable(&self, error: impl std::fmt::Display) -> ControlError {
        ControlError::Unreachable { pid: self.pid, error: error.to_string() }
    }
}
