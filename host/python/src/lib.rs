//! `toolbay._native`: the functions of [`toolbay_bridge::Bridge`] for Python. They take and return texts, bytes and numbers.
//!
//! An error is a `RuntimeError` with a JSON text, which `toolbay._bridge` turns into the error that the program sees. The
//! Python code beside this crate is the API.

use std::sync::{Arc, LazyLock};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use toolbay_bridge::{Bridge, BridgeError};

/// All hosts of the process. It is never dropped, so that nothing waits for threads when Python ends.
static BRIDGE: LazyLock<Arc<Bridge>> = LazyLock::new(Arc::default);

fn raised<T>(answer: Result<T, BridgeError>) -> PyResult<T> {
    answer.map_err(|error| PyRuntimeError::new_err(error.to_json()))
}

/// The module.
#[pymodule]
mod _native {
    use std::os::fd::IntoRawFd as _;

    use super::*;

    /// Opens a mailbox. Returns its number, and the file descriptor of its socket, which the caller closes.
    #[pyfunction]
    fn open_mailbox() -> PyResult<(u64, i32)> {
        let mailbox = raised(BRIDGE.open_mailbox())?;
        Ok((mailbox.id, mailbox.socket.into_raw_fd()))
    }

    /// Begins a request, and returns the number that its events have.
    #[pyfunction]
    fn submit(mailbox: u64, request: &str, payload: &[u8]) -> PyResult<u64> {
        raised(BRIDGE.submit(mailbox, request, payload.to_vec()))
    }

    /// Answers a request.
    #[pyfunction]
    fn query(request: &str, payload: &str) -> PyResult<String> {
        raised(BRIDGE.query(request, payload))
    }

    /// Takes the events of a mailbox.
    #[pyfunction]
    fn drain(mailbox: u64) -> PyResult<String> {
        raised(BRIDGE.drain(mailbox))
    }

    /// Replies to a call of a native tool or to a request for approval.
    #[pyfunction]
    fn reply(mailbox: u64, id: u64, reply: &str) -> PyResult<()> {
        raised(BRIDGE.reply(mailbox, id, reply))
    }

    /// Cancels the calls of a request.
    #[pyfunction]
    fn cancel(mailbox: u64, id: u64) -> PyResult<()> {
        raised(BRIDGE.cancel(mailbox, id))
    }

    /// Forgets a view or a session.
    #[pyfunction]
    fn release(id: u64) -> PyResult<()> {
        raised(BRIDGE.release(id))
    }

    /// Closes a mailbox.
    #[pyfunction]
    fn close_mailbox(mailbox: u64) -> PyResult<()> {
        raised(BRIDGE.close_mailbox(mailbox))
    }

    /// Closes all hosts, and waits for their calls, at most five seconds. Other threads of Python run meanwhile.
    #[pyfunction]
    fn shut_down(py: Python<'_>) -> PyResult<()> {
        raised(py.detach(|| BRIDGE.shut_down()))
    }
}
