//! NATS JetStream as the store of shared state.

mod address;
mod buckets;
mod connection;
mod entries;
mod key;
mod objects;
mod permissions;
mod publish;
mod records;
mod streams;

pub use address::{AddressError, Credentials, SharedAddress};
pub use buckets::{Bucket, BucketSettings, Durability};
pub use connection::{Connection, ConnectionError};
pub use entries::{Condition, Entries, EntryError, StoredEntry};
pub use key::{decode, encode};
pub use objects::Objects;
pub use permissions::{Permissions, Role};
pub(crate) use publish::{PublishFailure, publish};
pub use records::{Read, ReadError, Record, Records};
pub use streams::{AuditLimits, EntriesLimits, OutputLimits, StoragePlan};

/// An error with its causes, cut.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |cause| (*cause).source()) {
        let next = cause.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
    }
    text.chars().take(400).collect()
}
