//! The world as other MCP servers of the policy are reached through it: programs in the sandbox, requests through the
//! one client of the host, values of secrets put in at the last moment.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, LazyLock};

use toolbay_core::invoke::BoxFuture;
use toolbay_core::mcp_server::{Child, Endpoint};
use toolbay_core::name::PluginId;
use toolbay_core::outside::{Outside, OutsideError, Request, Response, Started};

use crate::capability::process::server;
use crate::installed::Installed;

/// What a host lets a client of other servers do. Looks the policy's services up anew each time: when the policy is read
/// again, the next start and the next request are under the new one.
pub(crate) struct Outward(pub(crate) Arc<Installed>);

impl std::fmt::Debug for Outward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outward").finish_non_exhaustive()
    }
}

impl Outside for Outward {
    fn start<'a>(
        &'a self,
        name: &'a PluginId,
        child: &'a Child,
    ) -> BoxFuture<'a, Result<Started, OutsideError>> {
        Box::pin(async move { server::serve(&self.0.services(), name, child).await })
    }

    fn send<'a>(
        &'a self,
        name: &'a PluginId,
        endpoint: &'a Endpoint,
        request: Request,
    ) -> BoxFuture<'a, Result<Response, OutsideError>> {
        Box::pin(async move {
            let services = self.0.services();
            services.http.send_outward(name, endpoint, request, &services.secrets).await
        })
    }

    fn handed(&self, child: &Child) -> u64 {
        // Keyed, so that nothing of a value can be told from its mark.
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let services = self.0.services();
        let values = child.env_secrets.values().map(|name| services.secrets.value(name));
        KEY.hash_one(values.collect::<Vec<_>>())
    }

    fn redacted<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.0.services().redactor.text(text)
    }
}
