//! How plugins get from an author to an operator, and how they stay what the operator chose.
//!
//! A registry is not trusted: each document and blob is bounded, and accepted only if its SHA-256 is the expected one.
//! The [lock] pins what runs, the [store] holds it, and nothing but a command of the operator resolves a
//! [reference](mod@reference). Requests leave through a [transport](registry::RegistryTransport), whose
//! implementation checks addresses. Without the feature `registry`, the crate reads locks and the store, and nothing else.

#[cfg(feature = "registry")]
pub mod archive;
#[cfg(feature = "registry")]
pub mod credentials;
pub mod digest;
pub mod garbage;
pub mod lock;
#[cfg(feature = "registry")]
pub mod pack;
pub mod reference;
#[cfg(feature = "registry")]
pub mod registry;
#[cfg(feature = "registry")]
pub mod signature;
pub mod store;
#[cfg(feature = "registry")]
pub mod version;

#[cfg(feature = "registry")]
mod media_type;
