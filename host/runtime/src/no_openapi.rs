//! The place of OpenAPI services in a build without the feature `openapi`. The policy names none: it would have been
//! refused.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use toolbay_policy::{KnownNames, Policy, PolicyFinding};
use toolbay_sandbox::compile::cache::CacheLimits;

use crate::openapi_info::OpenApiInfo;
use crate::plugins::installed::InstalledPlugins;

/// No services.
#[derive(Debug)]
pub(crate) struct OpenApiServices;

impl OpenApiServices {
    pub(crate) fn new(_folder: Option<PathBuf>, _limits: CacheLimits) -> Self {
        Self
    }

    pub(crate) fn infos(&self) -> Vec<OpenApiInfo> {
        Vec::new()
    }

    pub(crate) async fn load_all(&self, _into: &InstalledPlugins) {}

    pub(crate) async fn apply_policy(&self, _into: &InstalledPlugins) {}

    pub(crate) async fn add_known(
        &self,
        _policy: &Arc<Policy>,
        _known: &mut KnownNames,
        _reasons: &mut BTreeMap<String, String>,
    ) -> Vec<PolicyFinding> {
        Vec::new()
    }
}
