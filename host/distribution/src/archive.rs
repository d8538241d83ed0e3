//! Locked plugins in one file, for machines without a network: an OCI image layout (OCI image specification 1.1, "Image
//! Layout") in a tar archive, with the lock. The same plugins give the same bytes.
//!
//! | path | holds |
//! |---|---|
//! | `oci-layout` | the version of the layout |
//! | `index.json` | the manifests of components, and those of their signatures, which refer to them |
//! | `toolbay/toolbay.lock` | the plugins |
//! | `toolbay/trust.json` | the rules and public keys that their signatures met |
//! | `blobs/sha256/HEX` | manifests, components and signatures |
//!
//! The configurations that the manifests name are not in it: the host does not need them. The specification allows
//! blobs to be elsewhere.

mod read;
mod write;

pub use read::PluginArchive;
pub use write::{ArchiveSummary, write};

use serde::{Deserialize, Serialize};

use crate::digest::BlobDigest;
use crate::store::StoreError;

/// The lock in an archive.
const LOCK: &str = "toolbay/toolbay.lock";
/// The rules in an archive.
const TRUST: &str = "toolbay/trust.json";
/// The version of the layout.
const LAYOUT: &str = "oci-layout";
/// The list of manifests.
const INDEX_FILE: &str = "index.json";
/// Begins the names of blobs.
const BLOBS: &str = "blobs/sha256/";
/// Most entries of an archive: two thousand plugins.
pub const MAX_ENTRIES: usize = 8192;
/// Largest sum of the sizes of all entries, in bytes.
pub const MAX_TOTAL: u64 = 4 << 30;
/// Largest document of an archive in bytes.
const MAX_DOCUMENT: u64 = 4 << 20;

/// Why an archive was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The store does not have a blob, or not with its right content.
    #[error("the store does not have {0}")]
    Missing(BlobDigest),
    /// The archive is not accepted.
    #[error("{0}")]
    Refused(String),
    /// The file cannot be read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The store cannot be written.
    #[error("{0}")]
    Storage(StoreError),
}

/// A `[[trust]]` rule with the content of its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchivedRule {
    /// The repositories.
    pub scope: String,
    /// The public keys in PEM.
    pub keys: Vec<String>,
    /// The identities with certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyless: Option<ArchivedIdentity>,
}

/// The identities of a `[[trust]]` rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchivedIdentity {
    /// The identities.
    pub identity: String,
    /// Who vouches for them.
    pub issuer: String,
    /// The text of the trust root.
    pub root: String,
    /// The age that a signature must have, as the policy writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_age: Option<String>,
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
