//! NATS JetStream as the store of shared state.

mod address;
mod buckets;
mod connection;
mod key;
mod objects;
mod permissions;
mod records;

pub use address::{AddressError, Credentials, SharedAddress};
pub use buckets::{Bucket, BucketSettings, Durability};
pub use connection::{Connection, ConnectionError};
pub use key::{decode, encode};
pub use objects::Objects;
pub use permissions::{Permissions, Role};
pub use records::{Read, ReadError, Record, Records};
