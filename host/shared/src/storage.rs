//! The storage ports of the host, over NATS.

mod kv;

pub use kv::NatsKvStore;
