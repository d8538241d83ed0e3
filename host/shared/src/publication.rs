//! Publishes epochs, and reads what they name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toolbay_state::digest::Digest;

use crate::bundle::{Bundle, BundleError, MAX_BUNDLE_BYTES};
use crate::nats::{
    Bucket, Connection, ConnectionError, Durability, Objects, ReadError, Record, Records, decode,
};
use crate::protocol::epoch::Epoch;
use crate::protocol::liveness::Beat;
use crate::protocol::{Revision, Written};

/// The key of the epoch.
pub(crate) const EPOCH: &str = "epoch";
/// The start of the keys of heartbeats, which are in the same bucket.
pub(crate) const BEAT: &str = "replica.";

/// Most bundles that earlier epochs applied and that are kept. A replica may still read one when the next epoch replaces it.
const MAX_REPLACED: usize = 8;

/// The epochs of shared state, with the bundles and components that they name.
#[derive(Debug, Clone)]
pub struct Publication {
    epochs: Records,
    files: Objects,
}

/// The epoch in the store, and its bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedEpoch {
    /// The epoch.
    pub epoch: Epoch,
    /// What it applies.
    pub bundle: Bundle,
    /// The bundles of the epochs before it that are kept, the newest first.
    replaced: Vec<Digest>,
    revision: Revision,
}

/// The record of the epoch. Replicas read the epoch only.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredEpoch {
    #[serde(flatten)]
    epoch: Epoch,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    replaced: Vec<Digest>,
}

/// An epoch that was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEpoch {
    /// The epoch.
    pub epoch: Epoch,
    /// The gap, if the store was behind.
    pub gap: Option<EpochGap>,
}

/// A store that is behind what others have seen: an old copy of it was restored, or it lost what it had acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochGap {
    /// The epoch of the store; zero if it had none.
    pub stored: u64,
    /// The highest epoch that somebody has seen. The decisions in the epochs after the stored one are lost.
    pub seen: u64,
}

/// The reason why an epoch was not read or published.
#[derive(Debug, thiserror::Error)]
pub enum PublicationError {
    /// The store does not answer, or a record is damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The bundle is wrong.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// An object that the epoch names is not there.
    #[error("the shared state does not have {0}: publish it again")]
    Missing(String),
    /// The newest epoch has no bundle that can be read. Its decisions are lost.
    #[error(
        "epoch {number} and the decisions in it are lost ({problem}): remove it with `nats kv del {bucket} {EPOCH}`, then \
         run `toolbay shared publish`, which takes the decisions of this machine"
    )]
    Lost {
        /// The epoch.
        number: u64,
        /// What is wrong with it.
        problem: String,
        /// The bucket that names it.
        bucket: String,
    },
    /// Somebody else published an epoch meanwhile. Nothing was changed.
    #[error("somebody else published an epoch meanwhile, and nothing was changed: run the command again")]
    Conflict,
    /// There was no answer, so the epoch may be in force.
    #[error(
        "the shared state did not answer, so epoch {0} may be in force: `toolbay shared status` shows it"
    )]
    Unknown(u64),
}

impl Publication {
    /// Opens the buckets.
    ///
    /// # Errors
    /// Nothing is published, or the server refuses it.
    pub async fn open(connection: &Connection) -> Result<Self, ConnectionError> {
        let epochs = connection.records(Bucket::Epochs).await?;
        Ok(Self { epochs, files: connection.objects(Bucket::Files).await? })
    }

    /// Creates all buckets that do not exist, and opens them.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn create(connection: &Connection, durability: Durability) -> Result<Self, ConnectionError> {
        for bucket in Bucket::ALL {
            connection.create(bucket, durability).await?;
        }
        Self::open(connection).await
    }

    /// The epoch in the store, with its bundle; `None` before the first one.
    ///
    /// # Errors
    /// See [`PublicationError`].
    pub async fn current(&self) -> Result<Option<PublishedEpoch>, PublicationError> {
        let Some(found) = self.epochs.read::<StoredEpoch>(EPOCH).await? else { return Ok(None) };
        let StoredEpoch { epoch, replaced } = found.value;
        let bundle = self.bundle(&epoch.digest).await;
        let bundle = bundle.map_err(|error| match error {
            PublicationError::Bundle(BundleError::Newer(_)) => error,
            PublicationError::Missing(_) | PublicationError::Bundle(_) => PublicationError::Lost {
                number: epoch.number,
                problem: error.to_string(),
                bucket: self.epochs.bucket().to_owned(),
            },
            _ => error,
        })?;
        Ok(Some(PublishedEpoch { epoch, bundle, replaced, revision: found.revision }))
    }

    /// How far the store is behind its replicas, or behind the epoch that the caller has seen; `None` if it is not.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn gap(
        &self,
        current: Option<&PublishedEpoch>,
        seen: u64,
    ) -> Result<Option<EpochGap>, ReadError> {
        let seen = self.highest_of_replicas().await?.max(seen);
        let stored = current.map_or(0, |published| published.epoch.number);
        Ok((seen > stored).then_some(EpochGap { stored, seen }))
    }

    /// The bundle with this digest.
    ///
    /// # Errors
    /// See [`PublicationError`].
    pub async fn bundle(&self, digest: &Digest) -> Result<Bundle, PublicationError> {
        let bytes = self.files.read(&bundle_name(digest), MAX_BUNDLE_BYTES).await?;
        let bytes = bytes.ok_or_else(|| PublicationError::Missing(format!("the bundle {digest}")))?;
        Ok(Bundle::from_bytes(&bytes, digest)?)
    }

    /// The bytes with this digest, at most `most`: of a component.
    ///
    /// # Errors
    /// Fails if the component is not in the store, or has another digest.
    pub async fn component(&self, digest: &Digest, most: usize) -> Result<Vec<u8>, PublicationError> {
        let bytes = self.files.read(&component_name(digest), most).await?;
        let bytes = bytes.ok_or_else(|| PublicationError::Missing(format!("the component {digest}")))?;
        match Digest::of(&bytes) {
            found if found == *digest => Ok(bytes),
            found => Err(BundleError::WrongDigest { named: *digest, found }.into()),
        }
    }

    /// Whether the store has the component with this digest.
    ///
    /// # Errors
    /// Fails if the store does not answer.
    pub async fn has_component(&self, digest: &Digest) -> Result<bool, PublicationError> {
        Ok(self.files.contains(&component_name(digest)).await?)
    }

    /// Stores a component.
    ///
    /// # Errors
    /// The store does not take it.
    pub async fn put_component(&self, bytes: &[u8]) -> Result<Digest, PublicationError> {
        let digest = Digest::of(bytes);
        self.files.write(&component_name(&digest), bytes).await?;
        Ok(digest)
    }

    /// Publishes a bundle as the next epoch after `current`, and above each one that a replica or the caller (`seen`,
    /// or zero) has seen: a store that went back has a lower epoch than its replicas, which apply only a higher one.
    /// The components of the bundle must be there.
    ///
    /// # Errors
    /// See [`PublicationError`]. After [`PublicationError::Unknown`] the epoch may be in force.
    pub async fn publish(
        &self,
        current: Option<&PublishedEpoch>,
        bundle: &Bundle,
        seen: u64,
    ) -> Result<NewEpoch, PublicationError> {
        let (bytes, digest) = bundle.to_bytes()?;
        let name = bundle_name(&digest);
        if !self.files.contains(&name).await? {
            self.files.write(&name, &bytes).await?;
        }
        let gap = self.gap(current, seen).await?;
        let stored = current.map_or(0, |published| published.epoch.number);
        let number = gap.map_or(stored, |gap| gap.seen).saturating_add(1);
        let epoch = Epoch { number, digest };
        let (replaced, forgotten) = current.map(|current| current.replaced_by(&epoch)).unwrap_or_default();
        let revision = current.map(|published| published.revision);
        let record = StoredEpoch { epoch, replaced };
        match self.epochs.write(EPOCH, revision, &record).await {
            Written::Stored(_) => {
                for old in forgotten {
                    self.files.remove(&bundle_name(&old)).await;
                }
                Ok(NewEpoch { epoch: record.epoch, gap })
            }
            Written::Conflict => Err(PublicationError::Conflict),
            Written::Unknown => Err(PublicationError::Unknown(number)),
        }
    }

    /// The last heartbeat of each replica, by name, with its revision. A replica that is alive writes another one within
    /// its `stale_after`; one that died stays for an hour.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn heartbeats(&self) -> Result<BTreeMap<String, Record<Beat>>, ReadError> {
        let mut beats = BTreeMap::new();
        for key in self.epochs.keys(BEAT).await? {
            let Some(name) = key.strip_prefix(BEAT).and_then(decode) else { continue };
            match self.epochs.read::<Beat>(&key).await {
                Ok(beat) => beats.extend(beat.map(|beat| (name, beat))),
                Err(error @ ReadError::Damaged { .. }) => tracing::warn!(%error, "a heartbeat"),
                Err(error) => return Err(error),
            }
        }
        Ok(beats)
    }

    /// The highest epoch that a replica says it has seen.
    async fn highest_of_replicas(&self) -> Result<u64, ReadError> {
        let beats = self.heartbeats().await?;
        Ok(beats.values().map(|beat| beat.value.epoch).max().unwrap_or(0))
    }
}

impl PublishedEpoch {
    /// The bundles to keep and those to remove once an epoch replaces this one.
    fn replaced_by(&self, next: &Epoch) -> (Vec<Digest>, Vec<Digest>) {
        let before = std::iter::once(&self.epoch.digest).chain(&self.replaced);
        let mut kept: Vec<Digest> = before.filter(|digest| **digest != next.digest).copied().collect();
        let forgotten = kept.split_off(MAX_REPLACED.min(kept.len()));
        (kept, forgotten)
    }
}

fn bundle_name(digest: &Digest) -> String {
    format!("bundle-{digest}")
}

fn component_name(digest: &Digest) -> String {
    format!("component-{digest}")
}
