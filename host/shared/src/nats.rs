//! NATS JetStream as the store of shared state.

mod address;
mod buckets;
mod connection;
mod key;
mod records;

pub use address::{AddressError, Credentials, SharedAddress};
pub use buckets::{Bucket, BucketSettings, Durability};
pub use connection::{Connection, ConnectionError};
pub use key::{decode, encode};
pub use records::{Read, ReadError, Record, Records};
