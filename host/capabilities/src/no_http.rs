//! The place of the network in a build without the feature `net`: every request and connection is denied. There is no
//! `wasi:http`, and a component that imports it is not loaded.

use toolbay_policy::capability::path_rule;
use toolbay_policy::limits::CallLimits;
use toolbay_policy::{GrantKey, Policy};
use toolbay_sandbox::engine::AsyncSupport;
use wasmtime::component::Linker;

use crate::bindings::host::http_client::{self, Host, HttpError, HttpRequest, HttpResponse};
use crate::capability::Capability;
use crate::state::{GuestState, capabilities_of};
use crate::{Capabilities, HasCapabilities};

/// Requests and connections, which nobody can be granted.
pub(crate) struct Network;

impl Capability for Network {
    const KEYS: &'static [GrantKey] = &[GrantKey::Net, GrantKey::NetPrivate];

    type State = ();

    fn begin(_: &CallLimits) {}

    fn link(linker: &mut Linker<GuestState>, async_support: AsyncSupport) -> wasmtime::Result<()> {
        http_client::add_to_linker::<_, HasCapabilities>(linker, capabilities_of)?;
        // wasmtime's own sockets, which its context denies by default. Those of WASI 0.2 are linked with the rest of WASI.
        if async_support == AsyncSupport::On {
            wasmtime_wasi::p3::sockets::add_to_linker(linker)?;
        }
        Ok(())
    }
}

impl Host for Capabilities {
    async fn fetch(&mut self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.grantee.note(GrantKey::Net, &path_rule::printable_path(&request.url), false);
        // No line of the policy would allow it: this build refuses the key, too.
        Err(HttpError::Denied(
            "this program was built without the feature `net` of the crate `toolbay`".to_owned(),
        ))
    }
}

/// The HTTP client of a host, which sends nothing.
#[derive(Debug)]
pub struct HttpClient;

impl HttpClient {
    /// Creates the client.
    pub fn new(_: &Policy) -> Self {
        Self
    }
}
