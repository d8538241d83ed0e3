//! State that replicas share, so that any of them can answer any client.
//!
//! [`protocol`] decides: state machines without I/O and without a clock, which the test `simulation` runs. The other modules
//! carry out what it decides, over NATS JetStream.

pub mod audit;
pub mod bundle;
pub mod clock;
pub mod nats;
pub mod protocol;
pub mod publication;
pub mod replica;
mod roster;
pub mod storage;
