//! Messages of the protocol and the rules for reading them. No I/O.

pub(crate) mod base64;
pub(crate) mod bounded;
pub(crate) mod bounds;
pub(crate) mod legacy;
pub(crate) mod message;
pub(crate) mod pages;
pub(crate) mod progress;
pub(crate) mod raw;
pub(crate) mod salvage;
pub(crate) mod seal;
pub(crate) mod sse;
pub(crate) mod trace;
pub(crate) mod wire;
