//! The `http-client` interface of the contract.

use std::time::Duration;

use toolbay_policy::GrantKey;

use super::call_network::NetError;
use super::{exchange, secret_injection};
use crate::Capabilities;
use crate::bindings::host::http_client::{Host, HttpError, HttpRequest, HttpResponse};

impl Host for Capabilities {
    async fn fetch(&mut self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let Some(network) = self.network() else {
            return Err(HttpError::Denied(self.grantee.refuse(GrantKey::Net, &request.url)));
        };
        let asked = request.timeout_ms.map(|ms| Duration::from_millis(ms.into()));
        let left = network.time_left(None);
        // Boxed: the future moves several times before it runs.
        let fetching = Box::pin(exchange::fetch(&network, request));
        // No timer for the call's own deadline: it ends the guest, and has a timer already.
        let fetched = match asked.filter(|asked| *asked < left) {
            Some(time) => tokio::time::timeout(time, fetching).await.unwrap_or(Err(NetError::Timeout)),
            None => fetching.await,
        };
        fetched.map_err(|error| match secret_injection::scrub_error(&network, error) {
            NetError::Denied(why) => HttpError::Denied(why),
            NetError::Address(why) => HttpError::Denied(why.text),
            NetError::Invalid(why) => HttpError::InvalidRequest(why),
            NetError::Timeout => HttpError::Timeout,
            NetError::Transport(why) => HttpError::Transport(why),
        })
    }
}
