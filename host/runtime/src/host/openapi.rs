//! The embedder's API for the OpenAPI services of the policy: [`Host::load_openapi`] and its results.

use std::sync::Arc;

use toolbay_policy::OpenApiService;
use toolbay_policy::refusal::PolicyRefusal;

use crate::host::Host;
use crate::openapi::read_document;
use crate::openapi_info::OpenApiInfo;

impl Host {
    /// Reads the documents of the policy's services ([`Policy::openapi`](toolbay_policy::Policy::openapi)) and
    /// registers their operations as tools. A source that cannot be read is reported and does not stop the others.
    pub async fn load_openapi(&self) -> Vec<OpenApiInfo> {
        self.load_openapi_of(|_| true).await
    }

    /// Does the same as [`Host::load_openapi`], with only the services that are `wanted`. Dropping the future ends the
    /// load: what was ready is registered, and [`Host::openapi`] names the rest as loading.
    pub async fn load_openapi_of(&self, wanted: impl Fn(&OpenApiService) -> bool) -> Vec<OpenApiInfo> {
        self.openapi.load(&self.installed, false, wanted).await
    }

    /// Like [`Host::load_openapi`], but requests every document again, however fresh its copy is.
    pub async fn refresh_openapi(&self) -> Vec<OpenApiInfo> {
        self.openapi.load(&self.installed, true, |_| true).await
    }

    /// Reads the document of a section, which need not be in the policy. Returns its text and its SHA-256 in hex.
    ///
    /// # Errors
    /// When the document cannot be read.
    pub async fn read_openapi(
        &self,
        section: &Arc<OpenApiService>,
    ) -> Result<(Arc<str>, Arc<str>), PolicyRefusal> {
        read_document(section, &self.installed.services()).await
    }
}
