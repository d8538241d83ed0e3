//! The network grants of an OpenAPI service.

use std::sync::Arc;

use toolbay_core::call::service_request::ServiceRoutes;
use toolbay_policy::OpenApiService;
use toolbay_policy::capability::net::{self, AddressScope, NetRule, NetTarget};
use url::Url;

/// The network grants of a service.
#[derive(Debug)]
pub struct ServiceGrants {
    /// Its section in the policy.
    pub section: Arc<OpenApiService>,
    /// Methods and origins of the included operations, within the profile of the call.
    pub operation_rules: Vec<NetRule>,
    /// Further allowed targets of redirects.
    pub redirect_rules: Vec<NetRule>,
    /// The routes of the included operations.
    pub routes: Arc<dyn ServiceRoutes>,
}

impl ServiceGrants {
    /// Checks a request. `first` marks the request that the host built.
    ///
    /// # Errors
    /// The request is not granted. The text says why a rule does not match, if there is one for the host.
    pub fn check(&self, target: &NetTarget, url: &Url, first: bool) -> Result<AddressScope, Option<String>> {
        let is_operation = first || self.routes.includes(target.method(), url);
        let matched = if is_operation { net::match_rules(&self.operation_rules, target) } else { Err(None) };
        matched.or_else(|why| net::match_rules(&self.redirect_rules, target).map_err(|other| why.or(other)))
    }
}
