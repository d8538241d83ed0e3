//! The storage ports of the host, over NATS.

mod kv;
mod outputs;

pub use kv::NatsKvStore;
pub use outputs::NatsOutputStore;
