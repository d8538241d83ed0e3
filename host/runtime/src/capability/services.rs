//! The services of the policy, for embedders: [`Host::load_openapi`] and what came of it.

use std::path::Path;
use std::sync::Arc;

use toolbay_policy::capability::floor::Keep;
use toolbay_policy::{OpenApi, Place};

use crate::host::Host;
use crate::openapi::{self, OpenApiInfo};

impl Host {
    /// Reads the documents of the policy's services ([`Policy::openapi`](toolbay_policy::Policy::openapi)) and makes
    /// tools of their operations. A source that cannot be had is told and stops none of the others.
    pub async fn load_openapi(&self) -> Vec<OpenApiInfo> {
        self.openapi.load(&self.installed, false).await
    }

    /// Keeps the folder of plugins and the files of documents from everything that writes, before they are loaded: for
    /// programs that are started meanwhile.
    pub fn protect_sources(&self, plugins: &Path) {
        let folders = &self.installed.shared.folders;
        folders.keep(plugins, Keep::FromWriters);
        for section in self.policy().openapi() {
            if let Place::File(path) = &section.document {
                folders.keep(path, Keep::FromWriters);
            }
        }
    }

    /// The same, asking servers for newer documents, however fresh the copies are.
    pub async fn refresh_openapi(&self) -> Vec<OpenApiInfo> {
        self.openapi.load(&self.installed, true).await
    }

    /// What the sections came to when they were read last, in the order of their names.
    #[must_use]
    pub fn openapi(&self) -> Vec<OpenApiInfo> {
        self.openapi.told()
    }

    /// Reads the document of a section that need not be in the policy: its text, and its SHA-256 in hex.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub async fn read_openapi(&self, section: &Arc<OpenApi>) -> Result<(Arc<str>, Arc<str>), String> {
        openapi::read(section, &self.installed.services()).await
    }

    /// What of another policy holds at once for services.
    pub(crate) async fn swap_openapi(&self) {
        self.openapi.swap(&self.installed).await;
    }
}
